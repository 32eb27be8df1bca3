//! Muon: orthogonalised momentum for hidden matrices, AdamW for everything else.
//!
//! Hidden are the matrices between two layers, batches of them (experts) included; embeddings,
//! heads, gains and biases are AdamW's, with a rate of its own that the schedule moves alike. Both
//! parts clip by one norm and share one arena of first moments.

use super::{Moments, Optimizer, OptimizerConfig, below_one, not_negative, positive, refuse};
use crate::error::{Error, Result};
use crate::param::{Parameters, Slot};
use oa_graph::Tensor;
use oa_graph::ops::optim::Hyper;
use oa_graph::ops::optim::adamw::{AdamWInputs, adamw};
use oa_graph::ops::optim::muon::{MomentumInputs, Reach, apply, momentum, orthogonalise};
use serde::{Deserialize, Serialize};

/// Settings of Muon.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MuonConfig {
    /// Base learning rate of hidden matrices, which a schedule moves.
    pub lr: f64,
    /// How much of the momentum is kept, in `0..1`.
    pub momentum: f64,
    /// Decoupled weight decay per unit of learning rate, of all matrices.
    pub weight_decay: f64,
    /// Base learning rate of everything else, which the schedule moves alike.
    pub adamw_lr: f64,
    /// Decay of AdamW's first moment, in `0..1`.
    pub beta1: f64,
    /// Decay of AdamW's second moment, in `0..1`.
    pub beta2: f64,
    /// Added to the root of AdamW's second moment.
    pub eps: f64,
}

impl Default for MuonConfig {
    /// The rate and momentum of the method's author; AdamW as for language models.
    fn default() -> MuonConfig {
        MuonConfig {
            lr: 0.02,
            momentum: 0.95,
            weight_decay: 0.01,
            adamw_lr: 1.0e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1.0e-8,
        }
    }
}

impl MuonConfig {
    pub(super) fn check(&self) -> Result<()> {
        refuse(
            "Muon",
            &[
                positive("lr", self.lr),
                below_one("momentum", self.momentum),
                not_negative("weight_decay", self.weight_decay),
                not_negative("adamw_lr", self.adamw_lr),
                below_one("beta1", self.beta1),
                below_one("beta2", self.beta2),
                positive("eps", self.eps),
            ],
        )
    }
}

/// The optimizer of one model.
pub struct Muon {
    config: MuonConfig,
    moments: Moments,
}

/// Tables of blocks: what AdamW updates, and what has a momentum of Muon's.
const ADAMW: usize = 0;
const HIDDEN: usize = 1;

impl Muon {
    /// An optimizer with the default settings and that learning rate of hidden matrices.
    ///
    /// # Errors
    ///
    /// When the rate is not positive or not finite, or device memory is short.
    pub fn new(parameters: Parameters, lr: f64) -> Result<Muon> {
        Muon::with_config(parameters, MuonConfig { lr, ..Default::default() })
    }

    /// An optimizer with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Optimizer`] names a setting outside its range; also when device memory is short.
    pub fn with_config(parameters: Parameters, config: MuonConfig) -> Result<Muon> {
        config.check()?;
        let moments = Moments::new("muon", parameters, OptimizerConfig::Muon(config).slots())?;
        Ok(Muon { config, moments })
    }

    /// Records the update of one hidden parameter along its direction.
    fn apply(&self, index: usize, direction: &Tensor, norm: [&Tensor; 2]) -> Result<()> {
        let parameters = self.moments.parameters();
        let slot = &parameters.layout().slots()[index];
        let (factor, decay) = self.moments.terms(index, slot, self.config.weight_decay);
        let stretch = stretch(slot) as f32;
        let reach = Reach { factor: factor as f32, decay: decay as f32, stretch };
        let p = parameters.engine().read(&parameters.states()[index]);
        Ok(apply(&p, &orthogonalise(direction)?, norm, reach)?)
    }
}

/// `sqrt(max(1, rows / cols))` of a hidden parameter.
fn stretch(slot: &Slot) -> f64 {
    match slot.shape.dims() {
        [.., rows, cols] => (*rows as f64 / *cols as f64).max(1.0).sqrt(),
        _ => unreachable!("a hidden parameter has at least two dimensions"),
    }
}

impl Optimizer for Muon {
    fn config(&self) -> OptimizerConfig {
        OptimizerConfig::Muon(self.config)
    }

    fn set_config(&mut self, config: &OptimizerConfig) -> Result<()> {
        let OptimizerConfig::Muon(settings) = config else {
            return Err(Error::OtherOptimizer { found: config.name(), expected: "muon" });
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
        let MuonConfig { momentum, beta1, beta2, eps, .. } = self.config;
        Hyper { rate, beta1, beta2, eps, momentum, max_norm }
    }

    fn record(&mut self, hyper: &Tensor) -> Result<Tensor> {
        let MuonConfig { lr, adamw_lr, weight_decay, .. } = self.config;
        // The schedule moves Muon's rate; AdamW's is a fixed share of it.
        let share = adamw_lr / lr;
        let rest = self.moments.table(ADAMW, |all, index, slot| {
            let (factor, decay) = all.terms(index, slot, weight_decay);
            (!slot.hidden).then_some((share * factor, decay))
        })?;
        let hidden = self.moments.table(HIDDEN, |all, index, slot| {
            slot.hidden.then(|| all.terms(index, slot, weight_decay))
        })?;
        let (moments, grads) = (&self.moments, self.moments.read_gradients()?);
        let partials = grads.norm_partials()?;
        let norm = adamw(AdamWInputs {
            params: &moments.read_parameters(),
            grads: &grads,
            m: &moments.read(0),
            v: &moments.read(1),
            blocks: &rest,
            partials: &partials,
            hyper,
        })?;
        let frozen = moments.parameters().freezing_flags();
        let slots = moments.parameters().layout().slots();
        let trained: Vec<usize> =
            (0..slots.len()).filter(|&index| slots[index].hidden && !frozen[index]).collect();
        if trained.is_empty() {
            return Ok(norm);
        }
        let (m, blocks) = (&moments.read(0), &hidden);
        let inputs = MomentumInputs { m, grads: &grads, blocks, partials: &partials, hyper };
        let directions = momentum(inputs)?;
        for index in trained {
            let Slot { offset, shape, .. } = slots[index];
            let direction = directions.narrow(0, offset, shape.elems())?.reshape(shape)?;
            self.apply(index, &direction, [&partials, hyper])?;
        }
        Ok(norm)
    }
}

impl std::fmt::Debug for Muon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Muon({:?}, {} updates)", self.config, self.moments.updates())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_range_are_named() {
        let message = |config: MuonConfig| config.check().unwrap_err().to_string();
        let bad = MuonConfig { lr: 0.0, ..Default::default() };
        assert_eq!(message(bad), "Muon: lr is 0, it must be finite and positive");
        let bad = MuonConfig { momentum: f64::NAN, ..Default::default() };
        assert_eq!(message(bad), "Muon: momentum is NaN, it must be in 0..1");
    }
}
