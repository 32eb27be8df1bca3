//! The Vulkan runtime of OA.
pub mod caps;
pub mod error;
pub use caps::{Capabilities, Caps, Limits};
pub use error::{Error, Result};

/// A range of a buffer.
#[derive(Clone, Debug)]
pub struct Slice {}
