//! The gradient tape: from a loss to the gradients of the parameters it depends on.
//!
//! A thin layer: the graph already holds everything that was recorded, so a tape only says when to
//! walk back and where the gradients go. It knows no op by name.

use crate::error::{Error, Result};
use crate::param::{Parameters, Registry};
use oa_graph::state::State;
use oa_graph::{DType, Tensor};
use std::panic::Location;

/// Walks a loss back to the parameters it was computed from.
#[derive(Debug, Default)]
pub struct GradientTape {}

impl GradientTape {
    /// A tape.
    pub fn new() -> GradientTape {
        GradientTape {}
    }

    /// Records the gradients of a scalar loss with respect to every parameter of its engine that is
    /// not frozen, into the gradient arenas: the first pass after zeroing overwrites, later ones add.
    /// For frozen parameters nothing is computed.
    ///
    /// # Errors
    ///
    /// When the loss is no f32 scalar, when an op on the way has no derivative, or when no
    /// parameter is reached at all.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let (site, spec) = (Location::caller(), loss.spec());
        if spec.dtype != DType::F32 || spec.shape.elems() != 1 {
            return Err(Error::NotAScalar { site, spec });
        }
        let models = loss.graph().extension::<Registry>().live();
        let frozen: Vec<Vec<bool>> = models.iter().map(Parameters::freezing_flags).collect();
        let flags = frozen.iter().flatten();
        let states = models.iter().flat_map(Parameters::states).zip(flags);
        let states: Vec<&State> = states.filter(|(_, frozen)| !**frozen).map(|(s, _)| s).collect();
        let gradients = oa_graph::grad::backward(loss, &states)?;
        if gradients.iter().all(Option::is_none) {
            return Err(Error::NoGradient { site, parameters: states.len() });
        }
        let mut gradients = gradients.into_iter();
        for (model, frozen) in models.iter().zip(&frozen) {
            let next = |&frozen: &bool| if frozen { None } else { gradients.next().flatten() };
            let own: Vec<Option<Tensor>> = frozen.iter().map(next).collect();
            if own.iter().any(Option::is_some) {
                model.gradients()?.deposit(model, &own)?;
            }
        }
        Ok(())
    }
}
