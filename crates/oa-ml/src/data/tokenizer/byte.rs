//! One token per byte: the tokenizer that needs no table and takes anything.

use super::{Tokenizer, TokenizerConfig};
use crate::error::Result;
use std::borrow::Cow;

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

    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        Ok(text.iter().map(|&byte| u32::from(byte)).collect())
    }

    fn token(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        u8::try_from(id).ok().map(|byte| Cow::Owned(vec![byte]))
    }
}
