//! Feed-forward layers.

use super::activation::Activation;
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

/// Affine layers with one activation between them.
#[derive(Clone, Debug)]
pub struct Mlp {
    /// The layers, in order.
    pub layers: Vec<Linear>,
    /// What follows every layer but the last.
    pub activation: Activation,
}

impl Mlp {
    /// A network of `widths.len() - 1` layers: `widths` are those of the input, of what lies between
    /// two layers, and of the output. Layer n has parameters `n.w` and `n.b`, which start as
    /// PyTorch's do.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    ///
    /// # Panics
    ///
    /// With fewer than two widths: a network has a layer.
    pub fn new(scope: &mut Scope<'_>, widths: &[usize], activation: Activation) -> Result<Mlp> {
        assert!(widths.len() >= 2, "a network has a layer, which has two widths");
        let layer = |(number, pair): (usize, &[usize])| -> Result<Linear> {
            let (inputs, outputs) = (pair[0], pair[1]);
            let (mut scope, init) = (scope.scope(&number.to_string()), Init::fan_in(inputs));
            let layer = Linear::new(&mut scope, "w", [outputs, inputs], init)?;
            layer.with_bias(&mut scope, "b", outputs, init)
        };
        let layers = widths.windows(2).enumerate().map(layer).collect::<Result<Vec<Linear>>>()?;
        Ok(Mlp { layers, activation })
    }

    /// Applies the network to `[.., inputs]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (number, layer) in self.layers.iter().enumerate() {
            if number > 0 {
                x = self.activation.forward(&x)?;
            }
            x = layer.forward(&x)?;
        }
        Ok(x)
    }
}
