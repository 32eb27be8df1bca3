//! The logical device.
//!
//! It is created with exactly the features of the capabilities it was probed with: what is not
//! enabled here must not be used anywhere (H6).

use super::features::{Features, enables};
use super::instance::Instance;
use super::{Physical, failed};
use crate::caps::Caps;
use crate::error::Result;
use ash::{ext, khr, vk};
use std::ffi::CString;
use std::sync::Arc;

/// A logical device with one compute queue.
pub(crate) struct Device {
    pub(super) handle: ash::Device,
    pub(super) instance: Arc<Instance>,
    /// Timeline functions of the extension, on devices before Vulkan 1.2.
    pub(super) timeline: Option<khr::timeline_semaphore::Device>,
    labels: Option<ext::debug_utils::Device>,
    pub(super) queue_family: u32,
    pub(super) physical: vk::PhysicalDevice,
    pub(super) version: u32,
    pub(super) caps: Caps,
}

impl Device {
    /// Creates the device; `robust` bounds every buffer access, at some cost.
    pub(crate) fn create(
        instance: &Arc<Instance>,
        physical: &Physical,
        robust: bool,
    ) -> Result<Device> {
        let caps = physical.report.capabilities.caps;
        let queue = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(physical.queue_family)
            .queue_priorities(&[1.0])];
        let names = physical.support.names(caps);
        let mut features = Features::enabling(caps, robust);
        let mut chain = features.link(|part| enables(caps, part));
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queue)
            .enabled_extension_names(&names)
            .push_next(&mut chain);
        // SAFETY: H4, H5: the physical device is of this instance and has what is enabled.
        let handle = unsafe { instance.handle.create_device(physical.handle, &info, None) };
        let handle = handle.map_err(failed("vkCreateDevice"))?;
        let before_1_2 = physical.support.version < vk::API_VERSION_1_2;
        let timeline =
            before_1_2.then(|| khr::timeline_semaphore::Device::new(&instance.handle, &handle));
        let labels =
            instance.labels.then(|| ext::debug_utils::Device::new(&instance.handle, &handle));
        Ok(Device {
            handle,
            instance: Arc::clone(instance),
            timeline,
            labels,
            queue_family: physical.queue_family,
            physical: physical.handle,
            version: physical.support.version,
            caps,
        })
    }

    /// Names an object for tools and validation messages.
    pub(super) fn name<H: vk::Handle>(&self, object: H, name: &str) {
        if let Some(labels) = &self.labels {
            let name = c_text(name);
            let info =
                vk::DebugUtilsObjectNameInfoEXT::default().object_handle(object).object_name(&name);
            // SAFETY: H4, H5, H6: the object is of this device. A failure costs only the name.
            let _unnamed = unsafe { labels.set_debug_utils_object_name(&info) };
        }
    }

    /// Opens a labelled region of commands.
    pub(super) fn begin_label(&self, commands: vk::CommandBuffer, label: &str) {
        if let Some(labels) = &self.labels {
            let label = c_text(label);
            let info = vk::DebugUtilsLabelEXT::default().label_name(&label);
            // SAFETY: H2, H5, H6: the caller holds the command buffer exclusively, recording.
            unsafe { labels.cmd_begin_debug_utils_label(commands, &info) };
        }
    }

    /// Closes it.
    pub(super) fn end_label(&self, commands: vk::CommandBuffer) {
        if let Some(labels) = &self.labels {
            // SAFETY: H2, H6: as above, and a region is open.
            unsafe { labels.cmd_end_debug_utils_label(commands) };
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: H2, H4: every child held this device, so none is left; H1: the queue waited.
        unsafe { self.handle.destroy_device(None) };
    }
}

/// The text as a C string, without the zero bytes it may contain.
fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(bytes).expect("zero bytes were removed")
}
