//! Rows of tokens in the order of experts, and back: copies out, weighted answers in.
//!
//! Both ways are gathers, through the order or its inverse, so nothing is added without an order.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, Launch, Lower, OpCall, OpDef, launch};
use super::order::Dispatch;
use super::sample::dispatched;
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{Class, DType, Variant};

/// Copies of token rows. Inputs: x `[T, D]`, order u32 `[2, T k]`. Integer attribute: k.
pub static MOE_GATHER: OpDef = OpDef {
    name: "moe_gather",
    doc: "Token rows in the order of experts: `xs[r] = x[order[r] / k]`.",
    infer: infer_gather,
    lower: Lower::Kernel { family: |_| "moe_gather", launch: launch_gather },
    backward: Backward::Rule(|g| {
        let inputs = [g.dout(), &g.inputs[1]];
        Ok(vec![Some(Tensor::record1(&MOE_GATHER_BACKWARD, *g.attrs, &inputs)?), None])
    }),
    reference: gather_reference,
    samples: gather_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MOE_GATHER`]. Inputs: dxs `[T k, D]`, order. Integer attribute: k.
pub static MOE_GATHER_BACKWARD: OpDef = OpDef {
    name: "moe_gather_backward",
    doc: "`dx[t] = sum_j dxs[row of t's j-th assignment]`.",
    infer: infer_gather_backward,
    lower: Lower::Kernel { family: |_| "moe_gather_backward", launch: launch_gather_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: gather_backward_reference,
    samples: gather_backward_samples,
    mutates: &[],
    in_place: None,
};

/// Weighted answers of the experts. Inputs: ys `[T k, D]`, w `[T, k]`, order.
pub static MOE_COMBINE: OpDef = OpDef {
    name: "moe_combine",
    doc: "Answers of a token's experts, weighted: `y[t] = sum_j w[t, j] ys[row of t's j-th \
          assignment]`.",
    infer: infer_combine,
    lower: Lower::Kernel { family: |_| "moe_combine", launch: launch_combine },
    backward: Backward::Rule(|g| {
        let inputs = [&g.inputs[0], &g.inputs[1], &g.inputs[2], g.dout()];
        let found = Tensor::record(&MOE_COMBINE_BACKWARD, Attrs::NONE, &inputs)?;
        Ok(found.into_iter().map(Some).chain([None]).collect())
    }),
    reference: combine_reference,
    samples: combine_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MOE_COMBINE`] with respect to answers and weights. Inputs: ys, w, order, dy.
pub static MOE_COMBINE_BACKWARD: OpDef = OpDef {
    name: "moe_combine_backward",
    doc: "`dys[r] = w dy[t]` and `dw[t, j] = <dy[t], ys[r]>` for the row r of t's j-th assignment.",
    infer: infer_combine_backward,
    lower: Lower::Kernel { family: |_| "moe_combine_backward", launch: launch_combine_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: combine_backward_reference,
    samples: combine_backward_samples,
    mutates: &[],
    in_place: None,
};

impl Dispatch {
    /// Copies the rows of `x` `[T, D]` into the order of experts, `[T k, D]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn gather(&self, x: &Tensor) -> Result<Tensor> {
        let count = self.order.shape().last();
        let k = count.checked_div(x.shape().rows()).unwrap_or(0) as u32;
        Tensor::record1(&MOE_GATHER, Attrs::ints(&[k]), &[x, &self.order])
    }

    /// Adds the answers `ys` `[T k, D]` of each token's experts with its weights `[T, k]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn combine(&self, ys: &Tensor, weights: &Tensor) -> Result<Tensor> {
        Tensor::record1(&MOE_COMBINE, Attrs::NONE, &[ys, weights, &self.order])
    }
}

fn infer_gather(call: &OpCall) -> Inferred {
    let expected = "x [T, D] and the u32 order [2, T k] of a dispatch of T tokens";
    let [x, order] = call.inputs else { return refuse(call, expected) };
    let k = call.attrs.int[0] as usize;
    match *x.shape.dims() {
        [tokens, width]
            if x.dtype == DType::F32 && k > 0 && *order == Spec::u32([2, tokens * k]) =>
        {
            Ok(vec![Spec::f32([tokens * k, width])])
        }
        _ => refuse(call, expected),
    }
}

fn infer_gather_backward(call: &OpCall) -> Inferred {
    let expected = "dxs [T k, D] and the u32 order [2, T k] of a dispatch of T tokens";
    let [dxs, order] = call.inputs else { return refuse(call, expected) };
    let k = call.attrs.int[0] as usize;
    match *dxs.shape.dims() {
        [rows, width]
            if dxs.dtype == DType::F32
                && k > 0
                && rows.is_multiple_of(k)
                && *order == Spec::u32([2, rows]) =>
        {
            Ok(vec![Spec::f32([rows / k, width])])
        }
        _ => refuse(call, expected),
    }
}

fn infer_combine(call: &OpCall) -> Inferred {
    let expected = "ys [T k, D], weights [T, k] and the u32 order [2, T k] of their dispatch";
    let [ys, w, order] = call.inputs else { return refuse(call, expected) };
    match (ys.shape.dims(), w.shape.dims()) {
        (&[rows, width], &[tokens, k])
            if ys.dtype == DType::F32
                && w.dtype == DType::F32
                && rows == tokens * k
                && *order == Spec::u32([2, rows]) =>
        {
            Ok(vec![Spec::f32([tokens, width])])
        }
        _ => refuse(call, expected),
    }
}

fn infer_combine_backward(call: &OpCall) -> Inferred {
    let expected = "what moe_combine took, and the gradient [T, D] of its answer";
    let [ys, w, _, dy] = call.inputs else { return refuse(call, expected) };
    let forward = OpCall { inputs: &call.inputs[..3], outputs: &[], attrs: call.attrs };
    match infer_combine(&forward) {
        Ok(found) if found[0] == *dy => Ok(vec![*ys, *w]),
        _ => refuse(call, expected),
    }
}

/// Portable: a lane per element. cpu: the tile counts rows.
fn over(rows: usize, width: usize, rest: [usize; 3], variant: &Variant) -> Launch {
    let rest = rest.map(|size| size as u32);
    let mut launch = launch::elements(rows * width, &rest, variant);
    if variant.class == Class::Cpu {
        launch.groups = rows.div_ceil(variant.tile[0] as usize) as u64;
    }
    launch
}

fn launch_gather(call: &OpCall, variant: &Variant) -> Launch {
    let xs = call.outputs[0].shape;
    over(xs.rows(), xs.last(), [xs.rows(), xs.last(), call.attrs.int[0] as usize], variant)
}

fn launch_gather_backward(call: &OpCall, variant: &Variant) -> Launch {
    let dx = call.outputs[0].shape;
    over(dx.rows(), dx.last(), [dx.rows(), dx.last(), call.attrs.int[0] as usize], variant)
}

fn launch_combine(call: &OpCall, variant: &Variant) -> Launch {
    let y = call.outputs[0].shape;
    over(y.rows(), y.last(), [y.rows(), y.last(), call.inputs[1].shape.last()], variant)
}

fn launch_combine_backward(call: &OpCall, variant: &Variant) -> Launch {
    let ys = call.inputs[0].shape;
    launch::rows(ys.rows(), ys.last(), &[call.inputs[1].shape.last() as u32], variant)
}

/// Row of each assignment.
fn row_of(order: &HostTensor) -> Vec<usize> {
    let count = order.shape().last();
    order.data[count..].iter().map(|&row| row as usize).collect()
}

fn gather_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [x, order] = inputs else { unreachable!("moe_gather has two inputs") };
    let (width, k) = (x.shape().last(), attrs.int[0] as usize);
    let count = order.shape().last();
    let token = |&assignment: &f64| assignment as usize / k * width;
    let rows = order.data[..count].iter().map(token);
    let data = rows.flat_map(|at| x.data[at..at + width].iter().copied()).collect();
    vec![HostTensor::f32([count, width], data)]
}

