//! Generation with caches gives what recomputing everything gives.

use super::*;
use crate::data::{Tokenizer, contract_corpus};
use crate::{AdamW, Error, Generator, ItTraining, ItTrainingConfig, Sampling};
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
    let [rnn, _, transformer, .., gru] = small_models();
    for config in [rnn, transformer, gru] {
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
