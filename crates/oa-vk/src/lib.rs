//! The Vulkan runtime of OA.
pub mod alias;
pub mod caps;
mod choose;
mod error;
mod gpu;
mod memory;
pub mod quirks;
mod request;
pub mod sync;

pub use caps::{Capabilities, Caps, Limits};
pub use choose::{DeviceInfo, DeviceKind, DeviceName, DeviceReport, Refusal, Rejected};
pub use error::{Error, Result};
pub use gpu::{Buffer, Event, Gpu, Pipeline, PipelineRequest, Recorded, Recorder, Slice, devices};
pub use memory::{MemoryClass, MemoryReport};
pub use request::{DeviceRequest, Validation};
