//! The convolution layer.

use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;
use oa_graph::ops::image::Convolution;

/// Convolution of images `[batch, channels, height, width]`; the kernels are
/// `[outputs, channels / groups, rows, columns]`.
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// The kernels.
    pub weight: Parameter,
    /// The bias of each output channel, if any.
    pub bias: Option<Parameter>,
    /// Stride, padding, dilation and groups.
    pub geometry: Convolution,
    outputs: usize,
}

impl Conv2d {
    /// A layer without bias from `inputs` to `outputs` channels with kernels of these rows and
    /// columns; its weight is `name.w`. It starts as PyTorch's layers do: [`Init::fan_in`] of the
    /// elements that one output sees.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    ///
    /// # Panics
    ///
    /// When there are 0 groups.
    pub fn new(
        scope: &mut Scope<'_>,
        name: &str,
        [outputs, inputs]: [usize; 2],
        [rows, columns]: [usize; 2],
        geometry: Convolution,
    ) -> Result<Conv2d> {
        assert!(geometry.groups > 0, "a convolution has at least one group");
        let seen = inputs / geometry.groups;
        let init = Init::fan_in(seen * rows * columns);
        let weight = scope.scope(name).declare("w", [outputs, seen, rows, columns], init)?;
        Ok(Conv2d { weight, bias: None, geometry, outputs })
    }

    /// The same layer with a bias `name.b`, which starts as PyTorch's does.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub fn with_bias(mut self, scope: &mut Scope<'_>, name: &str, init: Init) -> Result<Conv2d> {
        self.bias = Some(scope.scope(name).declare("b", [self.outputs], init)?);
        Ok(self)
    }

    /// Applies the layer to `[B, inputs, H, W]`.
    ///
    /// # Errors
    ///
    /// When the sizes do not fit; the error names them.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref().map(Parameter::value);
        Ok(x.conv2d(&self.weight.value(), bias.as_ref(), self.geometry)?)
    }
}
