//! What can go wrong in the Vulkan runtime.

/// Result of an oa-vk call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of oa-vk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A Vulkan call failed.
    #[error("{call} failed: {code}")]
    Vk {
        /// The call.
        call: &'static str,
        /// Its result code.
        code: ash::vk::Result,
    },
}
