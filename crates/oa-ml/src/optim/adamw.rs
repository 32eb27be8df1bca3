//! AdamW with decoupled weight decay: one update op over the parameter arenas.
//!
//! Settings and bias corrections live here; the arithmetic is the device's. It decays matrices
//! only, unless a parameter was declared otherwise.

use serde::{Deserialize, Serialize};

/// Settings of AdamW.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamWConfig {
    /// Base learning rate; a schedule multiplies into it.
    pub lr: f64,
    /// Decay of the first moment, in `0..1`.
    pub beta1: f64,
    /// Decay of the second moment, in `0..1`.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay per unit of learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    /// The settings usual for language models.
    fn default() -> AdamWConfig {
        AdamWConfig { lr: 1.0e-3, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, weight_decay: 0.1 }
    }
}
