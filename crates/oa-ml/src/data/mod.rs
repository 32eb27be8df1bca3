//! Text as tokens, tokens as batches.
//!
//! Everything here is host code without a device: the order of the data is a pure function of a
//! [`DataCursor`], so that a resumed run sees the batches that an uninterrupted one would.

pub mod batches;
pub mod corpus;
pub mod dataset;
pub mod documents;
mod fault;
mod lines;
mod packed;
mod permutation;
mod prefetch;
mod split;
#[cfg(test)]
mod tests;
pub mod tokenizer;

pub use batches::{Batch, BatchSource, Batches, DataCursor, MAX_CELLS};
pub use corpus::contract_corpus;
pub use dataset::{TextDataset, TokenView};
pub use documents::{DocumentReader, Documents, SourceConfig};
pub use fault::{DataFault, LineFault};
pub use packed::{PackedBatches, PackedConfig, PackedText};
pub use prefetch::Prefetch;
pub use split::Split;
pub use tokenizer::{
    Alphabet, BpeTokenizer, BpeTrainer, ByteTokenizer, CharTokenizer, Tokenizer, TokenizerConfig,
};
