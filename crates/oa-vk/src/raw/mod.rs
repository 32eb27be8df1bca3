//! The unsafe home: one Vulkan object a file, owned, with safe signatures inward.
//!
//! Everything above this folder is safe code. A function here may be safe because of the
//! invariants below, which the layer above upholds; each `SAFETY` comment cites those it rests on
//! and adds the fact that holds only there.
//!
//! * **H1 (alive)** A handle outlives every submission that uses it: a submission in flight holds
//!   its recording, a recording holds all that it uses, and both are let go only when the timeline
//!   has passed the submission (`retire`).
//! * **H2 (exclusive)** An object that Vulkan wants synchronised by its user is reached only
//!   through `&mut` or under the lock that owns it.
//! * **H3 (range)** A range lies inside its buffer: checked when its slice was made.
//! * **H4 (parents)** An object keeps its parent alive: device objects hold the device, the device
//!   holds the instance, the instance holds the loaded library.
//! * **H5 (arguments)** Structures given to a call are built in the calling function and outlive
//!   the call; pointers in them lead to locals or arguments of that function.
//! * **H6 (enabled)** An extension function is called only if its extension was enabled, an
//!   ability used only if it is in the enabled capabilities.
//! * **H7 (mapped)** A mapped pointer is valid for its buffer's length while the buffer lives; host
//!   accesses to one mapping take its lock; the caller orders them against the device by an event.
//! * **H8 (modules)** A shader module passed the checks of `pipeline`, and accesses no buffer
//!   beyond the range that is bound to it.

#![expect(unsafe_code, reason = "the one home of unsafe code in this crate")]

mod command;
mod descriptor;
mod device;
mod entry;
mod features;
mod instance;
mod mapped;
mod memory;
mod physical;
mod pipeline;
mod query;
mod queue;
mod semaphore;

pub(crate) use command::Commands;
pub(crate) use descriptor::DescriptorPool;
pub(crate) use device::Device;
pub(crate) use entry::Entry;
pub(crate) use instance::{Instance, InstanceOptions, keep_drivers};
pub(crate) use mapped::Mapped;
pub(crate) use memory::{Allocator, MemoryPolicy, RawBuffer};
pub(crate) use physical::{Physical, probe_all};
pub(crate) use pipeline::{PipelineCache, PipelineLayout, RawPipeline, Stage};
pub(crate) use query::QueryPool;
pub(crate) use queue::RawQueue;
pub(crate) use semaphore::Timeline;

use crate::error::Error;
use ash::vk;

/// Turns a Vulkan result into this crate's error.
pub(crate) fn failed(call: &'static str) -> impl FnOnce(vk::Result) -> Error {
    move |code| Error::Vk { call, code }
}
