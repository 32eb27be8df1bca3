//! Text as tokens, tokens as batches.
//!
//! Everything here is host code without a device: the order of the data is a pure function of a
//! [`DataCursor`], so that a resumed run sees the batches that an uninterrupted one would.

pub mod tokenizer;

use serde::{Deserialize, Serialize};

/// Where a data order continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataCursor {
    /// Contract order: the position that the next batch's row 0 is computed from.
    Contract {
        /// Position in tokens.
        cursor: u64,
    },
    /// Shuffled random windows: the next window is drawn at this counter.
    Shuffled {
        /// Seed of the order.
        seed: u64,
        /// Windows drawn so far.
        windows: u64,
    },
}
