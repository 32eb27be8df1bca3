//! What a submission promises: completion, and the outputs of its replay.

use crate::error::{Error, Result};
use crate::plan::PlanInner;
use std::sync::Arc;
use std::time::Duration;

/// A submission. Waiting on it and reading its outputs are the only calls that block.
#[derive(Clone)]
pub struct Event {
    device: Option<oa_vk::Event>,
    replay: Option<Replay>,
}

/// Which replay of which plan.
#[derive(Clone)]
struct Replay {
    plan: Arc<PlanInner>,
    slot: usize,
    number: u64,
}

impl Event {
    pub(crate) fn eager(device: Option<oa_vk::Event>) -> Event {
        Event { device, replay: None }
    }

    pub(crate) fn replay(
        device: oa_vk::Event,
        plan: Arc<PlanInner>,
        slot: usize,
        number: u64,
    ) -> Event {
        Event { device: Some(device), replay: Some(Replay { plan, slot, number }) }
    }

    /// Waits until the submission has finished.
    ///
    /// # Errors
    ///
    /// When it has not after `timeout`, or the device was lost.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        match &self.device {
            Some(event) => Ok(event.wait(timeout)?),
            None => Ok(()),
        }
    }

    /// True when the submission has finished.
    ///
    /// # Errors
    ///
    /// When the device was lost.
    pub fn is_done(&self) -> Result<bool> {
        match &self.device {
            Some(event) => Ok(event.is_done()?),
            None => Ok(true),
        }
    }

    /// Waits, then copies f32 output `index` of this replay into `target`.
    ///
    /// # Errors
    ///
    /// When the submission fails, or its slot was reused by a later replay.
    ///
    /// # Panics
    ///
    /// When the plan has no such output or `target` has another length.
    pub fn output_f32(&self, index: usize, target: &mut [f32]) -> Result<()> {
        self.output(index, bytemuck::cast_slice_mut(target))
    }

    /// As [`Event::output_f32`], for u32 elements.
    ///
    /// # Errors
    ///
    /// As [`Event::output_f32`].
    pub fn output_u32(&self, index: usize, target: &mut [u32]) -> Result<()> {
        self.output(index, bytemuck::cast_slice_mut(target))
    }

    fn output(&self, index: usize, target: &mut [u8]) -> Result<()> {
        let replay = self.replay.as_ref().expect("only a replay of a plan has outputs");
        self.wait(replay.plan.engine_timeout())?;
        if !replay.plan.read(replay.slot, replay.number, index, target) {
            let kept = crate::exec::RING_SLOTS;
            return Err(Error::Overwritten { output: index, replay: replay.number, kept });
        }
        Ok(())
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.replay, &self.device) {
            (Some(replay), _) => write!(f, "Event(replay {})", replay.number),
            (None, Some(device)) => write!(f, "Event({})", device.tick()),
            (None, None) => f.write_str("Event(nothing to do)"),
        }
    }
}
