//! Parameters, modules, tape, optimizers, data, training and generation of OA.
//!
//! This crate speaks of models and text. It records ops of `oa-graph` and never names a device
//! object; files are the business of the crate above.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod data;
pub mod error;
pub mod init;
pub mod model;
pub mod optim;
pub mod philox;
#[cfg(test)]
mod vectors;

pub use checkpoint::{Checkpoint, CheckpointSink, NamedTensor};
pub use error::{Error, Result};
pub use model::config::ModelConfig;
