//! Compute pipelines, their layouts and the driver's pipeline cache.

use super::device::Device;
use super::failed;
use crate::error::Result;
use ash::prelude::VkResult;
use ash::vk;
use std::ffi::CStr;
use std::sync::Arc;

/// The layout of every pipeline with the same number of buffers and push-constant bytes.
pub(crate) struct PipelineLayout {
    pub(super) handle: vk::PipelineLayout,
    pub(super) set: vk::DescriptorSetLayout,
    /// Storage buffers in set 0.
    pub(crate) buffers: u32,
    device: Arc<Device>,
}

impl PipelineLayout {
    /// Creates a layout; the caller checked both numbers against the device.
    pub(crate) fn create(
        device: &Arc<Device>,
        buffers: u32,
        push_bytes: u32,
    ) -> Result<PipelineLayout> {
        let binding = |binding| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(binding)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<vk::DescriptorSetLayoutBinding> = (0..buffers).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: H4, H5.
        let set = unsafe { device.handle.create_descriptor_set_layout(&info, None) };
        let set = set.map_err(failed("vkCreateDescriptorSetLayout"))?;
        let device = Arc::clone(device);
        let handle = vk::PipelineLayout::null();
        let mut layout = PipelineLayout { handle, set, buffers, device };
        let sets = [set];
        let ranges = [vk::PushConstantRange {
            stage_flags: vk::ShaderStageFlags::COMPUTE,
            offset: 0,
            size: push_bytes,
        }];
        let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        if push_bytes > 0 {
            info = info.push_constant_ranges(&ranges);
        }
        // SAFETY: H4, H5.
        let handle = unsafe { layout.device.handle.create_pipeline_layout(&info, None) };
        layout.handle = handle.map_err(failed("vkCreatePipelineLayout"))?;
        Ok(layout)
    }
}

impl Drop for PipelineLayout {
    fn drop(&mut self) {
        // SAFETY: H1, H2: its pipelines held it. Destroying a null layout does nothing.
        unsafe { self.device.handle.destroy_pipeline_layout(self.handle, None) };
        // SAFETY: H1, H2: as above.
        unsafe { self.device.handle.destroy_descriptor_set_layout(self.set, None) };
    }
}

/// The shader of a pipeline; the caller checked the module (H8).
pub(crate) struct Stage<'a> {
    /// The module.
    pub(crate) words: &'a [u32],
    /// Its entry point.
    pub(crate) entry: &'a CStr,
    /// Specialisation constants: id and value.
    pub(crate) spec: &'a [(u32, u32)],
    /// A subgroup size that the device can require.
    pub(crate) subgroup_size: Option<u32>,
}

/// A compute pipeline.
pub(crate) struct RawPipeline {
    pub(super) handle: vk::Pipeline,
    /// Its layout.
    pub(crate) layout: Arc<PipelineLayout>,
    device: Arc<Device>,
}

impl RawPipeline {
    /// Builds a pipeline.
    pub(crate) fn create(
        layout: &Arc<PipelineLayout>,
        cache: &PipelineCache,
        stage: &Stage,
        label: &str,
    ) -> VkResult<RawPipeline> {
        let module = Module::create(&layout.device, stage.words)?;
        let entries: Vec<vk::SpecializationMapEntry> = (0u32..)
            .zip(stage.spec)
            .map(|(at, &(id, _))| vk::SpecializationMapEntry {
                constant_id: id,
                offset: 4 * at,
                size: 4,
            })
            .collect();
        let values: Vec<u8> = stage.spec.iter().flat_map(|(_, v)| v.to_ne_bytes()).collect();
        let spec = vk::SpecializationInfo::default().map_entries(&entries).data(&values);
        let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
            .required_subgroup_size(stage.subgroup_size.unwrap_or(0));
        let mut shader = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module.handle)
            .name(stage.entry)
            .specialization_info(&spec);
        if stage.subgroup_size.is_some() {
            shader = shader.push_next(&mut size);
        }
        let infos = [vk::ComputePipelineCreateInfo::default().stage(shader).layout(layout.handle)];
        let device = &layout.device;
        // SAFETY: H4, H5, H6, H8: the cache is of this device and synchronised by the driver.
        let built = unsafe { device.handle.create_compute_pipelines(cache.handle, &infos, None) };
        let built = built.map_err(|(_, code)| code)?;
        let handle = built.first().copied().unwrap_or_default();
        if handle == vk::Pipeline::null() {
            // Some drivers report success without a pipeline (llama.cpp#19746).
            return Err(vk::Result::ERROR_UNKNOWN);
        }
        device.name(handle, label);
        Ok(RawPipeline { handle, layout: Arc::clone(layout), device: Arc::clone(device) })
    }
}

impl RawPipeline {
    /// True when the pipeline was built on this device.
    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

impl Drop for RawPipeline {
    fn drop(&mut self) {
        // SAFETY: H1, H2: no recording holds it, so nothing in flight uses it.
        unsafe { self.device.handle.destroy_pipeline(self.handle, None) };
    }
}

/// A shader module, needed only while its pipeline is built.
struct Module<'a> {
    handle: vk::ShaderModule,
    device: &'a Device,
}

impl Module<'_> {
    fn create<'a>(device: &'a Device, words: &[u32]) -> VkResult<Module<'a>> {
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: H4, H5, H8.
        let handle = unsafe { device.handle.create_shader_module(&info, None) }?;
        Ok(Module { handle, device })
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: H2: only the building of one pipeline used it.
        unsafe { self.device.handle.destroy_shader_module(self.handle, None) };
    }
}

/// The driver's cache of compiled pipelines.
pub(crate) struct PipelineCache {
    handle: vk::PipelineCache,
    device: Arc<Device>,
}

impl PipelineCache {
    /// Creates a cache, from data that this device gave before or empty.
    pub(crate) fn create(device: &Arc<Device>, data: &[u8]) -> Result<PipelineCache> {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
        // SAFETY: H4, H5: the data was checked by our own checksum and is of this driver.
        let handle = unsafe { device.handle.create_pipeline_cache(&info, None) };
        let handle = handle.map_err(failed("vkCreatePipelineCache"))?;
        Ok(PipelineCache { handle, device: Arc::clone(device) })
    }

    /// What the driver wants to be given next time.
    pub(crate) fn data(&self) -> VkResult<Vec<u8>> {
        // SAFETY: H4.
        unsafe { self.device.handle.get_pipeline_cache_data(self.handle) }
    }
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        // SAFETY: H2: only the building of pipelines used it.
        unsafe { self.device.handle.destroy_pipeline_cache(self.handle, None) };
    }
}
