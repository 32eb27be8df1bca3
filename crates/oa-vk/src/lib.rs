//! The Vulkan runtime of OA: choice of a device, memory, recordings, pipelines and time.
//!
//! It exists so that everything above it can be safe code that knows no Vulkan: a [`Gpu`] hands out
//! [`Buffer`]s, [`Pipeline`]s and [`Recorder`]s, a [`Slice`] is a range that is known to lie inside
//! its buffer, and an [`Event`] is a submission with a deadline. Dropping a handle is always
//! harmless: what the device still uses lives until the device has passed it.
//!
//! It knows no tensor, dtype, op or model. Two planners that need no device live here too, because
//! they speak of bytes and stages only: [`alias`] places values in an arena, [`sync`] finds the
//! fewest barriers.
//!
//! ```no_run
//! # fn main() -> oa_vk::Result<()> {
//! use oa_vk::{DeviceRequest, Gpu, MemoryClass};
//! use std::time::Duration;
//!
//! let gpu = Gpu::open(&DeviceRequest::from_env())?;
//! let buffer = gpu.buffer(MemoryClass::Device, 4096, "example")?;
//! gpu.upload(&buffer.slice(0, 4), &1u32.to_le_bytes())?;
//! let mut word = [0; 4];
//! gpu.download(&buffer.slice(0, 4), &mut word, Duration::from_secs(10))?;
//! assert_eq!(u32::from_le_bytes(word), 1);
//! # Ok(())
//! # }
//! ```

pub mod alias;
mod buffer;
pub mod caps;
mod choose;
mod crumbs;
mod debug;
mod descriptors;
mod error;
mod gpu;
mod memory;
mod pipeline;
mod profile;
mod queue;
pub mod quirks;
mod raw;
mod recorder;
mod request;
mod retire;
pub mod sync;
mod timeline;

pub use buffer::{Buffer, Slice};
pub use caps::{Capabilities, Caps, Limits};
pub use choose::{DeviceInfo, DeviceKind, DeviceName, DeviceReport, Refusal, Rejected};
pub use error::{Error, Result};
pub use gpu::{Gpu, devices};
pub use memory::{MemoryClass, MemoryReport};
pub use pipeline::{Pipeline, PipelineRequest};
pub use recorder::{Recorded, Recorder};
pub use request::{DeviceRequest, Validation};
pub use timeline::Event;
