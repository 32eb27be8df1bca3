//! A text as one line of tokens, split into training and validation.
//!
//! The first nine tenths train and the rest validates: no shuffling across the seam, so nothing
//! of the validation text is ever trained on.

use super::batches::{Batch, Batches, DataCursor, MAX_CELLS};
use super::fault::DataFault;
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

/// Targets with this value are not predicted: they fill the last batch of an evaluation.
pub const IGNORE: i32 = -100;

/// The tokens of a text.
#[derive(Clone, Debug)]
pub struct TextDataset {
    tokens: Arc<[u32]>,
    train: usize,
}

impl TextDataset {
    /// Encodes a text and puts the first nine tenths of its tokens aside for training.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyCorpus`] without any token; what the tokenizer refuses.
    pub fn from_bytes(text: &[u8], tokenizer: &dyn Tokenizer) -> Result<TextDataset> {
        TextDataset::from_tokens(&tokenizer.encode(text)?, tokenizer.vocab())
    }

    /// A data set of tokens that were made elsewhere.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyCorpus`] without any token; [`Error::TokenOutOfRange`] when a token is not
    /// below `vocab`.
    pub fn from_tokens(tokens: &[u32], vocab: usize) -> Result<TextDataset> {
        if tokens.is_empty() {
            return Err(Error::EmptyCorpus);
        }
        check_tokens(tokens, vocab)?;
        let train = (tokens.len() / 10) * 9 + (tokens.len() % 10) * 9 / 10;
        Ok(TextDataset { tokens: tokens.into(), train })
    }

    /// The tokens to train on: the first nine tenths.
    pub fn train(&self) -> TokenView {
        self.view(0..self.train)
    }

    /// The tokens to validate on: the last tenth.
    pub fn validation(&self) -> TokenView {
        self.view(self.train..self.tokens.len())
    }

    /// All tokens, for corpora that are learned by heart.
    pub fn whole(&self) -> TokenView {
        self.view(0..self.tokens.len())
    }

    fn view(&self, range: Range<usize>) -> TokenView {
        TokenView { tokens: self.tokens.clone(), range }
    }
}

/// Refuses token ids that a vocabulary does not have.
pub fn check_tokens(tokens: &[u32], vocab: usize) -> Result<()> {
    match tokens.iter().position(|&token| token as usize >= vocab) {
        Some(position) => Err(Error::TokenOutOfRange { token: tokens[position], vocab, position }),
        None => Ok(()),
    }
}

/// A part of a data set.
#[derive(Clone, Debug)]
pub struct TokenView {
    tokens: Arc<[u32]>,
    range: Range<usize>,
}

