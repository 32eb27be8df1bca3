//! Half-open lifetimes.
//!
//! A value is alive from the step that produces it up to, but not including, the step named by its
//! death; two values that touch only at that boundary may share bytes.

/// How many bytes a value needs, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifetime {
    /// Size, bytes. A value of no bytes is placed at offset 0 and overlaps nothing.
    pub len_bytes: u64,
    /// First step at which the value is alive.
    pub birth: u32,
    /// First step at which it is no longer alive; not before `birth`.
    pub death: u32,
}

impl Lifetime {
    /// True when both are alive at some step.
    pub const fn meets(&self, other: &Lifetime) -> bool {
        self.birth < other.death
            && other.birth < self.death
            && self.birth < self.death
            && other.birth < other.death
    }
}

/// The bytes alive at the busiest step, each value rounded up to `align`: no placement with
/// offsets that are multiples of `align` has a smaller peak.
pub(super) fn busiest_bytes(lifetimes: &[Lifetime], align: u64) -> u64 {
    let alive = lifetimes.iter().filter(|life| life.birth < life.death);
    // Deaths sort before births of the same step: the ends are half-open.
    let mut events: Vec<(u32, bool, u64)> = alive
        .flat_map(|life| {
            let len = life.len_bytes.next_multiple_of(align);
            [(life.death, false, len), (life.birth, true, len)]
        })
        .collect();
    events.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, born, len) in events {
        if born {
            now += len;
            most = most.max(now);
        } else {
            now -= len;
        }
    }
    most
}
