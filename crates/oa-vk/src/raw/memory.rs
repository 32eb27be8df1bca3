//! Buffers and their memory, through the Vulkan Memory Allocator.
//!
//! Mapped memory is always host-coherent, which every device offers, so that no write needs a
//! flush and no read an invalidation.

use super::device::Device;
use super::mapped::Mapped;
use super::{Physical, failed};
use crate::caps::Caps;
use crate::error::Result;
use crate::memory::{MemoryClass, MemoryReport};
use ash::prelude::VkResult;
use ash::vk;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vk_mem::Alloc;

const MAPPED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw()
        | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

/// How buffers are placed on a device.
#[derive(Clone, Copy)]
pub(crate) struct MemoryPolicy {
    /// Device buffers are mapped too.
    pub(crate) unified: bool,
    /// A software device: memory beyond the budget is the host's own, so it is never taken.
    pub(crate) software: bool,
}

/// The allocator of a device.
pub(crate) struct Allocator {
    vma: vk_mem::Allocator,
    device: Arc<Device>,
    policy: MemoryPolicy,
    memory: vk::PhysicalDeviceMemoryProperties,
    buffers: AtomicU64,
    bytes: AtomicU64,
}

impl Allocator {
    /// Buffers from this size on get memory of their own. The allocator compares only such with
    /// the budget, and they would take most of a block anyway.
    const LARGE_BYTES: u64 = 16 << 20;

    /// Creates the allocator; no memory is reserved before the first buffer.
    pub(crate) fn create(
        device: &Arc<Device>,
        physical: &Physical,
        policy: MemoryPolicy,
    ) -> Result<Allocator> {
        let instance = &device.instance.handle;
        let mut info = vk_mem::AllocatorCreateInfo::new(instance, &device.handle, device.physical);
        info.vulkan_api_version = device.version;
        info.preferred_large_heap_block_size = 64 << 20;
        // A software driver reports the pages that were touched as usage, so memory that is
        // promised but not yet written would be promised again: there the heap's size counts.
        if device.caps.covers(Caps::MEMORY_BUDGET) && !policy.software {
            info.flags |= vk_mem::AllocatorCreateFlags::EXT_MEMORY_BUDGET;
        }
        // SAFETY: H4: instance, physical device and device outlive the allocator below.
        let vma = unsafe { vk_mem::Allocator::new(info) };
        let vma = vma.map_err(failed("vmaCreateAllocator"))?;
        Ok(Allocator {
            vma,
            device: Arc::clone(device),
            policy,
            memory: physical.memory,
            buffers: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Creates a buffer of at least `len` bytes; its contents are whatever was there.
    /// `last_try` may go over the driver's budget where that is not the host's own memory.
    pub(crate) fn buffer(
        self: &Arc<Self>,
        class: MemoryClass,
        len: u64,
        last_try: bool,
    ) -> VkResult<RawBuffer> {
        let size = len.max(1).next_multiple_of(RawBuffer::GRAIN);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        let mut wish = self.wish(class);
        if size >= Allocator::LARGE_BYTES {
            wish.flags |= vk_mem::AllocationCreateFlags::DEDICATED_MEMORY;
        }
        if !last_try || self.policy.software {
            wish.flags |= vk_mem::AllocationCreateFlags::WITHIN_BUDGET;
        }
        // SAFETY: H4, H5: the structures live here.
        let (handle, allocation) = unsafe { self.vma.create_buffer(&info, &wish) }?;
        let mapped = self.vma.get_allocation_info(&allocation).mapped_data;
        let mapped = NonNull::new(mapped.cast::<u8>());
        let mapped = mapped.map(|start| Mapped::new(start, size as usize));
        self.buffers.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(RawBuffer { handle, mapped, size, allocation, allocator: Arc::clone(self) })
    }

    fn wish(&self, class: MemoryClass) -> vk_mem::AllocationCreateInfo {
        let cached = vk::MemoryPropertyFlags::HOST_CACHED;
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        let none = vk::MemoryPropertyFlags::empty();
        let (required_flags, preferred_flags) = match class {
            MemoryClass::Device if self.policy.unified => (local | MAPPED, cached),
            MemoryClass::Device => (local, none),
            MemoryClass::Upload => (MAPPED, none),
            MemoryClass::Readback => (MAPPED, cached),
        };
        let mapped = required_flags.contains(MAPPED);
        let flags = if mapped {
            vk_mem::AllocationCreateFlags::MAPPED
        } else {
            vk_mem::AllocationCreateFlags::empty()
        };
        vk_mem::AllocationCreateInfo {
            flags,
            required_flags,
            preferred_flags,
            ..Default::default()
        }
    }

    /// Bytes that one more buffer of a class may have, as the driver estimates it.
    pub(crate) fn available_bytes(&self, class: MemoryClass) -> u64 {
        let required = self.wish(class).required_flags;
        let types = self.memory.memory_types_as_slice().iter();
        let fitting = types.filter(|t| t.property_flags.contains(required));
        let budgets = self.vma.get_heap_budgets().unwrap_or_default();
        let left = fitting.filter_map(|t| budgets.get(t.heap_index as usize));
        left.map(|heap| heap.budget.saturating_sub(heap.usage)).max().unwrap_or(0)
    }

    /// Memory in use and left.
    pub(crate) fn report(&self) -> MemoryReport {
        let mut report = MemoryReport {
            allocated_bytes: self.bytes.load(Ordering::Relaxed),
            buffers: self.buffers.load(Ordering::Relaxed),
            ..MemoryReport::default()
        };
        let budgets = self.vma.get_heap_budgets().unwrap_or_default();
        for (heap, budget) in self.memory.memory_heaps_as_slice().iter().zip(&budgets) {
            report.reserved_bytes += budget.statistics.blockBytes;
            if heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) {
                report.budget_bytes += budget.budget;
                report.used_bytes += budget.usage;
            }
        }
        report
    }
}

/// A buffer with its memory.
pub(crate) struct RawBuffer {
    pub(super) handle: vk::Buffer,
    /// The host's view, where there is one.
    pub(crate) mapped: Option<Mapped>,
    /// Bytes of the buffer, at least what was asked for.
    pub(crate) size: u64,
    allocation: vk_mem::Allocation,
    allocator: Arc<Allocator>,
}

impl RawBuffer {
    /// Sizes are multiples of this many bytes, so that whole words can be filled.
    const GRAIN: u64 = 16;

    /// Names the buffer for tools and messages.
    pub(crate) fn name(&self, name: &str) {
        self.allocator.device.name(self.handle, name);
    }

    /// True when the buffer came from this allocator.
    pub(crate) fn is_of(&self, allocator: &Arc<Allocator>) -> bool {
        Arc::ptr_eq(&self.allocator, allocator)
    }

    /// True when the host reads the buffer at the speed of its own memory.
    pub(crate) fn is_cached(&self) -> bool {
        let index = self.allocator.vma.get_allocation_info(&self.allocation).memory_type;
        let kind = self.allocator.memory.memory_types_as_slice().get(index as usize);
        kind.is_some_and(|t| t.property_flags.contains(vk::MemoryPropertyFlags::HOST_CACHED))
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        self.allocator.buffers.fetch_sub(1, Ordering::Relaxed);
        self.allocator.bytes.fetch_sub(self.size, Ordering::Relaxed);
        // SAFETY: H1, H2: no recording holds it, so nothing in flight uses it.
        unsafe { self.allocator.vma.destroy_buffer(self.handle, &mut self.allocation) };
    }
}
