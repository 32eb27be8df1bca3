//! The independent check of a placement: every pair of values is looked at.
//!
//! It shares no code with the placement, so that a fault there is found here; plans run it in debug
//! builds and property tests run it on random lifetimes.

use super::{Lifetime, Placement};

/// The rule that a placement breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overlap {
    /// Two values that are alive at one step share bytes.
    #[error("values {first} and {second} are alive together and share bytes")]
    Shared {
        /// The lower number.
        first: usize,
        /// The higher number.
        second: usize,
    },
    /// An offset is not a multiple of the alignment.
    #[error("value {value} is at byte {offset}, which is no multiple of {align}")]
    Misaligned {
        /// The value.
        value: usize,
        /// Its offset, bytes.
        offset: u64,
        /// The alignment, bytes.
        align: u64,
    },
    /// A value ends beyond the arena.
    #[error("value {value} ends beyond the arena of {peak_bytes} B")]
    Outside {
        /// The value.
        value: usize,
        /// Size of the arena, bytes.
        peak_bytes: u64,
    },
    /// There is not one offset per value.
    #[error("{offsets} offsets for {values} values")]
    Count {
        /// Offsets in the placement.
        offsets: usize,
        /// Values placed.
        values: usize,
    },
}

/// Checks that a placement is one: aligned, inside its arena, and no two live values share bytes.
///
/// # Errors
///
/// The first rule that is broken.
pub fn verify(lifetimes: &[Lifetime], placement: &Placement, align: u64) -> Result<(), Overlap> {
    let offsets = &placement.offsets;
    if offsets.len() != lifetimes.len() {
        return Err(Overlap::Count { offsets: offsets.len(), values: lifetimes.len() });
    }
    let end = |value: usize| offsets[value].saturating_add(lifetimes[value].len_bytes);
    for value in 0..lifetimes.len() {
        let offset = offsets[value];
        if align == 0 || !offset.is_multiple_of(align) {
            return Err(Overlap::Misaligned { value, offset, align });
        }
        if end(value) > placement.peak_bytes {
            return Err(Overlap::Outside { value, peak_bytes: placement.peak_bytes });
        }
        for earlier in 0..value {
            let (a, b) = (&lifetimes[earlier], &lifetimes[value]);
            let together = a.birth.max(b.birth) < a.death.min(b.death);
            let common = offsets[earlier].max(offset) < end(earlier).min(end(value));
            if together && common {
                return Err(Overlap::Shared { first: earlier, second: value });
            }
        }
    }
    Ok(())
}
