//! Stochastic gradient descent with momentum, in PyTorch's form.
//!
//! `m = momentum m + g`, then `p -= lr m`, or `p -= lr (g + momentum m)` with Nesterov's momentum.
//! Weight decay is coupled as there (`g += decay p`), unless it is asked to be decoupled
//! (`p *= 1 - lr decay`); there is no dampening.

use super::{Moments, Optimizer, OptimizerConfig, below_one, not_negative, refuse};
use crate::error::{Error, Result};
use crate::param::Parameters;
use oa_graph::Tensor;
use oa_graph::ops::optim::Hyper;
use oa_graph::ops::optim::sgd::{SgdInputs, sgd};
use serde::{Deserialize, Serialize};

/// Settings of gradient descent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SgdConfig {
    /// Base learning rate, which a schedule moves.
    pub lr: f64,
    /// Share of the last step that goes on, in `0..1`.
    pub momentum: f64,
    /// Whether the step looks one momentum ahead; needs momentum.
    pub nesterov: bool,
    /// Weight decay of matrices.
    pub weight_decay: f64,
    /// Whether weight decay shrinks parameters instead of joining the gradient.
    pub decoupled: bool,
}

impl Default for SgdConfig {
    /// Momentum of 0.9 and no decay.
    fn default() -> SgdConfig {
        let (nesterov, decoupled) = (false, false);
        SgdConfig { lr: 0.1, momentum: 0.9, nesterov, weight_decay: 0.0, decoupled }
    }
}

impl SgdConfig {
    pub(super) fn check(&self) -> Result<()> {
        refuse(
            "Sgd",
            &[
                not_negative("lr", self.lr),
                below_one("momentum", self.momentum),
                (
                    "momentum",
                    self.momentum,
                    !self.nesterov || self.momentum > 0.0,
                    "positive for Nesterov's form",
                ),
                not_negative("weight_decay", self.weight_decay),
            ],
        )
    }
}

/// The optimizer of one model.
pub struct Sgd {
    config: SgdConfig,
    moments: Moments,
}

impl Sgd {
    /// An optimizer with the default settings and that learning rate.
    ///
    /// # Errors
    ///
    /// When the rate is negative or not finite, or device memory is short.
    pub fn new(parameters: Parameters, lr: f64) -> Result<Sgd> {
        Sgd::with_config(parameters, SgdConfig { lr, ..Default::default() })
    }

    /// An optimizer with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Optimizer`] names a setting outside its range; also when device memory is short.
    pub fn with_config(parameters: Parameters, config: SgdConfig) -> Result<Sgd> {
        config.check()?;
        let moments = Moments::new("sgd", parameters, OptimizerConfig::Sgd(config).slots())?;
        Ok(Sgd { config, moments })
    }
}

impl Optimizer for Sgd {
    fn config(&self) -> OptimizerConfig {
        OptimizerConfig::Sgd(self.config)
    }

    fn set_config(&mut self, config: &OptimizerConfig) -> Result<()> {
        let OptimizerConfig::Sgd(settings) = config else {
            return Err(Error::OtherOptimizer { found: config.name(), expected: "sgd" });
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
        Hyper { rate, momentum: self.config.momentum, max_norm, ..Hyper::default() }
    }

    fn record(&mut self, hyper: &Tensor) -> Result<Tensor> {
        let SgdConfig { nesterov, weight_decay, decoupled, .. } = self.config;
        let row = |all: &Moments, index, slot: &_| Some(all.terms(index, slot, weight_decay));
        let blocks = self.moments.table(0, row)?;
        let (moments, grads) = (&self.moments, self.moments.read_gradients()?);
        Ok(sgd(SgdInputs {
            params: &moments.read_parameters(),
            grads: &grads,
            m: &moments.read(0),
            blocks: &blocks,
            partials: &grads.norm_partials()?,
            hyper,
            nesterov,
            decoupled,
        })?)
    }
}

impl std::fmt::Debug for Sgd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sgd({:?}, {} updates)", self.config, self.moments.updates())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_range_are_named() {
        let message = |config: SgdConfig| config.check().unwrap_err().to_string();
        let bad = SgdConfig { lr: -0.5, ..Default::default() };
        assert_eq!(message(bad), "Sgd: lr is -0.5, it must be finite and not negative");
        let bad = SgdConfig { momentum: 1.0, ..Default::default() };
        assert_eq!(message(bad), "Sgd: momentum is 1, it must be in 0..1");
        let bad = SgdConfig { momentum: 0.0, nesterov: true, ..Default::default() };
        assert_eq!(message(bad), "Sgd: momentum is 0, it must be positive for Nesterov's form");
    }
}
