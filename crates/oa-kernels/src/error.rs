//! What can go wrong when a kernel is chosen or launched.

use crate::select::Rejected;

/// Result of an oa-kernels call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of oa-kernels.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing in the registry computes the family.
    #[error("no kernel family named {0}")]
    NoFamily(&'static str),
    /// Every variant of the family asks for more than the device has.
    #[error("no kernel of family {family} fits this device:{}", list(rejected))]
    NoVariant {
        /// The family.
        family: &'static str,
        /// Each variant with the reason for its refusal, in the order they were tried.
        rejected: Vec<Rejected>,
    },
    /// More workgroups than the device takes in x and y together.
    #[error("{groups} workgroups are more than the device's {limit_x} times {limit_y}")]
    GridTooLarge {
        /// Workgroups asked for.
        groups: u64,
        /// Most workgroups in x.
        limit_x: u32,
        /// Most workgroups in y.
        limit_y: u32,
    },
}

fn list(rejected: &[Rejected]) -> String {
    let lines = rejected.iter().map(|rejected| format!("\n  {rejected}"));
    lines.collect()
}
