//! Which device the tests run on, and how they find out that it is absent.
//!
//! A device that was named and is not there is its own outcome (exit code 3): an absent GPU is
//! never green. Nothing here retries or falls back to another device.

use crate::report::DeviceRow;
use oa_graph::engine::{Engine, EngineOptions};
use oa_vk::{DeviceRequest, Validation};
use std::collections::BTreeMap;
use std::time::Duration;

/// Exit code of a run whose cases all passed.
pub const EXIT_PASSED: u8 = 0;
/// Exit code of a run with a failed case.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of a run that was called wrongly.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a run whose device is absent.
pub const EXIT_NO_DEVICE: u8 = 3;

/// How long a wait may take: a kernel that no device would select may take a software driver many
/// seconds, and the machine may be busy with a build beside it.
const PATIENCE: Duration = Duration::from_secs(300);

/// Opens engines on the device that a run was asked for.
#[derive(Clone, Debug, Default)]
pub struct Lab {
    /// `--device`: index, part of a name, or UUID; else what `OA_DEVICE` says.
    pub selector: Option<String>,
}

impl Lab {
    /// What the engines of this run ask for, with `OA_VALIDATION` as the environment says.
    pub fn request(&self) -> DeviceRequest {
        let mut request = DeviceRequest { deadline: PATIENCE, ..DeviceRequest::from_env() };
        if self.selector.is_some() {
            request.selector = self.selector.clone();
        }
        request
    }

    /// An engine with the default kernels.
    ///
    /// # Errors
    ///
    /// When the device is absent or cannot be opened.
    pub fn open(&self) -> oa_graph::Result<Engine> {
        self.open_forced(BTreeMap::new())
    }

    /// An engine that uses these kernel variants instead of the selected ones.
    ///
    /// # Errors
    ///
    /// As [`Lab::open`].
    pub fn open_forced(&self, force: BTreeMap<String, String>) -> oa_graph::Result<Engine> {
        Engine::open(EngineOptions { device: self.request(), force, timeout: PATIENCE })
    }

    /// An engine under the validation layer with synchronization validation.
    ///
    /// # Errors
    ///
    /// As [`Lab::open`].
    pub fn open_validated(&self) -> oa_graph::Result<Engine> {
        let device = DeviceRequest { validation: Validation::Sync, ..self.request() };
        Engine::open(EngineOptions { device, timeout: PATIENCE, ..Default::default() })
    }
}

/// The exit code of a run that could not open its device: an absent one has its own.
pub fn exit_code(error: &oa_graph::Error) -> u8 {
    use oa_vk::Error::{AmbiguousDevice, NoDevice, NoLoader, UnknownDevice};
    match error {
        oa_graph::Error::Device(
            NoLoader { .. } | NoDevice { .. } | UnknownDevice { .. } | AmbiguousDevice { .. },
        ) => EXIT_NO_DEVICE,
        _ => EXIT_FAILED,
    }
}

/// What a report says of an engine's device.
pub fn describe(engine: &Engine) -> DeviceRow {
    let info = engine.device();
    DeviceRow {
        name: info.name.to_string(),
        driver: info.driver_name.to_string(),
        driver_info: info.driver_info.to_string(),
    }
}
