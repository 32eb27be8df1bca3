//! AdamW with decoupled weight decay: one update over the parameter arenas.
//!
//! Settings, moments and bias corrections live here; the arithmetic is one op. It decays matrices
//! only, unless a parameter was declared otherwise.

use super::{Moments, Optimizer, OptimizerConfig, below_one, not_negative, positive, refuse};
use crate::error::{Error, Result};
use crate::param::Parameters;
use oa_graph::Tensor;
use oa_graph::ops::optim::Hyper;
use oa_graph::ops::optim::adamw::{AdamWInputs, adamw};
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
    pub(super) fn check(&self) -> Result<()> {
        refuse(
            "AdamW",
            &[
                not_negative("lr", self.lr),
                below_one("beta1", self.beta1),
                below_one("beta2", self.beta2),
                positive("eps", self.eps),
                not_negative("weight_decay", self.weight_decay),
            ],
        )
    }
}

/// The optimizer of one model.
pub struct AdamW {
    config: AdamWConfig,
    moments: Moments,
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
        let moments = Moments::new("adamw", parameters, OptimizerConfig::AdamW(config).slots())?;
        Ok(AdamW { config, moments })
    }
}

impl Optimizer for AdamW {
    fn config(&self) -> OptimizerConfig {
        OptimizerConfig::AdamW(self.config)
    }

    fn set_config(&mut self, config: &OptimizerConfig) -> Result<()> {
        let OptimizerConfig::AdamW(settings) = config else {
            return Err(Error::OtherOptimizer { found: config.name(), expected: "adamw" });
        };
        settings.check()?;
        self.config = *settings;
        self.moments.forget_tables();
        Ok(())
    }

    fn moments(&self) -> &Moments {
        &self.moments
    }

    fn moments_mut(&mut self) -> &mut Moments {
        &mut self.moments
    }

    fn hyper(&self, rate: f64, max_norm: f32) -> Hyper {
        let AdamWConfig { beta1, beta2, eps, .. } = self.config;
        Hyper { rate, beta1, beta2, eps, max_norm, ..Hyper::default() }
    }

    fn record(&mut self, hyper: &Tensor) -> Result<Tensor> {
        let decay = self.config.weight_decay;
        let blocks =
            self.moments.table(0, |all, index, slot| Some(all.terms(index, slot, decay)))?;
        let (moments, grads) = (&self.moments, self.moments.read_gradients()?);
        Ok(adamw(AdamWInputs {
            params: &moments.read_parameters(),
            grads: &grads,
            m: &moments.read(0),
            v: &moments.read(1),
            blocks: &blocks,
            partials: &grads.norm_partials()?,
            hyper,
        })?)
    }
}

impl std::fmt::Debug for AdamW {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdamW({:?}, {} updates)", self.config, self.moments.updates())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_range_are_named() {
        let message = |config: AdamWConfig| config.check().unwrap_err().to_string();
        let bad = AdamWConfig { beta1: 1.0, ..Default::default() };
        assert_eq!(message(bad), "AdamW: beta1 is 1, it must be in 0..1");
        let bad = AdamWConfig { beta2: -0.5, ..Default::default() };
        assert_eq!(message(bad), "AdamW: beta2 is -0.5, it must be in 0..1");
        let bad = AdamWConfig { lr: f64::NAN, ..Default::default() };
        assert_eq!(message(bad), "AdamW: lr is NaN, it must be finite and not negative");
    }
}
