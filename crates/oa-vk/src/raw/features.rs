//! Which optional features a device has, and the structures that enable them.
//!
//! Each ability is a feature of some extension that a later Vulkan version may have made core.
//! Querying and enabling link the same structures, so an ability cannot be enabled that was not
//! queried.

use crate::caps::Caps;
use ash::{ext, khr, vk};
use std::ffi::{CStr, c_char};

/// An optional part of Vulkan: the version that made it core, 0 if none did, and its extension.
pub(super) struct Part {
    core: u32,
    name: &'static CStr,
}

macro_rules! parts {
    ($($name:ident = $core:expr, $extension:expr;)*) => {
        $(pub(super) const $name: Part = Part { core: $core, name: $extension };)*
    };
}

parts! {
    TIMELINE = vk::API_VERSION_1_2, khr::timeline_semaphore::NAME;
    STORAGE_16 = vk::API_VERSION_1_1, khr::_16bit_storage::NAME;
    STORAGE_8 = vk::API_VERSION_1_2, khr::_8bit_storage::NAME;
    FLOAT16_INT8 = vk::API_VERSION_1_2, khr::shader_float16_int8::NAME;
    SUBGROUP_SIZE = vk::API_VERSION_1_3, ext::subgroup_size_control::NAME;
    INTEGER_DOT = vk::API_VERSION_1_3, khr::shader_integer_dot_product::NAME;
    COOPERATIVE_MATRIX = 0, khr::cooperative_matrix::NAME;
    ATOMIC_FLOAT = 0, ext::shader_atomic_float::NAME;
    BUFFER_ADDRESS = vk::API_VERSION_1_2, khr::buffer_device_address::NAME;
    SYNCHRONIZATION2 = vk::API_VERSION_1_3, khr::synchronization2::NAME;
    MEMORY_BUDGET = 0, ext::memory_budget::NAME;
    HOST_QUERY_RESET = vk::API_VERSION_1_2, ext::host_query_reset::NAME;
    STATISTICS = 0, khr::pipeline_executable_properties::NAME;
    MEMORY_MODEL = vk::API_VERSION_1_2, khr::vulkan_memory_model::NAME;
    DRIVER = vk::API_VERSION_1_2, khr::driver_properties::NAME;
    MAINTENANCE4 = vk::API_VERSION_1_3, khr::maintenance4::NAME;
    PORTABILITY_SUBSET = 0, khr::portability_subset::NAME;
}

/// The ability that enables each part, for the parts that one stands for.
const BY_CAPS: [(Caps, Part); 12] = [
    (Caps::I8_STORAGE, STORAGE_8),
    (Caps::F16_ARITHMETIC.union(Caps::I8_ARITHMETIC), FLOAT16_INT8),
    (Caps::SUBGROUP_SIZE_CONTROL, SUBGROUP_SIZE),
    (Caps::INTEGER_DOT, INTEGER_DOT),
    (Caps::COOPERATIVE_MATRIX, COOPERATIVE_MATRIX),
    (Caps::ATOMIC_FLOAT, ATOMIC_FLOAT),
    (Caps::BUFFER_ADDRESS, BUFFER_ADDRESS),
    (Caps::SYNCHRONIZATION2, SYNCHRONIZATION2),
    (Caps::MEMORY_BUDGET, MEMORY_BUDGET),
    (Caps::HOST_QUERY_RESET, HOST_QUERY_RESET),
    (Caps::PIPELINE_STATISTICS, STATISTICS),
    (Caps::MEMORY_MODEL, MEMORY_MODEL),
];

/// The version and extensions of a device.
pub(super) struct Support {
    /// The device's version, at most the one that the instance asked for.
    pub(super) version: u32,
    pub(super) extensions: Vec<vk::ExtensionProperties>,
}

impl Support {
    /// True when the part is core or its extension is there.
    pub(super) fn has(&self, part: &Part) -> bool {
        self.is_core(part) || super::entry::names(&self.extensions, part.name)
    }

    fn is_core(&self, part: &Part) -> bool {
        part.core != 0 && self.version >= part.core
    }

    /// The extensions to enable for a set of abilities and the required profile.
    pub(super) fn names(&self, caps: Caps) -> Vec<*const c_char> {
        let wanted = BY_CAPS.iter().filter(|(needs, _)| !shared(caps, *needs).is_empty());
        let parts = wanted.map(|(_, part)| part).chain([&TIMELINE]);
        let mut names: Vec<*const c_char> =
            parts.filter(|part| !self.is_core(part)).map(|part| part.name.as_ptr()).collect();
        if self.has(&PORTABILITY_SUBSET) {
            names.push(PORTABILITY_SUBSET.name.as_ptr());
        }
        names
    }
}

fn shared(caps: Caps, needs: Caps) -> Caps {
    caps.without(caps.without(needs))
}

/// The feature structures, to be linked for a query or for creation.
#[derive(Default)]
pub(super) struct Features {
    core: vk::PhysicalDeviceFeatures,
    timeline: vk::PhysicalDeviceTimelineSemaphoreFeatures<'static>,
    storage_16: vk::PhysicalDevice16BitStorageFeatures<'static>,
    storage_8: vk::PhysicalDevice8BitStorageFeatures<'static>,
    float16_int8: vk::PhysicalDeviceShaderFloat16Int8Features<'static>,
    subgroup_size: vk::PhysicalDeviceSubgroupSizeControlFeatures<'static>,
    integer_dot: vk::PhysicalDeviceShaderIntegerDotProductFeatures<'static>,
    matrix: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    atomic_float: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'static>,
    address: vk::PhysicalDeviceBufferDeviceAddressFeatures<'static>,
    synchronization2: vk::PhysicalDeviceSynchronization2Features<'static>,
    query_reset: vk::PhysicalDeviceHostQueryResetFeatures<'static>,
    statistics: vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR<'static>,
    memory_model: vk::PhysicalDeviceVulkanMemoryModelFeatures<'static>,
}

