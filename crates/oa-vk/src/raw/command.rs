//! A command pool with its one command buffer.
//!
//! Pools are what Vulkan wants used by one thread at a time, so each recording has its own and
//! recording needs no lock. A finished recording gives the pool back to be reset and reused.

use super::descriptor::DescriptorSet;
use super::device::Device;
use super::failed;
use super::memory::RawBuffer;
use super::pipeline::{PipelineLayout, RawPipeline};
use super::query::QueryPool;
use crate::error::Result;
use crate::sync::Stages;
use ash::vk;
use std::sync::Arc;

/// A command buffer and the pool that it alone uses.
pub(crate) struct Commands {
    pool: vk::CommandPool,
    pub(super) buffer: vk::CommandBuffer,
    device: Arc<Device>,
}

impl Commands {
    /// Creates a pool with one command buffer.
    pub(crate) fn create(device: &Arc<Device>) -> Result<Commands> {
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(device.queue_family);
        // SAFETY: H4, H5: the family is the one that the device was created with.
        let pool = unsafe { device.handle.create_command_pool(&info, None) };
        let pool = pool.map_err(failed("vkCreateCommandPool"))?;
        let mut commands =
            Commands { pool, buffer: vk::CommandBuffer::null(), device: Arc::clone(device) };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: H2, H4, H5: the pool is new and used here alone.
        let buffers = unsafe { device.handle.allocate_command_buffers(&info) };
        commands.buffer = buffers.map_err(failed("vkAllocateCommandBuffers"))?[0];
        Ok(commands)
    }

    /// Forgets what was recorded and starts anew.
    pub(crate) fn begin(&mut self, label: &str) -> Result<()> {
        let flags = vk::CommandPoolResetFlags::empty();
        // SAFETY: H1, H2: a recording gives its pool back only when it is not in flight.
        let reset = unsafe { self.device.handle.reset_command_pool(self.pool, flags) };
        reset.map_err(failed("vkResetCommandPool"))?;
        self.device.name(self.buffer, label);
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: H2, H5: the buffer is in its initial state after the reset.
        let begun = unsafe { self.device.handle.begin_command_buffer(self.buffer, &info) };
        begun.map_err(failed("vkBeginCommandBuffer"))
    }

    /// Ends the recording.
    pub(crate) fn end(&mut self) -> Result<()> {
        // SAFETY: H2: the buffer is recording.
        let ended = unsafe { self.device.handle.end_command_buffer(self.buffer) };
        ended.map_err(failed("vkEndCommandBuffer"))
    }

    /// Binds a pipeline.
    pub(crate) fn bind_pipeline(&mut self, pipeline: &RawPipeline) {
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: H1, H2: the recording keeps the pipeline.
        unsafe { self.device.handle.cmd_bind_pipeline(self.buffer, point, pipeline.handle) };
    }

    /// Binds set 0.
    pub(crate) fn bind_set(&mut self, layout: &PipelineLayout, set: DescriptorSet) {
        let (point, sets) = (vk::PipelineBindPoint::COMPUTE, [set.0]);
        let device = &self.device.handle;
        // SAFETY: H1, H2, H5: the recording keeps the set's pool; its layout is the pipeline's.
        unsafe {
            device.cmd_bind_descriptor_sets(self.buffer, point, layout.handle, 0, &sets, &[]);
        }
    }

    /// Sets the push constants, whose bytes are at most the layout's.
    pub(crate) fn push(&mut self, layout: &PipelineLayout, bytes: &[u8]) {
        let stages = vk::ShaderStageFlags::COMPUTE;
        let device = &self.device.handle;
        // SAFETY: H2, H5: the caller checked the length against the layout.
        unsafe { device.cmd_push_constants(self.buffer, layout.handle, stages, 0, bytes) };
    }

    /// Runs workgroups of the bound pipeline.
    pub(crate) fn dispatch(&mut self, [x, y, z]: [u32; 3]) {
        // SAFETY: H1, H2, H8: pipeline, set and push constants are bound; counts were checked.
        unsafe { self.device.handle.cmd_dispatch(self.buffer, x, y, z) };
    }

    /// Copies `len` bytes between buffers.
    pub(crate) fn copy(&mut self, from: (&RawBuffer, u64), to: (&RawBuffer, u64), len: u64) {
        let regions = [vk::BufferCopy::default().src_offset(from.1).dst_offset(to.1).size(len)];
        let device = &self.device.handle;
        // SAFETY: H1, H2, H3, H5: the ranges come from slices that do not overlap.
        unsafe { device.cmd_copy_buffer(self.buffer, from.0.handle, to.0.handle, &regions) };
    }

    /// Fills a range of whole words with a word.
    pub(crate) fn fill(&mut self, buffer: &RawBuffer, offset: u64, len: u64, word: u32) {
        let device = &self.device.handle;
        // SAFETY: H1, H2, H3: the range is one of words inside the buffer.
        unsafe { device.cmd_fill_buffer(self.buffer, buffer.handle, offset, len, word) };
    }

    /// Makes everything that `from` did before visible to what `to` does after.
    pub(crate) fn barrier(&mut self, from: Stages, to: Stages) {
        let (source, written) = scope(from);
        let (target, accessed) = scope(to);
        let writes = vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_WRITE
            | vk::AccessFlags::HOST_WRITE;
        let barriers = [vk::MemoryBarrier::default()
            .src_access_mask(written & writes)
            .dst_access_mask(accessed)];
        let flags = vk::DependencyFlags::empty();
        let (buffer, device) = (self.buffer, &self.device.handle);
        // SAFETY: H2, H5: both sets of stages are not empty, as the recorder checked.
        unsafe {
            device.cmd_pipeline_barrier(buffer, source, target, flags, &barriers, &[], &[]);
        }
    }

    /// Resets a whole pool of timestamps.
    pub(crate) fn reset_queries(&mut self, pool: &QueryPool) {
        let device = &self.device.handle;
        // SAFETY: H1, H2: the recording keeps the pool.
        unsafe { device.cmd_reset_query_pool(self.buffer, pool.handle, 0, QueryPool::LEN) };
    }

    /// Writes a timestamp when everything before has finished.
    pub(crate) fn timestamp(&mut self, pool: &QueryPool, index: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        let device = &self.device.handle;
        // SAFETY: H1, H2: the recording keeps the pool; `index` is below its length and was reset.
        unsafe { device.cmd_write_timestamp(self.buffer, stage, pool.handle, index) };
    }

    /// Opens a region that tools and messages show by its label.
    pub(crate) fn begin_label(&mut self, label: &str) {
        self.device.begin_label(self.buffer, label);
    }

    /// Closes it.
    pub(crate) fn end_label(&mut self) {
        self.device.end_label(self.buffer);
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: H1, H2: its recording is not in flight, for it owns this.
        unsafe { self.device.handle.destroy_command_pool(self.pool, None) };
    }
}

fn scope(stages: Stages) -> (vk::PipelineStageFlags, vk::AccessFlags) {
    let table = [
        (
            Stages::COMPUTE,
            vk::PipelineStageFlags::COMPUTE_SHADER,
            vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE,
        ),
        (
            Stages::TRANSFER,
            vk::PipelineStageFlags::TRANSFER,
            vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE,
        ),
        (
            Stages::HOST,
            vk::PipelineStageFlags::HOST,
            vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE,
        ),
    ];
    let mut scope = (vk::PipelineStageFlags::empty(), vk::AccessFlags::empty());
    for (stage, flags, access) in table {
        if stages.contains(stage) {
            scope.0 |= flags;
            scope.1 |= access;
        }
    }
    scope
}
