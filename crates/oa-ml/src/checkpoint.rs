//! What a checkpoint holds, and the door it leaves through.
//!
//! A training session gathers everything that decides its next bit into one plain [`Checkpoint`];
//! a crate above (the file formats) writes it and reads it back. Nothing here names a device, a
//! file or a byte order.

use crate::data::DataCursor;
use crate::data::tokenizer::TokenizerConfig;
use crate::model::config::ModelConfig;
use crate::optim::schedule::Schedule;
use crate::optim::{OptimizerConfig, ParameterGroup};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A named tensor of 32-bit floats on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedTensor {
    /// Dotted parameter name, such as `b0.attn.w_q`.
    pub name: String,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Row-major elements: as many as the product of `shape`.
    pub data: Vec<f32>,
}

/// Everything that decides the next bit of a run, or, without `training`, of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Architecture identity and configuration.
    pub model: ModelConfig,
    /// How text became tokens.
    pub tokenizer: TokenizerConfig,
    /// Every parameter, in declaration order.
    pub tensors: Vec<NamedTensor>,
    /// The training run, when the checkpoint was written by one.
    pub training: Option<TrainingState>,
    /// Free metadata: names and values without a meaning to the engine.
    pub metadata: BTreeMap<String, String>,
}

/// The state of a training run between two steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingState {
    /// Optimizer steps done; the next step has this number, counted from 0.
    pub step: u64,
    /// Settings of the run.
    pub config: TrainingConfig,
    /// Optimizer settings and moments.
    pub optimizer: OptimizerState,
    /// Names of the frozen parameters, in declaration order.
    pub frozen: Vec<String>,
    /// Learning-rate schedule.
    pub schedule: Schedule,
    /// Seed of every random stream of the run.
    pub seed: u64,
    /// Counters of the random streams.
    pub rng: RngCounters,
    /// Where the data order continues.
    pub data: DataCursor,
    /// What was measured so far.
    pub metrics: TrainingMetrics,
}

/// The settings of a run that a resumed run must share to reach the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// Optimizer steps in the whole run.
    pub total_steps: u64,
    /// Largest global gradient norm; 0 turns clipping off.
    pub max_norm: f32,
    /// Backward passes that make one step.
    pub accumulation: u32,
}

/// Settings and moments of an optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// Which optimizer, and its settings.
    pub config: OptimizerConfig,
    /// Parameters with a rate or decay of their own.
    pub groups: Vec<ParameterGroup>,
    /// Updates done: the exponent of bias corrections.
    pub updates: u64,
    /// Moments, in the order of [`OptimizerConfig::slots`].
    pub slots: Vec<MomentSlot>,
}

impl OptimizerState {
    /// The moments of that name, by parameter.
    pub fn slot(&self, name: &str) -> Option<&[NamedTensor]> {
        let slot = self.slots.iter().find(|slot| slot.name == name)?;
        Some(&slot.tensors)
    }
}

/// One value that an optimizer keeps for each element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MomentSlot {
    /// Its name, such as `m`.
    pub name: String,
    /// Its tensors by parameter name, in declaration order.
    pub tensors: Vec<NamedTensor>,
}

/// Counters of the counter-based random streams (Philox; a value is a pure function of seed,
/// stream, step and element, so a counter is all the state there is).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RngCounters {
    /// Step word that the next dropout masks use.
    pub dropout_step: u64,
    /// Step word that the next sampled token uses.
    pub sample_step: u64,
}

/// What a run has measured so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingMetrics {
    /// Predictions trained on.
    pub tokens: u64,
    /// Loss of the last finished step, in nats.
    pub loss: Option<f32>,
    /// Loss of the last evaluation, in nats.
    pub validation_loss: Option<f32>,
    /// Lowest loss of any evaluation, in nats.
    pub best_validation_loss: Option<f32>,
    /// Wall-clock seconds spent training, over all resumptions.
    pub elapsed_seconds: f64,
}

/// Where a training session saves a checkpoint. Implemented by the crates that know files.
pub trait CheckpointSink {
    /// Why a save failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Makes the checkpoint durable: when this returns, a crash loses nothing of it.
    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), Self::Error>;
}
