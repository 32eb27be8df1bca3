//! What can go wrong when a kernel is chosen.

/// Result of an oa-kernels call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of oa-kernels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing in the registry computes the family.
    #[error("no kernel family named {0}")]
    NoFamily(&'static str),
}
