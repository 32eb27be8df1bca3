//! Generation with caches gives what recomputing everything gives.

use super::*;
use crate::data::{Tokenizer, contract_corpus};
use crate::generate::{Piece, TextEnd};
use crate::{
    AdamW, Error, Generator, ItTraining, ItTrainingConfig, Prompt, Sampling, Stop, TextRequest,
};
use std::ops::ControlFlow;

/// A model that has learned a little, so that its choices are not near-ties.
fn trained(engine: &Engine, config: ModelConfig) -> Model {
    let model = config.build(engine, 4).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.02).unwrap();
    let settings = ItTrainingConfig { total_steps: 30, ..Default::default() };
    let mut training = ItTraining::new_captured(engine, &mut optimizer, settings).unwrap();
    let (mut order, mut forward) = (batches(16, 10), step_of(&model));
    while training.begin_step().unwrap() {
        training.step(&[order.next_batch()], &mut forward).unwrap();
    }
    drop(forward);
    model
}

/// The likeliest next token, from a forward pass over everything the model can see.
fn recompute(model: &Model, sequence: &[u32]) -> u32 {
    let seen = model.config().context().unwrap_or(usize::MAX).min(sequence.len());
    let window = &sequence[sequence.len() - seen..];
    let tokens = model.engine().tensor_u32([1, seen], window).unwrap();
    let logits = model.forward(&tokens).unwrap().to_vec_f32().unwrap();
    let last = &logits[logits.len() - model.config().vocab()..];
    let best = last.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    best.unwrap().0 as u32
}

fn go_on<T: ?Sized>(_: &T) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn cached_tokens_are_recomputed_tokens() {
    let engine = engine();
    for config in small_models() {
        let model = trained(&engine, config);
        let mut generator = Generator::new(&model).unwrap();
        for prompt in ["a", "foxes", "my uncle built a kite"] {
            let prompt = ByteTokenizer.encode(prompt.as_bytes()).unwrap();
            let greedy = Sampling::default();
            let tokens = generator.generate(&prompt, 20, &greedy, |t| go_on(&t)).unwrap();
            let mut sequence = prompt.clone();
            for _ in 0..20 {
                sequence.push(recompute(&model, &sequence));
            }
            assert_eq!(tokens, sequence[prompt.len()..], "{config:?} after {}", prompt.len());
        }
    }
}

#[test]
fn rows_are_generated_as_if_alone() {
    let engine = engine();
    for config in small_models() {
        let model = trained(&engine, config);
        let corpus: Vec<u32> = ByteTokenizer.encode(&contract_corpus()).unwrap();
        let prompts = [&corpus[0..5], &corpus[40..45], &corpus[77..82]];
        let greedy = Sampling::default();
        let mut together = Generator::with_rows(&model, 3).unwrap();
        let rows = together.generate_rows(&prompts, 15, &greedy, go_on).unwrap();
        let mut alone = Generator::new(&model).unwrap();
        for (row, prompt) in rows.iter().zip(prompts) {
            assert_eq!(*row, alone.generate(prompt, 15, &greedy, |t| go_on(&t)).unwrap());
        }
    }
}

#[test]
fn a_seed_decides_what_is_sampled() {
    let engine = engine();
    let [rnn, _, transformer, .., gru, mamba3, _] = small_models();
    for config in [rnn, transformer, gru, mamba3] {
        let model = trained(&engine, config);
        let mut generator = Generator::new(&model).unwrap();
        let mut sample = |sampling: Sampling| {
            generator.generate(&[97], 30, &sampling, |token| go_on(&token)).unwrap()
        };
        let warm = Sampling { temperature: 1.0, seed: 1, ..Default::default() };
        assert_eq!(sample(warm), sample(warm));
        assert_ne!(sample(warm), sample(Sampling { seed: 2, ..warm }));
        let greedy = sample(Sampling::default());
        assert_eq!(sample(Sampling { top_k: 1, ..warm }), greedy);
        assert_eq!(sample(Sampling { top_p: 1.0e-6, ..warm }), greedy);
    }
}

#[test]
fn tokens_stream_and_a_caller_may_stop() {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let mut seen = Vec::new();
    let mut generator = Generator::new(&model).unwrap();
    let tokens = generator.generate(&[1, 2], 9, &Sampling::default(), |token| {
        seen.push(token);
        if seen.len() == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(tokens.unwrap(), seen);
    assert_eq!(seen.len(), 4);
}

#[test]
fn prompts_of_any_lengths_give_what_each_gives_alone() {
    let engine = engine();
    let corpus: Vec<u32> = ByteTokenizer.encode(&contract_corpus()).unwrap();
    // One token, one that shares a prefill with others, and one beyond the context of 12.
    let ranges = [40..41, 0..5, 77..86, 100..117, 3..8];
    let prompts: Vec<Prompt<'_>> = ranges
        .into_iter()
        .enumerate()
        .map(|(row, range)| Prompt { tokens: &corpus[range], seed: 5 + 9 * row as u64 })
        .collect();
    for config in small_models() {
        let model = trained(&engine, config);
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, ..Default::default() };
            let request = TextRequest { tokens: 17, sampling, ..Default::default() };
            let mut together = Generator::with_rows(&model, prompts.len()).unwrap();
            let mut pieces = vec![Vec::new(); prompts.len()];
            let rows = together.generate_texts(&prompts, &ByteTokenizer, &request, |piece| {
                pieces[piece.row].extend_from_slice(piece.bytes);
                ControlFlow::Continue(())
            });
            let rows = rows.unwrap();
            let mut alone = Generator::new(&model).unwrap();
            for (index, row) in rows.iter().enumerate() {
                let Prompt { tokens, seed } = prompts[index];
                let sampling = Sampling { seed, ..sampling };
                let expected = alone.generate(tokens, 17, &sampling, |t| go_on(&t)).unwrap();
                assert_eq!(row.tokens, expected, "{config:?}, row {index} at {temperature}");
                assert_eq!((row.end, &pieces[index]), (TextEnd::Length, &row.text));
            }
        }
    }
}

