//! The contract models being trained: what `train`, `checkpoint`, `memory` and `sync` share.
//!
//! Sizes, rate, seed and data order are those of the teaching contract; nothing here is tuned for
//! a test.

use anyhow::{Context, Result};
use oa_graph::Tensor;
use oa_graph::engine::Engine;
use oa_ml::checkpoint::{Checkpoint, NamedTensor};
use oa_ml::data::{
    Batches, ByteTokenizer, DataCursor, TextDataset, TokenizerConfig, contract_corpus,
};
use oa_ml::evaluate::{Evaluation, evaluate};
use oa_ml::model::{ContractTransformerConfig, Model, ModelConfig, RnnLmConfig};
use oa_ml::optim::adamw::AdamW;
use oa_ml::train::{ItTraining, ItTrainingConfig, RunIdentity, StepInputs};
use std::collections::BTreeMap;

/// Sequences of a batch.
pub const ROWS: usize = 64;
/// Predictions of a sequence.
pub const SEQUENCE: usize = 16;
/// Learning rate.
pub const RATE: f64 = 0.01;
/// Seed of the weights.
pub const SEED: u64 = 20_260_714;
/// Steps of a whole run.
pub const STEPS: u64 = 300;

/// The contract models that this engine has, by name.
pub fn models() -> [(&'static str, ModelConfig); 3] {
    [
        ("rnn", ModelConfig::Rnn(RnnLmConfig::contract(256))),
        ("gru", ModelConfig::Gru(RnnLmConfig::contract(256))),
        ("transformer", ModelConfig::ContractTransformer(ContractTransformerConfig::contract(256))),
    ]
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
    /// The model.
    pub model: Model,
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
    config: &ModelConfig,
    mode: Mode,
    (from, until): (Option<&Checkpoint>, u64),
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Trained> {
    let model = config.build(engine, SEED)?;
    let mut optimizer = AdamW::new(model.all_parameters()?, RATE)?;
    let settings = ItTrainingConfig { total_steps: STEPS.max(until), ..Default::default() };
    let mut session = match mode {
        Mode::Eager => ItTraining::new_eager(engine, &mut optimizer, settings)?,
        Mode::Captured => ItTraining::new_captured(engine, &mut optimizer, settings)?,
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
    let mut losses = Vec::new();
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
    Ok(Trained { model, losses, checkpoint })
}

/// The forward pass of a step: the mean cross-entropy of the model.
pub fn forward(model: &Model) -> impl FnMut(&StepInputs) -> oa_ml::Result<Tensor> + use<> {
    let model = model.clone();
    move |inputs| inputs.cross_entropy(&model.forward(&inputs.tokens)?)
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

/// Accuracy and loss over the whole corpus, in windows of the training length.
///
/// # Errors
///
/// When the device fails.
pub fn measure(model: &Model) -> Result<Evaluation> {
    let view = corpus()?.whole();
    Ok(evaluate(model, view.pass(ROWS, SEQUENCE)?)?)
}

/// The bits of named tensors, for comparisons.
pub fn bits(tensors: &[NamedTensor]) -> Vec<(String, Vec<u32>)> {
    let words = |data: &[f32]| data.iter().map(|value| value.to_bits()).collect();
    tensors.iter().map(|tensor| (tensor.name.clone(), words(&tensor.data))).collect()
}
