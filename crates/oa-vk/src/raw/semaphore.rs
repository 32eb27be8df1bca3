//! The timeline semaphore: a counter that the device raises and the host waits for.

use super::device::Device;
use super::failed;
use crate::error::Result;
use ash::prelude::VkResult;
use ash::vk;
use std::sync::Arc;
use std::time::Duration;

/// A timeline semaphore, starting at 0.
pub(crate) struct Timeline {
    pub(super) handle: vk::Semaphore,
    device: Arc<Device>,
}

impl Timeline {
    /// Creates one.
    pub(crate) fn create(device: &Arc<Device>) -> Result<Timeline> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: H4, H5, H6: timeline semaphores are enabled on every device.
        let handle = unsafe { device.handle.create_semaphore(&info, None) };
        let handle = handle.map_err(failed("vkCreateSemaphore"))?;
        device.name(handle, "timeline");
        Ok(Timeline { handle, device: Arc::clone(device) })
    }

    /// The value that the device has reached.
    pub(crate) fn value(&self) -> VkResult<u64> {
        match &self.device.timeline {
            // SAFETY: H4, H6: the extension is enabled when its functions are loaded.
            Some(khr) => unsafe { khr.get_semaphore_counter_value(self.handle) },
            // SAFETY: H4, H6: the device is at least Vulkan 1.2.
            None => unsafe { self.device.handle.get_semaphore_counter_value(self.handle) },
        }
    }

    /// Waits until the device has reached `value`; false when `timeout` passed first.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> VkResult<bool> {
        let (semaphores, values) = ([self.handle], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let waited = match &self.device.timeline {
            // SAFETY: H4, H5, H6: the extension is enabled when its functions are loaded.
            Some(khr) => unsafe { khr.wait_semaphores(&info, timeout) },
            // SAFETY: H4, H5, H6: the device is at least Vulkan 1.2.
            None => unsafe { self.device.handle.wait_semaphores(&info, timeout) },
        };
        match waited {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(code) => Err(code),
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: H1, H2: the queue waited for its submissions before it let go of this.
        unsafe { self.device.handle.destroy_semaphore(self.handle, None) };
    }
}
