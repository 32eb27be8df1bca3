//! Documents end to end in rows, from a text that need not fit in memory.
//!
//! Training reads the documents of an epoch in a shuffled order, each once, and the next epoch in
//! another. Their tokens, each followed by the separator if there is one, are one endless line; rows
//! are cut from it without gaps, and a row goes on from one document into the next. A number of
//! rows is gathered and shuffled again, so that the rows of a batch come from different documents.
//! Both orders are computed from the seed, so the cursor is six integers, and continuing reads
//! again only the rows that were gathered last.
//!
//! In memory are the index (16 bytes a document), one document, and the gathered rows (12 bytes a
//! token).

use super::batches::{Batch, BatchSource, DataCursor};
use super::dataset::{IGNORE, check_tokens};
use super::documents::{DocumentReader, Documents};
use super::fault::DataFault;
use super::permutation::Permutation;
use super::split::{Parts, Split};
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};
use crate::philox::Stream;
use std::panic::Location;
use std::sync::Arc;

/// Stream id of the order of documents; the step is the epoch.
const DOCUMENT_STREAM: u32 = 0xDA7A_0003;
/// Stream id of the order of gathered rows; the step is the number of the gathering.
const ROW_STREAM: u32 = 0xDA7A_0004;

/// How documents become rows. A run is continued with the settings that it began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedConfig {
    /// A token that follows each document.
    pub separator: Option<u32>,
    /// Predict the first token of a document from the one before. Otherwise nothing is predicted at
    /// the last token of a document: the separator, if there is one.
    pub across: bool,
    /// Which documents validate.
    pub split: Split,
    /// Shuffle documents and rows. Otherwise they come as they are.
    pub shuffle: bool,
    /// Rows that are gathered and shuffled among each other; 1 leaves them in their order.
    pub gathered: usize,
}

impl Default for PackedConfig {
    /// No separator, no prediction across documents, no validation; shuffled, 256 rows at a time.
    fn default() -> PackedConfig {
        PackedConfig {
            separator: None,
            across: false,
            split: Split::None,
            shuffle: true,
            gathered: 256,
        }
    }
}

/// Documents as tokens.
#[derive(Clone)]
pub struct PackedText {
    documents: Arc<Documents>,
    tokenizer: Arc<dyn Tokenizer>,
    config: PackedConfig,
    parts: Parts,
}

impl PackedText {
    /// Documents with a tokenizer.
    ///
    /// # Errors
    ///
    /// When the split leaves no document to train on, the separator is no token, or `gathered` is 0.
    pub fn new(
        documents: Arc<Documents>,
        tokenizer: Arc<dyn Tokenizer>,
        config: PackedConfig,
    ) -> Result<PackedText> {
        if config.gathered == 0 {
            let name = "the number of gathered rows";
            return Err(Error::Setting { name, value: 0, least: 1 });
        }
        if let Some(separator) = config.separator {
            check_tokens(&[separator], tokenizer.vocab())?;
        }
        let parts = config.split.of(documents.count())?;
        Ok(PackedText { documents, tokenizer, config, parts })
    }

