//! The kernel registry of OA.
pub mod dtype;
pub mod error;
pub mod variant;
pub use dtype::DType;
pub use error::{Error, Result};
pub use variant::{Class, Variant};
