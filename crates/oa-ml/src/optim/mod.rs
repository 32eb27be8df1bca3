//! Optimizers and learning-rate schedules.
//!
//! A schedule says how large a step is, an optimizer how the step is taken; both are plain data
//! plus one recorded update over the parameter arenas. An [`Optimizer`] is an object, so that a
//! training session takes any of them.

pub mod adamw;
mod config;
mod group;
mod moments;
pub mod muon;
pub mod schedule;
pub mod sgd;

pub use config::OptimizerConfig;
pub use group::ParameterGroup;
pub use moments::Moments;

use crate::checkpoint::OptimizerState;
use crate::error::{Error, Result};
use crate::param::Parameters;
use oa_graph::Tensor;
use oa_graph::ops::optim::Hyper;

/// Changes parameters by their gradients, and keeps what it remembers of them on the device.
pub trait Optimizer {
    /// Which optimizer, and its settings.
    fn config(&self) -> OptimizerConfig;

    /// Takes over settings; captured steps must be captured again.
    ///
    /// # Errors
    ///
    /// [`Error::OtherOptimizer`] for those of another kind, [`Error::Optimizer`] when one is outside
    /// its range. Nothing changes then.
    fn set_config(&mut self, config: &OptimizerConfig) -> Result<()>;

    /// What it remembers.
    fn moments(&self) -> &Moments;

    /// What it remembers, to change.
    fn moments_mut(&mut self) -> &mut Moments;

    /// The settings of an update with the learning rate `rate`; `max_norm` is the largest norm of
    /// all gradients, 0 for no clipping.
    fn hyper(&self, rate: f64, max_norm: f32) -> Hyper;

    /// Records one update from the gradient arena with the words of [`Hyper`], f32 `[8]`, and
    /// returns the global gradient norm before clipping, f32 `[1]`. The device skips the update when
    /// that norm is not finite.
    ///
    /// # Errors
    ///
    /// When the graph refuses the update.
    fn record(&mut self, hyper: &Tensor) -> Result<Tensor>;

    /// The parameters it updates.
    fn parameters(&self) -> &Parameters {
        self.moments().parameters()
    }

    /// Updates done or recorded.
    fn updates(&self) -> u64 {
        self.moments().updates()
    }

    /// Parameters with a rate or decay of their own.
    fn groups(&self) -> &[ParameterGroup] {
        self.moments().groups()
    }

    /// Gives parameters a rate or decay of their own, instead of what earlier groups said. A
    /// schedule moves all rates alike: a group's is its factor times the schedule's.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`] when a pattern means no parameter, [`Error::TwoGroups`] when two groups
    /// mean one, [`Error::Optimizer`] when a number is outside its range. Nothing changes then.
    fn set_groups(&mut self, groups: Vec<ParameterGroup>) -> Result<()> {
        self.moments_mut().set_groups(groups)
    }

    /// The settings of the next update as words for the device; this call counts it as done.
    fn advance(&mut self, rate: f64, max_norm: f32) -> [f32; 8] {
        let update = self.moments_mut().count_update();
        self.hyper(rate, max_norm).words(update)
    }

    /// Records one update with the learning rate `rate`; see [`Optimizer::hyper`] for `max_norm`.
    /// Returns the global gradient norm before clipping, f32 `[1]`; hold it until the update was
    /// submitted.
    ///
    /// # Errors
    ///
    /// As [`Optimizer::record`].
    fn step(&mut self, rate: f64, max_norm: f32) -> Result<Tensor> {
        let hyper = self.advance(rate, max_norm);
        let hyper = self.parameters().engine().tensor_f32([8], &hyper)?;
        self.record(&hyper)
    }

    /// Settings and moments, read back. Blocks.
    ///
    /// # Errors
    ///
    /// When the device fails.
    fn state(&self) -> Result<OptimizerState> {
        let moments = self.moments();
        Ok(OptimizerState {
            config: self.config(),
            groups: moments.groups().to_vec(),
            updates: moments.updates(),
            slots: moments.to_host()?,
        })
    }

    /// Takes over settings, groups and moments. A fault of names, shapes or numbers changes nothing.
    ///
    /// # Errors
    ///
    /// When the state is that of another optimizer, a setting is outside its range, or a name or
    /// shape is not that of a parameter.
    fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        let (found, expected) = (state.config.name(), self.config().name());
        if found != expected {
            return Err(Error::OtherOptimizer { found, expected });
        }
        state.config.check()?;
        self.moments_mut().load(state)?;
        self.set_config(&state.config)
    }
}

/// A setting, its value, whether that is allowed, and what is.
type Rule = (&'static str, f64, bool, &'static str);

/// Refuses the first setting outside its range.
fn refuse(optimizer: &'static str, rules: &[Rule]) -> Result<()> {
    match rules.iter().find(|(_, _, fine, _)| !fine) {
        Some(&(name, value, _, allowed)) => {
            Err(Error::Optimizer { optimizer, name, value, allowed })
        }
        None => Ok(()),
    }
}

/// A number that may be zero.
fn not_negative(name: &'static str, value: f64) -> Rule {
    (name, value, value >= 0.0 && value.is_finite(), "finite and not negative")
}

/// A number that may not be zero.
fn positive(name: &'static str, value: f64) -> Rule {
    (name, value, value > 0.0 && value.is_finite(), "finite and positive")
}

/// How much of an average is kept.
fn below_one(name: &'static str, value: f64) -> Rule {
    (name, value, (0.0..1.0).contains(&value), "in 0..1")
}
