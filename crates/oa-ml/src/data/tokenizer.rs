//! Tokenizers: bytes to token ids and back.
//!
//! Only the byte tokenizer lives here so far; a tokenizer is chosen by its [`TokenizerConfig`],
//! which checkpoints record.

use serde::{Deserialize, Serialize};

/// Identity of a tokenizer: enough to rebuild it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenizerConfig {
    /// One token per byte; 256 tokens.
    Byte,
}

impl TokenizerConfig {
    /// The tokenizer.
    pub fn build(&self) -> Box<dyn Tokenizer> {
        match self {
            TokenizerConfig::Byte => Box::new(ByteTokenizer),
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
    fn encode(&self, text: &[u8]) -> Vec<u32>;

    /// The bytes of some token ids; `None` when an id is not below [`Tokenizer::vocab`].
    fn decode(&self, ids: &[u32]) -> Option<Vec<u8>>;
}

/// One token per byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn config(&self) -> TokenizerConfig {
        TokenizerConfig::Byte
    }

    fn vocab(&self) -> usize {
        256
    }

    fn encode(&self, text: &[u8]) -> Vec<u32> {
        text.iter().map(|&byte| u32::from(byte)).collect()
    }

    fn decode(&self, ids: &[u32]) -> Option<Vec<u8>> {
        ids.iter().map(|&id| u8::try_from(id).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_round_trip() {
        let text: Vec<u8> = (0..=255).collect();
        let tokenizer = TokenizerConfig::Byte.build();
        assert_eq!(tokenizer.vocab(), 256);
        assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), Some(text));
        assert_eq!(tokenizer.decode(&[256]), None);
    }
}