#[test]
fn rows_stop_one_by_one_and_characters_come_whole() {
    let engine = engine();
    let [rnn, _, transformer, ..] = small_models();
    for config in [rnn, transformer] {
        let model = trained(&engine, config);
        let prompts = [&[97u32, 98][..], &[104], &[32, 104, 105]];
        let prompts = prompts.map(|tokens| Prompt { tokens, seed: 3 });
        let sampling = Sampling { temperature: 2.0, ..Default::default() };
        let free = TextRequest { tokens: 40, sampling, ..Default::default() };
        let mut generator = Generator::with_rows(&model, 3).unwrap();
        let mut generate = |request: &TextRequest, stop_at: usize| {
            let mut shown = vec![String::new(); 3];
            let rows =
                generator.generate_texts(&prompts, &ByteTokenizer, request, |piece: Piece<'_>| {
                    shown[piece.row] += piece.text;
                    let enough = piece.row == 1 && shown[1].chars().count() >= stop_at;
                    if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            (rows.unwrap(), shown)
        };
        let (whole, shown) = generate(&free, usize::MAX);
        for (row, shown) in whole.iter().zip(&shown) {
            assert_eq!(*shown, String::from_utf8_lossy(&row.text));
        }
        // The stop is what row 0 says at tokens 11 to 13; others may say it too.
        let stop = whole[0].text[11..14].to_vec();
        let at = |text: &[u8]| text.windows(3).position(|part| part == stop);
        let stops = vec![Stop::Bytes(stop.clone())];
        for keep_stop in [false, true] {
            let request = TextRequest { stops: stops.clone(), keep_stop, ..free.clone() };
            let (rows, shown) = generate(&request, usize::MAX);
            for ((row, whole), shown) in rows.iter().zip(&whole).zip(&shown) {
                let cut = at(&whole.text).map(|at| if keep_stop { at + 3 } else { at });
                assert_eq!(row.text, whole.text[..cut.unwrap_or(40)]);
                assert_eq!(row.end, if cut.is_some() { TextEnd::Stop(0) } else { TextEnd::Length });
                assert_eq!(*shown, String::from_utf8_lossy(&row.text));
                assert_eq!(row.tokens.len(), row.text.len());
            }
            assert!(rows[0].text.len() <= 14);
        }
        let (rows, shown) = generate(&free, 4);
        assert_eq!(rows[1].end, TextEnd::Caller);
        assert!(shown[1].chars().count() >= 4 && rows[1].tokens.len() < 40);
        assert_eq!([&rows[0], &rows[2]], [&whole[0], &whole[2]]);
    }
}

#[test]
fn bad_requests_are_refused() {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let message = Generator::with_rows(&model, 0).err().unwrap().to_string();
    assert_eq!(message, "the number of rows of a generator is 0, it must be at least 1");
    let mut pair = Generator::with_rows(&model, 2).unwrap();
    let mut refuse = |prompts: &[&[u32]], stops: Vec<Stop>| {
        let prompts: Vec<Prompt<'_>> =
            prompts.iter().map(|tokens| Prompt { tokens, seed: 0 }).collect();
        let request = TextRequest { stops, ..Default::default() };
        let go_on = |_: Piece<'_>| ControlFlow::Continue(());
        pair.generate_texts(&prompts, &ByteTokenizer, &request, go_on).unwrap_err().to_string()
    };
    assert_eq!(
        refuse(&[&[1]], vec![]),
        "a generator of 2 rows was given 1 prompts; it needs one for each row"
    );
    assert!(refuse(&[], vec![]).contains("was given 0 prompts"));
    assert!(refuse(&[&[1], &[]], vec![]).starts_with("the prompt is empty"));
    let stops = vec![Stop::Bytes(b"a".to_vec()), Stop::Bytes(Vec::new())];
    assert!(refuse(&[&[1], &[2]], stops).starts_with("stop sequence 1 is empty"));
    let none = TextRequest { tokens: 0, ..Default::default() };
    let prompts = [Prompt { tokens: &[1], seed: 0 }, Prompt { tokens: &[1, 2], seed: 0 }];
    let rows = pair.generate_texts(&prompts, &ByteTokenizer, &none, |_| unreachable!()).unwrap();
    assert!(rows.iter().all(|row| row.text.is_empty() && row.end == TextEnd::Length));
}

#[test]
fn bad_prompts_are_refused() {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let mut generator = Generator::new(&model).unwrap();
    let mut refuse = |prompt: &[u32]| {
        generator.generate(prompt, 1, &Sampling::default(), |t| go_on(&t)).unwrap_err()
    };
    assert_eq!(
        refuse(&[]).to_string(),
        "the prompt is empty: generation needs at least one token to start from"
    );
    assert!(matches!(refuse(&[1, 999]), Error::TokenOutOfRange { token: 999, position: 1, .. }));
    let mut pair = Generator::with_rows(&model, 2).unwrap();
    let uneven = pair.generate_rows(&[&[1], &[1, 2]], 1, &Sampling::default(), go_on);
    assert_eq!(
        uneven.unwrap_err().to_string(),
        "prompts of one batch have one length: got 1 and 2 tokens"
    );
}
