//! The affine layer.

use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;

/// `x W^T + b` over the last axis; `W` is `[outputs, inputs]`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// The weight.
    pub weight: Parameter,
    /// The bias, if any.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// A layer without bias, whose weight has the given name.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub fn new(
        scope: &mut Scope<'_>,
        name: &str,
        [outputs, inputs]: [usize; 2],
        init: Init,
    ) -> Result<Linear> {
        let weight = scope.declare(name, [outputs, inputs], init)?;
        Ok(Linear { weight, bias: None })
    }

    /// The same layer with a bias of the given name.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub fn with_bias(
        mut self,
        scope: &mut Scope<'_>,
        name: &str,
        outputs: usize,
        init: Init,
    ) -> Result<Linear> {
        self.bias = Some(scope.declare(name, [outputs], init)?);
        Ok(self)
    }

    /// Applies the layer to `[.., inputs]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref().map(Parameter::value);
        Ok(x.linear(&self.weight.value(), bias.as_ref())?)
    }
}
