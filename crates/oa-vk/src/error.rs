//! What can go wrong in the Vulkan runtime.
//!
//! Faults of the world carry numbers and say what to do; refusals list every candidate with its
//! reasons. Misuse of this crate's types (a slice outside its buffer, a misaligned offset) is a bug
//! of the layer above and panics instead.

use crate::choose::{DeviceName, Rejected};
use crate::memory::MemoryClass;
use std::fmt;
use std::time::Duration;

/// Result of an oa-vk call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of oa-vk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Vulkan loader library is missing.
    #[error(
        "no Vulkan loader: install libvulkan1 (Debian, Ubuntu), vulkan-loader (Fedora) or \
         vulkan-icd-loader (Arch); tried {library}"
    )]
    NoLoader {
        /// The library that was tried.
        library: Box<str>,
        /// Why it could not be loaded.
        source: ash::LoadingError,
    },
    /// There is no Vulkan device that OA accepts.
    #[error("{}", NoDeviceText(.rejected))]
    NoDevice {
        /// Every device there is, with each reason for its refusal.
        rejected: Box<[Rejected]>,
    },
    /// `OA_DEVICE` or the request names no device.
    #[error("no Vulkan device matches \"{selector}\"; there are:{}", NameList(.names))]
    UnknownDevice {
        /// What was asked for.
        selector: Box<str>,
        /// The devices there are.
        names: Box<[DeviceName]>,
    },
    /// `OA_DEVICE` or the request names more than one device.
    #[error("\"{selector}\" matches more than one Vulkan device:{}", NameList(.names))]
    AmbiguousDevice {
        /// What was asked for.
        selector: Box<str>,
        /// The devices that match.
        names: Box<[DeviceName]>,
    },
    /// Validation was asked for and its layer is not installed.
    #[error(
        "validation was asked for but the layer VK_LAYER_KHRONOS_validation is not installed: \
         install vulkan-validationlayers or unset OA_VALIDATION"
    )]
    NoValidationLayer,
    /// The device or host is out of memory.
    #[error(
        "out of {class} memory for \"{label}\": requested {requested} B, available {available} B"
    )]
    OutOfMemory {
        /// The buffer that was wanted.
        label: Box<str>,
        /// The kind of memory.
        class: MemoryClass,
        /// Bytes requested.
        requested: u64,
        /// Bytes that the driver says are left.
        available: u64,
    },
    /// A size is larger than the device allows, however much memory is free.
    #[error("\"{label}\" needs {requested} {what}, the device allows {limit}")]
    OverLimit {
        /// What was wanted.
        label: Box<str>,
        /// The quantity and its unit.
        what: &'static str,
        /// How much was needed.
        requested: u64,
        /// How much is allowed.
        limit: u64,
    },
    /// A deadline passed before the device finished.
    #[error(
        "the device did not finish submission {tick} (\"{label}\") within {waited:?}; it may hang, \
         or the work is larger than the deadline"
    )]
    Timeout {
        /// Label of the submission that was running.
        label: Box<str>,
        /// Its number on the queue.
        tick: u64,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The driver lost the device; nothing more can run on it.
    #[error("the device was lost at or after submission {tick} (\"{label}\")")]
    DeviceLost {
        /// Label of the oldest submission that had not finished, with the kernel if it is known.
        label: Box<str>,
        /// Its number on the queue.
        tick: u64,
    },
    /// The driver refuses to build a pipeline; another variant may work.
    #[error("the driver refuses the pipeline \"{label}\": {code}")]
    PipelineRefused {
        /// The pipeline.
        label: Box<str>,
        /// The driver's answer.
        code: ash::vk::Result,
    },
    /// Bytes that are no SPIR-V compute module.
    #[error("\"{label}\" is no usable SPIR-V module: {reason}")]
    BadSpirv {
        /// The pipeline.
        label: Box<str>,
        /// The rule that is broken.
        reason: &'static str,
    },
    /// Timestamps were read from a recording that has not run to its end.
    #[error("timestamps of \"{label}\" were read before it has finished")]
    NotFinished {
        /// The recording.
        label: Box<str>,
    },
    /// The device's queue has no timestamps.
    #[error("this device has no timestamps")]
    NoTimestamps,
    /// A Vulkan call failed in a way that has no error of its own.
    #[error("{call} failed: {code}")]
    Vk {
        /// The call.
        call: &'static str,
        /// Its result code.
        code: ash::vk::Result,
    },
}

struct NoDeviceText<'a>(&'a [Rejected]);

impl fmt::Display for NoDeviceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "no Vulkan device: no driver is installed; install the graphics driver, or \
                 mesa-vulkan-drivers for the software driver lavapipe",
            );
        }
        f.write_str("no Vulkan device that OA can use:")?;
        for rejected in self.0 {
            write!(f, "\n  {}", rejected.name)?;
            for reason in &rejected.reasons {
                write!(f, "\n    {reason}")?;
            }
        }
        Ok(())
    }
}

struct NameList<'a>(&'a [DeviceName]);

impl fmt::Display for NameList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(" none");
        }
        self.0.iter().try_for_each(|name| write!(f, "\n  {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    }
}
