//! What a caller wants of a device.
//!
//! A request is plain data with a useful default, so that tests can forbid abilities, clamp limits
//! and point caches elsewhere. Reading the environment is one explicit step, taken here and nowhere
//! deeper.

use crate::caps::{Caps, Limits};
use std::path::PathBuf;
use std::time::Duration;

/// How much the validation layer checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// No layer.
    #[default]
    Off,
    /// Correct use of the API.
    On,
    /// The same and synchronization.
    Sync,
    /// The same and checks inside shaders, which are slow.
    Gpu,
}

impl Validation {
    /// Parses `OA_VALIDATION`: empty or `0` is off, `1`, `sync`, `gpu`; `None` for anything else.
    pub fn by_name(name: &str) -> Option<Validation> {
        match name {
            "" | "0" | "off" => Some(Validation::Off),
            "1" | "on" => Some(Validation::On),
            "sync" => Some(Validation::Sync),
            "gpu" => Some(Validation::Gpu),
            _ => None,
        }
    }
}

/// What a caller wants of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRequest {
    /// The device: its index, a part of its name in any case, or its UUID. `None` takes the best.
    pub selector: Option<String>,
    /// True when a software device may be taken if there is no other. A selector that names one
    /// takes it in any case.
    pub allow_software: bool,
    /// How much the validation layer checks.
    pub validation: Validation,
    /// Abilities to leave off, as if the device lacked them.
    pub disable: Caps,
    /// Limits to stay below, as if the device had them.
    pub clamp: Option<Limits>,
    /// True to treat memory that host and device share as if they did not: bytes move through
    /// staging, as on a card of its own.
    pub split_memory: bool,
    /// Folder of the pipeline cache; `None` uses `OA_CACHE_DIR`, `XDG_CACHE_HOME/oa` or
    /// `~/.cache/oa`.
    pub cache_dir: Option<PathBuf>,
    /// True to enable what profiling needs: labels for tools and pipeline statistics.
    pub profile: bool,
    /// True to name the kernel that hung or lost the device, at the price of running kernels one
    /// at a time.
    pub crumbs: bool,
    /// Quirks not to apply, by their id; `all` leaves all of them off.
    pub ignore_quirks: Vec<String>,
    /// The Vulkan loader to use instead of the system's.
    pub library: Option<PathBuf>,
    /// How long internal waits (for a slot in flight, for an upload) may take.
    pub deadline: Duration,
}

impl Default for DeviceRequest {
    fn default() -> DeviceRequest {
        DeviceRequest {
            selector: None,
            allow_software: true,
            validation: Validation::Off,
            disable: Caps::NONE,
            clamp: None,
            split_memory: false,
            cache_dir: None,
            profile: false,
            crumbs: false,
            ignore_quirks: Vec::new(),
            library: None,
            deadline: Duration::from_secs(60),
        }
    }
}

impl DeviceRequest {
    /// The default with what the environment says.
    ///
    /// | Variable | Meaning |
    /// |---|---|
    /// | `OA_DEVICE` | index, name part or UUID |
    /// | `OA_VALIDATION` | `1`, `sync` or `gpu`; an unknown word counts as `1` and is warned about |
    /// | `OA_CRUMBS` | `1`: name the kernel that hung |
    /// | `OA_IGNORE_QUIRKS` | ids separated by commas, or `all` |
    /// | `OA_DEADLINE_S` | seconds an internal wait may take |
    /// | `OA_VULKAN_LIBRARY` | path of the Vulkan loader |
    ///
    /// `OA_CACHE_DIR` is read when the pipeline cache is first used.
    pub fn from_env() -> DeviceRequest {
        DeviceRequest::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> DeviceRequest {
        let mut request = DeviceRequest::default();
        let set = |name: &str| lookup(name).filter(|text| !text.is_empty());
        request.selector = set("OA_DEVICE");
        request.library = set("OA_VULKAN_LIBRARY").map(PathBuf::from);
        request.crumbs = set("OA_CRUMBS").is_some_and(|text| text != "0");
        if let Some(text) = set("OA_VALIDATION") {
            request.validation = Validation::by_name(&text).unwrap_or_else(|| {
                tracing::warn!("OA_VALIDATION={text} is none of 0, 1, sync, gpu; taken as 1");
                Validation::On
            });
        }
        if let Some(text) = set("OA_IGNORE_QUIRKS") {
            request.ignore_quirks = text.split(',').map(|id| id.trim().to_owned()).collect();
        }
        if let Some(text) = set("OA_DEADLINE_S") {
            match text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok()) {
                Some(deadline) if !deadline.is_zero() => request.deadline = deadline,
                _ => tracing::warn!("OA_DEADLINE_S={text} is no positive number; ignored"),
            }
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pairs: &[(&str, &str)]) -> DeviceRequest {
        DeviceRequest::from_lookup(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_is_the_default() {
        assert_eq!(request(&[]), DeviceRequest::default());
        assert_eq!(request(&[("OA_DEVICE", ""), ("OA_VALIDATION", "")]), DeviceRequest::default());
    }

    #[test]
    fn each_variable_is_read() {
        let request = request(&[
            ("OA_DEVICE", "llvm"),
            ("OA_VALIDATION", "sync"),
            ("OA_CRUMBS", "1"),
            ("OA_IGNORE_QUIRKS", "nvidia-range, lavapipe-coopmat"),
            ("OA_DEADLINE_S", "2.5"),
            ("OA_VULKAN_LIBRARY", "/nowhere/libvulkan.so"),
        ]);
        assert_eq!(request.selector.as_deref(), Some("llvm"));
        assert_eq!(request.validation, Validation::Sync);
        assert!(request.crumbs);
        assert_eq!(request.ignore_quirks, ["nvidia-range", "lavapipe-coopmat"]);
        assert_eq!(request.deadline, Duration::from_millis(2500));
        assert_eq!(request.library, Some(PathBuf::from("/nowhere/libvulkan.so")));
    }

    #[test]
    fn bad_values_do_not_disarm_anything() {
        assert_eq!(request(&[("OA_VALIDATION", "yes")]).validation, Validation::On);
        let deadline = DeviceRequest::default().deadline;
        for text in ["-1", "0", "soon", "1e99"] {
            assert_eq!(request(&[("OA_DEADLINE_S", text)]).deadline, deadline);
        }
    }
}
