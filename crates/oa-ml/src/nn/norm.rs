//! Normalisation over the last axis.

use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;

/// Division by the root mean square, times a gain.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// The gain, `[width]`.
    pub gain: Parameter,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    /// A norm whose gain has the given name.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub fn new(scope: &mut Scope<'_>, name: &str, width: usize, eps: f32) -> Result<RmsNorm> {
        Ok(RmsNorm { gain: scope.declare(name, [width], Init::Ones)?, eps })
    }

    /// Normalises `[.., width]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.rms_norm(&self.gain.value(), self.eps)?)
    }
}

/// Zero mean and unit variance, times a gain, plus a bias.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// The gain, `[width]`.
    pub gain: Parameter,
    /// The bias, `[width]`.
    pub bias: Parameter,
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// A norm whose gain and bias are `name.g` and `name.b`.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, name: &str, width: usize, eps: f32) -> Result<LayerNorm> {
        let mut scope = scope.scope(name);
        let gain = scope.declare("g", [width], Init::Ones)?;
        Ok(LayerNorm { gain, bias: scope.declare("b", [width], Init::Zeros)?, eps })
    }

    /// Normalises `[.., width]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.layer_norm(&self.gain.value(), &self.bias.value(), self.eps)?)
    }
}
