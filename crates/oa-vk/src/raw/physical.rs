//! What the driver says of each physical device.
//!
//! Probing fills a report for choice and planning; it creates nothing. A device below Vulkan 1.1
//! is only read as far as its version allows.

use super::features::{self, Features, Support};
use super::instance::Instance;
use crate::caps::{Capabilities, Caps, Limits};
use crate::choose::{DeviceInfo, DeviceKind, DeviceReport, Refusal, too_small};
use crate::error::Result;
use crate::quirks;
use crate::request::DeviceRequest;
use ash::{khr, vk};

/// A probed device.
pub(crate) struct Physical {
    pub(super) handle: vk::PhysicalDevice,
    pub(super) support: Support,
    pub(super) queue_family: u32,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    /// What choice and planning know of it.
    pub(crate) report: DeviceReport,
    /// Meaningful low bits of a timestamp; 0 when there are none.
    pub(crate) timestamp_bits: u32,
    /// Storage buffers that one pipeline may bind.
    pub(crate) bindings: u32,
}

/// Probes every device of an instance.
pub(crate) fn probe_all(instance: &Instance, request: &DeviceRequest) -> Result<Vec<Physical>> {
    let handles = instance.physical_devices()?;
    let numbered = (0u32..).zip(handles);
    numbered.map(|(index, handle)| Ok(probe(instance, handle, index, request))).collect()
}

fn probe(
    instance: &Instance,
    handle: vk::PhysicalDevice,
    index: u32,
    request: &DeviceRequest,
) -> Physical {
    // SAFETY: H4: the handle comes from this instance.
    let properties = unsafe { instance.handle.get_physical_device_properties(handle) };
    // SAFETY: H4: as above. A driver that cannot list its extensions counts as having none.
    let extensions = unsafe { instance.handle.enumerate_device_extension_properties(handle) };
    // SAFETY: H4: as above.
    let memory = unsafe { instance.handle.get_physical_device_memory_properties(handle) };
    let support = Support {
        version: properties.api_version.min(vk::API_VERSION_1_3),
        extensions: extensions.unwrap_or_default(),
    };
    let mut info = device_info(&properties, &memory);
    let mut refused = Vec::new();
    let mut capabilities = Capabilities {
        caps: Caps::NONE,
        limits: limits(&properties.limits),
        software: info.kind == DeviceKind::Software,
        unified_memory: is_unified(info.kind, &memory),
    };
    if support.version < vk::API_VERSION_1_1 {
        refused.push(Refusal::ApiVersion { found: properties.api_version });
    } else {
        let timeline = read_features(instance, handle, &support, request, &mut capabilities);
        if !timeline {
            refused.push(Refusal::Missing { feature: "timelineSemaphore" });
        }
        read_properties(instance, handle, &support, &mut info, &mut capabilities);
    }
    let heap = largest_heap(&memory);
    let most = &mut capabilities.limits.allocation_bytes;
    *most = (*most).min(heap);
    refused.extend(too_small(&capabilities));
    let quirks = quirks::apply(&info, &mut capabilities, &request.ignore_quirks);
    if !lists_matrices(instance, handle, capabilities.caps) {
        capabilities.caps = capabilities.caps.without(Caps::COOPERATIVE_MATRIX);
    }
    restrict(&mut capabilities, request);
    let (queue_family, timestamp_bits) = compute_queue(instance, handle, &mut refused);
    if timestamp_bits == 0 {
        capabilities.limits.timestamp_period_ns = 0.0;
    }
    let bindings = properties.limits.max_per_stage_descriptor_storage_buffers;
    let report = DeviceReport { index, info, capabilities, refused, quirks };
    Physical { handle, support, queue_family, memory, report, timestamp_bits, bindings }
}

fn device_info(
    properties: &vk::PhysicalDeviceProperties,
    memory: &vk::PhysicalDeviceMemoryProperties,
) -> DeviceInfo {
    let name = properties.device_name_as_c_str().map(|name| name.to_string_lossy().into_owned());
    DeviceInfo {
        name: name.unwrap_or_default(),
        kind: match properties.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
            vk::PhysicalDeviceType::CPU => DeviceKind::Software,
            _ => DeviceKind::Other,
        },
        driver_id: 0,
        driver_name: String::new(),
        driver_info: String::new(),
        driver_version: properties.driver_version,
        api_version: properties.api_version,
        uuid: properties.pipeline_cache_uuid,
        vendor_id: properties.vendor_id,
        device_id: properties.device_id,
        memory_bytes: largest_heap(memory),
    }
}

