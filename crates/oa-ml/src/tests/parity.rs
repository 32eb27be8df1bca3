//! Two ways of running give one result: eager and captured, straight and resumed.

use super::*;
use crate::{AdamW, Checkpoint, ItTraining, ItTrainingConfig, Optimizer, Schedule};

fn settings(accumulation: u32) -> ItTrainingConfig {
    let schedule = Schedule::Cosine { warmup: 2, min_ratio: 0.1 };
    ItTrainingConfig { total_steps: 8, schedule, accumulation, seed: 5, ..Default::default() }
}

/// Weights, moments and losses after a whole run.
fn run(
    config: ModelConfig,
    captured: bool,
    accumulation: u32,
) -> (Vec<(String, Vec<u32>)>, String) {
    let engine = engine();
    let model = config.build(&engine, 11).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let new = if captured { ItTraining::new_captured } else { ItTraining::new_eager };
    let mut training = new(&engine, &mut optimizer, settings(accumulation)).unwrap();
    let (mut order, mut forward) = (batches(4, 10), step_of(&model));
    let mut losses = Vec::new();
    while training.begin_step().unwrap() {
        training.step(&take(&mut order, accumulation as usize), &mut forward).unwrap();
        while let Some(report) = training.take_report() {
            losses.push((report.loss.to_bits(), report.gradient_norm.to_bits()));
        }
    }
    drop(forward);
    (bits(&model), format!("{losses:?} {:?}", optimizer.state().unwrap()))
}

#[test]
fn a_captured_step_gives_the_bits_of_an_eager_one() {
    for config in small_models() {
        for accumulation in [1, 3] {
            let (eager, captured) =
                (run(config, false, accumulation), run(config, true, accumulation));
            assert_eq!(eager, captured, "{config:?}, {accumulation} parts");
        }
    }
}

#[test]
fn the_same_run_twice_gives_the_same_bits() {
    for config in small_models() {
        assert_eq!(run(config, true, 1), run(config, true, 1), "{config:?}");
    }
}

/// Trains until `stop`, starting from a checkpoint if there is one.
fn leg(config: ModelConfig, from: Option<&Checkpoint>, stop: u64) -> Checkpoint {
    let engine = engine();
    // Another seed than the first leg's: nothing of the fresh weights may survive a load.
    let model = config.build(&engine, 11 + stop).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let mut training = ItTraining::new_captured(&engine, &mut optimizer, settings(1)).unwrap();
    train_until(&model, &mut training, from, stop)
}

#[test]
fn a_resumed_run_gives_the_bits_of_an_uninterrupted_one() {
    for config in small_models() {
        let halfway = leg(config, None, 3);
        let mut straight = halfway.clone();
        for stop in 4..=8 {
            straight = leg(config, Some(&straight), stop);
        }
        let resumed = leg(config, Some(&halfway), 8);
        assert_eq!(resumed, straight, "{config:?}");
        assert_eq!(resumed.training.as_ref().unwrap().step, 8);
        assert_ne!(resumed.tensors, halfway.tensors);
    }
}
