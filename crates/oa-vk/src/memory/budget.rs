//! How much memory is used and left, as a value.

/// Memory of a device at one moment, seen from this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Bytes of the buffers that are alive.
    pub allocated_bytes: u64,
    /// Bytes of driver memory that hold them, free gaps included.
    pub reserved_bytes: u64,
    /// Number of buffers that are alive.
    pub buffers: u64,
    /// Bytes that this process may use of the device-local heaps, as the driver estimates it.
    pub budget_bytes: u64,
    /// Bytes that this process uses of the device-local heaps, as the driver estimates it.
    pub used_bytes: u64,
}
