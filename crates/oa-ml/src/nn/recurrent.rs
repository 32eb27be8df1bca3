//! Elman networks: `h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)`.
//!
//! The input projection of all time steps is one matrix product; only the hidden product is
//! sequential.

use super::Pass;
use super::linear::Linear;
use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;

/// One recurrent layer with two biases.
#[derive(Clone, Debug)]
pub struct RnnLayer {
    input: Linear,
    w_hh: Parameter,
    b_hh: Parameter,
    hidden: usize,
}

impl RnnLayer {
    /// A layer with parameters `w_ih`, `w_hh`, `b_ih` and `b_hh`.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, hidden: usize) -> Result<RnnLayer> {
        let init = Init::fan_in(hidden);
        let input = Linear::new(scope, "w_ih", [hidden, inputs], init)?;
        let w_hh = scope.declare("w_hh", [hidden, hidden], init)?;
        let input = input.with_bias(scope, "b_ih", hidden, init)?;
        Ok(RnnLayer { input, w_hh, b_hh: scope.declare("b_hh", [hidden], init)?, hidden })
    }

    /// Every hidden state `[B, T, hidden]` for `x` `[B, T, inputs]`, starting from `h0`
    /// `[B, hidden]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, h0: &Tensor) -> Result<Tensor> {
        let projected = self.input.forward(x)?;
        Ok(projected.rnn_tanh(&self.w_hh.value(), &self.b_hh.value(), h0)?)
    }
}

/// Stacked layers: layer l + 1 reads the hidden states of layer l.
#[derive(Clone, Debug)]
pub struct Rnn {
    /// The layers, first to last.
    pub layers: Vec<RnnLayer>,
}

impl Rnn {
    /// Layers `l0`, `l1`, .. of one width.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, [inputs, hidden]: [usize; 2], layers: usize) -> Result<Rnn> {
        let layer = |index| {
            let inputs = if index == 0 { inputs } else { hidden };
            RnnLayer::new(&mut scope.scope(&format!("l{index}")), inputs, hidden)
        };
        Ok(Rnn { layers: (0..layers).map(layer).collect::<Result<_>>()? })
    }

    /// The hidden states of the last layer. With a cache the sequence continues from its hidden
    /// states, which move on to the last time step; without one it starts from zeros.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let mut y = x.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            let (engine, shape) = (layer.w_hh.engine(), x.shape());
            let [batch, time] = [shape.dims()[0], shape.dims()[1]];
            let Some(cache) = pass.cache else {
                y = layer.forward(&y, &engine.zeros([batch, layer.hidden])?)?;
                continue;
            };
            let state = &cache.cache.hidden[index];
            y = layer.forward(&y, &engine.read(state))?;
            let last = if time == 1 { y.clone() } else { y.narrow(1, time - 1, 1)? };
            engine.store(state, &last.reshape([batch, layer.hidden])?)?;
        }
        Ok(y)
    }
}
