//! The order in which a text is seen.
//!
//! An order is a pure function of its cursor: two integers say where it continues, whatever came
//! before.

use super::dataset::TokenView;
use crate::error::Result;
use crate::philox::Stream;
use serde::{Deserialize, Serialize};

/// Stream id of the shuffled order: far from the ids of dropout sites.
const SHUFFLE_STREAM: u32 = 0xDA7A_0001;

/// Stride between the rows of a batch in contract order.
const CONTRACT_STRIDE: u64 = 7;

/// Most tokens of a batch: its sequences times their length.
pub const MAX_CELLS: usize = 1 << 26;

/// Where a data order continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataCursor {
    /// Contract order: row b of the next batch starts at `(cursor + 7 b) mod (len - sequence - 1)`
    /// and the cursor advances by the number of rows.
    Contract {
        /// Position in tokens.
        cursor: u64,
    },
    /// Shuffled random windows, drawn with replacement.
    Shuffled {
        /// Seed of the order.
        seed: u64,
        /// Windows drawn so far.
        windows: u64,
    },
    /// Packed documents, each once an epoch. Epoch, document and token say where the rows that were
    /// gathered last begin; of those some have been taken.
    Packed {
        /// Seed of the order.
        seed: u64,
        /// Epoch, from 0.
        epoch: u64,
        /// Documents of the epoch before this one, in its order.
        document: u64,
        /// Tokens of the document before this one.
        token: u64,
        /// Number of the gathering, from 0.
        gathering: u64,
        /// Rows taken of it.
        taken: u64,
    },
}

impl DataCursor {
    /// The start of the contract order.
    pub const CONTRACT: DataCursor = DataCursor::Contract { cursor: 0 };

    /// The start of the shuffled order of a seed.
    pub fn shuffled(seed: u64) -> DataCursor {
        DataCursor::Shuffled { seed, windows: 0 }
    }

    /// The start of the packed order of a seed.
    pub fn packed(seed: u64) -> DataCursor {
        DataCursor::Packed { seed, epoch: 0, document: 0, token: 0, gathering: 0, taken: 0 }
    }

    /// Tokens that a corpus needs beyond one sequence; `None` when the cursor does not belong to an
    /// order of windows.
    pub(super) fn spare(&self) -> Option<usize> {
        match self {
            DataCursor::Contract { .. } => Some(2),
            DataCursor::Shuffled { .. } => Some(1),
            DataCursor::Packed { .. } => None,
        }
    }

    /// Where row `row` of the next batch starts.
    fn start(&self, row: u64, tokens: u64, sequence: u64) -> u64 {
        match *self {
            DataCursor::Contract { cursor } => {
                (cursor + CONTRACT_STRIDE * row) % (tokens - sequence - 1)
            }
            DataCursor::Shuffled { seed, windows } => {
                let stream = Stream { seed, stream: SHUFFLE_STREAM, step: 0 };
                stream.below(windows + row, tokens - sequence)
            }
            DataCursor::Packed { .. } => unreachable!("windows are drawn by their own cursors"),
        }
    }

    fn advance(&mut self, rows: u64) {
        match self {
            DataCursor::Contract { cursor } => *cursor += rows,
            DataCursor::Shuffled { windows, .. } => *windows += rows,
            DataCursor::Packed { .. } => unreachable!("windows are drawn by their own cursors"),
        }
    }
}

/// Sequences and what follows each of their tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of sequences.
    pub rows: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Token ids, `[rows, sequence]`.
    pub tokens: Vec<u32>,
    /// The token after each token, `[rows, sequence]`; `IGNORE` where nothing is predicted.
    pub targets: Vec<i32>,
    /// For rows that hold several documents: 1 where a document starts, else 0, `[rows, sequence]`.
    pub starts: Option<Vec<u32>>,
}

impl Batch {
    /// A batch of zeros, to be filled.
    pub fn zeroed(rows: usize, sequence: usize) -> Batch {
        let cells = rows * sequence;
        Batch { rows, sequence, tokens: vec![0; cells], targets: vec![0; cells], starts: None }
    }

    /// Gives the batch another size; what it held is of no more use.
    pub(crate) fn resize(&mut self, rows: usize, sequence: usize) {
        (self.rows, self.sequence) = (rows, sequence);
        self.tokens.resize(rows * sequence, 0);
        self.targets.resize(rows * sequence, 0);
    }

    /// Number of predictions that count.
    pub fn predictions(&self) -> usize {
        self.targets.iter().filter(|&&target| target != super::dataset::IGNORE).count()
    }
}

/// An endless order of batches that a run reads one after the other.
pub trait BatchSource: Send {
    /// Number of sequences of a batch.
    fn rows(&self) -> usize;

    /// Tokens of a sequence.
    fn sequence(&self) -> usize;

