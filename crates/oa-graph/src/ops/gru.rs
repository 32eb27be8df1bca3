//! The gated recurrent unit: a whole sequence in one dispatch.
//!
//! As in the Elman network only `W_hh h` is sequential, and the gradients of the weights are
//! products over stored gradients. The gates are kept for the backward, which would otherwise need
//! a second product with W_hh before it could start.

use super::matmul::weight_gradient;
use super::recurrent::{RESIDENT, before, sequence, sizes, times};
use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// States and gates. Inputs: x `[B, T, 3H]` in the order r, z, n; W_hh `[3H, H]`; b_hh `[3H]`;
/// h0 `[B, H]`. Outputs: y `[B, T, H]` and the gates r, z, n, m `[B, T, 4H]`.
pub static GRU: OpDef = OpDef {
    name: "gru",
    doc: "Gated recurrent unit over a sequence: `y_t = (1 - z) n + z y_{t-1}`, \
          `r, z = sigmoid(x + W_hh y_{t-1} + b_hh)`, `m = W_hn y_{t-1} + b_hn`, \
          `n = tanh(x_n + r m)`; also returns `r, z, n, m`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: forward_family, launch: launch_forward },
    backward: Backward::Rule(gradients),
    reference: forward_reference,
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Gradients of both sides of the gates' arguments, `[B, T, 3H]` each, and of h0, `[B, H]`.
/// Inputs: the gates `[B, T, 4H]`, y `[B, T, H]`, h0, W_hh, dy `[B, T, H]` and the gradient of the
/// gates `[B, T, 4H]`. Integer attribute: 1 when that one counts; otherwise it is not read.
pub static GRU_BACKWARD: OpDef = OpDef {
    name: "gru_backward",
    doc: "Backward of the gated recurrent unit: with `g = dy_t + dh_t`, `dn = g (1-z)(1-n^2)`, \
          `dz = g (h-n) z (1-z)`, `dr = dn m r (1-r)`, gives `d_i = [dr, dz, dn]`, \
          `d_h = [dr, dz, dn r]` and `dh0`; `dh_{t-1} = g z + W_hh^T d_h`.",
    infer: infer_backward,
    lower: Lower::Kernel { family: backward_family, launch: launch_backward },
    backward: Backward::None("second derivatives of the gated recurrent unit are not available"),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&GRU, &GRU_BACKWARD];

/// Largest number of hidden units that the kernels hold.
pub const MAX_HIDDEN: usize = 512;

impl Tensor {
    /// Runs a gated recurrent unit over `self` `[B, T, 3H]`, which holds `x W_ih^T + b_ih` with the
    /// gates in the order r, z, n, from `h0` `[B, H]`; `w_hh` is `[3H, H]` and `b_hh` `[3H]`. The
    /// reset gate multiplies the hidden product with its bias. Returns all states `[B, T, H]`.
    ///
    /// One op for the whole sequence, or several where a driver ends long loops early.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together or H exceeds [`MAX_HIDDEN`].
    #[track_caller]
    pub fn gru(&self, w_hh: &Tensor, b_hh: &Tensor, h0: &Tensor) -> Result<Tensor> {
        let run =
            |x: &Tensor, h0: &Tensor| Tensor::record1(&GRU, Attrs::NONE, &[x, w_hh, b_hh, h0]);
        let (&[_, _, _], &[_, hidden]) = (self.shape().dims(), h0.shape().dims()) else {
            return run(self, h0);
        };
        sequence(self, h0, steps_per_dispatch(hidden, turns::most(self)), run)
    }
}

/// Steps that one dispatch may take where a driver bounds the turns of a kernel's loops; the cpu
/// kernel takes a turn more than a loop has iterations.
fn steps_per_dispatch(hidden: usize, turns: u32) -> usize {
    if turns == u32::MAX || hidden > MAX_HIDDEN {
        return usize::MAX;
    }
    let pass = |inner: usize| 3 * inner.div_ceil(4) + 2 * inner.div_ceil(256) + 2;
    let forward = hidden.div_ceil(4) * pass(hidden);
    let backward = hidden + 2 + hidden.div_ceil(16) * pass(3 * hidden);
    let step = forward.max(backward) + 2;
    ((turns as usize).saturating_sub(2 * hidden + 16) / step).max(1)
}

fn infer_forward(call: &OpCall) -> Inferred {
    let expected = "x [B, T, 3H], W_hh [3H, H], b_hh [3H] and h0 [B, H], H at most 512";
    let [x, w, bias, h0] = call.inputs else { return refuse(call, expected) };
    let (&[b, t, wide], &[_, h]) = (x.shape.dims(), h0.shape.dims()) else {
        return refuse(call, expected);
    };
    let fits = x.dtype == DType::F32
        && wide == 3 * h
        && *w == Spec::f32([3 * h, h])
        && *bias == Spec::f32([3 * h])
        && *h0 == Spec::f32([b, h])
        && h <= MAX_HIDDEN;
    if !fits {
        return refuse(call, expected);
    }
    Ok(vec![Spec::f32([b, t, h]), Spec::f32([b, t, 4 * h])])
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "gates [B, T, 4H], y [B, T, H], h0 [B, H], W_hh [3H, H], dy [B, T, H] and the \
                    gates' gradient [B, T, 4H], H at most 512";
    let [gates, y, h0, w, dy, dgates] = call.inputs else { return refuse(call, expected) };
    let &[b, t, h] = y.shape.dims() else { return refuse(call, expected) };
    let fits = *gates == Spec::f32([b, t, 4 * h])
        && gates == dgates
        && y.dtype == DType::F32
        && y == dy
        && *h0 == Spec::f32([b, h])
        && *w == Spec::f32([3 * h, h])
        && h <= MAX_HIDDEN;
    if !fits {
        return refuse(call, expected);
    }
    Ok(vec![Spec::f32([b, t, 3 * h]), Spec::f32([b, t, 3 * h]), *h0])
}

fn forward_family(call: &OpCall) -> &'static str {
    if call.outputs[0].shape.last() <= RESIDENT { "gru_small" } else { "gru" }
}