    /// The documents.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &dyn Tokenizer {
        self.tokenizer.as_ref()
    }

    /// Documents that train.
    pub fn trained(&self) -> u64 {
        self.parts.trained()
    }

    /// Documents that validate.
    pub fn held(&self) -> u64 {
        self.parts.held()
    }

    /// The bytes of training documents, in their order, until there are at least `most`: what a
    /// tokenizer is learned from.
    ///
    /// # Errors
    ///
    /// When a document cannot be read.
    pub fn sample(&self, most: usize) -> Result<Vec<u8>> {
        let (mut reader, mut document, mut all) =
            (DocumentReader::default(), Vec::new(), Vec::new());
        for index in 0..self.trained() {
            if all.len() >= most {
                break;
            }
            reader.read(&self.documents, self.parts.train(index), &mut document)?;
            all.extend_from_slice(&document);
        }
        Ok(all)
    }

    /// An endless order of batches of the training documents, starting at the cursor, which
    /// [`DataCursor::packed`] begins.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyBatch`] when `rows` or `sequence` is 0; [`Error::CorpusTooShort`] when an
    /// epoch has no more tokens than a sequence; [`DataFault::Cursor`] when the cursor is another
    /// order's, and when a document cannot be read.
    #[track_caller]
    pub fn batches(
        &self,
        rows: usize,
        sequence: usize,
        cursor: DataCursor,
    ) -> Result<PackedBatches> {
        check_batch(rows, sequence)?;
        let DataCursor::Packed { seed, epoch, document, token, gathering, taken } = cursor else {
            return Err(DataFault::Cursor { cursor }.into());
        };
        if document >= self.trained() || taken >= self.config.gathered as u64 {
            return Err(DataFault::Cursor { cursor }.into());
        }
        self.check_length(sequence)?;
        let line = Line::new(self, Walk::Endless(seed), [epoch, document, token]);
        let cells = self.config.gathered * sequence;
        Ok(PackedBatches {
            gathered: Batch {
                starts: Some(vec![0; cells]),
                ..Batch::zeroed(self.config.gathered, sequence)
            },
            line,
            rows,
            seed,
            begun: [epoch, document, token],
            gathering,
            taken,
            filled: false,
        })
    }

    /// Batches that cover the held documents once, in their order. The last batch is filled up with
    /// [`IGNORE`]d targets.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyBatch`] as for [`PackedText::batches`]; [`DataFault::Split`] when no document
    /// is held back. Batches are errors when a document cannot be read.
    #[track_caller]
    pub fn validation(
        &self,
        rows: usize,
        sequence: usize,
    ) -> Result<impl Iterator<Item = Result<Batch>> + use<>> {
        if self.held() == 0 {
            return Err(DataFault::Split { documents: self.documents.count(), held: 0 }.into());
        }
        self.once(Walk::Held, rows, sequence)
    }

    /// Batches that cover the training documents once, in their order: all documents, when none is
    /// held back.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyBatch`] as for [`PackedText::batches`]. Batches are errors when a document
    /// cannot be read.
    #[track_caller]
    pub fn pass(
        &self,
        rows: usize,
        sequence: usize,
    ) -> Result<impl Iterator<Item = Result<Batch>> + use<>> {
        self.once(Walk::Trained, rows, sequence)
    }

    #[track_caller]
    fn once(
        &self,
        walk: Walk,
        rows: usize,
        sequence: usize,
    ) -> Result<impl Iterator<Item = Result<Batch>> + use<>> {
        check_batch(rows, sequence)?;
        let mut line = Line::new(self, walk, [0; 3]);
        let mut over = false;
        Ok(std::iter::from_fn(move || {
            let mut read = || -> Result<Option<Batch>> {
                if over || !line.reach()? {
                    return Ok(None);
                }
                let mut batch = Batch::zeroed(rows, sequence);
                batch.starts = Some(vec![0; rows * sequence]);
                (0..rows).try_for_each(|row| line.fill(&mut batch, row))?;
                Ok(Some(batch))
            };
            let read = read().transpose();
            over = !matches!(read, Some(Ok(_)));
            read
        }))
    }

    /// Refuses a text whose training documents are not longer than a sequence. Reads only as many
    /// as it takes.
    fn check_length(&self, sequence: usize) -> Result<()> {
        let (mut line, mut tokens, needed) =
            (Line::new(self, Walk::Trained, [0; 3]), 0, sequence + 1);
        for index in 0..self.trained() {
            line.load(self.parts.train(index))?;
            tokens += line.tokens.len();
            if tokens >= needed {
                return Ok(());
            }
        }
        match tokens {
            0 => Err(Error::EmptyCorpus),
            _ => Err(Error::CorpusTooShort { tokens, sequence, needed }),
        }
    }
}

#[track_caller]
fn check_batch(rows: usize, sequence: usize) -> Result<()> {
    match rows == 0 || sequence == 0 {
        true => Err(Error::EmptyBatch { site: Location::caller(), rows, sequence }),
        false => Ok(()),
    }
}

/// Which documents a line has.
#[derive(Clone, Copy, Debug)]
enum Walk {
    /// Those that train, epoch after epoch, by a seed.
    Endless(u64),
    /// Those that train, once, as they are.
    Trained,
    /// Those that validate, once, as they are.
    Held,
}

/// The tokens of documents, one after the other.
struct Line {
    text: PackedText,
    walk: Walk,
    reader: DocumentReader,
    bytes: Vec<u8>,
    /// Tokens of the document at hand, the separator included.
    tokens: Vec<u32>,
    loaded: bool,
    epoch: u64,
    document: u64,
    token: u64,
}

impl Line {
    fn new(text: &PackedText, walk: Walk, [epoch, document, token]: [u64; 3]) -> Line {
        Line {
            text: text.clone(),
            walk,
            reader: DocumentReader::default(),
            bytes: Vec::new(),
            tokens: Vec::new(),
            loaded: false,
            epoch,
            document,
            token,
        }
    }

    fn place(&self) -> [u64; 3] {
        [self.epoch, self.document, self.token]
    }

    /// Makes sure that a token is at hand; false when the line is over.
    fn reach(&mut self) -> Result<bool> {
        let (count, endless) = match self.walk {
            Walk::Endless(_) => (self.text.parts.trained(), true),
            Walk::Trained => (self.text.parts.trained(), false),
            Walk::Held => (self.text.parts.held(), false),
        };
        let mut empty = 0;
        loop {
            if !self.loaded {
                if self.document == count {
                    return Ok(false);
                }
                self.load(self.number(count))?;
                self.loaded = true;
                if self.token as usize > self.tokens.len() {
                    return Err(self.lost());
                }
            }
            if (self.token as usize) < self.tokens.len() {
                return Ok(true);
            }
            if empty > count {
                return Err(Error::EmptyCorpus);
            }
            empty += 1;
            (self.document, self.token, self.loaded) = (self.document + 1, 0, false);
            if endless && self.document == count {
                (self.document, self.epoch) = (0, self.epoch + 1);
            }
        }
    }

