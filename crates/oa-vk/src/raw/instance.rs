//! The Vulkan instance and the messenger that feeds the validation sink.
//!
//! Each open device has its own instance, so that two engines in one process share nothing and
//! each sink holds only its own messages.

use super::entry::names;
use super::{Entry, failed};
use crate::debug::{Severity, Sink};
use crate::error::{Error, Result};
use crate::request::Validation;
use ash::{ext, khr, vk};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, OnceLock};

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// From this version on the layer tracks what shaders access only if it is set to.
const HAS_SETTINGS: u32 = vk::make_api_version(0, 1, 3, 290);

/// What an instance is created with.
pub(crate) struct InstanceOptions {
    /// Which layer checks run.
    pub(crate) validation: Validation,
    /// True to name objects and commands for tools.
    pub(crate) labels: bool,
}

/// A Vulkan instance.
pub(crate) struct Instance {
    pub(super) handle: ash::Instance,
    pub(super) entry: Entry,
    pub(super) labels: bool,
    messenger: Option<Messenger>,
}

/// The messenger; its callback reads the sink, which therefore lives as long.
struct Messenger {
    functions: ext::debug_utils::Instance,
    handle: vk::DebugUtilsMessengerEXT,
    _sink: Arc<Sink>,
}

/// What the loader and layer offer of the things that are asked for.
struct Plan {
    extensions: Vec<*const c_char>,
    layers: Vec<*const c_char>,
    flags: vk::InstanceCreateFlags,
    labels: bool,
    settings: bool,
}

/// Keeps the drivers of a process loaded, by never giving its first instance back.
///
/// A loader unloads its drivers with the last instance. Some drivers leave part of the space that a
/// process has for thread-local storage behind each time, and after some thirty rounds no driver
/// can be loaded any more (NVIDIA 580.159). What is kept is code, not a device: engines still share
/// nothing.
pub(crate) fn keep_drivers(instance: &Arc<Instance>) {
    static FIRST: OnceLock<Arc<Instance>> = OnceLock::new();
    FIRST.get_or_init(|| instance.clone());
}

impl Instance {
    /// Creates an instance; validation messages go to `sink`.
    pub(crate) fn create(
        entry: Entry,
        options: &InstanceOptions,
        sink: &Arc<Sink>,
    ) -> Result<Instance> {
        if entry.version()? < vk::API_VERSION_1_1 {
            let code = vk::Result::ERROR_INCOMPATIBLE_DRIVER;
            return Err(Error::Vk { call: "vkEnumerateInstanceVersion", code });
        }
        let plan = Plan::new(&entry, options)?;
        let application = vk::ApplicationInfo::default()
            .application_name(c"oa")
            .engine_name(c"oa")
            .api_version(vk::API_VERSION_1_3);
        let enabled = enabled_checks(options.validation);
        let mut checks = vk::ValidationFeaturesEXT::default().enabled_validation_features(enabled);
        let mut messages = messenger_info(sink);
        let on = vk::TRUE;
        let shaders = [shader_accesses(&on)];
        let mut settings = vk::LayerSettingsCreateInfoEXT::default().settings(&shaders);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(&plan.extensions)
            .enabled_layer_names(&plan.layers)
            .flags(plan.flags);
        if options.validation != Validation::Off {
            info = info.push_next(&mut checks).push_next(&mut messages);
        }
        if plan.settings && options.validation != Validation::On {
            info = info.push_next(&mut settings);
        }
        // SAFETY: H4, H5: the names are static and the sink outlives the instance.
        let handle = unsafe { entry.handle.create_instance(&info, None) };
        let handle = handle.map_err(|code| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::NoDevice { rejected: [].into() },
            code => Error::Vk { call: "vkCreateInstance", code },
        })?;
        let mut instance = Instance { handle, entry, labels: plan.labels, messenger: None };
        if options.validation != Validation::Off {
            instance.messenger = Some(Messenger::create(&instance, sink)?);
        }
        Ok(instance)
    }

    /// The physical devices, in the loader's order.
    pub(super) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        // SAFETY: H4: the instance is alive.
        let devices = unsafe { self.handle.enumerate_physical_devices() };
        match devices {
            Ok(devices) => Ok(devices),
            // The loader answers so when no driver is installed.
            Err(vk::Result::ERROR_INITIALIZATION_FAILED) => Ok(Vec::new()),
            Err(code) => Err(failed("vkEnumeratePhysicalDevices")(code)),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(messenger) = &self.messenger {
            let destroy = &messenger.functions;
            // SAFETY: H2, H4: created from this instance, used nowhere else.
            unsafe { destroy.destroy_debug_utils_messenger(messenger.handle, None) };
        }
        // SAFETY: H2, H4: every child held this instance, so none is left.
        unsafe { self.handle.destroy_instance(None) };
    }
}

