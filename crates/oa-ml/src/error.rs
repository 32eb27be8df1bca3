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
    /// A text without a token.
    #[error("the corpus is empty: there is nothing to train on")]
    EmptyCorpus,
    /// No sequence fits in the text.
    #[error(
        "the corpus has {tokens} tokens, but a sequence length of {sequence} needs at least {needed}"
    )]
    CorpusTooShort {
        /// Tokens of the text (of the part that was asked for).
        tokens: usize,
        /// Tokens of a sequence.
        sequence: usize,
        /// Fewest tokens that would do.
        needed: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error(
        "token {token} at position {position} is out of range: the vocabulary has {vocab} tokens"
    )]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Token ids of the vocabulary.
        vocab: usize,
        /// Where it stands, counted from 0.
        position: usize,
    },
    /// A batch without a prediction.
    #[error("at {site}: a batch of {rows} rows of {sequence} tokens has nothing to predict")]
    EmptyBatch {
        /// The caller's line.
        site: &'static Location<'static>,
        /// Sequences asked for.
        rows: usize,
        /// Tokens of a sequence.
        sequence: usize,
    },
    /// Recording or executing failed.
    #[error(transparent)]
    Graph(#[from] oa_graph::Error),
}
