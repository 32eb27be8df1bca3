//! Text as tokens, tokens as batches.
//!
//! Everything here is host code without a device: the order of the data is a pure function of a
//! [`DataCursor`], so that a resumed run sees the batches that an uninterrupted one would.

pub mod batches;
pub mod corpus;
pub mod dataset;
pub mod tokenizer;

pub use batches::{Batch, Batches, DataCursor};
pub use corpus::contract_corpus;
pub use dataset::{TextDataset, TokenView};
pub use tokenizer::{
    Alphabet, BpeTokenizer, BpeTrainer, ByteTokenizer, CharTokenizer, Tokenizer, TokenizerConfig,
};
