//! What a driver that bounds loop turns leaves room for.
//!
//! Lavapipe before Mesa 25 ends every loop of a kernel once all of them together took 65,535 turns,
//! and says nothing: wrong numbers. Ops whose loops grow with a shape ask here and split their work
//! or refuse it. Devices without such a bound, and graphs without a device, are not limited.

use super::OpDef;
use crate::error::{Error, Result, ShapeError};
use crate::host::Spec;
use crate::value::Tensor;
use std::panic::Location;

/// Turns that all loops of one invocation may take together on the device of a value.
pub(super) fn most(value: &Tensor) -> u32 {
    let engine = value.graph().engine();
    engine.map_or(u32::MAX, |engine| engine.capabilities().limits.loop_turns)
}

/// Refuses an op that would need more turns than its device has.
///
/// # Errors
///
/// A shape error at the caller's line that asks for a shorter sequence.
#[track_caller]
pub(super) fn check(op: &'static OpDef, inputs: &[&Tensor], needed: usize) -> Result<()> {
    if needed <= most(inputs[0]) as usize {
        return Ok(());
    }
    let got: Vec<Spec> = inputs.iter().map(|input| input.spec()).collect();
    let expected = "a shorter sequence on this driver, which ends the loops of a kernel after \
                    65,535 turns (lavapipe of Mesa 25 does not)";
    let source = Box::new(ShapeError::new(expected, &got));
    Err(Error::Shape { op: op.name, site: Location::caller(), source })
}
