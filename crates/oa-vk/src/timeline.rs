//! Submissions as points in time: ticks, and the events that wait for them.
//!
//! The queue runs submissions in order and raises one counter, so "has it finished" is a
//! comparison and an event is two words. Only waiting blocks, and it has a deadline.

use crate::error::Result;
use crate::queue::Queue;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of a submission on its queue, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(pub(crate) u64);

impl Tick {
    /// The tick after this one.
    pub(crate) fn next(self) -> Tick {
        Tick(self.0 + 1)
    }
}

/// The moment at which a wait gives up; a wait without end has none.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// The moment `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    /// What is left of it.
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}

/// A submission that may or may not have finished.
#[derive(Clone)]
pub struct Event {
    queue: Arc<Queue>,
    tick: Tick,
    label: Arc<str>,
}

impl Event {
    pub(crate) fn new(queue: Arc<Queue>, tick: Tick, label: Arc<str>) -> Event {
        Event { queue, tick, label }
    }

    /// Waits until the submission and everything before it have finished.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`](crate::Error::Timeout) when `timeout` passed first, naming the
    /// submission that was running; [`Error::DeviceLost`](crate::Error::DeviceLost).
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.queue.wait(self.tick, &self.label, timeout)
    }

    /// True when the submission has finished. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceLost`](crate::Error::DeviceLost).
    pub fn is_done(&self) -> Result<bool> {
        Ok(self.queue.reached()? >= self.tick)
    }

    /// The number of the submission on its queue, from 1.
    pub fn tick(&self) -> u64 {
        self.tick.0
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({} \"{}\")", self.tick.0, self.label)
    }
}
