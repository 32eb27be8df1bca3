//! Reading losses late, and stopping when one is no number.
//!
//! A step's loss and gradient norm are read when two further steps have been submitted (or when
//! somebody asks), so the loop never waits for the step it just submitted. The device skips the
//! update of a step whose gradient norm is not finite, so the weights are still good when the host
//! learns of it.

use crate::error::{BadTensor, Error, Result};
use crate::param::Parameters;
use oa_graph::{Event, Tensor};
use std::collections::VecDeque;

/// Steps that may be submitted before the oldest loss is read. A plan keeps the outputs of three
/// replays, so with two steps behind it the third is read just in time.
const LATE: usize = 2;

/// Reports kept for a caller that does not take them.
const REPORTS: usize = 1_024;

/// What a finished step measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The step, counted from 0.
    pub step: u64,
    /// Its loss, in nats.
    pub loss: f32,
    /// Global gradient norm before clipping.
    pub gradient_norm: f32,
    /// Learning rate of its update.
    pub learning_rate: f64,
}

/// Where a submitted step's loss and norm will be.
pub(super) enum Outcome {
    /// Values of an eager step. The norm's buffer goes back to the engine's pool first, so that
    /// each comes out again for the same purpose, and bindings repeat.
    Values { norm: Tensor, loss: Tensor },
    /// Outputs 0 and 1 of a replay.
    Replay(Event),
}

impl Outcome {
    fn read(&self) -> Result<(f32, f32)> {
        match self {
            Outcome::Values { norm, loss } => Ok((loss.item()?, norm.item()?)),
            Outcome::Replay(event) => {
                let mut value = [0.0f32; 2];
                let (loss, norm) = value.split_at_mut(1);
                event.output_f32(0, loss)?;
                event.output_f32(1, norm)?;
                Ok((value[0], value[1]))
            }
        }
    }
}

struct Pending {
    step: u64,
    learning_rate: f64,
    outcome: Outcome,
}

/// Submitted steps and finished ones.
pub(super) struct Watch {
    pending: VecDeque<Pending>,
    reports: VecDeque<StepReport>,
    last: Option<StepReport>,
    stopped: Option<u64>,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            pending: VecDeque::with_capacity(LATE + 1),
            reports: VecDeque::with_capacity(REPORTS),
            last: None,
            stopped: None,
        }
    }

    /// Refuses to go on after a value that is no number.
    pub(super) fn check(&self) -> Result<()> {
        match self.stopped {
            Some(step) => Err(Error::Stopped { step }),
            None => Ok(()),
        }
    }

    /// Takes note of a submitted step, and reads the one that is late enough.
    pub(super) fn submitted(
        &mut self,
        parameters: &Parameters,
        step: u64,
        learning_rate: f64,
        outcome: Outcome,
    ) -> Result<()> {
        self.pending.push_back(Pending { step, learning_rate, outcome });
        self.settle(parameters, LATE)
    }

    /// Reads the oldest steps until at most `keep` are left.
    pub(super) fn settle(&mut self, parameters: &Parameters, keep: usize) -> Result<()> {
        while self.pending.len() > keep {
            let Some(Pending { step, learning_rate, outcome }) = self.pending.pop_front() else {
                break;
            };
            let (loss, gradient_norm) = outcome.read()?;
            if !loss.is_finite() || !gradient_norm.is_finite() {
                self.stopped = Some(step);
                self.pending.clear();
                return Err(diagnose(parameters, step, loss, gradient_norm)?);
            }
            let report = StepReport { step, loss, gradient_norm, learning_rate };
            if self.reports.len() == REPORTS {
                self.reports.pop_front();
            }
            self.reports.push_back(report);
            self.last = Some(report);
        }
        Ok(())
    }

    pub(super) fn take(&mut self) -> Option<StepReport> {
        self.reports.pop_front()
    }

    pub(super) fn last(&self) -> Option<StepReport> {
        self.last
    }
}

/// Finds the first bad tensor in the order of computation: parameters, loss, gradients.
fn diagnose(parameters: &Parameters, step: u64, loss: f32, norm: f32) -> Result<Error> {
    let bad = |tensors: Vec<crate::NamedTensor>| {
        tensors.into_iter().find_map(|tensor| {
            let value = tensor.data.iter().copied().find(|value| !value.is_finite())?;
            Some((Box::<str>::from(tensor.name), value))
        })
    };
    let (place, value) = if let Some((name, value)) = bad(parameters.to_host()?) {
        (BadTensor::Parameter(name), value)
    } else if !loss.is_finite() {
        (BadTensor::Loss, loss)
    } else if let Some((name, value)) = bad(parameters.gradients_to_host()?) {
        (BadTensor::Gradient(name), value)
    } else {
        (BadTensor::GradientNorm, norm)
    };
    Ok(Error::NonFinite { step, place: Box::new(place), value })
}
