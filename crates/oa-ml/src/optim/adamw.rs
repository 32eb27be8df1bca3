//! AdamW with decoupled weight decay: one update over the parameter arenas.
//!
//! Settings, moments and bias corrections live here; the arithmetic is one op. It decays matrices
//! only, unless a parameter was declared otherwise.

use crate::checkpoint::AdamWState;
use crate::error::{Error, Result};
use crate::param::Parameters;
use oa_graph::Tensor;
use oa_graph::ops::update::{AdamWInputs, adamw};
use oa_graph::state::Arena;
use serde::{Deserialize, Serialize};

/// Settings of AdamW.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamWConfig {
    /// Base learning rate, which a schedule moves.
    pub lr: f64,
    /// Decay of the first moment, in `0..1`.
    pub beta1: f64,
    /// Decay of the second moment, in `0..1`.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay per unit of learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    /// The settings usual for language models.
    fn default() -> AdamWConfig {
        AdamWConfig { lr: 1.0e-3, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, weight_decay: 0.1 }
    }
}

impl AdamWConfig {
    fn check(&self) -> Result<()> {
        let below_one = |x: f64| (0.0..1.0).contains(&x);
        let not_negative = |x: f64| x >= 0.0 && x.is_finite();
        let refused = [
            ("lr", self.lr, not_negative(self.lr), "finite and not negative"),
            ("beta1", self.beta1, below_one(self.beta1), "in 0..1"),
            ("beta2", self.beta2, below_one(self.beta2), "in 0..1"),
            ("eps", self.eps, self.eps > 0.0 && self.eps.is_finite(), "finite and positive"),
            (
                "weight_decay",
                self.weight_decay,
                not_negative(self.weight_decay),
                "finite and not negative",
            ),
        ];
        match refused.into_iter().find(|(_, _, fine, _)| !fine) {
            Some((name, value, _, allowed)) => Err(Error::Optimizer { name, value, allowed }),
            None => Ok(()),
        }
    }

    /// What update number `t` (from 1) tells the device: learning rate, betas, epsilon, decay, the
    /// two bias corrections (computed in double precision) and the largest gradient norm (0 for
    /// no clipping).
    pub fn hyper(&self, t: u64, rate: f64, max_norm: f32) -> [f32; 8] {
        let correction = |beta: f64| (1.0 - beta.powf(t as f64)) as f32;
        [
            rate as f32,
            self.beta1 as f32,
            self.beta2 as f32,
            self.eps as f32,
            self.weight_decay as f32,
            correction(self.beta1),
            correction(self.beta2),
            max_norm,
        ]
    }
}

/// The optimizer of one model.
pub struct AdamW {
    config: AdamWConfig,
    parameters: Parameters,
    m: Arena,
    v: Arena,
    decay: Tensor,
    updates: u64,
}

impl AdamW {
    /// An optimizer with the default settings and that learning rate.
    ///
    /// # Errors
    ///
    /// When the rate is negative or not finite, or device memory is short.
    pub fn new(parameters: Parameters, lr: f64) -> Result<AdamW> {
        AdamW::with_config(parameters, AdamWConfig { lr, ..Default::default() })
    }

    /// An optimizer with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Optimizer`] names a setting outside its range; also when device memory is short.
    pub fn with_config(parameters: Parameters, config: AdamWConfig) -> Result<AdamW> {
        config.check()?;
        let (engine, layout) = (parameters.engine(), parameters.layout());
        let elems = layout.elems();
        let (m, v) = (engine.arena("moment 1", elems)?, engine.arena("moment 2", elems)?);
        let table = layout.decay_table();
        let decay = engine.constant_f32([table.len()], &table)?;
        Ok(AdamW { config, parameters, m, v, decay, updates: 0 })
    }

    /// Settings.
    pub fn config(&self) -> &AdamWConfig {
        &self.config
    }

    /// The parameters it updates.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Updates done or recorded.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The settings of the next update, which this call counts as done.
    pub(crate) fn advance(&mut self, rate: f64, max_norm: f32) -> [f32; 8] {
        self.updates += 1;
        self.config.hyper(self.updates, rate, max_norm)
    }

    /// Records one update from the gradient arena and returns the global gradient norm before
    /// clipping, f32 `[1]`. The device skips the update when the norm is not finite.
    pub(crate) fn record(&self, hyper: &Tensor) -> Result<Tensor> {
        let engine = self.parameters.engine();
        let read = |arena: &Arena| engine.read(&arena.whole());
        let grads = read(self.parameters.gradients()?.arena());
        let partials = grads.norm_partials()?;
        Ok(adamw(AdamWInputs {
            params: &read(self.parameters.arena()),
            grads: &grads,
            m: &read(&self.m),
            v: &read(&self.v),
            decay: &self.decay,
            partials: &partials,
            hyper,
        })?)
    }

    /// Records one update with the learning rate `rate`; see [`AdamWConfig::hyper`] for
    /// `max_norm`. Returns the global gradient norm before clipping, f32 `[1]`; hold it until the
    /// update was submitted.
    ///
    /// # Errors
    ///
    /// When the graph refuses the update.
    pub fn step(&mut self, rate: f64, max_norm: f32) -> Result<Tensor> {
        let hyper = self.advance(rate, max_norm);
        let hyper = self.parameters.engine().tensor_f32([8], &hyper)?;
        self.record(&hyper)
    }

    /// Settings and moments, read back. Blocks.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn state(&self) -> Result<AdamWState> {
        Ok(AdamWState {
            config: self.config,
            updates: self.updates,
            m: self.parameters.read_arena(&self.m)?,
            v: self.parameters.read_arena(&self.v)?,
        })
    }

    /// Takes over settings and moments.
    ///
    /// # Errors
    ///
    /// When a setting is outside its range, or a name or shape is not that of a parameter.
    pub fn load_state(&mut self, state: &AdamWState) -> Result<()> {
        state.config.check()?;
        self.parameters.write_arena(&self.m, &state.m)?;
        self.parameters.write_arena(&self.v, &state.v)?;
        (self.config, self.updates) = (state.config, state.updates);
        Ok(())
    }
}

impl std::fmt::Debug for AdamW {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdamW({:?}, {} updates)", self.config, self.updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bias_corrections_are_those_of_the_formula() {
        let hyper = AdamWConfig::default().hyper(1, 0.5, 1.0);
        assert_eq!(hyper[0], 0.5);
        assert_eq!(hyper[5], (1.0 - 0.9f64) as f32);
        assert_eq!(hyper[6], (1.0 - 0.95f64) as f32);
        let late = AdamWConfig::default().hyper(1_000_000, 0.5, 0.0);
        assert_eq!((late[5], late[6], late[7]), (1.0, 1.0, 0.0));
    }

    #[test]
    fn settings_outside_their_range_are_named() {
        let message = |config: AdamWConfig| config.check().unwrap_err().to_string();
        let bad = AdamWConfig { beta1: 1.0, ..Default::default() };
        assert_eq!(message(bad), "AdamW: beta1 is 1, it must be in 0..1");
        let bad = AdamWConfig { lr: f64::NAN, ..Default::default() };
        assert_eq!(message(bad), "AdamW: lr is NaN, it must be finite and not negative");
    }
}
