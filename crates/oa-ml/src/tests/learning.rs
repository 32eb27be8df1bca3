//! Models learn, and what is reported about it is true.

use super::*;
use crate::model::ContractMamba3Config;
use crate::optim::schedule::Schedule;
use crate::{AdamW, GradientTape, ItTraining, ItTrainingConfig, evaluate, loss};

/// The loop of the public program, word for word.
fn train(engine: &Engine, model: &Model, lr: f64, steps: u64) -> (f32, f32) {
    let mut order = batches(64, 16);
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), lr).unwrap();
    let config = ItTrainingConfig { total_steps: steps, ..Default::default() };
    let mut training = ItTraining::new_eager(engine, &mut optimizer, config).unwrap();
    while training.begin_step().unwrap() {
        let batch = order.next_batch();
        let (x, y) = (batch.tokens_on(engine).unwrap(), batch.targets_on(engine).unwrap());
        training.zero_grad();
        let tape = GradientTape::new();
        let logits = model.forward(&x).unwrap();
        let loss = loss::cross_entropy(&logits, &y).unwrap();
        tape.backward(&loss).unwrap();
        training.complete_step(&loss).unwrap();
    }
    let first = training.take_report().unwrap();
    assert_eq!((first.step, first.learning_rate), (0, lr));
    let report = training.gradient_report().unwrap();
    assert_eq!((report.reached, report.missing.len()), (report.total, 0), "{report}");
    assert_eq!(training.steps_done(), steps);
    (first.loss, training.last_report().unwrap().loss)
}

fn check_learns(config: ModelConfig) {
    let engine = engine();
    let model = config.build(&engine, 20_260_714).unwrap();
    let before = evaluate(&model, corpus().pass(64, 16).unwrap()).unwrap();
    let (first, last) = train(&engine, &model, 0.01, 60);
    let after = evaluate(&model, corpus().pass(64, 16).unwrap()).unwrap();
    assert_eq!(before.predictions, 575);
    assert!((f64::from(first) - before.loss).abs() < 0.5, "{first} beside {before:?}");
    assert!(after.loss < before.loss * 0.5, "{before:?} became {after:?}");
    assert!(last < first * 0.5, "{first} became {last}");
    assert!(after.accuracy > 0.4, "{after:?}");
}

#[test]
fn the_contract_rnn_learns() {
    check_learns(ModelConfig::Rnn(RnnLmConfig::contract(256)));
}

#[test]
fn the_contract_gru_learns() {
    check_learns(ModelConfig::Gru(RnnLmConfig::contract(256)));
}

#[test]
fn the_contract_mamba3_learns() {
    check_learns(ModelConfig::ContractMamba3(ContractMamba3Config::contract(256)));
}

#[test]
fn documents_of_one_row_are_as_if_alone() {
    let engine = engine();
    let [.., mamba3, mimo] = small_models();
    for config in [mamba3, mimo] {
        let model = config.build(&engine, 7).unwrap();
        let logits = |tokens: &[u32], starts: Option<&[u32]>| {
            let shape = [1, tokens.len()];
            let tokens = engine.tensor_u32(shape, tokens).unwrap();
            let starts = starts.map(|starts| engine.tensor_u32(shape, starts).unwrap());
            let (logits, _) = model.forward_packed(&tokens, starts.as_ref(), None).unwrap();
            logits.to_vec_f32().unwrap()
        };
        let (first, second) = ([7, 1, 9], [4, 4, 8, 2, 6]);
        let apart = [logits(&first, None), logits(&second, None)].concat();
        let packed = [&first[..], &second[..]].concat();
        let together = logits(&packed, Some(&[1, 0, 0, 1, 0, 0, 0, 0]));
        let largest = apart.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let off = |found: &[f32]| {
            let pairs = found.iter().zip(&apart).map(|(a, b)| (a - b).abs());
            pairs.fold(0.0f32, f32::max) / largest
        };
        assert!(off(&together) < 1.0e-5, "{config:?}: {}", off(&together));
        assert!(off(&logits(&packed, None)) > 1.0e-2, "unmarked documents reach each other");
    }
}

#[test]
fn the_contract_transformer_learns() {
    let config = ContractTransformerConfig::contract(256);
    check_learns(ModelConfig::ContractTransformer(config));
}

