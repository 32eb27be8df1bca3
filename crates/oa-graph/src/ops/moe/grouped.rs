//! Grouped products: one matrix per expert, applied to its contiguous rows in one dispatch.
//!
//! How many rows an expert has is known on the device only; nothing is padded to the largest.

use super::super::matmul::scarce;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef};
use super::sample::{crowded, dispatched};
use super::{MAX_ASSIGNMENTS, MAX_EXPERTS};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// `y = x op(w[e])` for the rows of expert e. Inputs: x `[A, K]`, w `[E, N, K]`, or `[E, K, N]`,
/// offsets u32 `[E + 1]`. Integer attribute: 1 when w is `[E, N, K]`.
pub static GROUPED_MATMUL: OpDef = OpDef {
    name: "grouped_matmul",
    doc: "Matrix product of each expert's contiguous rows with its own matrix: \
          `y[r] = w[e] x[r]` for `offsets[e] <= r < offsets[e + 1]`.",
    infer: infer_matmul,
    lower: Lower::Kernel { family: |_| "grouped_matmul", launch: launch_matmul },
    backward: Backward::Rule(matmul_backward),
    reference: matmul_reference,
    samples: matmul_samples,
    mutates: &[],
    in_place: None,
};

/// `dw[e] = dy^T x` over the rows of expert e. Inputs: dy `[A, N]`, x `[A, K]`, offsets. Integer
/// attribute: experts.
pub static GROUPED_WEIGHTS: OpDef = OpDef {
    name: "grouped_weights",
    doc: "Gradient of each expert's matrix: `dw[e] = sum_r dy[r] x[r]^T` over its rows; zero \
          without rows.",
    infer: infer_weights,
    lower: Lower::Kernel { family: weights_family, launch: launch_weights },
    backward: Backward::Rule(weights_backward),
    reference: weights_reference,
    samples: weights_samples,
    mutates: &[],
    in_place: None,
};

impl Tensor {
    /// The product of each expert's rows of `self` `[A, K]` with its matrix of `w` `[E, N, K]`:
    /// `[A, N]`. Rows `offsets[e]` to `offsets[e + 1]` (u32 `[E + 1]`, from 0 to A) are expert e's.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together, or there are more than [`MAX_ASSIGNMENTS`] rows.
    #[track_caller]
    pub fn grouped_linear(&self, w: &Tensor, offsets: &Tensor) -> Result<Tensor> {
        matmul(self, w, offsets, true)
    }
}

#[track_caller]
fn matmul(x: &Tensor, w: &Tensor, offsets: &Tensor, transposed: bool) -> Result<Tensor> {
    Tensor::record1(&GROUPED_MATMUL, Attrs::ints(&[transposed.into()]), &[x, w, offsets])
}

#[track_caller]
fn weights(dy: &Tensor, x: &Tensor, offsets: &Tensor, experts: usize) -> Result<Tensor> {
    Tensor::record1(&GROUPED_WEIGHTS, Attrs::ints(&[experts as u32]), &[dy, x, offsets])
}

fn infer_matmul(call: &OpCall) -> Inferred {
    let expected =
        "x [A, K], w [E, N, K] (or [E, K, N]) and u32 offsets [E + 1], A at most 131,072";
    let [x, w, offsets] = call.inputs else { return refuse(call, expected) };
    let (&[rows, k], &[experts, a, b]) = (x.shape.dims(), w.shape.dims()) else {
        return refuse(call, expected);
    };
    let (n, inner) = if call.attrs.int[0] == 1 { (a, b) } else { (b, a) };
    let floats = x.dtype == DType::F32 && w.dtype == DType::F32;
    let sizes = rows <= MAX_ASSIGNMENTS && (1..=MAX_EXPERTS).contains(&experts);
    match floats && sizes && inner == k && *offsets == Spec::u32([experts + 1]) {
        true => Ok(vec![Spec::f32([rows, n])]),
        false => refuse(call, expected),
    }
}

fn infer_weights(call: &OpCall) -> Inferred {
    let expected = "dy [A, N], x [A, K] and u32 offsets [E + 1], A at most 131,072";
    let [dy, x, offsets] = call.inputs else { return refuse(call, expected) };
    let experts = call.attrs.int[0] as usize;
    match (dy.shape.dims(), x.shape.dims()) {
        (&[rows, n], &[same, k])
            if rows == same
                && rows <= MAX_ASSIGNMENTS
                && (1..=MAX_EXPERTS).contains(&experts)
                && dy.dtype == DType::F32
                && x.dtype == DType::F32
                && *offsets == Spec::u32([experts + 1]) =>
        {
            Ok(vec![Spec::f32([experts, n, k])])
        }
        _ => refuse(call, expected),
    }
}

/// A tile never holds rows of two experts, so each may begin one tile more than its rows fill.
fn launch_matmul(call: &OpCall, variant: &Variant) -> Launch {
    let (x, experts) = (call.inputs[0].shape, call.inputs[1].shape.dims()[0]);
    let (rows, k, n) = (x.rows(), x.last(), call.outputs[0].shape.last());
    let [tile_rows, tile_cols, _] = variant.tile;
    let down = rows / tile_rows as usize + experts.min(rows);
    let strides = if call.attrs.int[0] == 1 { [1, k] } else { [n, 1] };
    let push = [rows, n, k, experts, strides[0], strides[1]].map(|size| size as u32).to_vec();
    let groups = down as u64 * n.div_ceil(tile_cols as usize) as u64;
    Launch { groups, push, spec: Vec::new() }
}

