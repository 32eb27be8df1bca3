//! One compiled kernel and what it asks of a device.
//!
//! Rows of this type are generated from `shaders/kernels.toml` and the reflected SPIR-V; needs are
//! derived from the module, never typed by hand.

use oa_vk::Caps;

/// Which devices a variant is written for; the selector prefers in this order where it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Few, fat workgroups without shared memory: for software drivers.
    Cpu,
    /// Uses subgroup operations.
    Subgroup,
    /// Runs on the minimum profile.
    Portable,
}

/// One compiled SPIR-V module that implements a kernel family.
#[derive(Debug)]
pub struct Variant {
    /// What it computes, e.g. `matmul`. All variants of a family take the same buffers and pushes.
    pub family: &'static str,
    /// Unique name, e.g. `matmul/tiled`: the path of the blob below `spv/`.
    pub name: &'static str,
    /// Which devices it is written for.
    pub class: Class,
    /// The SPIR-V bytes (a multiple of four).
    pub spirv: &'static [u8],
    /// blake3 of the module, first 16 hex digits, as in `kernels.lock`.
    pub spv_hash: &'static str,
    /// Optional abilities the module uses.
    pub needs: Caps,
    /// Shared memory the module declares, bytes.
    pub shared_bytes: u32,
    /// Workgroup size in x, y and z.
    pub local_size: [u32; 3],
    /// Storage buffers: bindings `0..buffers` of set 0, inputs first, then outputs.
    pub buffers: u32,
    /// Which of the buffers the module stores to, as a bit mask.
    pub writes: u32,
    /// Bytes of the push-constant block, including the two-word launch header.
    pub push_bytes: u32,
    /// Ids of specialisation constants the module declares, ascending.
    pub spec_ids: &'static [u32],
    /// Elements (or rows, columns: the family says) that one workgroup covers on each problem axis.
    pub tile: [u32; 3],
}
