//! The Elman network: a whole sequence in one dispatch.
//!
//! Only `W_hh h` is sequential. The input's share arrives as a product over all steps at once, and
//! the gradients of the weights are products over the stored gradients of the pre-activations. Cells
//! with gates are not here.

use super::matmul::weight_gradient;
use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// `y_t = tanh(x_t + W_hh y_{t-1} + b_hh)`, `y_{-1} = h0`. Inputs: x `[B, T, H]`, W_hh `[H, H]`,
/// b_hh `[H]`, h0 `[B, H]`.
pub static RNN_TANH: OpDef = OpDef {
    name: "rnn_tanh",
    doc: "Elman network over a sequence: `y_t = tanh(x_t + W_hh y_{t-1} + b_hh)`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: forward_family, launch },
    backward: Backward::Rule(gradients),
    reference: forward_reference,
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Gradients of the pre-activations, `[B, T, H]`, and of h0, `[B, H]`. Inputs: y and dy
/// `[B, T, H]` with W_hh `[H, H]` between them.
pub static RNN_TANH_BACKWARD: OpDef = OpDef {
    name: "rnn_tanh_backward",
    doc: "Backward of the Elman network: `d_t = (dy_t + W_hh^T d_{t+1}) (1 - y_t^2)` and \
          `dh0 = W_hh^T d_0`.",
    infer: infer_backward,
    lower: Lower::Kernel { family: backward_family, launch },
    backward: Backward::None("second derivatives of the recurrent network are not available"),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&RNN_TANH, &RNN_TANH_BACKWARD];

/// Largest number of hidden units that the kernels hold.
pub const MAX_HIDDEN: usize = 1024;

/// Up to this many units a GPU's workgroup holds all weights of a sequence's steps in registers.
pub(super) const RESIDENT: usize = 64;

fn forward_family(call: &OpCall) -> &'static str {
    match call.outputs[0].shape.last() <= RESIDENT {
        true => "rnn_tanh_small",
        false => "rnn_tanh",
    }
}

fn backward_family(call: &OpCall) -> &'static str {
    match call.outputs[0].shape.last() <= RESIDENT {
        true => "rnn_tanh_backward_small",
        false => "rnn_tanh_backward",
    }
}

impl Tensor {
    /// Runs an Elman network over `self` `[B, T, H]`, which holds `x W_ih^T + b_ih`:
    /// `y_t = tanh(self_t + w_hh y_{t-1} + b_hh)` from `h0` `[B, H]`. Returns all y `[B, T, H]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together or H exceeds [`MAX_HIDDEN`].
    #[track_caller]
    pub fn rnn_tanh(&self, w_hh: &Tensor, b_hh: &Tensor, h0: &Tensor) -> Result<Tensor> {
        let run =
            |x: &Tensor, h0: &Tensor| Tensor::record1(&RNN_TANH, Attrs::NONE, &[x, w_hh, b_hh, h0]);
        let &[_, _, hidden] = self.shape().dims() else { return run(self, h0) };
        sequence(self, h0, steps_per_dispatch(hidden, turns::most(self)), run)
    }
}

/// The whole sequence, at most `most` steps in one `run`.
pub(super) fn sequence(
    x: &Tensor,
    h0: &Tensor,
    most: usize,
    run: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let ([batch, steps, _], hidden) = (sizes(x.shape()), h0.shape().last());
    if steps <= most {
        return run(x, h0);
    }
    let mut whole = run(&x.narrow(1, 0, most)?, h0)?;
    for first in (most..steps).step_by(most) {
        let h = whole.narrow(1, first - 1, 1)?.reshape([batch, hidden])?;
        let part = run(&x.narrow(1, first, most.min(steps - first))?, &h)?;
        whole = whole.concat(&part, 1)?;
    }
    Ok(whole)
}

