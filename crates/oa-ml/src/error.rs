//! What can go wrong between a text and a trained model.
//!
//! Faults of the world carry numbers, faults of the caller carry the caller's line; our own bugs
//! panic with the invariant's name.

use std::panic::Location;

/// Result of an oa-ml call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a configuration describes no model.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// A size that must be positive is 0.
    #[error("a size is 0")]
    ZeroSize,
    /// The heads cannot share the width.
    #[error("a width of {width} cannot be shared by {heads} heads")]
    WidthOverHeads {
        /// Width of the residual stream.
        width: usize,
        /// Attention heads.
        heads: usize,
    },
    /// Query heads cannot share the key-value heads.
    #[error("{heads} heads cannot share {kv_heads} key-value heads evenly")]
    HeadsOverKvHeads {
        /// Query heads.
        heads: usize,
        /// Key-value heads.
        kv_heads: usize,
    },
    /// A head has an odd number of channels.
    #[error("a head dimension of {head_dim} is odd; rotary positions turn pairs of channels")]
    OddHeadDim {
        /// Channels of a head.
        head_dim: usize,
    },
    /// A dropout probability outside `0..1`.
    #[error("a dropout probability of {p} is not in 0..1")]
    Dropout {
        /// The probability.
        p: f32,
    },
}

/// Any error of oa-ml.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration describes no model.
    #[error("{architecture}: {fault}")]
    Config {
        /// Name of the architecture.
        architecture: &'static str,
        /// What is wrong with it.
        fault: ConfigFault,
    },
    /// Recording or executing failed.
    #[error(transparent)]
    Graph(#[from] oa_graph::Error),
    /// Placeholder for the caller's line in data faults.
    #[error("at {site}: a batch of 0 rows")]
    EmptyBatch {
        /// The caller's line.
        site: &'static Location<'static>,
    },
}
