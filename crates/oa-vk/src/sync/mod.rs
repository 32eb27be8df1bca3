//! Which barriers a list of steps needs: a pure planner.
//!
//! Steps run on one in-order queue but overlap freely, so two steps that touch the same bytes, one
//! of them writing, need a barrier between them. A barrier here is global: it separates everything
//! before it from everything after it, which costs the hardware what a list of buffer barriers
//! costs and lets one barrier serve many hazards. Nothing here touches Vulkan; ranges that are
//! only known on the device are not tracked.

mod barrier;
mod hazard;
#[cfg(test)]
mod tests;

pub use barrier::{Barrier, plan};
pub use hazard::{Hazard, HazardKind};

use std::fmt;

/// A set of pipeline stages that touch buffers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stages(u8);

impl Stages {
    /// No stage.
    pub const NONE: Stages = Stages(0);
    /// Compute shaders.
    pub const COMPUTE: Stages = Stages(1);
    /// Copies and fills.
    pub const TRANSFER: Stages = Stages(2);
    /// The host, through mapped memory.
    pub const HOST: Stages = Stages(4);

    const NAMES: [(Stages, &'static str); 3] =
        [(Stages::COMPUTE, "compute"), (Stages::TRANSFER, "transfer"), (Stages::HOST, "host")];

    /// Both sets together.
    pub const fn union(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }

    /// True when every stage of `other` is in `self`.
    pub const fn contains(self, other: Stages) -> bool {
        other.0 & !self.0 == 0
    }

    /// True when no stage is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for Stages {
    type Output = Stages;

    fn bitor(self, other: Stages) -> Stages {
        self.union(other)
    }
}

impl std::ops::BitOrAssign for Stages {
    fn bitor_assign(&mut self, other: Stages) {
        *self = self.union(other);
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        let mut first = true;
        for (stage, name) in Stages::NAMES {
            if self.contains(stage) {
                f.write_str(if first { "" } else { "+" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One step's access to a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The memory that is accessed; ranges of different resources never overlap.
    pub resource: u64,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// True when the bytes may be written.
    pub write: bool,
    /// The stage that accesses them.
    pub stage: Stages,
}
