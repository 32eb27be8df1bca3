//! Feed-forward layers.

use super::linear::Linear;
use crate::error::Result;
use crate::init::Init;
use crate::param::Scope;
use oa_graph::Tensor;

/// `W2 gelu(W1 x + b1) + b2`, with the exact GELU.
#[derive(Clone, Debug)]
pub struct GeluMlp {
    /// `[ff, width]` with bias.
    pub expand: Linear,
    /// `[width, ff]` with bias.
    pub project: Linear,
}

impl GeluMlp {
    /// A layer with parameters `w1`, `b1`, `w2` and `b2`.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, width: usize, ff: usize) -> Result<GeluMlp> {
        let expand = Linear::new(scope, "w1", [ff, width], Init::fan_in(width))?;
        let expand = expand.with_bias(scope, "b1", ff, Init::Zeros)?;
        let project = Linear::new(scope, "w2", [width, ff], Init::fan_in(ff))?;
        let project = project.with_bias(scope, "b2", width, Init::Zeros)?;
        Ok(GeluMlp { expand, project })
    }

    /// Applies the layer to `[.., width]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.project.forward(&self.expand.forward(x)?.gelu()?)
    }
}

/// `W_down (silu(W_gate x) * W_up x)`.
#[derive(Clone, Debug)]
pub struct SwiGlu {
    /// `[ff, width]`.
    pub gate: Linear,
    /// `[ff, width]`.
    pub up: Linear,
    /// `[width, ff]`.
    pub down: Linear,
}

impl SwiGlu {
    /// A layer with parameters `w_gate`, `w_up` and `w_down`.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(
        scope: &mut Scope<'_>,
        [width, ff]: [usize; 2],
        init: Init,
        down: Init,
    ) -> Result<SwiGlu> {
        let gate = Linear::new(scope, "w_gate", [ff, width], init)?;
        let up = Linear::new(scope, "w_up", [ff, width], init)?;
        Ok(SwiGlu { gate, up, down: Linear::new(scope, "w_down", [width, ff], down)? })
    }

    /// Applies the layer to `[.., width]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gated = self.gate.forward(x)?.swiglu_gate(&self.up.forward(x)?)?;
        self.down.forward(&gated)
    }
}