fn gather_backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dxs, order] = inputs else { unreachable!("moe_gather_backward has two inputs") };
    let tokens = dxs.shape().rows() / attrs.int[0] as usize;
    let ones = vec![1.0; dxs.shape().rows()];
    vec![summed(dxs, &ones, &row_of(order), tokens)]
}

/// The rows of each token's assignments, weighted and added.
fn summed(ys: &HostTensor, w: &[f64], rows: &[usize], tokens: usize) -> HostTensor {
    let (width, k) = (ys.shape().last(), rows.len() / tokens);
    let mut y = vec![0.0; tokens * width];
    for (assignment, &row) in rows.iter().enumerate() {
        let at = assignment / k * width;
        for c in 0..width {
            y[at + c] += w[assignment] * ys.data[row * width + c];
        }
    }
    HostTensor::f32([tokens, width], y)
}

fn combine_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [ys, w, order] = inputs else { unreachable!("moe_combine has three inputs") };
    vec![summed(ys, &w.data, &row_of(order), w.shape().rows())]
}

fn combine_backward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [ys, w, order, dy] = inputs else { unreachable!("moe_combine_backward has four inputs") };
    let (width, k) = (ys.shape().last(), w.shape().last());
    let (mut dys, mut dw) = (ys.data.clone(), w.data.clone());
    for (assignment, row) in row_of(order).into_iter().enumerate() {
        let dy = &dy.data[assignment / k * width..][..width];
        let answer = row * width..(row + 1) * width;
        dw[assignment] = dy.iter().zip(&ys.data[answer.clone()]).map(|(a, b)| a * b).sum();
        let scaled = dy.iter().map(|dy| w.data[assignment] * dy);
        dys[answer].iter_mut().zip(scaled).for_each(|(slot, value)| *slot = value);
    }
    vec![HostTensor::new(ys.spec, dys), HostTensor::new(w.spec, dw)]
}

