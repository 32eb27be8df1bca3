//! The contract models being trained: what `train`, `checkpoint`, `memory` and `sync` share.
//!
//! Sizes, rate, seed and data order are those of the teaching contract; nothing here is tuned for
//! a test. Unlike the contract's own run, these can begin at a checkpoint, end early, and record
//! each step.

use anyhow::{Context, Result};
use oa_graph::Tensor;
use oa_graph::engine::Engine;
use oa_ml::checkpoint::{Checkpoint, NamedTensor};
use oa_ml::contract::{ROWS, SEED, SEQUENCE, STEPS, Workload, workloads};
use oa_ml::data::{
    Batches, ByteTokenizer, DataCursor, TextDataset, TokenizerConfig, contract_corpus,
};
use oa_ml::model::Model;
use oa_ml::optim::OptimizerConfig;
use oa_ml::optim::adamw::AdamWConfig;
use oa_ml::train::{ItTraining, ItTrainingConfig, RunIdentity, StepInputs};
use std::collections::BTreeMap;

/// The contract's workload of a family.
///
/// # Errors
///
/// When the contract has no such family.
pub fn workload(family: &str) -> Result<Workload> {
    let found = workloads().into_iter().find(|workload| workload.family == family);
    found.with_context(|| format!("the contract has no family {family}"))
}

/// How the steps of a run execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Recorded each time.
    Eager,
    /// Captured once, replayed.
    Captured,
}

/// The built-in corpus as tokens.
///
/// # Errors
///
/// None that a correct corpus can cause.
pub fn corpus() -> Result<TextDataset> {
    Ok(TextDataset::from_bytes(&contract_corpus(), &ByteTokenizer)?)
}

/// What a run left behind.
pub struct Trained {
    /// Loss of each step, in nats.
    pub losses: Vec<f32>,
    /// Everything needed to go on.
    pub checkpoint: Checkpoint,
}

/// Trains to step `until` of [`STEPS`], from fresh weights or from a checkpoint. `each` is called
/// after every step with the number of steps done.
///
/// # Errors
///
/// When the device fails or a step is bad.
pub fn train(
    engine: &Engine,
    workload: &Workload,
    mode: Mode,
    (from, until): (Option<&Checkpoint>, u64),
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Trained> {
    train_with(engine, (workload, &adamw(workload)), mode, (from, until), each)
}

/// The contract's optimizer of a workload.
pub fn adamw(workload: &Workload) -> OptimizerConfig {
    OptimizerConfig::AdamW(AdamWConfig { lr: workload.rate, ..AdamWConfig::default() })
}

/// As [`train`], with another optimizer than the contract's.
///
/// # Errors
///
/// As [`train`].
pub fn train_with(
    engine: &Engine,
    (workload, optimizer): (&Workload, &OptimizerConfig),
    mode: Mode,
    (from, until): (Option<&Checkpoint>, u64),
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Trained> {
    let model = workload.config.build(engine, SEED)?;
    let mut optimizer = optimizer.build(model.all_parameters()?)?;
    let optimizer = &mut *optimizer;
    let settings = ItTrainingConfig { total_steps: STEPS.max(until), ..Default::default() };
    let mut session = match mode {
        Mode::Eager => ItTraining::new_eager(engine, optimizer, settings)?,
        Mode::Captured => ItTraining::new_captured(engine, optimizer, settings)?,
    };
    let mut cursor = DataCursor::CONTRACT;
    if let Some(checkpoint) = from {
        let state = checkpoint.training.as_ref().context("a checkpoint of a run")?;
        model.load(checkpoint)?;
        session.resume(state)?;
        cursor = state.data;
    }
    let view = corpus()?.whole();
    let mut batches = view.batches(ROWS, SEQUENCE, cursor)?;
    // Room for all of them at once, so that a run leaves the heap as it is.
    let mut losses = Vec::with_capacity(until as usize);
    let mut forward = forward(&model);
    while session.steps_done() < until && session.begin_step()? {
        session.step(&[batches.next_batch()], &mut forward)?;
        while let Some(report) = session.take_report() {
            losses.push(report.loss);
        }
        each(session.steps_done())?;
    }
    let checkpoint = gather(&mut session, &model, &batches)?;
    while let Some(report) = session.take_report() {
        losses.push(report.loss);
    }
    Ok(Trained { losses, checkpoint })
}

/// The forward pass of a step: the loss of the model.
pub fn forward(model: &Model) -> impl FnMut(&StepInputs) -> oa_ml::Result<Tensor> + use<> {
    let model = model.clone();
    move |inputs| inputs.loss(&model)
}

fn gather(session: &mut ItTraining<'_>, model: &Model, batches: &Batches) -> Result<Checkpoint> {
    let metadata = BTreeMap::new();
    Ok(session.checkpoint(&RunIdentity {
        model,
        tokenizer: &TokenizerConfig::Byte,
        cursor: batches.cursor(),
        validation_loss: None,
        best_validation_loss: None,
        elapsed_seconds: 0.0,
        sampled: 0,
        metadata: &metadata,
    })?)
}

/// The bits of named tensors, for comparisons.
pub fn bits(tensors: &[NamedTensor]) -> Vec<(String, Vec<u32>)> {
    let words = |data: &[f32]| data.iter().map(|value| value.to_bits()).collect();
    tensors.iter().map(|tensor| (tensor.name.clone(), words(&tensor.data))).collect()
}
