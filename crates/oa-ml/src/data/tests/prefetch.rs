//! The thread that prepares batches: same order, no hang, errors and panics passed on.

use crate::data::{
    Batch, BatchSource, ByteTokenizer, DataCursor, DataFault, Prefetch, TextDataset,
    contract_corpus,
};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn order(cursor: DataCursor) -> Box<dyn BatchSource> {
    let text = TextDataset::from_bytes(&contract_corpus(), &ByteTokenizer).unwrap().whole();
    Box::new(text.batches(4, 10, cursor).unwrap())
}

/// A source that goes wrong after some batches, and counts those it made.
struct Faulty {
    inner: Box<dyn BatchSource>,
    good: u64,
    panics: bool,
    made: Arc<AtomicU64>,
}

impl BatchSource for Faulty {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn sequence(&self) -> usize {
        self.inner.sequence()
    }

    fn cursor(&self) -> DataCursor {
        self.inner.cursor()
    }

    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        if self.made.fetch_add(1, Ordering::SeqCst) == self.good {
            assert!(!self.panics, "the source broke at {}", self.good);
            return Err(Error::EmptyCorpus);
        }
        self.inner.read(batch)
    }
}

fn faulty(good: u64, panics: bool) -> (Prefetch, Arc<AtomicU64>) {
    let made = Arc::new(AtomicU64::new(0));
    let inner = order(DataCursor::shuffled(5));
    let source = Faulty { inner, good, panics, made: made.clone() };
    (Prefetch::new(Box::new(source), 2).unwrap(), made)
}

#[test]
fn prepared_batches_are_those_of_the_source_and_the_cursor_is_the_readers() {
    for ahead in [0, 1, 5] {
        let mut plain = order(DataCursor::shuffled(5));
        let mut prepared = Prefetch::new(order(DataCursor::shuffled(5)), ahead).unwrap();
        assert_eq!((prepared.rows(), prepared.sequence()), (4, 10));
        let (mut one, mut other) = (Batch::zeroed(0, 0), Batch::zeroed(4, 10));
        for _ in 0..50 {
            assert_eq!(prepared.cursor(), plain.cursor());
            plain.read(&mut one).unwrap();
            prepared.read(&mut other).unwrap();
            assert_eq!(one, other);
        }
    }
}

#[test]
fn a_reader_that_stops_early_ends_the_thread() {
    for read in [0, 1, 3] {
        let (mut prefetch, made) = faulty(u64::MAX, false);
        let mut batch = Batch::zeroed(0, 0);
        (0..read).for_each(|_| prefetch.read(&mut batch).unwrap());
        drop(prefetch);
        let count = made.load(Ordering::SeqCst);
        assert_eq!(Arc::strong_count(&made), 1, "the thread and its source are gone");
        assert!(count <= read + 4, "{count} batches were made for {read}");
    }
}

#[test]
fn an_error_of_the_source_arrives_in_its_turn_and_ends_the_order() {
    let (mut prefetch, made) = faulty(3, false);
    let mut batch = Batch::zeroed(0, 0);
    (0..3).for_each(|_| prefetch.read(&mut batch).unwrap());
    let cursor = prefetch.cursor();
    assert!(matches!(prefetch.read(&mut batch), Err(Error::EmptyCorpus)));
    assert_eq!(Arc::strong_count(&made), 1, "the thread ended");
    for _ in 0..2 {
        let error = prefetch.read(&mut batch).unwrap_err();
        assert!(
            matches!(&error, Error::Data(fault) if matches!(**fault, DataFault::Ended)),
            "{error}"
        );
    }
    assert_eq!(prefetch.cursor(), cursor, "the cursor stays behind the last good batch");
}

#[test]
fn a_panic_of_the_source_is_an_error_for_the_reader() {
    let (mut prefetch, made) = faulty(1, true);
    let mut batch = Batch::zeroed(0, 0);
    prefetch.read(&mut batch).unwrap();
    let error = prefetch.read(&mut batch).unwrap_err().to_string();
    assert_eq!(error, "the thread that prepares batches panicked: the source broke at 1");
    assert_eq!(Arc::strong_count(&made), 1, "the thread ended");
}
