//! The device queue: submission, and nothing else.

use super::command::Commands;
use super::device::Device;
use super::semaphore::Timeline;
use ash::prelude::VkResult;
use ash::vk;
use std::sync::Arc;

/// The compute queue of a device.
pub(crate) struct RawQueue {
    handle: vk::Queue,
    device: Arc<Device>,
}

impl RawQueue {
    /// The one queue of the device. Called once per device, so that `&mut` is exclusive (H2).
    pub(crate) fn of(device: &Arc<Device>) -> RawQueue {
        // SAFETY: H4: the device was created with one queue of this family.
        let handle = unsafe { device.handle.get_device_queue(device.queue_family, 0) };
        device.name(handle, "queue");
        RawQueue { handle, device: Arc::clone(device) }
    }

    /// Submits recorded commands; the device raises `timeline` to `tick` when they have finished.
    pub(crate) fn submit(
        &mut self,
        commands: &Commands,
        timeline: &Timeline,
        tick: u64,
    ) -> VkResult<()> {
        let (buffers, semaphores, values) = ([commands.buffer], [timeline.handle], [tick]);
        let mut ticks = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let submits = [vk::SubmitInfo::default()
            .command_buffers(&buffers)
            .signal_semaphores(&semaphores)
            .push_next(&mut ticks)];
        // SAFETY: H1: the caller holds the recording until the timeline passes `tick`; H2, H5.
        unsafe { self.device.handle.queue_submit(self.handle, &submits, vk::Fence::null()) }
    }
}
