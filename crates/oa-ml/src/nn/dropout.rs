//! Dropout: masks that are a function of (seed, site, step), never stored.

use crate::error::Result;
use oa_graph::Tensor;

/// The masks of one training step.
#[derive(Clone, Copy, Debug)]
pub struct DropoutPass<'a> {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the optimizer step, u32 `[1]`.
    pub step: &'a Tensor,
    /// Which part of the batch, when a step has several.
    pub part: u16,
}

/// One place where elements are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of dropping an element, in `0..1`.
    pub p: f32,
    /// Number of the site in its model: sites have independent masks.
    pub site: u16,
}

impl Dropout {
    /// Drops elements and scales the others by `1 / (1 - p)`; does nothing while evaluating.
    ///
    /// # Errors
    ///
    /// When the graph refuses the op.
    #[track_caller]
    pub fn forward(&self, x: Tensor, pass: Option<DropoutPass<'_>>) -> Result<Tensor> {
        match pass {
            Some(pass) if self.p > 0.0 => {
                let stream = u32::from(pass.part) << 16 | u32::from(self.site);
                Ok(x.dropout(self.p, pass.seed, stream, pass.step)?)
            }
            _ => Ok(x),
        }
    }
}