impl Plan {
    fn new(entry: &Entry, options: &InstanceOptions) -> Result<Plan> {
        let offered = entry.extensions(None)?;
        let validation = options.validation != Validation::Off;
        let mut plan = Plan {
            extensions: Vec::new(),
            layers: Vec::new(),
            flags: vk::InstanceCreateFlags::empty(),
            labels: false,
            settings: false,
        };
        if names(&offered, khr::portability_enumeration::NAME) {
            plan.extensions.push(khr::portability_enumeration::NAME.as_ptr());
            plan.flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        if validation {
            let version = entry.layer_version(VALIDATION_LAYER)?;
            plan.settings = version.ok_or(Error::NoValidationLayer)? >= HAS_SETTINGS;
            plan.layers.push(VALIDATION_LAYER.as_ptr());
            // The layer reads the structure of this extension even where its manifest, and so the
            // loader, does not list it.
            let of_layer = entry.extensions(Some(VALIDATION_LAYER))?;
            if names(&of_layer, ext::validation_features::NAME) {
                plan.extensions.push(ext::validation_features::NAME.as_ptr());
            }
        }
        if validation || options.labels && names(&offered, ext::debug_utils::NAME) {
            plan.extensions.push(ext::debug_utils::NAME.as_ptr());
            plan.labels = true;
        }
        Ok(plan)
    }
}

fn enabled_checks(validation: Validation) -> &'static [vk::ValidationFeatureEnableEXT] {
    match validation {
        Validation::Off | Validation::On => &[],
        Validation::Sync => &[vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION],
        Validation::Gpu => &[
            vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION,
            vk::ValidationFeatureEnableEXT::GPU_ASSISTED,
            vk::ValidationFeatureEnableEXT::GPU_ASSISTED_RESERVE_BINDING_SLOT,
        ],
    }
}

/// The setting that makes the layer find hazards between kernels, not only between copies.
fn shader_accesses(on: &vk::Bool32) -> vk::LayerSettingEXT<'_> {
    let mut setting = vk::LayerSettingEXT::default()
        .layer_name(VALIDATION_LAYER)
        .setting_name(c"syncval_shader_accesses_heuristic")
        .ty(vk::LayerSettingTypeEXT::BOOL32);
    setting.value_count = 1;
    setting.p_values = std::ptr::from_ref(on).cast();
    setting
}

fn messenger_info(sink: &Arc<Sink>) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(
            vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
        )
        .message_type(
            vk::DebugUtilsMessageTypeFlagsEXT::GENERAL
                | vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION,
        )
        .pfn_user_callback(Some(on_message))
        .user_data(Arc::as_ptr(sink).cast_mut().cast())
}

impl Messenger {
    fn create(instance: &Instance, sink: &Arc<Sink>) -> Result<Messenger> {
        let functions = ext::debug_utils::Instance::new(&instance.entry.handle, &instance.handle);
        let info = messenger_info(sink);
        // SAFETY: H5, H6: the extension is enabled with validation; the sink is kept below.
        let handle = unsafe { functions.create_debug_utils_messenger(&info, None) };
        let handle = handle.map_err(failed("vkCreateDebugUtilsMessengerEXT"))?;
        Ok(Messenger { functions, handle, _sink: Arc::clone(sink) })
    }
}

/// Receives a message of the loader or of a layer.
unsafe extern "system" fn on_message(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    sink: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: Vulkan passes valid callback data or null for the duration of the call.
    let data = unsafe { data.as_ref() };
    // SAFETY: the user data is the sink, which the messenger keeps alive.
    let sink = unsafe { sink.cast::<Sink>().as_ref() };
    if let (Some(data), Some(sink)) = (data, sink) {
        // SAFETY: the message is null or a C string that lives as long as the callback data.
        let text = unsafe { data.message_as_c_str() };
        let text = text.map(CStr::to_string_lossy).unwrap_or_default();
        // SAFETY: the id is null or a C string that lives as long as the callback data.
        let id = unsafe { data.message_id_name_as_c_str() };
        let id = id.map(CStr::to_string_lossy).unwrap_or_default();
        let error = severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR);
        let severity = if error { Severity::Error } else { Severity::Warning };
        let counts = kind.contains(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION);
        sink.receive(severity, counts, &id, &text);
    }
    vk::FALSE
}
