//! A pool of timestamp queries.

use super::device::Device;
use super::failed;
use crate::error::Result;
use ash::prelude::VkResult;
use ash::vk;
use std::sync::Arc;

/// Timestamps that one recording writes.
pub(crate) struct QueryPool {
    pub(super) handle: vk::QueryPool,
    device: Arc<Device>,
}

impl QueryPool {
    /// Timestamps in one pool.
    pub(crate) const LEN: u32 = 64;

    /// Creates a pool of [`QueryPool::LEN`] timestamps. It is reset by the recording that writes
    /// it, so no host reset is needed.
    pub(crate) fn create(device: &Arc<Device>) -> Result<QueryPool> {
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(QueryPool::LEN);
        // SAFETY: H4, H5: the queue family has timestamps, as the caller checked.
        let handle = unsafe { device.handle.create_query_pool(&info, None) };
        let handle = handle.map_err(failed("vkCreateQueryPool"))?;
        device.name(handle, "timestamps");
        Ok(QueryPool { handle, device: Arc::clone(device) })
    }

    /// Reads the first timestamps of the pool, in ticks of the device.
    pub(crate) fn read(&self, ticks: &mut [u64]) -> VkResult<()> {
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: H4, H5: the caller reads at most what the recording wrote, and it has run.
        unsafe { self.device.handle.get_query_pool_results(self.handle, 0, ticks, flags) }
    }
}

impl Drop for QueryPool {
    fn drop(&mut self) {
        // SAFETY: H1, H2: its recording is not in flight, for it owns this.
        unsafe { self.device.handle.destroy_query_pool(self.handle, None) };
    }
}
