//! A thread that prepares batches while the device computes.
//!
//! Batches come in the order of the source behind it, and the cursor is that of the batches that
//! were read, not of those that were prepared. A few batches wait in a bounded channel, and those
//! that were read go back to be filled again, so nothing is allocated once it runs. The thread ends
//! when the reader is dropped; an error or a panic of the source reaches the reader in its turn.

use super::batches::{Batch, BatchSource, DataCursor};
use super::fault::DataFault;
use crate::error::Result;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// A prepared batch, and the cursor behind it.
type Prepared = Result<(Batch, DataCursor)>;

/// A source whose batches are prepared by a thread.
pub struct Prefetch {
    rows: usize,
    sequence: usize,
    cursor: DataCursor,
    /// Prepared batches; `None` once the order has ended.
    prepared: Option<Receiver<Prepared>>,
    used: Sender<Batch>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Prepares at most `ahead` batches of a source, at least one.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn new(source: Box<dyn BatchSource>, ahead: usize) -> Result<Prefetch> {
        let (rows, sequence, cursor) = (source.rows(), source.sequence(), source.cursor());
        let (fill, prepared) = sync_channel(ahead.max(1));
        let (used, spare) = channel();
        let thread = std::thread::Builder::new().name("oa-data".into());
        let thread = thread.spawn(move || prepare(source, &fill, &spare));
        let thread = thread.map_err(|source| DataFault::NoThread { source })?;
        let (prepared, thread) = (Some(prepared), Some(thread));
        Ok(Prefetch { rows, sequence, cursor, prepared, used, thread })
    }

    /// Ends the thread.
    fn end(&mut self) {
        // Without a receiver the thread cannot send, and ends.
        self.prepared = None;
        if let Some(thread) = self.thread.take() {
            // A panic was sent as an error before the thread ended.
            let _panicked = thread.join();
        }
    }
}

impl BatchSource for Prefetch {
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
        let Some(prepared) = &self.prepared else { return Err(DataFault::Ended.into()) };
        match prepared.recv().unwrap_or_else(|_| Err(DataFault::Ended.into())) {
            Ok((mut next, cursor)) => {
                std::mem::swap(batch, &mut next);
                self.cursor = cursor;
                // The thread has ended when nobody takes it.
                let _dropped = self.used.send(next);
                Ok(())
            }
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Fills batches until nobody reads them or one cannot be filled.
fn prepare(mut source: Box<dyn BatchSource>, to: &SyncSender<Prepared>, spare: &Receiver<Batch>) {
    loop {
        let mut batch = spare.try_recv().unwrap_or_else(|_| Batch::zeroed(0, 0));
        // The source is not used again after a panic.
        let read =
            catch_unwind(AssertUnwindSafe(|| source.read(&mut batch).map(|()| source.cursor())));
        let read = read.unwrap_or_else(|panic| {
            Err(DataFault::Panicked { message: said(panic.as_ref()) }.into())
        });
        let last = read.is_err();
        if to.send(read.map(|cursor| (batch, cursor))).is_err() || last {
            return;
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> Box<str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing").into()
}