    /// Where the order continues after the batches that were read.
    fn cursor(&self) -> DataCursor;

    /// Reads the next batch into memory that is already there; it takes this order's size.
    ///
    /// # Errors
    ///
    /// When the text behind it cannot be read. The order has not moved then.
    fn read(&mut self, batch: &mut Batch) -> Result<()>;
}

/// An endless order of batches.
#[derive(Clone, Debug)]
pub struct Batches {
    view: TokenView,
    rows: usize,
    sequence: usize,
    cursor: DataCursor,
}

impl Batches {
    pub(super) fn new(
        view: TokenView,
        rows: usize,
        sequence: usize,
        cursor: DataCursor,
    ) -> Batches {
        Batches { view, rows, sequence, cursor }
    }

    /// Where the order continues.
    pub fn cursor(&self) -> DataCursor {
        self.cursor
    }

    /// Number of sequences of a batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Tokens of a sequence.
    pub fn sequence(&self) -> usize {
        self.sequence
    }

    /// The next batch.
    pub fn next_batch(&mut self) -> Batch {
        let mut batch = Batch::zeroed(self.rows, self.sequence);
        self.fill(&mut batch);
        batch
    }

    /// The next batch, into memory that is already there.
    ///
    /// # Panics
    ///
    /// When the batch has another size than this order's batches.
    pub fn fill(&mut self, batch: &mut Batch) {
        let sizes = (batch.rows, batch.sequence, batch.tokens.len(), batch.targets.len());
        let cells = self.rows * self.sequence;
        assert_eq!(sizes, (self.rows, self.sequence, cells, cells), "a batch of this order's size");
        let tokens = self.view.tokens();
        for row in 0..self.rows {
            let (length, sequence) = (tokens.len() as u64, self.sequence as u64);
            let start = self.cursor.start(row as u64, length, sequence) as usize;
            let window = &tokens[start..start + self.sequence + 1];
            let cells = row * self.sequence..(row + 1) * self.sequence;
            batch.tokens[cells.clone()].copy_from_slice(&window[..self.sequence]);
            for (target, &token) in batch.targets[cells].iter_mut().zip(&window[1..]) {
                *target = token as i32;
            }
        }
        self.cursor.advance(self.rows as u64);
    }
}

impl BatchSource for Batches {
    fn rows(&self) -> usize {
        self.rows
    }

    fn sequence(&self) -> usize {
        self.sequence
    }

    fn cursor(&self) -> DataCursor {
        self.cursor
    }

    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        batch.resize(self.rows, self.sequence);
        batch.starts = None;
        self.fill(batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ByteTokenizer, TextDataset, contract_corpus};

    fn contract() -> TokenView {
        TextDataset::from_bytes(&contract_corpus(), &ByteTokenizer).unwrap().whole()
    }

    #[test]
    fn contract_rows_start_where_the_contract_says() {
        let view = contract();
        let mut batches = view.batches(64, 16, DataCursor::CONTRACT).unwrap();
        for step in 0..20usize {
            let batch = batches.next_batch();
            for row in 0..64 {
                let start = (64 * step + 7 * row) % (576 - 17);
                let window = &view.tokens()[start..start + 17];
                assert_eq!(batch.tokens[row * 16..(row + 1) * 16], window[..16]);
                let targets = &batch.targets[row * 16..(row + 1) * 16];
                assert!(targets.iter().zip(&window[1..]).all(|(&a, &b)| a == b as i32));
            }
        }
        assert_eq!(batches.cursor(), DataCursor::Contract { cursor: 64 * 20 });
    }

    #[test]
    fn an_order_continues_from_its_cursor_alone() {
        for start in [DataCursor::CONTRACT, DataCursor::shuffled(9)] {
            let mut batches = contract().batches(5, 8, start).unwrap();
            for _ in 0..3 {
                batches.next_batch();
            }
            let mut resumed = contract().batches(5, 8, batches.cursor()).unwrap();
            for _ in 0..3 {
                assert_eq!(batches.next_batch(), resumed.next_batch());
            }
        }
    }

    #[test]
    fn shuffled_windows_reach_both_ends_of_the_text() {
        let tokens: Vec<u32> = (0..40).collect();
        let view = TextDataset::from_tokens(&tokens, 40).unwrap().whole();
        let mut batches = view.batches(64, 30, DataCursor::shuffled(1)).unwrap();
        let batch = batches.next_batch();
        let starts: Vec<u32> = batch.tokens.iter().copied().step_by(30).collect();
        assert_eq!(starts.iter().min(), Some(&0));
        assert_eq!(starts.iter().max(), Some(&9));
        assert_eq!(batch.predictions(), 64 * 30);
        let other = view.batches(64, 30, DataCursor::shuffled(2)).unwrap().next_batch();
        assert_ne!(batch, other);
    }
}
