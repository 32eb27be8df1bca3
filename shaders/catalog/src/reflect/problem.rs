//! Which rule of the kernel convention a module breaks.

/// One broken rule, with the numbers that show it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Not SPIR-V 1.3.
    #[error("SPIR-V {major}.{minor}; kernels are SPIR-V 1.3")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// Not exactly one entry point.
    #[error("{count} entry points; a blob has one")]
    EntryCount {
        /// How many there are.
        count: usize,
    },
    /// The entry point is no compute shader called `main`.
    #[error("the entry point is no compute shader named main")]
    EntryName,
    /// No workgroup size that can be read.
    #[error("no readable workgroup size")]
    NoLocalSize,
    /// A capability outside the table of needs.
    #[error("capability {capability} is not in the table of needs")]
    Capability {
        /// Its SPIR-V name.
        capability: String,
    },
    /// An extension outside the table of needs.
    #[error("extension {extension} is not in the table of needs")]
    Extension {
        /// Its SPIR-V name.
        extension: String,
    },
    /// A resource that is no storage buffer.
    #[error("a variable in storage class {class}; kernels take storage buffers and push constants")]
    StorageClass {
        /// Its storage class.
        class: String,
    },
    /// A buffer without a binding.
    #[error("a storage buffer without a binding")]
    NoBinding,
    /// A buffer outside set 0.
    #[error("binding {binding} is in set {set}; kernels use set 0")]
    Set {
        /// The binding.
        binding: u32,
        /// Its set.
        set: u32,
    },
    /// Two buffers at one binding.
    #[error("binding {binding} is used by two buffers")]
    BindingTwice {
        /// The binding.
        binding: u32,
    },
    /// Bindings are not contiguous.
    #[error(
        "binding {missing} is missing before binding {next} (declared but unused buffers vanish)"
    )]
    BindingGap {
        /// First binding that is missing.
        missing: u32,
        /// The binding found instead.
        next: u32,
    },
    /// No buffers, or too many.
    #[error("{count} storage buffers; a kernel has 1 to {limit}")]
    BufferCount {
        /// How many there are.
        count: u32,
        /// Most that are allowed.
        limit: u32,
    },
    /// No buffer is stored to.
    #[error("the kernel stores to no buffer")]
    NothingWritten,
    /// Too many push constants.
    #[error("{bytes} bytes of push constants, more than {limit}")]
    PushTooLarge {
        /// Their size.
        bytes: u32,
        /// Most that are allowed.
        limit: u32,
    },
    /// The launch header is missing.
    #[error(
        "{bytes} bytes of push constants: `uint groups; uint gridX;` must come first and be used"
    )]
    NoPushHeader {
        /// Their size.
        bytes: u32,
    },
    /// Push constants that are not plain 32-bit words.
    #[error("push constants must be scalars of 32 bits without holes")]
    PushWords,
    /// A vector of three components in memory.
    #[error("a vector of three components in {place}; use scalars or four components")]
    Vec3 {
        /// Where it is.
        place: &'static str,
    },
    /// A type whose size cannot be told.
    #[error("a variable of a type without a known size")]
    Unsized,
    /// Atomics on floats.
    #[error("atomics on floats are not deterministic and not allowed")]
    FloatAtomic,
    /// A portable variant that asks for something.
    #[error("a portable variant needs nothing, this one needs {need}")]
    PortableNeeds {
        /// The first need.
        need: &'static str,
    },
    /// Too large a workgroup.
    #[error("{invocations} invocations in a portable variant, more than {limit}")]
    Invocations {
        /// How many there are.
        invocations: u32,
        /// Most that are allowed.
        limit: u32,
    },
    /// Too much shared memory.
    #[error("{bytes} bytes of shared memory in a portable variant, more than {limit}")]
    Shared {
        /// Its size.
        bytes: u32,
        /// Most that is allowed.
        limit: u32,
    },
    /// A cpu variant that synchronises.
    #[error("a cpu variant uses no shared memory and no barrier")]
    CpuShares,
    /// A subgroup variant without subgroup operations.
    #[error("a subgroup variant uses subgroup operations, this one does not")]
    NoSubgroup,
}
