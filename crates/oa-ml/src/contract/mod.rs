//! The teaching contract: small workloads that every family must learn, measured alike.
//!
//! Sizes, rate, seed and data order are fixed, so that two engines, two drivers or two versions can
//! be compared. Files are not this crate's business: who runs a workload saves its checkpoint.

mod run;
mod workload;

pub use run::{Trained, continuation, expected_continuation, train};
pub use workload::{Coding, Workload, all_workloads, workloads};

/// Training steps.
pub const STEPS: u64 = 300;
/// Sequences of a batch.
pub const ROWS: usize = 64;
/// Predictions of a sequence.
pub const SEQUENCE: usize = 16;
/// Seed of the weights.
pub const SEED: u64 = 20_260_714;
/// Share of the corpus that a trained model must predict.
pub const ACCURACY: f64 = 0.90;
/// The same where tokens are pieces of words, each of which says more about the next.
pub const BPE_ACCURACY: f64 = 0.97;
/// Bytes that a trained model must continue the corpus by.
pub const CONTINUATION: usize = 80;