impl Features {
    /// The features that `caps` and the required profile need.
    pub(super) fn enabling(caps: Caps, robust: bool) -> Features {
        let on = |needs: Caps| vk::Bool32::from(caps.covers(needs));
        let mut features = Features::default();
        features.core.robust_buffer_access = robust.into();
        features.core.shader_int64 = on(Caps::I64);
        features.timeline.timeline_semaphore = vk::TRUE;
        features.storage_16.storage_buffer16_bit_access = on(Caps::F16_STORAGE);
        features.storage_8.storage_buffer8_bit_access = on(Caps::I8_STORAGE);
        features.float16_int8.shader_float16 = on(Caps::F16_ARITHMETIC);
        features.float16_int8.shader_int8 = on(Caps::I8_ARITHMETIC);
        features.subgroup_size.subgroup_size_control = on(Caps::SUBGROUP_SIZE_CONTROL);
        features.integer_dot.shader_integer_dot_product = on(Caps::INTEGER_DOT);
        features.matrix.cooperative_matrix = on(Caps::COOPERATIVE_MATRIX);
        features.atomic_float.shader_buffer_float32_atomic_add = on(Caps::ATOMIC_FLOAT);
        features.address.buffer_device_address = on(Caps::BUFFER_ADDRESS);
        features.synchronization2.synchronization2 = on(Caps::SYNCHRONIZATION2);
        features.query_reset.host_query_reset = on(Caps::HOST_QUERY_RESET);
        features.statistics.pipeline_executable_info = on(Caps::PIPELINE_STATISTICS);
        features.memory_model.vulkan_memory_model = on(Caps::MEMORY_MODEL);
        features.memory_model.vulkan_memory_model_device_scope = on(Caps::MEMORY_MODEL);
        features
    }

    /// Links the structures of the parts that `include` accepts.
    pub(super) fn link(
        &mut self,
        include: impl Fn(&Part) -> bool,
    ) -> vk::PhysicalDeviceFeatures2<'_> {
        let mut chain = vk::PhysicalDeviceFeatures2::default().features(self.core);
        macro_rules! link {
            ($($part:ident: $field:ident),* $(,)?) => {
                $(if include(&$part) {
                    // A structure that was linked before still points at its old neighbour.
                    self.$field.p_next = std::ptr::null_mut();
                    chain = chain.push_next(&mut self.$field);
                })*
            };
        }
        link! {
            TIMELINE: timeline, STORAGE_16: storage_16, STORAGE_8: storage_8,
            FLOAT16_INT8: float16_int8, SUBGROUP_SIZE: subgroup_size, INTEGER_DOT: integer_dot,
            COOPERATIVE_MATRIX: matrix, ATOMIC_FLOAT: atomic_float, BUFFER_ADDRESS: address,
            SYNCHRONIZATION2: synchronization2, HOST_QUERY_RESET: query_reset,
            STATISTICS: statistics, MEMORY_MODEL: memory_model,
        }
        chain
    }

    /// True when the queried device has timeline semaphores.
    pub(super) fn has_timeline(&self) -> bool {
        self.timeline.timeline_semaphore == vk::TRUE
    }

    /// The abilities that are features and nothing more; `core` is what the query returned.
    pub(super) fn caps(&self, core: &vk::PhysicalDeviceFeatures) -> Caps {
        let model = &self.memory_model;
        let found = [
            (core.shader_int64, Caps::I64),
            (self.storage_16.storage_buffer16_bit_access, Caps::F16_STORAGE),
            (self.storage_8.storage_buffer8_bit_access, Caps::I8_STORAGE),
            (self.float16_int8.shader_float16, Caps::F16_ARITHMETIC),
            (self.float16_int8.shader_int8, Caps::I8_ARITHMETIC),
            (self.subgroup_size.subgroup_size_control, Caps::SUBGROUP_SIZE_CONTROL),
            (self.integer_dot.shader_integer_dot_product, Caps::INTEGER_DOT),
            (self.matrix.cooperative_matrix, Caps::COOPERATIVE_MATRIX),
            (self.atomic_float.shader_buffer_float32_atomic_add, Caps::ATOMIC_FLOAT),
            (self.address.buffer_device_address, Caps::BUFFER_ADDRESS),
            (self.synchronization2.synchronization2, Caps::SYNCHRONIZATION2),
            (self.query_reset.host_query_reset, Caps::HOST_QUERY_RESET),
            (self.statistics.pipeline_executable_info, Caps::PIPELINE_STATISTICS),
            (
                model.vulkan_memory_model & model.vulkan_memory_model_device_scope,
                Caps::MEMORY_MODEL,
            ),
        ];
        let present = found.into_iter().filter(|(present, _)| *present == vk::TRUE);
        present.fold(Caps::NONE, |caps, (_, cap)| caps.union(cap))
    }
}

/// True when enabling `caps` needs the structure of a part.
pub(super) fn enables(caps: Caps, part: &Part) -> bool {
    let named = |other: &Part| other.name == part.name;
    named(&TIMELINE)
        || named(&STORAGE_16) && caps.covers(Caps::F16_STORAGE)
        || BY_CAPS.iter().any(|(needs, other)| named(other) && !shared(caps, *needs).is_empty())
}
