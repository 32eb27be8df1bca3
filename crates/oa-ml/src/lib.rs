//! Parameters, modules, tape, optimizers, data, training and generation of OA.
//!
//! This crate speaks of models and text. It records ops of `oa-graph` and never names a device
//! object; it reads texts, and files of models are the business of the crate above, which implements
//! [`CheckpointSink`].
//!
//! A program reads a text with [`data`], builds a model from a [`ModelConfig`], hands its
//! parameters to an [`Optimizer`] such as [`AdamW`], runs steps in an [`ItTraining`] session, measures with [`evaluate()`]
//! and writes text with a [`Generator`].
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod contract;
pub mod data;
pub mod error;
pub mod evaluate;
pub mod generate;
pub mod init;
pub mod loss;
pub mod model;
pub mod nn;
pub mod optim;
pub mod param;
pub mod philox;
pub mod tape;
#[cfg(test)]
mod tests;
pub mod train;
#[cfg(test)]
mod vectors;

pub use checkpoint::{Checkpoint, CheckpointSink, NamedTensor};
pub use error::{Error, Result};
pub use evaluate::{Evaluation, evaluate, evaluate_read, evaluate_until};
pub use generate::{Generator, Prompt, Sampling, Stop, TextRequest};
pub use model::{Model, ModelConfig};
pub use optim::adamw::{AdamW, AdamWConfig};
pub use optim::muon::{Muon, MuonConfig};
pub use optim::schedule::{DecayShape, Schedule};
pub use optim::sgd::{Sgd, SgdConfig};
pub use optim::{Optimizer, OptimizerConfig, ParameterGroup};
pub use param::{Parameter, ParameterStore, Parameters};
pub use tape::GradientTape;
pub use train::{Callback, Fit, Flow, ItTraining, ItTrainingConfig, StepInputs, StepReport};
