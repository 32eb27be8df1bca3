//! Rotation of queries and keys by angles that are data.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Queries and keys, turned. Inputs: q and k `[B, T, R H, N]`, theta `[B, T, H S]`. Integer
/// attributes: 0 when pairs are neighbours, 1 when they are half a row apart; H.
pub static MAMBA3_ROTATE: OpDef = OpDef {
    name: "mamba3_rotate",
    doc: "Queries and keys with their first S pairs of channels turned by the angles of their token \
          and head: `y0 = x0 cos - x1 sin`, `y1 = x0 sin + x1 cos`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: |_| "mamba3_rotate", launch },
    backward: Backward::Rule(gradients),
    reference: forward_reference,
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAMBA3_ROTATE`]. Inputs: the gradients of both outputs, both outputs, theta.
/// Outputs: dq, dk, dtheta. Attributes as there.
pub static MAMBA3_ROTATE_BACKWARD: OpDef = OpDef {
    name: "mamba3_rotate_backward",
    doc: "Backward of the rotation: gradients turned back, and `dtheta = sum dy1 y0 - dy0 y1` over \
          ranks, queries and keys.",
    infer: infer_backward,
    lower: Lower::Kernel { family: |_| "mamba3_rotate_backward", launch },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// Batch times steps, heads, ranks, N and S.
struct Turn {
    tokens: usize,
    heads: usize,
    ranks: usize,
    dim: usize,
    pairs: usize,
    half: bool,
}

impl Turn {
    fn of(x: &Spec, theta: &Spec, attrs: &Attrs) -> Option<Turn> {
        let (&[b, t, rows, dim], &[_, _, angles]) = (x.shape.dims(), theta.shape.dims()) else {
            return None;
        };
        let heads = attrs.int[1] as usize;
        let (ranks, pairs) = (rows.checked_div(heads)?, angles.checked_div(heads)?);
        let fits = x.dtype == DType::F32
            && *theta == Spec::f32([b, t, angles])
            && rows == ranks * heads
            && angles == pairs * heads
            && ranks > 0
            && dim.is_multiple_of(2)
            && (1..=dim / 2).contains(&pairs);
        let half = attrs.int[0] != 0;
        fits.then_some(Turn { tokens: b * t, heads, ranks, dim, pairs, half })
    }

    /// Calls `body` with the offset of the angle and the offsets of the two channels of every pair
    /// that turns.
    fn each(&self, mut body: impl FnMut(usize, usize, usize)) {
        for row in 0..self.tokens * self.ranks * self.heads {
            let (token, head) = (row / self.heads / self.ranks, row % self.heads);
            for pair in 0..self.pairs {
                let (first, apart) = if self.half { (pair, self.dim / 2) } else { (2 * pair, 1) };
                let at = row * self.dim + first;
                body((token * self.heads + head) * self.pairs + pair, at, at + apart);
            }
        }
    }
}

fn infer_forward(call: &OpCall) -> Inferred {
    match call.inputs {
        [q, k, theta] if q == k && Turn::of(q, theta, call.attrs).is_some() => Ok(vec![*q, *k]),
        _ => refuse(
            call,
            "q and k [B, T, R H, N] with N even, and angles [B, T, H S] with S at most N / 2",
        ),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    match call.inputs {
        [dq, dk, q, k, theta]
            if q == k && dq == q && dk == q && Turn::of(q, theta, call.attrs).is_some() =>
        {
            Ok(vec![*q, *k, *theta])
        }
        _ => refuse(
            call,
            "dq, dk, q and k [B, T, R H, N] with N even, and angles [B, T, H S], S at most N / 2",
        ),
    }
}

/// A lane per token, head and pair of channels; `push` is their count, heads, ranks, N, S and the
/// layout.
fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let theta = call.inputs.last().expect("infer admitted at least three inputs");
    let turn = Turn::of(&call.inputs[0], theta, call.attrs).expect("infer admitted the shapes");
    let sizes = [turn.heads, turn.ranks, turn.dim, turn.pairs].map(|size| size as u32);
    let mut rest = sizes.to_vec();
    rest.push(u32::from(turn.half));
    launch::elements(turn.tokens * turn.heads * turn.dim / 2, &rest, variant)
}

fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [q, k] = call.outputs else { unreachable!("mamba3_rotate has two outputs") };
    let theta = &call.inputs[2];
    let or_zero = |given: &Option<Tensor>| match given {
        Some(gradient) => Ok(gradient.clone()),
        None => q.graph().filled_f32(q.shape(), 0.0),
    };
    let (dq, dk) = (or_zero(&call.douts[0])?, or_zero(&call.douts[1])?);
    let inputs = [&dq, &dk, q, k, theta];
    let found = Tensor::record(&MAMBA3_ROTATE_BACKWARD, *call.attrs, &inputs)?;
    Ok(found.into_iter().map(Some).collect())
}

fn forward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [q, k, theta] = inputs else { unreachable!("mamba3_rotate has three inputs") };
    let turn = Turn::of(&q.spec, &theta.spec, attrs).expect("infer admitted the shapes");
    let turned = |x: &HostTensor| {
        let mut y = x.clone();
        turn.each(|angle, first, second| {
            let (s, c) = theta.data[angle].sin_cos();
            y.data[first] = x.data[first] * c - x.data[second] * s;
            y.data[second] = x.data[first] * s + x.data[second] * c;
        });
        y
    };
    vec![turned(q), turned(k)]
}

fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dq, dk, q, k, theta] = inputs else { unreachable!("the backward has five inputs") };
    let turn = Turn::of(&q.spec, &theta.spec, attrs).expect("infer admitted the shapes");
    let mut dtheta = HostTensor::new(theta.spec, vec![0.0; theta.data.len()]);
    let mut back = |dy: &HostTensor, y: &HostTensor| {
        let mut dx = dy.clone();
        turn.each(|angle, first, second| {
            let (s, c) = theta.data[angle].sin_cos();
            dx.data[first] = dy.data[first] * c + dy.data[second] * s;
            dx.data[second] = dy.data[second] * c - dy.data[first] * s;
            dtheta.data[angle] += dy.data[second] * y.data[first] - dy.data[first] * y.data[second];
        });
        dx
    };
    let (dq, dk) = (back(dq, q), back(dk, k));
    vec![dq, dk, dtheta]
}

/// `[B, T, H]`, R, N and S.
type Size = ([usize; 3], usize, usize, usize);

const SMALL: [Size; 4] =
    [([1, 1, 1], 1, 2, 1), ([2, 3, 2], 1, 6, 3), ([1, 2, 3], 3, 8, 2), ([2, 5, 1], 2, 4, 1)];

fn forward_sample(([b, t, h], r, n, s): Size, layout: u32) -> Sample {
    let x = |seed| signed([b, t, r * h, n], seed);
    let theta = uniform([b, t, h * s], -3.0, 3.0, 923);
    Sample::new(vec![x(921), x(922), theta], Attrs::ints(&[layout, h as u32]))
}

fn backward_sample(size: Size, layout: u32) -> Sample {
    let sample = forward_sample(size, layout);
    let attrs = sample.attrs;
    let [q, k, theta] = sample.inputs.as_slice() else { unreachable!("the sample has three") };
    let inputs =
        vec![signed(q.shape(), 924), signed(q.shape(), 925), q.clone(), k.clone(), theta.clone()];
    Sample::new(inputs, attrs)
}

fn both(sample: fn(Size, u32) -> Sample) -> Vec<Sample> {
    let small = SMALL.into_iter().flat_map(|size| [sample(size, 0), sample(size, 1)]);
    let large =
        [0, 1].map(|layout| Sample::later(move || sample(([2, 257, 5], 3, 66, 17), layout)));
    small.chain(large).collect()
}

fn forward_samples() -> Vec<Sample> {
    both(forward_sample)
}

fn backward_samples() -> Vec<Sample> {
    both(backward_sample)
}