    /// The cursor that it began with leads nowhere.
    fn lost(&self) -> Error {
        let Line { epoch, document, token, walk, .. } = *self;
        let seed = if let Walk::Endless(seed) = walk { seed } else { 0 };
        let cursor = DataCursor::Packed { seed, epoch, document, token, gathering: 0, taken: 0 };
        DataFault::Cursor { cursor }.into()
    }

    /// Number of the document at hand.
    fn number(&self, count: u64) -> u64 {
        let parts = &self.text.parts;
        match self.walk {
            Walk::Endless(seed) if self.text.config.shuffle => {
                let stream = Stream { seed, stream: DOCUMENT_STREAM, step: self.epoch as u32 };
                parts.train(Permutation::new(count, stream).of(self.document))
            }
            Walk::Endless(_) | Walk::Trained => parts.train(self.document),
            Walk::Held => parts.validation(self.document),
        }
    }

    /// Reads a document and makes tokens of it.
    fn load(&mut self, number: u64) -> Result<()> {
        let text = &self.text;
        self.reader.read(&text.documents, number, &mut self.bytes)?;
        self.tokens = encode(text.tokenizer.as_ref(), &self.bytes)?;
        if !self.tokens.is_empty() {
            self.tokens.extend(text.config.separator);
        }
        Ok(())
    }

    /// Fills one row of a batch with starts; cells behind the end of the line are not predicted.
    fn fill(&mut self, batch: &mut Batch, row: usize) -> Result<()> {
        let cells = row * batch.sequence..(row + 1) * batch.sequence;
        let starts = batch.starts.as_mut().expect("packed batches say where documents start");
        let tokens = batch.tokens[cells.clone()].iter_mut();
        let targets = batch.targets[cells.clone()].iter_mut();
        for ((token, target), start) in tokens.zip(targets).zip(&mut starts[cells]) {
            if !self.reach()? {
                (*token, *target, *start) = (0, IGNORE, 0);
                continue;
            }
            let at = self.token as usize;
            (*token, *start) = (self.tokens[at], u32::from(at == 0));
            self.token += 1;
            let inside = at + 1 < self.tokens.len();
            *target = match (inside || self.text.config.across) && self.reach()? {
                true => self.tokens[self.token as usize] as i32,
                false => IGNORE,
            };
        }
        Ok(())
    }
}

/// The one place where packed texts meet their tokenizer.
fn encode(tokenizer: &dyn Tokenizer, text: &[u8]) -> Result<Vec<u32>> {
    tokenizer.encode(text)
}

/// An endless order of batches of packed rows.
pub struct PackedBatches {
    line: Line,
    rows: usize,
    seed: u64,
    /// The gathered rows, in the order of the line.
    gathered: Batch,
    /// Where they begin.
    begun: [u64; 3],
    gathering: u64,
    taken: u64,
    filled: bool,
}

impl PackedBatches {
    fn try_read(&mut self, batch: &mut Batch) -> Result<()> {
        let (sequence, most) = (self.gathered.sequence, self.gathered.rows as u64);
        for row in 0..self.rows {
            if !self.filled {
                for row in 0..self.gathered.rows {
                    self.line.fill(&mut self.gathered, row)?;
                }
                self.filled = true;
            }
            let from = match self.line.text.config.shuffle {
                true => {
                    let step = self.gathering as u32;
                    let stream = Stream { seed: self.seed, stream: ROW_STREAM, step };
                    Permutation::new(most, stream).of(self.taken)
                }
                false => self.taken,
            };
            let from = from as usize * sequence..(from as usize + 1) * sequence;
            let to = row * sequence..(row + 1) * sequence;
            batch.tokens[to.clone()].copy_from_slice(&self.gathered.tokens[from.clone()]);
            batch.targets[to.clone()].copy_from_slice(&self.gathered.targets[from.clone()]);
            let starts = batch.starts.as_mut().zip(self.gathered.starts.as_ref());
            let (into, out_of) = starts.expect("packed batches say where documents start");
            into[to].copy_from_slice(&out_of[from]);
            self.taken += 1;
            if self.taken == most {
                (self.taken, self.gathering) = (0, self.gathering + 1);
                (self.begun, self.filled) = (self.line.place(), false);
            }
        }
        Ok(())
    }
}

impl BatchSource for PackedBatches {
    fn rows(&self) -> usize {
        self.rows
    }

    fn sequence(&self) -> usize {
        self.gathered.sequence
    }

    fn cursor(&self) -> DataCursor {
        let ([epoch, document, token], seed) = (self.begun, self.seed);
        DataCursor::Packed {
            seed,
            epoch,
            document,
            token,
            gathering: self.gathering,
            taken: self.taken,
        }
    }

    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        batch.resize(self.rows, self.gathered.sequence);
        batch.starts.get_or_insert_default().resize(batch.tokens.len(), 0);
        let before = (self.begun, self.gathering, self.taken);
        self.try_read(batch).inspect_err(|_| {
            // The order stands where it stood: it may be asked again once the cause is gone.
            (self.begun, self.gathering, self.taken) = before;
            self.filled = false;
            self.line = Line::new(&self.line.text, Walk::Endless(self.seed), self.begun);
        })
    }
}