/// Tokens, k, experts, width.
type Size = (usize, usize, usize, usize);
const SMALL: [Size; 6] =
    [(1, 1, 1, 1), (3, 2, 4, 5), (17, 2, 5, 10), (33, 1, 4, 33), (5, 4, 8, 129), (130, 2, 3, 3)];
const LARGE: [Size; 2] = [(1024, 2, 4, 32), (4099, 3, 8, 65)];

fn sized(make: fn(Size) -> Sample) -> Vec<Sample> {
    let small = SMALL.into_iter().map(make);
    small.chain(LARGE.into_iter().map(|size| Sample::later(move || make(size)))).collect()
}

fn gather_samples() -> Vec<Sample> {
    sized(|(tokens, k, experts, width)| {
        let [_, order] = dispatched(tokens, k, experts, 821);
        Sample::new(vec![signed([tokens, width], 822), order], Attrs::ints(&[k as u32]))
    })
}

fn gather_backward_samples() -> Vec<Sample> {
    sized(|(tokens, k, experts, width)| {
        let [_, order] = dispatched(tokens, k, experts, 823);
        Sample::new(vec![signed([tokens * k, width], 824), order], Attrs::ints(&[k as u32]))
    })
}

fn combine_samples() -> Vec<Sample> {
    sized(|(tokens, k, experts, width)| {
        let [_, order] = dispatched(tokens, k, experts, 825);
        let inputs = vec![signed([tokens * k, width], 826), signed([tokens, k], 827), order];
        Sample::new(inputs, Attrs::NONE)
    })
}

fn combine_backward_samples() -> Vec<Sample> {
    sized(|(tokens, k, experts, width)| {
        let [_, order] = dispatched(tokens, k, experts, 828);
        let inputs = vec![
            signed([tokens * k, width], 829),
            signed([tokens, k], 830),
            order,
            signed([tokens, width], 831),
        ];
        Sample::new(inputs, Attrs::NONE)
    })
}
