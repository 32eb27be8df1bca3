//! The fewest barriers that answer every hazard of a list of steps.
//!
//! A hazard between steps p and q is answered by any barrier before one of the steps p+1 to q. So
//! hazards are intervals and barriers are the points that stab them: putting a barrier as late as
//! the first conflict allows is optimal. The stages of each barrier are then narrowed to those of
//! the hazards that it is the first to answer.

use super::hazard::{Hazard, between};
use super::{Access, Stages};

/// A global memory barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The stages that must have finished.
    pub from: Stages,
    /// The stages that wait.
    pub to: Stages,
    /// The first conflict that made it necessary.
    pub reason: Hazard,
}

/// The barrier needed before each step; `None` where none is. Accesses of one step do not
/// conflict with each other. Costs at most a comparison of every pair of accesses.
pub fn plan(steps: &[Vec<Access>]) -> Vec<Option<Barrier>> {
    let mut reasons: Vec<Option<Hazard>> = Vec::with_capacity(steps.len());
    let mut since = 0;
    for (index, step) in steps.iter().enumerate() {
        let reason = conflict(&steps[since..index], step, since as u32);
        if reason.is_some() {
            since = index;
        }
        reasons.push(reason);
    }
    let mut barriers = vec![None; steps.len()];
    let mut since = 0;
    for (index, reason) in reasons.into_iter().enumerate() {
        if let Some(reason) = reason {
            let (from, to) = stages(&steps[since..index], &steps[index..]);
            barriers[index] = Some(Barrier { from, to, reason });
            since = index;
        }
    }
    barriers
}

/// The first conflict of `step` with the steps that no barrier separates it from.
fn conflict(pending: &[Vec<Access>], step: &[Access], first: u32) -> Option<Hazard> {
    let numbered = (first..).zip(pending);
    let mut earlier = numbered.flat_map(|(number, step)| step.iter().map(move |a| (number, a)));
    earlier.find_map(|(number, before)| {
        let kind = step.iter().find_map(|after| between(before, after))?;
        Some(Hazard { kind, earlier: number, resource: before.resource })
    })
}

/// The stages of the hazards from the steps just before a barrier to any step after it.
fn stages(before: &[Vec<Access>], after: &[Vec<Access>]) -> (Stages, Stages) {
    let all = |steps: &[Vec<Access>]| {
        steps.iter().flatten().fold(Stages::NONE, |stages, access| stages | access.stage)
    };
    let (most_from, most_to) = (all(before), all(after));
    let (mut from, mut to) = (Stages::NONE, Stages::NONE);
    for later in after.iter().flatten() {
        for earlier in before.iter().flatten() {
            let known = from.contains(earlier.stage) && to.contains(later.stage);
            if !known && between(earlier, later).is_some() {
                from |= earlier.stage;
                to |= later.stage;
            }
        }
        if (from, to) == (most_from, most_to) {
            break;
        }
    }
    (from, to)
}
