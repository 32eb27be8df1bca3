//! The gradients of a model: an arena of the layout of its parameters.
//!
//! A backward pass stores into it or adds to it. A parameter that got no gradient keeps zeros, so
//! that the norm and the update over the whole arena are right, and is reported; so is one that is
//! frozen and therefore gets none.

use super::freeze::named;
use super::store::Parameters;
use crate::error::Result;
use oa_graph::Tensor;
use oa_graph::state::{Arena, State};
use std::sync::{Mutex, MutexGuard};

/// Which parameters a backward pass reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientReport {
    /// Parameters that got a gradient.
    pub reached: usize,
    /// All parameters.
    pub total: usize,
    /// Names of those that got none though they train, in declaration order.
    pub missing: Vec<Box<str>>,
    /// Names of those that are frozen, in declaration order.
    pub frozen: Vec<Box<str>>,
}

impl std::fmt::Display for GradientReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} parameters got a gradient", self.reached, self.total)?;
        if !self.missing.is_empty() {
            write!(f, "; none for {}", self.missing.join(", "))?;
        }
        if !self.frozen.is_empty() {
            write!(f, "; frozen are {}", self.frozen.join(", "))?;
        }
        Ok(())
    }
}

/// What the next backward pass has to know.
#[derive(Default)]
struct Progress {
    /// Backward passes since the gradients were last zeroed.
    passes: u32,
    /// Parameters whose slot holds something else than zeros.
    dirty: Vec<bool>,
    /// Parameters reached since the gradients were last zeroed.
    reached: Vec<bool>,
}

/// The gradient arena of a model.
pub(crate) struct Gradients {
    arena: Arena,
    states: Vec<State>,
    progress: Mutex<Progress>,
}

impl Gradients {
    pub(super) fn new(parameters: &Parameters) -> Result<Gradients> {
        let layout = parameters.layout();
        let arena = parameters.engine().arena("gradients", layout.elems())?;
        let window = |slot: &super::Slot| arena.state(&slot.name, slot.offset, slot.shape);
        let states: Vec<State> = layout.slots().iter().map(window).collect();
        let flags = vec![false; states.len()];
        let progress = Progress { passes: 0, dirty: flags.clone(), reached: flags };
        Ok(Gradients { arena, states, progress: Mutex::new(progress) })
    }

    /// The arena.
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no panic while the gradient progress is held")
    }

    /// Makes the next backward pass overwrite instead of add. No device work.
    pub(crate) fn zero(&self) {
        let mut progress = self.progress();
        progress.passes = 0;
        progress.reached.fill(false);
    }

    /// Backward passes since the gradients were last zeroed.
    pub(crate) fn passes(&self) -> u32 {
        self.progress().passes
    }

    /// Records that the gradients of one backward pass go into the arena.
    pub(crate) fn deposit(
        &self,
        parameters: &Parameters,
        gradients: &[Option<Tensor>],
    ) -> Result<()> {
        let engine = parameters.engine();
        let mut progress = self.progress();
        let first = progress.passes == 0;
        for (index, (state, gradient)) in self.states.iter().zip(gradients).enumerate() {
            match gradient {
                Some(gradient) if first || !progress.dirty[index] => {
                    engine.store(state, gradient)?;
                }
                Some(gradient) => engine.store(state, &engine.read(state).add(gradient)?)?,
                None if first && progress.dirty[index] => {
                    engine.store(state, &engine.zeros(state.shape())?)?;
                    progress.dirty[index] = false;
                }
                None => {}
            }
            if gradient.is_some() {
                progress.dirty[index] = true;
                progress.reached[index] = true;
            }
        }
        progress.passes += 1;
        Ok(())
    }

    /// What the passes since the last zeroing reached.
    pub(crate) fn report(&self, parameters: &Parameters) -> GradientReport {
        let (slots, progress) = (parameters.layout().slots(), self.progress());
        let frozen = parameters.freezing_flags();
        let idle =
            progress.reached.iter().zip(&frozen).map(|(reached, frozen)| !reached && !frozen);
        let missing = named(slots, idle);
        let reached = progress.reached.iter().filter(|reached| **reached).count();
        let frozen = named(slots, frozen.into_iter());
        GradientReport { reached, total: slots.len(), missing, frozen }
    }
}
