//! The queue of a device: submits, counts, retires, and explains a hang.
//!
//! Any thread may submit; the queue's lock covers the driver call and the list of what is in
//! flight, nothing else. No thread waits for the device while it holds the lock.
//!
//! Locks of this crate, in the order in which they may be taken: staging, pipelines (map, then one
//! entry, then layouts, then cache), queue, recycler, sink and mapped memory. Whatever a landed
//! submission frees is freed after the queue's lock is released.

use crate::error::{Error, Result};
use crate::raw::{Device, RawQueue, Timeline};
use crate::recorder::Recorded;
use crate::retire::Flight;
use crate::timeline::{Deadline, Event, Tick};
use ash::vk;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The one queue of a device.
pub(crate) struct Queue {
    state: Mutex<State>,
    timeline: Arc<Timeline>,
    deadline: Duration,
}

struct State {
    raw: RawQueue,
    last: Tick,
    flight: Flight<Recorded>,
}

impl Queue {
    /// Takes the queue of a new device. `deadline` bounds waits that no caller gave one.
    pub(crate) fn new(device: &Arc<Device>, deadline: Duration) -> Result<Queue> {
        let timeline = Arc::new(Timeline::create(device)?);
        let state = State { raw: RawQueue::of(device), last: Tick(0), flight: Flight::new() };
        Ok(Queue { state: Mutex::new(state), timeline, deadline })
    }

    /// The counter that recordings compare their submissions with.
    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the queue is held")
    }

    /// Submits a recording; waits for a place when three are in flight. Allocates nothing.
    pub(crate) fn submit(self: &Arc<Self>, recorded: &Recorded) -> Result<Event> {
        let deadline = Deadline::after(self.deadline);
        loop {
            let mut state = self.lock();
            let reached = self.timeline.value();
            let reached =
                reached.map_err(|code| self.explain(&state, "vkGetSemaphoreCounterValue", code))?;
            let landed = state.flight.land(Tick(reached));
            if let Some((tick, waiting)) = state.flight.oldest().filter(|_| state.flight.is_full())
            {
                let (tick, label) = (*tick, Arc::clone(waiting.label()));
                drop(state);
                drop(landed);
                self.wait(tick, &label, deadline.left())?;
                continue;
            }
            let tick = state.last.next();
            let submitted = state.raw.submit(recorded.commands(), &self.timeline, tick.0);
            submitted.map_err(|code| self.explain(&state, "vkQueueSubmit", code))?;
            recorded.submitted(tick);
            state.last = tick;
            state.flight.push(tick, recorded.clone());
            drop(state);
            drop(landed);
            return Ok(Event::new(Arc::clone(self), tick, Arc::clone(recorded.label())));
        }
    }

    /// Waits until the device has passed `tick`, then frees what it used.
    pub(crate) fn wait(&self, tick: Tick, label: &str, timeout: Duration) -> Result<()> {
        match self.timeline.wait(tick.0, timeout) {
            Ok(true) => {
                self.retire();
                Ok(())
            }
            Ok(false) => {
                let state = self.lock();
                let reached = Tick(self.timeline.value().unwrap_or(0));
                let (tick, label) = match state.flight.running(reached) {
                    Some((tick, recorded)) => (*tick, recorded.describe()),
                    None => (tick, label.into()),
                };
                Err(Error::Timeout { label, tick: tick.0, waited: timeout })
            }
            Err(code) => Err(self.explain(&self.lock(), "vkWaitSemaphores", code)),
        }
    }

    /// Waits until everything submitted so far has finished.
    pub(crate) fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let last = self.lock().last;
        self.wait(last, "", timeout)
    }

    /// The last tick that the device has passed.
    pub(crate) fn reached(&self) -> Result<Tick> {
        match self.timeline.value() {
            Ok(value) => Ok(Tick(value)),
            Err(code) => Err(self.explain(&self.lock(), "vkGetSemaphoreCounterValue", code)),
        }
    }

    /// Frees what the device has passed, unless another thread is just doing so.
    pub(crate) fn retire(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let Ok(reached) = self.timeline.value() else { return };
        let landed = state.flight.land(Tick(reached));
        drop(state);
        drop(landed);
    }

    /// The error of a failed call; a lost device is named with what ran when it was lost.
    fn explain(&self, state: &State, call: &'static str, code: vk::Result) -> Error {
        if code != vk::Result::ERROR_DEVICE_LOST {
            return Error::Vk { call, code };
        }
        // A lost device may answer anything, so the oldest submission in flight is the suspect.
        let reached = Tick(self.timeline.value().unwrap_or(0));
        let suspect = state.flight.running(reached).or(state.flight.oldest());
        match suspect {
            Some((tick, recorded)) => {
                Error::DeviceLost { label: recorded.describe(), tick: tick.0 }
            }
            None => Error::DeviceLost { label: "nothing in flight".into(), tick: state.last.0 },
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let last = self.lock().last;
        if let Ok(false) = self.timeline.wait(last.0, self.deadline) {
            // The device hangs: what it may still use is leaked rather than freed under it (H1).
            tracing::error!("the device still runs submission {}; its memory is leaked", last.0);
            mem::forget(Arc::clone(&self.timeline));
            let mut state = self.lock();
            mem::forget(mem::replace(&mut state.flight, Flight::new()));
        }
    }
}
