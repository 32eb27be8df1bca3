//! Faults of the caller and of the numbers end in an error that says where.

use super::*;
use crate::{AdamW, Error, GradientTape, ItTraining, ItTrainingConfig, NamedTensor, loss};

fn rnn(engine: &Engine) -> Model {
    let [rnn, ..] = small_models();
    rnn.build(engine, 1).unwrap()
}

/// Runs a session until it fails, and returns the error with the weights before and after.
fn run_until_error(model: &Model, captured: bool, good_steps: usize) -> String {
    let engine = model.engine().clone();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let settings = ItTrainingConfig { total_steps: 12, ..Default::default() };
    let new = if captured { ItTraining::new_captured } else { ItTraining::new_eager };
    let mut training = new(&engine, &mut optimizer, settings).unwrap();
    let (mut order, mut forward) = (batches(4, 6), step_of(model));
    for step in 0..12 {
        if step == good_steps {
            let mut tensors = model.parameters().to_host().unwrap();
            let bad = tensors.iter_mut().find(|tensor| tensor.name == "rnn.l1.w_hh").unwrap();
            bad.data[5] = f32::NAN;
            model.parameters().load(&tensors).unwrap();
        }
        let done = training
            .begin_step()
            .and_then(|_| training.step(&[order.next_batch()], &mut forward))
            .and_then(|()| if step == 11 { training.finish() } else { Ok(()) });
        if let Err(error) = done {
            let again = training.begin_step().unwrap_err();
            assert!(matches!(again, Error::Stopped { .. }), "{again}");
            return error.to_string();
        }
    }
    "no error".to_owned()
}

#[test]
fn a_value_that_is_no_number_stops_the_run_and_is_named() {
    let engine = engine();
    for captured in [false, true] {
        let model = rnn(&engine);
        let before = bits(&model);
        let error = run_until_error(&model, captured, 0);
        assert_eq!(
            error,
            "training stopped: parameter `rnn.l1.w_hh` is NaN at step 0; the weights were not \
             updated by it"
        );
        let changed: Vec<_> = bits(&model)
            .into_iter()
            .zip(before)
            .filter(|(a, b)| a != b)
            .map(|((name, _), _)| name)
            .collect();
        assert_eq!(changed, ["rnn.l1.w_hh"], "only the poisoned parameter differs");
        let error = run_until_error(&rnn(&engine), captured, 4);
        assert!(error.contains("`rnn.l1.w_hh` is NaN at step 4"), "{error}");
    }
}

#[test]
fn calls_out_of_order_say_so_with_the_line() {
    let engine = engine();
    let model = rnn(&engine);
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let settings = ItTrainingConfig { total_steps: 5, ..Default::default() };
    let mut training = ItTraining::new_eager(&engine, &mut optimizer, settings).unwrap();
    let batch = batches(2, 6).next_batch();
    let (x, y) = (batch.tokens_on(&engine).unwrap(), batch.targets_on(&engine).unwrap());
    let loss = || loss::cross_entropy(&model.forward(&x).unwrap(), &y).unwrap();
    let first = loss();
    let message = training.complete_step(&first).unwrap_err().to_string();
    assert!(message.starts_with("complete_step at crates/oa-ml/src/tests/refusals.rs:"));
    assert!(message.ends_with("no step is open; call begin_step"), "{message}");
    training.begin_step().unwrap();
    let message = training.begin_step().unwrap_err().to_string();
    assert!(message.ends_with("the step before was not completed; call complete_step"));
    let message = training.complete_step(&first).unwrap_err().to_string();
    assert!(message.contains("0 backward passes since zero_grad, a step has 1"), "{message}");
    GradientTape::new().backward(&first).unwrap();
    training.complete_step(&first).unwrap();
    training.begin_step().unwrap();
    let second = loss();
    GradientTape::new().backward(&second).unwrap();
    let message = training.complete_step(&second).unwrap_err().to_string();
    assert!(message.contains("2 backward passes since zero_grad, a step has 1"), "{message}");
}

