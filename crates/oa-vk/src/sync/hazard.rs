//! When two accesses must not overlap in time.
//!
//! A hazard is two accesses to common bytes of which at least one writes. The kind only explains:
//! every kind is answered by the same barrier.

use super::Access;
use std::fmt;

/// The order of the two accesses that conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HazardKind {
    /// The later access reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later access overwrites what the earlier one read.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

/// Why a barrier exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hazard {
    /// Which order of accesses conflicts.
    pub kind: HazardKind,
    /// The earlier step of the two.
    pub earlier: u32,
    /// The memory that both touch.
    pub resource: u64,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            HazardKind::ReadAfterWrite => "reads what step",
            HazardKind::WriteAfterRead => "overwrites what step",
            HazardKind::WriteAfterWrite => "rewrites what step",
        };
        let did = if self.kind == HazardKind::WriteAfterRead { "reads" } else { "writes" };
        write!(f, "{what} {} {did} in resource {:#x}", self.earlier, self.resource)
    }
}

impl fmt::Debug for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hazard between an earlier and a later access, if they have one.
pub(super) fn between(earlier: &Access, later: &Access) -> Option<HazardKind> {
    let apart = earlier.resource != later.resource
        || earlier.end <= later.start
        || later.end <= earlier.start
        || earlier.start >= earlier.end
        || later.start >= later.end;
    match (earlier.write, later.write) {
        _ if apart => None,
        (false, false) => None,
        (true, false) => Some(HazardKind::ReadAfterWrite),
        (false, true) => Some(HazardKind::WriteAfterRead),
        (true, true) => Some(HazardKind::WriteAfterWrite),
    }
}