/// Steps that one dispatch may take where a driver bounds the turns of a kernel's loops; the cpu
/// kernel takes a turn more than a loop has iterations.
fn steps_per_dispatch(hidden: usize, turns: u32) -> usize {
    if turns == u32::MAX || hidden > MAX_HIDDEN {
        return usize::MAX;
    }
    let pass = 4 * hidden.div_ceil(8) + 2 * hidden.div_ceil(256) + 2;
    let step = hidden.div_ceil(16) * pass + 2;
    ((turns as usize).saturating_sub(2 * hidden + 16) / step).max(1)
}

fn infer_forward(call: &OpCall) -> Inferred {
    let expected = "x [B, T, H], W_hh [H, H], b_hh [H] and h0 [B, H], H at most 1,024";
    let [x, w, bias, h0] = call.inputs else { return refuse(call, expected) };
    match *x.shape.dims() {
        [b, _, h]
            if x.dtype == DType::F32
                && h <= MAX_HIDDEN
                && *w == Spec::f32([h, h])
                && *bias == Spec::f32([h])
                && *h0 == Spec::f32([b, h]) =>
        {
            Ok(vec![*x])
        }
        _ => refuse(call, expected),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "y [B, T, H], W_hh [H, H] and dy [B, T, H], H at most 1,024";
    let [y, w, dy] = call.inputs else { return refuse(call, expected) };
    match *y.shape.dims() {
        [b, _, h]
            if y == dy && y.dtype == DType::F32 && h <= MAX_HIDDEN && *w == Spec::f32([h, h]) =>
        {
            Ok(vec![*y, Spec::f32([b, h])])
        }
        _ => refuse(call, expected),
    }
}

/// Batch, steps and hidden units of the first input.
pub(super) fn sizes(shape: Shape) -> [usize; 3] {
    let &[batch, steps, hidden] = shape.dims() else { unreachable!("infer admitted three axes") };
    [batch, steps, hidden]
}

fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let sizes = sizes(call.inputs[0].shape);
    Launch {
        groups: sizes[0].div_ceil(variant.tile[0] as usize) as u64,
        push: sizes.map(|size| size as u32).to_vec(),
        spec: Vec::new(),
    }
}

fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [_, w_hh, _, h0] = call.inputs else { unreachable!("rnn_tanh has four inputs") };
    let y = &call.outputs[0];
    let mut found = Tensor::record(&RNN_TANH_BACKWARD, Attrs::NONE, &[y, w_hh, call.dout()])?;
    let dh0 = found.pop().expect("rnn_tanh_backward has two outputs");
    let d = found.pop().expect("rnn_tanh_backward has two outputs");
    let dw = match call.wanted[1] {
        true => Some(weight_gradient(&d, &before(y, h0)?)?),
        false => None,
    };
    let db = call.wanted[2].then(|| d.sum_rows()).transpose()?;
    Ok(vec![Some(d), dw, db, Some(dh0)])
}

/// The hidden vectors that each step started from: h0, then all of y but the last.
pub(super) fn before(y: &Tensor, h0: &Tensor) -> Result<Tensor> {
    let [batch, steps, hidden] = sizes(y.shape());
    let first = h0.reshape([batch, 1, hidden])?;
    if steps == 1 {
        return Ok(first);
    }
    first.concat(&y.narrow(1, 0, steps - 1)?, 1)
}

/// `sum_k w[row, k] h[k]` for element (row, k) at `row * strides.0 + k * strides.1`.
pub(super) fn times(w: &[f64], row: usize, strides: (usize, usize), h: &[f64]) -> f64 {
    h.iter().enumerate().map(|(k, h)| w[row * strides.0 + k * strides.1] * h).sum()
}

fn forward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [x, w, bias, h0] = inputs else { unreachable!("rnn_tanh has four inputs") };
    let [batch, steps, hidden] = sizes(x.shape());
    let mut y = x.clone();
    for b in 0..batch {
        let mut h = h0.data[b * hidden..(b + 1) * hidden].to_vec();
        for t in 0..steps {
            let at = (b * steps + t) * hidden;
            let next = (0..hidden).map(|u| {
                (x.data[at + u] + bias.data[u] + times(&w.data, u, (hidden, 1), &h)).tanh()
            });
            h = next.collect();
            y.data[at..at + hidden].copy_from_slice(&h);
        }
    }
    vec![y]
}