/// Few tiles leave most of a GPU idle, so the lanes of a workgroup then share the sums over rows.
fn weights_family(call: &OpCall) -> &'static str {
    let &[experts, n, k] = call.outputs[0].shape.dims() else { unreachable!("infer gave three") };
    match scarce(experts, n, k) {
        true => "grouped_weights_deep",
        false => "grouped_weights",
    }
}

fn launch_weights(call: &OpCall, variant: &Variant) -> Launch {
    let &[experts, n, k] = call.outputs[0].shape.dims() else { unreachable!("infer gave three") };
    let [tile_rows, tile_cols, _] = variant.tile;
    let tiles = n.div_ceil(tile_rows as usize) * k.div_ceil(tile_cols as usize);
    let push = [call.inputs[0].shape.rows(), n, k].map(|size| size as u32).to_vec();
    Launch { groups: (experts * tiles) as u64, push, spec: Vec::new() }
}

fn matmul_backward(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [x, w, offsets] = g.inputs else { unreachable!("grouped_matmul has three inputs") };
    let (dy, experts) = (g.dout(), w.shape().dims()[0]);
    let transposed = g.attrs.int[0] == 1;
    let dx = g.wanted[0].then(|| matmul(dy, w, offsets, !transposed)).transpose()?;
    let dw = match (g.wanted[1], transposed) {
        (false, _) => None,
        (true, true) => Some(weights(dy, x, offsets, experts)?),
        (true, false) => Some(weights(x, dy, offsets, experts)?),
    };
    Ok(vec![dx, dw, None])
}

/// `<d, dw>` is bilinear in dy and x: `ddy = x d[e]^T`, `dx = dy d[e]`.
fn weights_backward(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [dy, x, offsets] = g.inputs else { unreachable!("grouped_weights has three inputs") };
    let d = g.dout();
    let ddy = g.wanted[0].then(|| matmul(x, d, offsets, true)).transpose()?;
    let dx = g.wanted[1].then(|| matmul(dy, d, offsets, false)).transpose()?;
    Ok(vec![ddy, dx, None])
}

/// The rows of each expert.
fn slices(offsets: &HostTensor) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let pairs = offsets.data.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
    pairs.enumerate()
}

fn matmul_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [x, w, offsets] = inputs else { unreachable!("grouped_matmul has three inputs") };
    let (k, transposed) = (x.shape().last(), attrs.int[0] == 1);
    let n = w.shape().dims()[if transposed { 1 } else { 2 }];
    let mut y = vec![0.0; x.shape().rows() * n];
    for (expert, rows) in slices(offsets) {
        let w = &w.data[expert * n * k..(expert + 1) * n * k];
        for row in rows {
            for col in 0..n {
                let weight = |i: usize| if transposed { w[col * k + i] } else { w[i * n + col] };
                y[row * n + col] = (0..k).map(|i| x.data[row * k + i] * weight(i)).sum();
            }
        }
    }
    vec![HostTensor::f32([x.shape().rows(), n], y)]
}

fn weights_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dy, x, offsets] = inputs else { unreachable!("grouped_weights has three inputs") };
    let (n, k, experts) = (dy.shape().last(), x.shape().last(), attrs.int[0] as usize);
    let mut dw = vec![0.0; experts * n * k];
    for (expert, rows) in slices(offsets) {
        for row in rows {
            for a in 0..n {
                for b in 0..k {
                    dw[(expert * n + a) * k + b] += dy.data[row * n + a] * x.data[row * k + b];
                }
            }
        }
    }
    vec![HostTensor::f32([experts, n, k], dw)]
}

/// Rows, experts, N, K.
type Size = (usize, usize, usize, usize);
const SMALL: [Size; 6] =
    [(1, 1, 1, 1), (7, 3, 4, 5), (34, 5, 12, 10), (40, 4, 33, 3), (130, 2, 3, 2), (9, 12, 5, 4)];
const LARGE: [Size; 4] =
    [(2048, 4, 16, 32), (777, 9, 65, 130), (1500, 3, 40, 300), (400, 40, 65, 70)];

fn offsets_of(rows: usize, experts: usize) -> HostTensor {
    let [offsets, _] = dispatched(rows, 1, experts, 841);
    offsets
}

fn matmul_sample((rows, experts, n, k): Size, transposed: bool, offsets: HostTensor) -> Sample {
    let w = if transposed { [experts, n, k] } else { [experts, k, n] };
    let inputs = vec![signed([rows, k], 842), signed(w, 843), offsets];
    Sample::new(inputs, Attrs::ints(&[transposed.into()]))
}

fn matmul_samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for transposed in [true, false] {
        let make = move |size: Size| matmul_sample(size, transposed, offsets_of(size.0, size.1));
        samples.extend(SMALL.into_iter().map(make));
        let alone = crowded(50, 4, 2);
        samples.push(matmul_sample((50, 4, 6, 7), transposed, alone));
        samples.extend(LARGE.into_iter().map(|size| Sample::later(move || make(size))));
    }
    samples
}

fn weights_sample((rows, experts, n, k): Size, offsets: HostTensor) -> Sample {
    let inputs = vec![signed([rows, n], 844), signed([rows, k], 845), offsets];
    Sample::new(inputs, Attrs::ints(&[experts as u32]))
}

fn weights_samples() -> Vec<Sample> {
    let make = |size: Size| weights_sample(size, offsets_of(size.0, size.1));
    let mut samples: Vec<Sample> = SMALL.into_iter().map(make).collect();
    samples.push(weights_sample((50, 4, 6, 7), crowded(50, 4, 2)));
    samples.push(make((70, 65, 1, 2)));
    samples.extend(LARGE.into_iter().map(|size| Sample::later(move || make(size))));
    samples
}