impl TokenView {
    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[self.range.clone()]
    }

    /// An endless order of batches of `rows` sequences of `sequence` predictions, starting at the
    /// cursor.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyBatch`] when `rows` or `sequence` is 0; [`Error::TooMany`] for more tokens than
    /// [`MAX_CELLS`] in a batch; [`Error::CorpusTooShort`] when no window fits.
    #[track_caller]
    pub fn batches(&self, rows: usize, sequence: usize, cursor: DataCursor) -> Result<Batches> {
        let Some(spare) = cursor.spare() else { return Err(DataFault::Cursor { cursor }.into()) };
        self.check(rows, sequence, spare)?;
        Ok(Batches::new(self.clone(), rows, sequence, cursor))
    }

    /// Batches that cover the view once, front to back, in windows that do not overlap. The last
    /// batch is filled up with [`IGNORE`]d targets.
    ///
    /// # Errors
    ///
    /// As [`TokenView::batches`].
    #[track_caller]
    pub fn pass(&self, rows: usize, sequence: usize) -> Result<impl Iterator<Item = Batch> + '_> {
        self.check(rows, sequence, 1)?;
        let windows = (self.tokens().len() - 1).div_ceil(sequence);
        Ok((0..windows).step_by(rows).map(move |first| self.fill(first, rows, sequence)))
    }

    fn fill(&self, first: usize, rows: usize, sequence: usize) -> Batch {
        let (tokens, mut batch) = (self.tokens(), Batch::zeroed(rows, sequence));
        for row in 0..rows {
            let start = (first + row) * sequence;
            for column in 0..sequence {
                let (at, cell) = (start + column, row * sequence + column);
                let next = tokens.get(at + 1);
                batch.targets[cell] = next.map_or(IGNORE, |&token| token as i32);
                batch.tokens[cell] = next.map_or(0, |_| tokens[at]);
            }
        }
        batch
    }

    #[track_caller]
    fn check(&self, rows: usize, sequence: usize, spare: usize) -> Result<()> {
        if rows == 0 || sequence == 0 {
            return Err(Error::EmptyBatch { site: Location::caller(), rows, sequence });
        }
        let cells = rows.saturating_mul(sequence);
        if cells > MAX_CELLS {
            let (value, most) = (cells as u64, MAX_CELLS as u64);
            return Err(Error::TooMany { name: "the number of tokens of a batch", value, most });
        }
        let (tokens, needed) = (self.tokens().len(), sequence + spare);
        if tokens < needed {
            return Err(Error::CorpusTooShort { tokens, sequence, needed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ByteTokenizer;

    fn dataset(length: usize) -> TextDataset {
        let text: Vec<u8> = (0..length).map(|index| index as u8).collect();
        TextDataset::from_bytes(&text, &ByteTokenizer).unwrap()
    }

    #[test]
    fn the_first_nine_tenths_train() {
        let data = dataset(205);
        assert_eq!(data.train().tokens().len(), 184);
        assert_eq!(data.validation().tokens()[0], 184);
        assert_eq!(data.validation().tokens().len(), 21);
        assert_eq!(data.whole().tokens().len(), 205);
    }

    #[test]
    fn a_pass_predicts_every_token_once() {
        let data = dataset(50);
        let view = data.whole();
        let batches: Vec<Batch> = view.pass(3, 8).unwrap().collect();
        let predicted: Vec<i32> = batches
            .iter()
            .flat_map(|batch| batch.targets.clone())
            .filter(|&target| target != IGNORE)
            .collect();
        assert_eq!(predicted, (1..50).collect::<Vec<i32>>());
        assert_eq!(batches.len(), 3);
        for batch in &batches {
            for (&token, &target) in batch.tokens.iter().zip(&batch.targets) {
                assert!(target == IGNORE || target == token as i32 + 1);
            }
        }
    }

    #[test]
    fn bad_corpora_are_refused_with_their_numbers() {
        let refuse = |result: Result<Batches>| result.err().unwrap().to_string();
        let empty = TextDataset::from_bytes(b"", &ByteTokenizer).err().unwrap();
        assert_eq!(empty.to_string(), "the corpus is empty: it has no token");
        let view = dataset(17).whole();
        let message = refuse(view.batches(1, 17, DataCursor::shuffled(0)));
        assert_eq!(
            message,
            "the corpus has 17 tokens, but a sequence length of 17 needs at least 18"
        );
        for (rows, sequence) in [(usize::MAX, 4), (1 << 32, 1 << 32), (1, usize::MAX)] {
            let message = refuse(view.batches(rows, sequence, DataCursor::CONTRACT));
            assert!(message.ends_with(", it must be at most 67108864"), "{message}");
            assert!(view.pass(rows, sequence).is_err());
        }
        let message = refuse(view.batches(0, 4, DataCursor::CONTRACT));
        assert!(message.ends_with("a batch of 0 rows of 4 tokens has nothing to predict"));
        assert!(message.starts_with("at crates/oa-ml/src/data/dataset.rs:"), "{message}");
        let message = TextDataset::from_tokens(&[3, 27], 27).err().unwrap().to_string();
        assert_eq!(message, "token 27 at position 1 is out of range: the vocabulary has 27 tokens");
    }
}
