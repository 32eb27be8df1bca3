//! What a device can do, as plain data.
//!
//! Capabilities decide which kernels may run, so they are values that can be compared, printed,
//! clamped in tests and hashed into a plan. Nothing here touches Vulkan.

use std::fmt;

/// A set of optional device abilities. The required profile needs none of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caps(pub u64);

macro_rules! caps {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Caps {
            $($(#[$doc])* pub const $name: Caps = Caps(1 << $bit);)*
            const NAMES: &'static [(Caps, &'static str)] = &[$((Caps::$name, $text)),*];
        }
    };
}

caps! {
    /// 16-bit floats in storage buffers.
    F16_STORAGE = 0, "f16-storage";
    /// 16-bit float arithmetic in shaders.
    F16_ARITHMETIC = 1, "f16-arithmetic";
    /// 8-bit integers in storage buffers.
    I8_STORAGE = 2, "i8-storage";
    /// 8-bit integer arithmetic in shaders.
    I8_ARITHMETIC = 3, "i8-arithmetic";
    /// Basic subgroup operations in compute shaders.
    SUBGROUP_BASIC = 4, "subgroup-basic";
    /// Subgroup arithmetic (add, max) in compute shaders.
    SUBGROUP_ARITHMETIC = 5, "subgroup-arithmetic";
    /// Subgroup shuffles in compute shaders.
    SUBGROUP_SHUFFLE = 6, "subgroup-shuffle";
    /// Subgroup ballot in compute shaders.
    SUBGROUP_BALLOT = 7, "subgroup-ballot";
    /// A pipeline may require a subgroup size.
    SUBGROUP_SIZE_CONTROL = 8, "subgroup-size-control";
    /// Integer dot product.
    INTEGER_DOT = 9, "integer-dot";
    /// `VK_KHR_cooperative_matrix`.
    COOPERATIVE_MATRIX = 10, "cooperative-matrix";
    /// Atomic addition of 32-bit floats in buffers.
    ATOMIC_FLOAT = 11, "atomic-float";
    /// Buffer device addresses.
    BUFFER_ADDRESS = 12, "buffer-address";
    /// `synchronization2`.
    SYNCHRONIZATION2 = 13, "synchronization2";
    /// Live memory budget (`VK_EXT_memory_budget`).
    MEMORY_BUDGET = 14, "memory-budget";
    /// Query reset from the host.
    HOST_QUERY_RESET = 15, "host-query-reset";
    /// Pipeline statistics (`VK_KHR_pipeline_executable_properties`).
    PIPELINE_STATISTICS = 16, "pipeline-statistics";
    /// 64-bit integers in shaders.
    I64 = 17, "int64";
    /// The Vulkan memory model.
    MEMORY_MODEL = 18, "memory-model";
}

impl Caps {
    /// The empty set.
    pub const NONE: Caps = Caps(0);

    /// Both sets together.
    pub const fn union(self, other: Caps) -> Caps {
        Caps(self.0 | other.0)
    }

    /// True when every ability in `needs` is in `self`.
    pub const fn covers(self, needs: Caps) -> bool {
        needs.0 & !self.0 == 0
    }

    /// The abilities in `needs` that `self` lacks.
    pub const fn missing(self, needs: Caps) -> Caps {
        Caps(needs.0 & !self.0)
    }

    /// The abilities of `self` that are not in `other`.
    pub const fn without(self, other: Caps) -> Caps {
        Caps(self.0 & !other.0)
    }

    /// True when nothing is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set with the given printed name, for parsing `kernels.lock`; `None` if unknown.
    pub fn by_name(name: &str) -> Option<Caps> {
        Self::NAMES.iter().find(|(_, text)| *text == name).map(|(caps, _)| *caps)
    }

    /// The printed names of the members, in bit order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(caps, _)| self.covers(*caps)).map(|(_, text)| *text)
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        for (index, name) in self.names().enumerate() {
            if index > 0 {
                f.write_str("+")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caps({self})")
    }
}

/// Numeric limits of a device that sizes come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Largest range of one storage-buffer descriptor, bytes.
    pub storage_range_bytes: u64,
    /// Required alignment of a storage-buffer offset, bytes.
    pub storage_align_bytes: u64,
    /// Largest single memory allocation, bytes.
    pub allocation_bytes: u64,
    /// Largest number of workgroups in x, y and z.
    pub groups: [u32; 3],
    /// Largest number of invocations in a workgroup.
    pub invocations: u32,
    /// Largest workgroup size in x, y and z.
    pub local_size: [u32; 3],
    /// Shared memory of a workgroup, bytes.
    pub shared_bytes: u32,
    /// Push-constant block, bytes.
    pub push_bytes: u32,
    /// The reported subgroup size: a hint, never a promise.
    pub subgroup_size: u32,
    /// Smallest subgroup size a pipeline can require.
    pub subgroup_min: u32,
    /// Largest subgroup size a pipeline can require.
    pub subgroup_max: u32,
    /// Most turns that all loops of one invocation may take together: a driver that has such a
    /// bound leaves every loop beyond it without a word. `u32::MAX` when there is none.
    pub loop_turns: u32,
    /// Nanoseconds per timestamp tick; 0 when timestamps are not available.
    pub timestamp_period_ns: f32,
}

/// Everything kernel selection and planning may know about a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Optional abilities that are present, enabled and not switched off by a quirk.
    pub caps: Caps,
    /// Numeric limits.
    pub limits: Limits,
    /// True for a software driver (lavapipe, SwiftShader): the `cpu` variants profit.
    pub software: bool,
    /// True when device-local memory is also host-visible for everything (integrated, software).
    pub unified_memory: bool,
}

impl Capabilities {
    /// The smallest device OA accepts (DESIGN section 3): every limit at its floor, no ability.
    pub fn floor() -> Capabilities {
        Capabilities {
            caps: Caps::NONE,
            limits: Limits {
                storage_range_bytes: 128 << 20,
                storage_align_bytes: 256,
                allocation_bytes: 1 << 30,
                groups: [65_535; 3],
                invocations: 128,
                local_size: [128, 128, 64],
                shared_bytes: 16 << 10,
                push_bytes: 128,
                subgroup_size: 1,
                subgroup_min: 1,
                subgroup_max: 1,
                loop_turns: 65_000,
                timestamp_period_ns: 0.0,
            },
            software: false,
            unified_memory: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_compared_by_their_members() {
        let both = Caps::I64.union(Caps::INTEGER_DOT);
        assert!(both.covers(Caps::I64) && both.covers(Caps::NONE) && both.covers(both));
        assert!(!Caps::I64.covers(both));
        assert_eq!(Caps::I64.missing(both), Caps::INTEGER_DOT);
        assert_eq!(both.without(Caps::I64), Caps::INTEGER_DOT);
        assert!(both.without(both).is_empty());
    }

    #[test]
    fn names_are_unique_and_lead_back() {
        let all = Caps::NAMES.iter().fold(Caps::NONE, |all, (cap, _)| all.union(*cap));
        assert_eq!(all.names().count(), Caps::NAMES.len());
        assert_eq!(all.0.count_ones() as usize, Caps::NAMES.len());
        for (cap, name) in Caps::NAMES {
            assert_eq!(Caps::by_name(name), Some(*cap));
        }
        assert_eq!(Caps::by_name("no such thing"), None);
        let two = Caps::SUBGROUP_BASIC.union(Caps::F16_STORAGE);
        assert_eq!(two.to_string(), "f16-storage+subgroup-basic");
        assert_eq!(format!("{:?}", Caps::NONE), "Caps(-)");
    }
}
