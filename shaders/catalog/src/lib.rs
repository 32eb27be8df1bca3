//! Everything that is known about OA's kernels without a shader compiler.
//!
//! The compiler writes blobs, the registry and `kernels.lock`; a unit test of oa-kernels must tell,
//! without that compiler, whether they still belong together. Both sides therefore share this
//! crate: the table ([`table`]), the import closure of a shader ([`source`]), the reflection of a
//! SPIR-V module ([`reflect`]), and the exact text of the lock and of the generated registry
//! ([`lock`], [`emit`]). [`drift`] compares them with what is on disk.
//!
//! It does not compile shaders, and it names no other crate of OA: a broken registry must not keep
//! the tool that repairs it from building.
#![forbid(unsafe_code)]

pub mod drift;
pub mod emit;
pub mod error;
pub mod lock;
pub mod reflect;
pub mod source;
pub mod table;
pub mod tree;

pub use error::Refusal;
pub use reflect::{Need, Reflection};
pub use table::{Class, Row};
pub use tree::Tree;

/// Version of the pinned compiler, as its build tag says.
pub const COMPILER_VERSION: &str = "2026.12";

/// Profile every kernel is compiled for: SPIR-V 1.3 is what Vulkan 1.1 takes.
pub const PROFILE: &str = "spirv_1_3";

/// Options of the compiler, as the lock states them.
pub const OPTIONS: &str = "opt default";

/// The command that writes everything generated.
pub const COMMAND: &str = "cargo xtask shaders --bless";

/// The compiler line: first line of content in `kernels.lock`, and part of every source hash.
pub fn compiler_line() -> String {
    format!("slang {COMPILER_VERSION}  profile {PROFILE}  {OPTIONS}")
}

/// blake3 of `bytes`, its first 16 hex digits.
pub fn short_hash(bytes: &[u8]) -> String {
    let mut text = blake3::hash(bytes).to_hex().to_string();
    text.truncate(16);
    text
}
