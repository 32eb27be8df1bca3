//! Byte-pair encoding of a text: added tokens, normalisation, pieces, merges.
//!
//! Every byte has a token, so every text has ids; bytes that are no UTF-8 are pieces of their own.
//! Pieces that come again are remembered for the length of one call, so encoding is near-linear in
//! the text and needs no state between calls.

use super::added::{Added, Part};
use super::merge::Merges;
use super::{BpeTable, Normalizer, PreTokenizer, Tokenizer, TokenizerConfig};
use crate::error::Result;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// Longest piece that is remembered, bytes: words come again, whole texts do not.
const REMEMBERED_BYTES: usize = 64;
/// Longest piece that merges as one: places are counted in 32 bits.
const PIECE_BYTES: usize = 1 << 30;
/// Pieces that are remembered at most.
const REMEMBERED: usize = 1 << 16;

/// Byte-pair encoding.
#[derive(Debug)]
pub struct BpeTokenizer {
    table: Arc<BpeTable>,
    index: HashMap<Box<[u8]>, u32>,
    merges: Merges,
    before: Added,
    after: Added,
}

impl BpeTokenizer {
    /// The tokenizer of a table.
    pub fn new(table: Arc<BpeTable>) -> BpeTokenizer {
        let index = table.index();
        let merges = Merges::new(&table, &index);
        let (before, after) = (Added::new(&table, false), Added::new(&table, true));
        BpeTokenizer { table, index, merges, before, after }
    }

    /// The table.
    pub fn table(&self) -> &BpeTable {
        &self.table
    }

    /// As [`Tokenizer::encode`], which cannot fail here.
    pub fn ids(&self, text: &[u8]) -> Vec<u32> {
        self.counted(text).0
    }

    /// The ids of a text, and how many pairs were looked at to find them.
    pub(super) fn counted(&self, text: &[u8]) -> (Vec<u32>, usize) {
        let mut work = Work { tokenizer: self, known: HashMap::new(), out: Vec::new(), looked: 0 };
        for part in self.before.parts(text) {
            match part {
                Part::Token(id) => work.out.push(id),
                Part::Text(text) => work.text(text),
            }
        }
        (work.out, work.looked)
    }
}

/// One call.
struct Work<'a> {
    tokenizer: &'a BpeTokenizer,
    /// Where the ids of a piece that came before lie in `out`.
    known: HashMap<Box<[u8]>, Range<usize>>,
    out: Vec<u32>,
    looked: usize,
}

impl Work<'_> {
    /// Text without added tokens that are looked for before normalisation.
    fn text(&mut self, text: &[u8]) {
        if self.tokenizer.table.parts().pre_tokenizer == PreTokenizer::Whole
            && self.tokenizer.table.parts().normalizer == Normalizer::None
        {
            return self.normalized(text);
        }
        for chunk in text.utf8_chunks() {
            self.normalized(self.tokenizer.normalize(chunk.valid()).as_bytes());
            self.piece(chunk.invalid());
        }
    }

    fn normalized(&mut self, text: &[u8]) {
        let tokenizer = self.tokenizer;
        for part in tokenizer.after.parts(text) {
            match part {
                Part::Token(id) => self.out.push(id),
                Part::Text(text) => match std::str::from_utf8(text) {
                    Ok(text) => {
                        let pieces = tokenizer.table.parts().pre_tokenizer.pieces(text);
                        pieces.for_each(|piece| self.piece(piece.as_bytes()));
                    }
                    // Only a text that stays whole comes here with bytes that are no UTF-8.
                    Err(_) => self.piece(text),
                },
            }
        }
    }

    fn piece(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        if let Some(range) = self.known.get(piece) {
            return self.out.extend_from_within(range.clone());
        }
        if piece.len() > PIECE_BYTES {
            return piece.chunks(PIECE_BYTES).for_each(|chunk| self.piece(chunk));
        }
        let start = self.out.len();
        let whole = self.tokenizer.index.get(piece);
        match whole.filter(|_| self.tokenizer.table.parts().ignore_merges) {
            Some(&id) => self.out.push(id),
            None => self.looked += self.tokenizer.merges.apply(piece, &mut self.out),
        }
        if piece.len() <= REMEMBERED_BYTES && self.known.len() < REMEMBERED {
            self.known.insert(piece.into(), start..self.out.len());
        }
    }
}

impl BpeTokenizer {
    fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.table.parts().normalizer {
            Normalizer::Nfc if !is_nfc(text) => Cow::Owned(text.nfc().collect()),
            _ => Cow::Borrowed(text),
        }
    }
}

impl Tokenizer for BpeTokenizer {
    fn config(&self) -> TokenizerConfig {
        TokenizerConfig::Bpe(self.table.clone())
    }

    fn vocab(&self) -> usize {
        self.table.tokens().len()
    }

    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        Ok(self.ids(text))
    }

    fn token(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        self.table.tokens().get(id as usize).map(|bytes| Cow::Borrowed(bytes.as_slice()))
    }
}