fn limits(limits: &vk::PhysicalDeviceLimits) -> Limits {
    Limits {
        storage_range_bytes: limits.max_storage_buffer_range.into(),
        storage_align_bytes: limits.min_storage_buffer_offset_alignment,
        allocation_bytes: 1 << 30,
        groups: limits.max_compute_work_group_count,
        invocations: limits.max_compute_work_group_invocations,
        local_size: limits.max_compute_work_group_size,
        shared_bytes: limits.max_compute_shared_memory_size,
        push_bytes: limits.max_push_constants_size,
        subgroup_size: 1,
        subgroup_min: 1,
        subgroup_max: 1,
        loop_turns: u32::MAX,
        timestamp_period_ns: limits.timestamp_period,
    }
}

/// Adds the abilities that are features; true when the device has timeline semaphores.
fn read_features(
    instance: &Instance,
    handle: vk::PhysicalDevice,
    support: &Support,
    request: &DeviceRequest,
    capabilities: &mut Capabilities,
) -> bool {
    let mut features = Features::default();
    let mut chain = features.link(|part| support.has(part));
    // SAFETY: H4, H5: the device is at least 1.1 and each structure belongs to a part it has.
    unsafe { instance.handle.get_physical_device_features2(handle, &mut chain) };
    let core = chain.features;
    let mut caps = features.caps(&core);
    if support.has(&features::MEMORY_BUDGET) {
        caps = caps.union(Caps::MEMORY_BUDGET);
    }
    if !request.profile {
        // Statistics slow pipeline creation down, so they are on only for profiling.
        caps = caps.without(Caps::PIPELINE_STATISTICS);
    }
    if !caps.covers(Caps::MEMORY_MODEL) {
        caps = caps.without(Caps::COOPERATIVE_MATRIX);
    }
    capabilities.caps = caps;
    features.has_timeline()
}

/// Adds what is a property: names, UUID, sizes, subgroup abilities.
fn read_properties(
    instance: &Instance,
    handle: vk::PhysicalDevice,
    support: &Support,
    info: &mut DeviceInfo,
    capabilities: &mut Capabilities,
) {
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut size = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
    let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
    let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
    let mut chain = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut id)
        .push_next(&mut maintenance3)
        .push_next(&mut subgroup);
    if support.has(&features::DRIVER) {
        chain = chain.push_next(&mut driver);
    }
    if support.has(&features::SUBGROUP_SIZE) {
        chain = chain.push_next(&mut size);
    }
    if support.has(&features::INTEGER_DOT) {
        chain = chain.push_next(&mut dot);
    }
    if support.has(&features::MAINTENANCE4) {
        chain = chain.push_next(&mut maintenance4);
    }
    // SAFETY: H4, H5: the device is at least 1.1 and each structure belongs to a part it has.
    unsafe { instance.handle.get_physical_device_properties2(handle, &mut chain) };
    info.uuid = id.device_uuid;
    info.driver_id = driver.driver_id.as_raw().unsigned_abs();
    let text = |text: Result<&std::ffi::CStr, _>| -> Option<String> {
        text.ok().map(|text: &std::ffi::CStr| text.to_string_lossy().into_owned())
    };
    info.driver_name = text(driver.driver_name_as_c_str().or(Err(()))).unwrap_or_default();
    info.driver_info = text(driver.driver_info_as_c_str().or(Err(()))).unwrap_or_default();
    let limits = &mut capabilities.limits;
    limits.allocation_bytes = maintenance3.max_memory_allocation_size;
    if maintenance4.max_buffer_size > 0 {
        limits.allocation_bytes = limits.allocation_bytes.min(maintenance4.max_buffer_size);
    }
    read_subgroups(&subgroup, &size, capabilities);
    if dot.integer_dot_product4x8_bit_packed_signed_accelerated != vk::TRUE {
        // A dot product that is not accelerated is slower than the plain instructions.
        capabilities.caps = capabilities.caps.without(Caps::INTEGER_DOT);
    }
}

