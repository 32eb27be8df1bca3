//! Tokenizers: bytes to token ids and back.
//!
//! A tokenizer is chosen by its [`TokenizerConfig`], which checkpoints record: everything that
//! decides an id is in it. Encoding may refuse a text, decoding never refuses ids that the
//! vocabulary has. Files of tokenizers are the business of the crate above.

mod added;
mod alphabet;
mod bpe;
mod byte;
mod fault;
mod merge;
mod split;
mod table;
#[cfg(test)]
mod tests;
mod train;

pub use alphabet::{Alphabet, CharTokenizer};
pub use bpe::BpeTokenizer;
pub use byte::ByteTokenizer;
pub use fault::TableFault;
pub use split::PreTokenizer;
pub use table::{AddedToken, BpeParts, BpeTable, MERGES, Normalizer, TOKENS};
pub use train::BpeTrainer;

use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

/// Identity of a tokenizer: enough to rebuild it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenizerConfig {
    /// One token per byte; 256 tokens.
    Byte,
    /// One token per character of an alphabet.
    Char(Alphabet),
    /// Byte-pair encoding of a table of tokens and merges.
    Bpe(Arc<BpeTable>),
}

impl TokenizerConfig {
    /// The tokenizer.
    pub fn build(&self) -> Box<dyn Tokenizer> {
        match self {
            TokenizerConfig::Byte => Box::new(ByteTokenizer),
            TokenizerConfig::Char(alphabet) => Box::new(CharTokenizer::new(alphabet.clone())),
            TokenizerConfig::Bpe(table) => Box::new(BpeTokenizer::new(table.clone())),
        }
    }

    /// Number of token ids.
    pub fn vocab(&self) -> usize {
        match self {
            TokenizerConfig::Byte => 256,
            TokenizerConfig::Char(alphabet) => alphabet.characters().len(),
            TokenizerConfig::Bpe(table) => table.tokens().len(),
        }
    }

    /// Its kind in files and messages: `byte`, `char` or `bpe`.
    pub fn kind(&self) -> &'static str {
        match self {
            TokenizerConfig::Byte => "byte",
            TokenizerConfig::Char(_) => "char",
            TokenizerConfig::Bpe(_) => "bpe",
        }
    }
}

/// Turns text into token ids and back.
pub trait Tokenizer: Send + Sync {
    /// Identity for checkpoints.
    fn config(&self) -> TokenizerConfig;

    /// Number of token ids: ids are below it.
    fn vocab(&self) -> usize;

    /// Token ids of some bytes of text.
    ///
    /// # Errors
    ///
    /// Only of tokenizers that cannot say every text:
    /// [`Error::UnknownCharacter`](crate::Error::UnknownCharacter) and
    /// [`Error::NotUtf8`](crate::Error::NotUtf8) of a [`CharTokenizer`].
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>>;

    /// The bytes that one token stands for; `None` when the id is not below
    /// [`Tokenizer::vocab`].
    fn token(&self, id: u32) -> Option<Cow<'_, [u8]>>;

    /// The bytes of some token ids; `None` when an id is not below [`Tokenizer::vocab`].
    fn decode(&self, ids: &[u32]) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(ids.len());
        for &id in ids {
            text.extend_from_slice(&self.token(id)?);
        }
        Some(text)
    }
}
