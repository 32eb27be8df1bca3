//! Examples and properties of the barrier planner.

use super::hazard::between;
use super::*;
use proptest::prelude::*;

fn access(resource: u64, start: u64, end: u64, write: bool) -> Access {
    Access { resource, start, end, write, stage: Stages::COMPUTE }
}

fn check(steps: &[Vec<Access>], barriers_before: &[usize]) {
    let planned = plan(steps);
    let found: Vec<usize> = (0..steps.len()).filter(|&step| planned[step].is_some()).collect();
    assert_eq!(found, barriers_before);
}

#[test]
fn independent_steps_need_none() {
    check(&[], &[]);
    check(&[vec![access(0, 0, 4, true)], vec![access(0, 4, 8, true)]], &[]);
    check(&[vec![access(0, 0, 4, false)], vec![access(0, 0, 4, false)]], &[]);
    check(&[vec![access(0, 0, 4, true)], vec![access(1, 0, 4, true)]], &[]);
    check(&[vec![access(0, 0, 0, true)], vec![access(0, 0, 4, true)]], &[]);
}

#[test]
fn one_barrier_serves_many_hazards() {
    let write = |resource| vec![access(resource, 0, 4, true)];
    let read = |resource| vec![access(resource, 0, 4, false)];
    check(&[write(0), write(1), write(2), read(2), read(0), read(1)], &[3]);
    check(&[write(0), read(0), write(0), read(0)], &[1, 2, 3]);
}

#[test]
fn stages_are_those_of_the_hazards() {
    let copy = Access { stage: Stages::TRANSFER, ..access(7, 0, 4, true) };
    let kernel = access(7, 0, 4, false);
    let planned = plan(&[vec![copy], vec![access(8, 0, 4, true)], vec![kernel]]);
    let barrier = planned[2].expect("the kernel reads what the copy wrote");
    assert_eq!((barrier.from, barrier.to), (Stages::TRANSFER, Stages::COMPUTE));
    assert_eq!(barrier.reason.kind, HazardKind::ReadAfterWrite);
    assert_eq!(barrier.reason.earlier, 0);
    assert_eq!(format!("{:?}", barrier.reason), "reads what step 0 writes in resource 0x7");
}

#[test]
fn a_barrier_covers_later_steps_of_other_stages() {
    let late_copy = Access { stage: Stages::TRANSFER, ..access(0, 0, 4, false) };
    let steps = [
        vec![access(0, 0, 4, true), access(1, 0, 4, true)],
        vec![access(1, 0, 4, false)],
        vec![late_copy],
    ];
    let planned = plan(&steps);
    let barrier = planned[1].expect("step 1 reads what step 0 wrote");
    assert_eq!(barrier.to, Stages::COMPUTE | Stages::TRANSFER);
    assert!(planned[2].is_none());
}

fn steps() -> impl Strategy<Value = Vec<Vec<Access>>> {
    let stage = prop_oneof![Just(Stages::COMPUTE), Just(Stages::TRANSFER), Just(Stages::HOST)];
    let access = (0..3u64, 0..12u64, 0..6u64, any::<bool>(), stage).prop_map(
        |(resource, start, len, write, stage)| Access {
            resource,
            start,
            end: start + len,
            write,
            stage,
        },
    );
    prop::collection::vec(prop::collection::vec(access, 0..4), 0..14)
}

/// Every conflicting pair is separated by a barrier that names its stages.
fn answers_all(steps: &[Vec<Access>], barriers: &[Option<Barrier>]) -> bool {
    let pair = |earlier: usize, later: usize| {
        steps[earlier].iter().all(|before| {
            steps[later].iter().all(|after| {
                between(before, after).is_none()
                    || barriers[earlier + 1..=later].iter().flatten().any(|barrier| {
                        barrier.from.contains(before.stage) && barrier.to.contains(after.stage)
                    })
            })
        })
    };
    (0..steps.len()).all(|later| (0..later).all(|earlier| pair(earlier, later)))
}

/// The fewest points that stab all conflicting pairs, by dynamic programming over positions.
fn fewest(steps: &[Vec<Access>]) -> usize {
    let conflicts = |first: usize, last: usize| {
        (first..=last).any(|later| {
            (first..later).any(|earlier| {
                steps[earlier].iter().any(|a| steps[later].iter().any(|b| between(a, b).is_some()))
            })
        })
    };
    // best[i]: fewest groups of consecutive conflict-free steps that cover the first i steps.
    let mut best = vec![0usize];
    for end in 1..=steps.len() {
        let starts = (0..end).filter(|&start| !conflicts(start, end - 1));
        best.push(starts.map(|start| best[start] + 1).min().expect("one step alone is free"));
    }
    best[steps.len()].saturating_sub(1)
}

proptest! {
    #[test]
    fn every_hazard_is_answered_with_the_fewest_barriers(steps in steps()) {
        let barriers = plan(&steps);
        prop_assert!(answers_all(&steps, &barriers));
        prop_assert_eq!(barriers.iter().flatten().count(), fewest(&steps));
        for (index, barrier) in barriers.iter().enumerate() {
            if let Some(barrier) = barrier {
                prop_assert!((barrier.reason.earlier as usize) < index);
                prop_assert!(!barrier.from.is_empty() && !barrier.to.is_empty());
            }
        }
    }

    #[test]
    fn planning_twice_gives_the_same(steps in steps()) {
        prop_assert_eq!(plan(&steps), plan(&steps));
    }
}
