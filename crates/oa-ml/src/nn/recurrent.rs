//! Recurrent networks: Elman, `h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)`, and the gated
//! recurrent unit.
//!
//! The input projection of all time steps is one matrix product; only the hidden product is
//! sequential, and all of its steps are one op. What a cell computes is in that op.

use super::Pass;
use super::linear::Linear;
use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;

/// What a layer does at each time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A tanh of the sum of both products.
    Elman,
    /// Reset gate, update gate and candidate; the reset gate multiplies the hidden product with its
    /// bias.
    Gru,
}

impl Cell {
    /// Rows of the weights for each hidden unit; of several, all units' first rows come first.
    pub fn rows(self) -> usize {
        match self {
            Cell::Elman => 1,
            Cell::Gru => 3,
        }
    }
}

/// One recurrent layer with two biases.
#[derive(Clone, Debug)]
pub struct RnnLayer {
    cell: Cell,
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
    pub fn new(
        scope: &mut Scope<'_>,
        cell: Cell,
        [inputs, hidden]: [usize; 2],
    ) -> Result<RnnLayer> {
        let (init, rows) = (Init::fan_in(hidden), cell.rows() * hidden);
        let input = Linear::new(scope, "w_ih", [rows, inputs], init)?;
        let w_hh = scope.declare("w_hh", [rows, hidden], init)?;
        let input = input.with_bias(scope, "b_ih", rows, init)?;
        let b_hh = scope.declare("b_hh", [rows], init)?;
        Ok(RnnLayer { cell, input, w_hh, b_hh, hidden })
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
        let (w_hh, b_hh) = (self.w_hh.value(), self.b_hh.value());
        Ok(match self.cell {
            Cell::Elman => projected.rnn_tanh(&w_hh, &b_hh, h0)?,
            Cell::Gru => projected.gru(&w_hh, &b_hh, h0)?,
        })
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
    pub fn new(
        scope: &mut Scope<'_>,
        cell: Cell,
        [inputs, hidden]: [usize; 2],
        layers: usize,
    ) -> Result<Rnn> {
        let layer = |index| {
            let inputs = if index == 0 { inputs } else { hidden };
            RnnLayer::new(&mut scope.scope(&format!("l{index}")), cell, [inputs, hidden])
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
