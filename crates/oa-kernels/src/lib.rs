//! The kernel registry of OA: embedded SPIR-V, and the choice of a kernel for a device.
//!
//! Exists so that which kernel runs is a pure function of a table and a device's capabilities: the
//! table is generated from `shaders/kernels.toml` and the compiled modules, the capabilities are
//! plain data, and every choice can say why the others were refused. It knows no tensor, no graph
//! and no Vulkan object; pipelines are made by oa-vk from the bytes given here.
#![forbid(unsafe_code)]

pub mod dtype;
pub mod error;
mod generated;
pub mod launch;
pub mod select;
pub mod variant;

#[cfg(test)]
mod drift;

pub use dtype::DType;
pub use error::{Error, Result};
pub use generated::LOCK_HASH;
pub use select::{Reason, Rejected, Selection, misfit, select, select_named};
pub use variant::{Class, Variant};

/// Every kernel, in the order of `shaders/kernels.toml`: earlier variants of a family are preferred.
pub fn registry() -> &'static [Variant] {
    &generated::REGISTRY
}