fn read_subgroups(
    subgroup: &vk::PhysicalDeviceSubgroupProperties,
    size: &vk::PhysicalDeviceSubgroupSizeControlProperties,
    capabilities: &mut Capabilities,
) {
    let Capabilities { caps, limits, .. } = capabilities;
    limits.subgroup_size = subgroup.subgroup_size.max(1);
    (limits.subgroup_min, limits.subgroup_max) = (limits.subgroup_size, limits.subgroup_size);
    if size.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE) {
        limits.subgroup_min = size.min_subgroup_size;
        limits.subgroup_max = size.max_subgroup_size;
    } else {
        *caps = caps.without(Caps::SUBGROUP_SIZE_CONTROL);
    }
    if subgroup.supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
        let operations = [
            (vk::SubgroupFeatureFlags::BASIC, Caps::SUBGROUP_BASIC),
            (vk::SubgroupFeatureFlags::ARITHMETIC, Caps::SUBGROUP_ARITHMETIC),
            (vk::SubgroupFeatureFlags::SHUFFLE, Caps::SUBGROUP_SHUFFLE),
            (vk::SubgroupFeatureFlags::BALLOT, Caps::SUBGROUP_BALLOT),
        ];
        let present = operations
            .iter()
            .filter(|(operation, _)| subgroup.supported_operations.contains(*operation));
        *caps = present.fold(*caps, |caps, (_, cap)| caps.union(*cap));
    }
}

/// False when cooperative matrices are announced but no shape is listed.
fn lists_matrices(instance: &Instance, handle: vk::PhysicalDevice, caps: Caps) -> bool {
    if !caps.covers(Caps::COOPERATIVE_MATRIX) {
        return true;
    }
    let functions =
        khr::cooperative_matrix::Instance::new(&instance.entry.handle, &instance.handle);
    // SAFETY: H4, H6: the device has the extension.
    let shapes = unsafe { functions.get_physical_device_cooperative_matrix_properties(handle) };
    shapes.is_ok_and(|shapes| !shapes.is_empty())
}

/// Applies what the request switches off or clamps.
fn restrict(capabilities: &mut Capabilities, request: &DeviceRequest) {
    capabilities.caps = capabilities.caps.without(request.disable);
    capabilities.unified_memory &= !request.split_memory;
    if let Some(most) = &request.clamp {
        let limits = &mut capabilities.limits;
        let low = |limit: &mut u32, most: u32| *limit = (*limit).min(most);
        limits.storage_range_bytes = limits.storage_range_bytes.min(most.storage_range_bytes);
        limits.storage_align_bytes = limits.storage_align_bytes.max(most.storage_align_bytes);
        limits.allocation_bytes = limits.allocation_bytes.min(most.allocation_bytes);
        for axis in 0..3 {
            low(&mut limits.groups[axis], most.groups[axis]);
            low(&mut limits.local_size[axis], most.local_size[axis]);
        }
        low(&mut limits.invocations, most.invocations);
        low(&mut limits.shared_bytes, most.shared_bytes);
        low(&mut limits.push_bytes, most.push_bytes);
        low(&mut limits.loop_turns, most.loop_turns);
    }
}

/// The first family with compute, and how many bits its timestamps have.
fn compute_queue(
    instance: &Instance,
    handle: vk::PhysicalDevice,
    refused: &mut Vec<Refusal>,
) -> (u32, u32) {
    // SAFETY: H4: the handle comes from this instance.
    let families = unsafe { instance.handle.get_physical_device_queue_family_properties(handle) };
    let mut numbered = (0u32..).zip(&families);
    let compute = numbered.find(|(_, f)| f.queue_flags.contains(vk::QueueFlags::COMPUTE));
    match compute {
        Some((index, family)) => (index, family.timestamp_valid_bits),
        None => {
            refused.push(Refusal::Missing { feature: "a compute queue" });
            (0, 0)
        }
    }
}

fn largest_heap(memory: &vk::PhysicalDeviceMemoryProperties) -> u64 {
    let heaps = memory.memory_heaps_as_slice().iter();
    let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    local.map(|heap| heap.size).max().unwrap_or(0)
}

/// True when every device-local heap can be mapped, on a device that is no card of its own.
fn is_unified(kind: DeviceKind, memory: &vk::PhysicalDeviceMemoryProperties) -> bool {
    let mappable = vk::MemoryPropertyFlags::DEVICE_LOCAL
        | vk::MemoryPropertyFlags::HOST_VISIBLE
        | vk::MemoryPropertyFlags::HOST_COHERENT;
    let mapped = |heap: usize| {
        let mut types = memory.memory_types_as_slice().iter();
        types.any(|t| t.heap_index as usize == heap && t.property_flags.contains(mappable))
    };
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    let mut local = heaps.filter(|(_, h)| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    kind != DeviceKind::Discrete && local.all(|(index, _)| mapped(index))
}
