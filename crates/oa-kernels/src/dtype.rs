//! Element types of stored values.
//!
//! `DType` lives here because kernels are keyed by it.

use std::fmt;

/// How one element is stored in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// Unsigned 32-bit integer: token ids, positions, counters.
    U32,
    /// Signed 32-bit integer: targets, where -100 marks an ignored row.
    I32,
}

impl DType {
    /// Bytes of one element.
    pub const fn len_bytes(self) -> usize {
        4
    }

    /// The name used in plans, files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::U32 => "u32",
            DType::I32 => "i32",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
