//! Placement of values in an arena: greedy best fit in several orders, the best order wins.
//!
//! Optimal placement is NP-hard; large values first is the order that loses least on average, and
//! the other orders win on graphs whose large values live briefly. All orders are deterministic,
//! with ties broken by the value's number.

use super::interval::{Lifetime, busiest_bytes};
use std::cmp::Reverse;

/// The offset of each value, and how good the placement is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Offset of each value, bytes, in the order of the lifetimes; multiples of the alignment.
    pub offsets: Vec<u64>,
    /// Size of the arena, bytes; a multiple of the alignment.
    pub peak_bytes: u64,
    /// Bytes alive at the busiest step: no placement has a smaller peak.
    pub lower_bound_bytes: u64,
}

/// Places values so that no two that are alive at one step share bytes.
///
/// # Panics
///
/// When `align` is 0.
pub fn place(lifetimes: &[Lifetime], align: u64) -> Placement {
    assert!(align > 0, "an alignment of 0 bytes");
    let lower_bound_bytes = busiest_bytes(lifetimes, align);
    let mut best: Option<Placement> = None;
    for order in orders(lifetimes) {
        let (offsets, peak_bytes) = fit(lifetimes, &order, align);
        if best.as_ref().is_none_or(|best| peak_bytes < best.peak_bytes) {
            best = Some(Placement { offsets, peak_bytes, lower_bound_bytes });
        }
        if peak_bytes == lower_bound_bytes {
            break;
        }
    }
    best.unwrap_or_default()
}

/// The orders tried: by size, by birth, by the bytes times steps a value occupies.
fn orders(lifetimes: &[Lifetime]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let key = |order: usize, index: usize| {
        let life = &lifetimes[index];
        let area = u128::from(life.len_bytes) * u128::from(life.death.saturating_sub(life.birth));
        match order {
            0 => (Reverse(u128::from(life.len_bytes)), life.birth, index),
            1 => (Reverse(0), life.birth, index),
            _ => (Reverse(area), life.birth, index),
        }
    };
    (0..3).map(move |order| {
        let mut indices: Vec<usize> = (0..lifetimes.len()).collect();
        indices.sort_unstable_by_key(|&index| key(order, index));
        indices
    })
}

/// Places values in the given order, each into the smallest gap that takes it.
fn fit(lifetimes: &[Lifetime], order: &[usize], align: u64) -> (Vec<u64>, u64) {
    let mut offsets = vec![0; lifetimes.len()];
    // Placed values, sorted by offset.
    let mut placed: Vec<(u64, u64, usize)> = Vec::with_capacity(order.len());
    let mut peak = 0;
    for &index in order {
        let life = &lifetimes[index];
        let len = life.len_bytes.next_multiple_of(align);
        if len == 0 {
            continue;
        }
        let taken = placed.iter().filter(|(_, _, other)| life.meets(&lifetimes[*other]));
        let offset = best_gap(taken.map(|&(start, end, _)| (start, end)), len);
        offsets[index] = offset;
        peak = peak.max(offset + len);
        let at = placed.partition_point(|&(start, _, _)| start <= offset);
        placed.insert(at, (offset, offset + len, index));
    }
    (offsets, peak)
}

/// The offset of the smallest gap of at least `len` bytes between ranges that are sorted by their
/// start and may overlap; the end of the last range when no gap takes it.
fn best_gap(taken: impl Iterator<Item = (u64, u64)>, len: u64) -> u64 {
    let (mut free_from, mut best) = (0u64, None::<(u64, u64)>);
    for (start, end) in taken {
        if start > free_from {
            let gap = start - free_from;
            if gap >= len && best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, free_from));
            }
        }
        free_from = free_from.max(end);
    }
    best.map_or(free_from, |(_, offset)| offset)
}