#[test]
fn parts_of_a_batch_add_up_to_the_batch() {
    let engine = engine();
    for config in small_models() {
        let run = |accumulation: u32, rows: usize| {
            let model = config.build(&engine, 3).unwrap();
            let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
            let settings = ItTrainingConfig { total_steps: 1, accumulation, ..Default::default() };
            let mut training = ItTraining::new_eager(&engine, &mut optimizer, settings).unwrap();
            let mut parts = take(&mut batches(rows, 10), accumulation as usize);
            parts[0].targets[3] = crate::data::dataset::IGNORE;
            assert!(training.begin_step().unwrap());
            let mut forward =
                |inputs: &StepInputs| inputs.cross_entropy(&model.forward(&inputs.tokens)?);
            training.step(&parts, &mut forward).unwrap();
            training.finish().unwrap();
            let loss = training.last_report().unwrap().loss;
            (loss, model.parameters().gradients_to_host().unwrap())
        };
        // Contract order advances by the rows: 4 x 8 rows start elsewhere than 1 x 32, so the
        // parts are compared with one batch glued together from them.
        let (loss, gradients) = run(4, 8);
        let model = config.build(&engine, 3).unwrap();
        let mut parts = take(&mut batches(8, 10), 4);
        parts[0].targets[3] = crate::data::dataset::IGNORE;
        let whole = Batch {
            rows: 32,
            sequence: 10,
            tokens: parts.iter().flat_map(|part| part.tokens.clone()).collect(),
            targets: parts.iter().flat_map(|part| part.targets.clone()).collect(),
            starts: None,
        };
        let logits = model.forward(&whole.tokens_on(&engine).unwrap()).unwrap();
        let mean = loss::cross_entropy(&logits, &whole.targets_on(&engine).unwrap()).unwrap();
        GradientTape::new().backward(&mean).unwrap();
        assert!((mean.item().unwrap() - loss).abs() < 1e-5);
        let expected = model.parameters().gradients_to_host().unwrap();
        for (a, b) in gradients.iter().zip(&expected) {
            let largest = b.data.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            let close = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-5 * largest + 1e-9;
            assert!(a.data.iter().zip(&b.data).all(close), "{} of {config:?}", a.name);
        }
    }
}

#[test]
fn parameters_without_a_gradient_are_reported_and_stay_zero() {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let embed = model.parameters().get("embed").unwrap();
    let head = model.parameters().get("head").unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.1).unwrap();
    let settings = ItTrainingConfig { total_steps: 2, ..Default::default() };
    let mut training = ItTraining::new_eager(&engine, &mut optimizer, settings).unwrap();
    for parameter in [&embed, &head] {
        assert!(training.begin_step().unwrap());
        training.zero_grad();
        let value = parameter.value();
        let loss = value.mul(&value).unwrap().sum().unwrap();
        GradientTape::new().backward(&loss).unwrap();
        training.complete_step(&loss).unwrap();
    }
    training.finish().unwrap();
    let report = training.gradient_report().unwrap();
    assert_eq!((report.reached, report.total), (1, 11));
    assert!(report.to_string().starts_with("1 of 11 parameters got a gradient; none for rnn.l0"));
    let gradients = model.parameters().gradients_to_host().unwrap();
    for gradient in gradients {
        let zero = gradient.data.iter().all(|&x| x == 0.0);
        assert_eq!(zero, gradient.name != "head", "{}", gradient.name);
    }
}

#[test]
fn the_schedule_reaches_the_update() {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.1).unwrap();
    let schedule = Schedule::Cosine { warmup: 2, min_ratio: 0.5 };
    let settings = ItTrainingConfig { total_steps: 5, schedule, ..Default::default() };
    let mut training = ItTraining::new_captured(&engine, &mut optimizer, settings).unwrap();
    let (mut order, mut forward) = (batches(4, 6), step_of(&model));
    while training.begin_step().unwrap() {
        training.step(&[order.next_batch()], &mut forward).unwrap();
    }
    for step in 0..5 {
        let report = training.take_report().unwrap();
        assert_eq!((report.step, report.learning_rate), (step, schedule.rate(0.1, step, 5)));
    }
    assert!(training.take_report().is_none());
}