#[test]
fn a_loss_that_depends_on_no_parameter_is_refused() {
    let engine = engine();
    let model = rnn(&engine);
    let constant = engine.tensor_f32([2], &[1.0, 2.0]).unwrap().sum().unwrap();
    let message = GradientTape::new().backward(&constant).unwrap_err().to_string();
    assert!(message.contains("the loss depends on none of the 11 parameters"), "{message}");
    let vector = model.parameters().get("head_b").unwrap().value();
    let message = GradientTape::new().backward(&vector).unwrap_err().to_string();
    assert!(message.ends_with("a loss is one f32 element, got f32[256]"), "{message}");
}

#[test]
fn a_sequence_beyond_the_context_is_refused() {
    let engine = engine();
    let [_, with_positions @ .., _, _, _] = small_models();
    for config in with_positions {
        let model = config.build(&engine, 1).unwrap();
        let tokens = engine.tensor_u32([1, 13], &[0; 13]).unwrap();
        let message = model.forward(&tokens).unwrap_err().to_string();
        assert!(message.starts_with("at crates/oa-ml/src/tests/refusals.rs:"), "{message}");
        let end = "a sequence of 13 tokens is longer than the model's context of 12";
        assert!(message.ends_with(end), "{message}");
    }
}

#[test]
fn tensors_that_do_not_fit_change_nothing() {
    let engine = engine();
    let model = rnn(&engine);
    let before = bits(&model);
    let good = model.parameters().to_host().unwrap();
    let refuse =
        |tensors: &[NamedTensor]| model.parameters().load(tensors).unwrap_err().to_string();
    assert_eq!(refuse(&good[1..]), "parameter `embed` of the model has no tensor");
    let mut renamed = good.clone();
    renamed[0].name = "other".to_owned();
    assert_eq!(refuse(&renamed), "tensor `other` is not a parameter of this model");
    let mut reshaped = good.clone();
    reshaped[10].shape = vec![2, 128];
    assert_eq!(
        refuse(&reshaped),
        "tensor `head_b` has shape [2, 128] and 256 elements, the model's has shape [256]"
    );
    assert_eq!(bits(&model), before);
    let [_, contract, ..] = small_models();
    let checkpoint = crate::Checkpoint {
        model: contract,
        tokenizer: crate::data::TokenizerConfig::Byte,
        tensors: good,
        training: None,
        metadata: Default::default(),
    };
    let message = model.load(&checkpoint).unwrap_err().to_string();
    assert!(message.starts_with("the checkpoint holds another model: ContractTransformer"));
    let alphabet = crate::data::TokenizerConfig::Char(crate::data::Alphabet::contract());
    let checkpoint =
        crate::Checkpoint { model: *model.config(), tokenizer: alphabet, ..checkpoint };
    let message = model.load(&checkpoint).unwrap_err().to_string();
    assert_eq!(message, "the model has 256 token ids, its tokenizer has 27");
    assert_eq!(bits(&model), before);
}

#[test]
fn errors_are_small() {
    assert!(size_of::<Error>() <= 64, "{} bytes", size_of::<Error>());
}

#[test]
fn packed_documents_need_a_model_that_can_tell_them_apart() {
    let engine = engine();
    for config in small_models() {
        let model = config.build(&engine, 1).unwrap();
        let tokens = engine.tensor_u32([1, 6], &[1; 6]).unwrap();
        let starts = engine.tensor_u32([1, 6], &[1, 0, 0, 1, 0, 0]).unwrap();
        let packed = model.forward_packed(&tokens, Some(&starts), None);
        if config.resets_at_starts() {
            packed.unwrap();
            continue;
        }
        let message = packed.unwrap_err().to_string();
        assert!(message.starts_with("at crates/oa-ml/src/tests/refusals.rs:"), "{message}");
        let part = format!("{} does not drop its state", config.architecture());
        assert!(message.contains(&part), "{message}");
    }
}