fn backward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [y, w, dy] = inputs else { unreachable!("rnn_tanh_backward has three inputs") };
    let [batch, steps, hidden] = sizes(y.shape());
    let mut d = y.clone();
    let mut dh0 = vec![0.0; batch * hidden];
    for b in 0..batch {
        let mut dh = vec![0.0; hidden];
        for t in (0..steps).rev() {
            let at = (b * steps + t) * hidden;
            for (u, carried) in dh.iter().enumerate() {
                let value = y.data[at + u];
                d.data[at + u] = (dy.data[at + u] + carried) * (1.0 - value * value);
            }
            let now = &d.data[at..at + hidden];
            dh = (0..hidden).map(|k| times(&w.data, k, (1, hidden), now)).collect();
        }
        dh0[b * hidden..(b + 1) * hidden].copy_from_slice(&dh);
    }
    vec![d, HostTensor::f32([batch, hidden], dh0)]
}

/// W_hh with entries of the size that an initialiser draws, so that sequences neither die nor
/// explode.
fn weights(hidden: usize) -> HostTensor {
    let bound = 1.0 / (hidden as f64).sqrt();
    uniform([hidden, hidden], -bound, bound, 72)
}

fn forward_sample([batch, steps, hidden]: [usize; 3]) -> Sample {
    let inputs = vec![
        signed([batch, steps, hidden], 71),
        weights(hidden),
        signed([hidden], 73),
        signed([batch, hidden], 74),
    ];
    Sample::new(inputs, Attrs::NONE)
}

fn backward_sample([batch, steps, hidden]: [usize; 3]) -> Sample {
    let inputs = vec![
        uniform([batch, steps, hidden], -0.9, 0.9, 75),
        weights(hidden),
        signed([batch, steps, hidden], 76),
    ];
    Sample::new(inputs, Attrs::NONE)
}

/// `[B, T, H]` of the samples: the small ones, then the large ones.
const SMALL: [[usize; 3]; 6] = [[1, 1, 1], [2, 3, 5], [3, 4, 8], [1, 5, 7], [9, 2, 3], [1, 2, 65]];
const LARGE: [[usize; 3]; 5] = [[17, 3, 127], [2, 5, 129], [64, 16, 64], [2, 3, 512], [3, 1, 1024]];

fn forward_samples() -> Vec<Sample> {
    let small = SMALL.into_iter().map(forward_sample);
    small.chain(LARGE.into_iter().map(|sizes| forward_sample(sizes).large())).collect()
}

fn backward_samples() -> Vec<Sample> {
    let small = SMALL.into_iter().map(backward_sample);
    small.chain(LARGE.into_iter().map(|sizes| backward_sample(sizes).large())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::oracle::evaluate;

    #[test]
    fn a_sequence_in_parts_is_the_sequence() {
        let graph = Graph::detached();
        let sample = forward_sample([3, 7, 5]);
        let host = |index: usize| {
            let input: &HostTensor = &sample.inputs[index];
            graph.host(input.spec, input.to_bytes().into()).expect("the sample fits its shape")
        };
        let [x, w, b, h0] = [0, 1, 2, 3].map(host);
        let run = |x: &Tensor, h: &Tensor| Tensor::record1(&RNN_TANH, Attrs::NONE, &[x, &w, &b, h]);
        let whole = run(&x, &h0).expect("the sample is admitted");
        for most in [1, 2, 3, 6, 7] {
            let parts = sequence(&x, &h0, most, run).expect("parts are admitted");
            let found = evaluate(&[&whole, &parts]);
            assert_eq!(found[0], found[1], "at most {most} steps");
        }
    }

    #[test]
    fn bounded_loops_bound_the_steps() {
        assert_eq!(steps_per_dispatch(64, u32::MAX), usize::MAX);
        assert_eq!(steps_per_dispatch(1024, 65_000), 1);
        assert_eq!(steps_per_dispatch(1024, 1), 1);
        assert!(steps_per_dispatch(64, 65_000) >= 256);
    }
}
