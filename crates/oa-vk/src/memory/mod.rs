//! Kinds of memory, the staging between them, and what is left of them.

pub(crate) mod budget;
pub(crate) mod staging;

pub use budget::MemoryReport;

use std::fmt;

/// Where a buffer lives, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryClass {
    /// Anything the device works on: device-local, zeroed when created, and mapped as well where
    /// device and host share one memory.
    Device,
    /// Bytes on their way to the device: written by the host, in order.
    Upload,
    /// Bytes on their way to the host: cached for reading.
    Readback,
}

impl fmt::Display for MemoryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryClass::Device => "device",
            MemoryClass::Upload => "upload",
            MemoryClass::Readback => "readback",
        })
    }
}
