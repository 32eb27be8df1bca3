//! Examples and properties of the alias planner and its verifier.

use super::*;
use proptest::prelude::*;

fn life(len_bytes: u64, birth: u32, death: u32) -> Lifetime {
    Lifetime { len_bytes, birth, death }
}

fn check(lifetimes: &[Lifetime], align: u64, peak_bytes: u64) {
    let placement = place(lifetimes, align);
    assert_eq!(verify(lifetimes, &placement, align), Ok(()));
    assert_eq!(placement.peak_bytes, peak_bytes, "{placement:?}");
}

#[test]
fn values_that_do_not_meet_share_bytes() {
    check(&[], 16, 0);
    check(&[life(100, 0, 2), life(100, 2, 4)], 16, 112);
    check(&[life(100, 0, 3), life(100, 2, 4)], 16, 224);
    check(&[life(0, 0, 9), life(1, 0, 9)], 256, 256);
    // A chain of three: the first and the last share.
    check(&[life(64, 0, 2), life(32, 1, 3), life(64, 2, 4)], 32, 96);
}

#[test]
fn a_gap_is_reused() {
    // 128 lives for ever behind 64; the second 64 fits where the first was.
    check(&[life(64, 0, 1), life(128, 0, 9), life(64, 1, 9)], 64, 192);
}

#[test]
fn the_verifier_sees_each_broken_rule() {
    let lifetimes = [life(64, 0, 2), life(64, 1, 3)];
    let placed = |offsets: &[u64], peak_bytes| Placement {
        offsets: offsets.to_vec(),
        peak_bytes,
        lower_bound_bytes: 0,
    };
    let verdict = |offsets: &[u64], peak| verify(&lifetimes, &placed(offsets, peak), 64);
    assert_eq!(verdict(&[0, 64], 128), Ok(()));
    assert_eq!(verdict(&[0, 0], 128), Err(Overlap::Shared { first: 0, second: 1 }));
    assert_eq!(verdict(&[0, 64], 64), Err(Overlap::Outside { value: 1, peak_bytes: 64 }));
    let misaligned = Overlap::Misaligned { value: 1, offset: 96, align: 64 };
    assert_eq!(verdict(&[0, 96], 256), Err(misaligned));
    assert_eq!(verdict(&[0], 64), Err(Overlap::Count { offsets: 1, values: 2 }));
}

fn lifetimes() -> impl Strategy<Value = Vec<Lifetime>> {
    let one = (0..2000u64, 0..40u32, 0..12u32)
        .prop_map(|(len_bytes, birth, steps)| life(len_bytes, birth, birth + steps));
    prop::collection::vec(one, 0..60)
}

/// The lower bound, from the definition.
fn busiest(lifetimes: &[Lifetime], align: u64) -> u64 {
    let alive = |step: u32| {
        let at = lifetimes.iter().filter(|life| life.birth <= step && step < life.death);
        at.map(|life| life.len_bytes.next_multiple_of(align)).sum::<u64>()
    };
    (0..64).map(alive).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn placements_are_sound(lifetimes in lifetimes(), align in prop_oneof![Just(1u64), Just(16), Just(256)]) {
        let placement = place(&lifetimes, align);
        prop_assert_eq!(verify(&lifetimes, &placement, align), Ok(()));
        prop_assert_eq!(placement.lower_bound_bytes, busiest(&lifetimes, align));
        prop_assert!(placement.peak_bytes >= placement.lower_bound_bytes);
        let apart: u64 = lifetimes.iter().map(|life| life.len_bytes.next_multiple_of(align)).sum();
        prop_assert!(placement.peak_bytes <= apart);
        prop_assert_eq!(place(&lifetimes, align), placement);
    }

    #[test]
    fn a_moved_value_is_caught(lifetimes in lifetimes(), moved in any::<prop::sample::Index>()) {
        let meets = |index: usize| {
            (0..lifetimes.len()).find(|&other| {
                let both = lifetimes[index].len_bytes > 0 && lifetimes[other].len_bytes > 0;
                other != index && both && lifetimes[index].meets(&lifetimes[other])
            })
        };
        prop_assume!(!lifetimes.is_empty());
        let index = moved.index(lifetimes.len());
        let Some(other) = meets(index) else { return Ok(()) };
        let mut placement = place(&lifetimes, 16);
        placement.offsets[index] = placement.offsets[other];
        prop_assert!(verify(&lifetimes, &placement, 16).is_err());
    }
}