fn backward_family(call: &OpCall) -> &'static str {
    if call.outputs[2].shape.last() <= RESIDENT { "gru_backward_small" } else { "gru_backward" }
}

fn launch_forward(call: &OpCall, variant: &Variant) -> Launch {
    launch(sizes(call.outputs[0].shape), 0, variant)
}

fn launch_backward(call: &OpCall, variant: &Variant) -> Launch {
    launch(sizes(call.inputs[1].shape), call.attrs.int[0], variant)
}

fn launch(sizes: [usize; 3], direct: u32, variant: &Variant) -> Launch {
    let mut push = sizes.map(|size| size as u32).to_vec();
    push.push(direct);
    let groups = sizes[0].div_ceil(variant.tile[0] as usize) as u64;
    Launch { groups, push, spec: Vec::new() }
}

fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [_, w_hh, _, h0] = call.inputs else { unreachable!("gru has four inputs") };
    let [y, gates] = call.outputs else { unreachable!("gru has two outputs") };
    let zeros;
    let dy = match &call.douts[0] {
        Some(dy) => dy,
        None => {
            zeros = y.graph().filled_f32(y.shape(), 0.0)?;
            &zeros
        }
    };
    // Hardly ever does the gates' gradient count; the gates themselves stand where it would.
    let (dgates, direct) = call.douts[1].as_ref().map_or((gates, 0), |dgates| (dgates, 1));
    let inputs = [gates, y, h0, w_hh, dy, dgates];
    let found = Tensor::record(&GRU_BACKWARD, Attrs::ints(&[direct]), &inputs)?;
    let [d_i, d_h, dh0] = found.as_slice() else { unreachable!("gru_backward has three outputs") };
    let dw = call.wanted[1].then(|| weight_gradient(d_h, &before(y, h0)?)).transpose()?;
    let db = call.wanted[2].then(|| d_h.sum_rows()).transpose()?;
    Ok(vec![Some(d_i.clone()), dw, db, Some(dh0.clone())])
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn forward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [x, w, bias, h0] = inputs else { unreachable!("gru has four inputs") };
    let ([batch, steps, wide], hidden) = (sizes(x.shape()), h0.shape().last());
    let mut y = vec![0.0; batch * steps * hidden];
    let mut gates = vec![0.0; batch * steps * 4 * hidden];
    for b in 0..batch {
        let mut h = h0.data[b * hidden..(b + 1) * hidden].to_vec();
        for t in 0..steps {
            let at = b * steps + t;
            let input = &x.data[at * wide..(at + 1) * wide];
            let old = h.clone();
            let product = |row| bias.data[row] + times(&w.data, row, (hidden, 1), &old);
            for u in 0..hidden {
                let r = sigmoid(input[u] + product(u));
                let z = sigmoid(input[hidden + u] + product(hidden + u));
                let m = product(2 * hidden + u);
                let n = (input[2 * hidden + u] + r * m).tanh();
                h[u] = (1.0 - z) * n + z * old[u];
                for (gate, value) in [r, z, n, m].into_iter().enumerate() {
                    gates[(at * 4 + gate) * hidden + u] = value;
                }
            }
            y[at * hidden..(at + 1) * hidden].copy_from_slice(&h);
        }
    }
    let gates = HostTensor::f32([batch, steps, 4 * hidden], gates);
    vec![HostTensor::f32([batch, steps, hidden], y), gates]
}

fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [gates, y, h0, w, dy, dgates] = inputs else { unreachable!("gru_backward has six inputs") };
    let [batch, steps, hidden] = sizes(y.shape());
    let mut d_i = vec![0.0; batch * steps * 3 * hidden];
    let mut d_h = d_i.clone();
    let mut dh0 = vec![0.0; batch * hidden];
    for b in 0..batch {
        let mut dh = vec![0.0; hidden];
        for t in (0..steps).rev() {
            let at = b * steps + t;
            let rows = at * 3 * hidden..(at + 1) * 3 * hidden;
            for u in 0..hidden {
                let of = |tensor: &HostTensor| {
                    [0, 1, 2, 3].map(|gate| tensor.data[(at * 4 + gate) * hidden + u])
                };
                let old =
                    if t == 0 { h0.data[b * hidden + u] } else { y.data[(at - 1) * hidden + u] };
                let g = dy.data[at * hidden + u] + dh[u];
                let extra = if attrs.int[0] == 1 { of(dgates) } else { [0.0; 4] };
                let z = of(gates)[1];
                let [dr, dz, dn, dm] = unit_backward(of(gates), extra, old, g);
                for (gate, (input, inner)) in [(dr, dr), (dz, dz), (dn, dm)].into_iter().enumerate()
                {
                    d_i[rows.start + gate * hidden + u] = input;
                    d_h[rows.start + gate * hidden + u] = inner;
                }
                dh[u] = g * z;
            }
            for (u, dh) in dh.iter_mut().enumerate() {
                *dh += times(&w.data, u, (1, hidden), &d_h[rows.clone()]);
            }
        }
        dh0[b * hidden..(b + 1) * hidden].copy_from_slice(&dh);
    }
    let wide = [batch, steps, 3 * hidden];
    vec![
        HostTensor::f32(wide, d_i),
        HostTensor::f32(wide, d_h),
        HostTensor::f32([batch, hidden], dh0),
    ]
}

/// Gradients of a unit's arguments of r, z and n, and of m, from the gradient of its new state, its
/// old state and what reaches the gates from elsewhere.
fn unit_backward([r, z, n, m]: [f64; 4], extra: [f64; 4], old: f64, g: f64) -> [f64; 4] {
    let dn = (g * (1.0 - z) + extra[2]) * (1.0 - n * n);
    let dz = (g * (old - n) + extra[1]) * z * (1.0 - z);
    let dr = (dn * m + extra[0]) * r * (1.0 - r);
    [dr, dz, dn, dn * r + extra[3]]
}

/// W_hh with entries of the size that an initialiser draws.
fn weights(hidden: usize) -> HostTensor {
    let bound = 1.0 / (hidden as f64).sqrt();
    uniform([3 * hidden, hidden], -bound, bound, 82)
}

fn forward_sample([batch, steps, hidden]: [usize; 3]) -> Sample {
    let inputs = vec![
        uniform([batch, steps, 3 * hidden], -2.0, 2.0, 81),
        weights(hidden),
        signed([3 * hidden], 83),
        signed([batch, hidden], 84),
    ];
    Sample::new(inputs, Attrs::NONE)
}

/// Gates as a forward would give them: r and z between 0 and 1, n between -1 and 1.
fn backward_sample([batch, steps, hidden]: [usize; 3], direct: u32) -> Sample {
    let mut gates = uniform([batch, steps, 4 * hidden], 0.05, 0.95, 85);
    for row in gates.data.chunks_exact_mut(4 * hidden) {
        for n in &mut row[2 * hidden..] {
            *n = f64::from((1.9 * *n - 0.95) as f32);
        }
    }
    let inputs = vec![
        gates,
        signed([batch, steps, hidden], 86),
        signed([batch, hidden], 87),
        weights(hidden),
        signed([batch, steps, hidden], 88),
        signed([batch, steps, 4 * hidden], 89),
    ];
    Sample::new(inputs, Attrs::ints(&[direct]))
}

/// `[B, T, H]` of the samples: the small ones, then the large ones.
const SMALL: [[usize; 3]; 6] = [[1, 1, 1], [2, 3, 5], [3, 4, 8], [1, 5, 7], [9, 2, 3], [1, 2, 65]];
const LARGE: [[usize; 3]; 5] = [[17, 3, 127], [2, 5, 129], [64, 16, 64], [1, 2, 512], [12, 40, 64]];

fn forward_samples() -> Vec<Sample> {
    let small = SMALL.into_iter().map(forward_sample);
    let large = LARGE.into_iter().map(|sizes| Sample::later(move || forward_sample(sizes)));
    small.chain(large).collect()
}

fn backward_samples() -> Vec<Sample> {
    let small = SMALL.into_iter().flat_map(|s| [backward_sample(s, 0), backward_sample(s, 1)]);
    let large = LARGE.into_iter().map(|sizes| Sample::later(move || backward_sample(sizes, 0)));
    small.chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_loops_bound_the_steps() {
        assert_eq!(steps_per_dispatch(512, u32::MAX), usize::MAX);
        assert_eq!(steps_per_dispatch(512, 65_000), 1);
        assert_eq!(steps_per_dispatch(512, 1), 1);
        assert!(steps_per_dispatch(64, 65_000) >= 64);
    }
}
