//! Descriptor sets, in pools of a fixed size.
//!
//! A set is written once, while its commands are recorded, and never again. Pools count what they
//! have left themselves, so that no driver is asked for more than it promised.

use super::device::Device;
use super::failed;
use super::memory::RawBuffer;
use super::pipeline::PipelineLayout;
use crate::error::Result;
use ash::vk;
use std::sync::Arc;

/// A set of a pool that is alive.
#[derive(Clone, Copy)]
pub(crate) struct DescriptorSet(pub(super) vk::DescriptorSet);

/// A pool of descriptor sets.
pub(crate) struct DescriptorPool {
    handle: vk::DescriptorPool,
    sets_left: u32,
    buffers_left: u32,
    device: Arc<Device>,
}

impl DescriptorPool {
    /// Sets in a pool.
    const SETS: u32 = 64;
    /// Buffers that the sets of a pool have together; one set has at most as many.
    pub(crate) const BUFFERS: u32 = 512;

    /// Creates an empty pool.
    pub(crate) fn create(device: &Arc<Device>) -> Result<DescriptorPool> {
        let sizes = [vk::DescriptorPoolSize {
            ty: vk::DescriptorType::STORAGE_BUFFER,
            descriptor_count: DescriptorPool::BUFFERS,
        }];
        let info = vk::DescriptorPoolCreateInfo::default()
            .max_sets(DescriptorPool::SETS)
            .pool_sizes(&sizes);
        // SAFETY: H4, H5.
        let handle = unsafe { device.handle.create_descriptor_pool(&info, None) };
        let handle = handle.map_err(failed("vkCreateDescriptorPool"))?;
        let (sets_left, buffers_left) = (DescriptorPool::SETS, DescriptorPool::BUFFERS);
        Ok(DescriptorPool { handle, sets_left, buffers_left, device: Arc::clone(device) })
    }

    /// Forgets every set.
    pub(crate) fn reset(&mut self) -> Result<()> {
        let flags = vk::DescriptorPoolResetFlags::empty();
        // SAFETY: H1, H2: the recording that used the sets is gone.
        let reset = unsafe { self.device.handle.reset_descriptor_pool(self.handle, flags) };
        reset.map_err(failed("vkResetDescriptorPool"))?;
        (self.sets_left, self.buffers_left) = (DescriptorPool::SETS, DescriptorPool::BUFFERS);
        Ok(())
    }

    /// True when a set with this many buffers still fits.
    pub(crate) fn has_room(&self, buffers: u32) -> bool {
        self.sets_left > 0 && self.buffers_left >= buffers
    }

    /// Allocates a set for `layout` and binds (buffer, offset, length) to its bindings in order.
    /// The caller has asked whether there is room.
    pub(crate) fn bind<'a>(
        &mut self,
        layout: &PipelineLayout,
        ranges: impl Iterator<Item = (&'a RawBuffer, u64, u64)>,
    ) -> Result<DescriptorSet> {
        let layouts = [layout.set];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.handle)
            .set_layouts(&layouts);
        // SAFETY: H2, H4, H5: the pool has room.
        let sets = unsafe { self.device.handle.allocate_descriptor_sets(&info) };
        let set = sets.map_err(failed("vkAllocateDescriptorSets"))?[0];
        self.sets_left -= 1;
        self.buffers_left -= layout.buffers;
        let infos: Vec<[vk::DescriptorBufferInfo; 1]> = ranges
            .map(|(buffer, offset, range)| {
                [vk::DescriptorBufferInfo { buffer: buffer.handle, offset, range }]
            })
            .collect();
        let writes: Vec<vk::WriteDescriptorSet> = (0u32..)
            .zip(&infos)
            .map(|(binding, info)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(info)
            })
            .collect();
        // SAFETY: H1, H3, H5: the set is new and in no recording; ranges come from slices.
        unsafe { self.device.handle.update_descriptor_sets(&writes, &[]) };
        Ok(DescriptorSet(set))
    }
}

impl Drop for DescriptorPool {
    fn drop(&mut self) {
        // SAFETY: H1, H2: its recording is not in flight, for it owns this.
        unsafe { self.device.handle.destroy_descriptor_pool(self.handle, None) };
    }
}
