//! Matrix products: `matmul` in all transposes, batched or not, and `linear` with a bias.
//!
//! Transposes are strides, so no value is ever transposed in memory. A product with a bias is one
//! dispatch. Nothing here chooses tile sizes: a variant brings its own.

use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// `c = op(a) op(b)`. Integer attributes: 1 if a is transposed, 1 if b is transposed, 1 if the
/// values are seen as `[rows, last]` instead of a batch of matrices.
pub static MATMUL: OpDef = OpDef {
    name: "matmul",
    doc: "Matrix product `op(a) op(b)`, one or a batch of them; either operand may be transposed.",
    infer: infer_matmul,
    lower: Lower::Kernel { family: matmul_family, launch: launch_matmul },
    backward: Backward::Rule(matmul_backward),
    reference: |inputs, attrs| vec![matmul_reference(&inputs[0], &inputs[1], attrs)],
    samples: matmul_samples,
    mutates: &[],
    in_place: None,
};

/// `y = x w^T + bias` over the last axis.
pub static LINEAR: OpDef = OpDef {
    name: "linear",
    doc: "Affine map of the last axis: `y = x w^T + bias`, `w` is `[out, in]`.",
    infer: infer_linear,
    lower: Lower::Kernel { family: linear_family, launch: launch_linear },
    backward: Backward::Rule(linear_backward),
    reference: |inputs, _| vec![linear_reference(inputs)],
    samples: linear_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&MATMUL, &LINEAR];

/// Sizes of one product, or of each of a batch.
struct Dims {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    transpose_a: bool,
    transpose_b: bool,
}

impl Dims {
    /// The sizes, if the shapes fit together.
    fn of(a: Shape, b: Shape, attrs: &Attrs) -> Option<Dims> {
        let [transpose_a, transpose_b, flat] = [0, 1, 2].map(|slot| attrs.int[slot] == 1);
        let ((rows_a, last_a), (rows_b, last_b), batch) = match (a.dims(), b.dims()) {
            ([.., last_a], [.., last_b]) if flat => {
                let leading = a.rank() - 1;
                let pairs = if transpose_a && !transpose_b {
                    a.dims()[..leading] == b.dims()[..b.rank() - 1]
                } else {
                    b.rank() == 2 && (!transpose_a || a.rank() == 2)
                };
                pairs.then_some(((a.rows(), *last_a), (b.rows(), *last_b), 1))?
            }
            ([ba, ra, ca], [bb, rb, cb]) if ba == bb && !flat => ((*ra, *ca), (*rb, *cb), *ba),
            _ => return None,
        };
        let (m, k) = if transpose_a { (last_a, rows_a) } else { (rows_a, last_a) };
        let (inner, n) = if transpose_b { (last_b, rows_b) } else { (rows_b, last_b) };
        (inner == k).then_some(Dims { batch, m, n, k, transpose_a, transpose_b })
    }

    fn strides_a(&self) -> (usize, usize) {
        if self.transpose_a { (1, self.m) } else { (self.k, 1) }
    }

    fn strides_b(&self) -> (usize, usize) {
        if self.transpose_b { (1, self.k) } else { (self.n, 1) }
    }
}

/// The shape with another innermost dimension; `None` when it has too many elements.
fn widened(shape: Shape, last: usize) -> Option<Shape> {
    let (_, leading) = shape.dims().split_last()?;
    Shape::try_new(&[leading, &[last]].concat())
}

fn infer_matmul(call: &OpCall) -> Inferred {
    let expected = "[m, k] and [k, n] after the transposes, or [batch, m, k] and [batch, k, n]";
    let [a, b] = call.inputs else { return refuse(call, expected) };
    if a.dtype != DType::F32 || b.dtype != DType::F32 {
        return refuse(call, expected);
    }
    let Some(d) = Dims::of(a.shape, b.shape, call.attrs) else { return refuse(call, expected) };
    let shape = if call.attrs.int[2] == 0 {
        Shape::try_new(&[d.batch, d.m, d.n])
    } else if d.transpose_a {
        Shape::try_new(&[d.m, d.n])
    } else {
        widened(a.shape, d.n)
    };
    match shape {
        Some(shape) => Ok(vec![Spec::f32(shape)]),
        None => refuse(call, expected),
    }
}

/// Below this many 64 x 64 tiles a GPU is better filled by 32 x 32 tiles. H200, 132 processors:
/// [1024, 64] [64, 256] takes 14 us as 64 large tiles.
const FEW_TILES: usize = 192;

/// Up to this many 32 x 32 tiles most of a GPU would be idle.
const DEEP_TILES: usize = 64;

/// From this many terms a sum on, lanes of a GPU that have no tile of their own share a sum.
const DEEP: usize = 128;

fn small(batch: usize, m: usize, n: usize) -> bool {
    batch * m.div_ceil(64) * n.div_ceil(64) < FEW_TILES
}

/// Whether a batch of products has so few results that only sharing their sums fills a GPU.
pub(super) fn scarce(batch: usize, m: usize, n: usize) -> bool {
    batch * m.div_ceil(32) * n.div_ceil(32) <= DEEP_TILES
}

fn dims_of(call: &OpCall) -> Dims {
    Dims::of(call.inputs[0].shape, call.inputs[1].shape, call.attrs)
        .expect("infer admitted the shapes")
}

fn matmul_family(call: &OpCall) -> &'static str {
    let d = dims_of(call);
    match small(d.batch, d.m, d.n) {
        _ if d.k >= DEEP && scarce(d.batch, d.m, d.n) => "matmul_deep",
        true => "matmul_small",
        false => "matmul",
    }
}

fn tiles(m: usize, n: usize, variant: &Variant) -> u64 {
    let [rows, cols, _] = variant.tile;
    m.div_ceil(rows as usize) as u64 * n.div_ceil(cols as usize) as u64
}

fn launch_matmul(call: &OpCall, variant: &Variant) -> Launch {
    let d = dims_of(call);
    let ((a_row, a_inner), (b_inner, b_col)) = (d.strides_a(), d.strides_b());
    let push =
        [d.m, d.n, d.k, a_row, a_inner, d.m * d.k, b_inner, b_col, d.k * d.n].map(|x| x as u32);
    let all = [(0, d.transpose_a.into()), (1, d.transpose_b.into())];
    let declared = |(id, _): &(u32, u32)| variant.spec_ids.contains(id);
    Launch {
        groups: d.batch as u64 * tiles(d.m, d.n, variant),
        push: push.to_vec(),
        spec: all.into_iter().filter(declared).collect(),
    }
}

/// One product in double precision: `out[i, j] = sum_l a[i, l] b[l, j]` through strides.
fn product(d: &Dims, a: &[f64], b: &[f64]) -> Vec<f64> {
    let ((a_row, a_inner), (b_inner, b_col)) = (d.strides_a(), d.strides_b());
    let mut out = vec![0.0; d.m * d.n];
    for i in 0..d.m {
        for l in 0..d.k {
            let x = a[i * a_row + l * a_inner];
            for (j, sum) in out[i * d.n..(i + 1) * d.n].iter_mut().enumerate() {
                *sum += x * b[l * b_inner + j * b_col];
            }
        }
    }
    out
}

fn matmul_reference(a: &HostTensor, b: &HostTensor, attrs: &Attrs) -> HostTensor {
    let specs = [a.spec, b.spec];
    let call = OpCall { inputs: &specs, outputs: &[], attrs };
    let out = infer_matmul(&call).expect("infer admitted the shapes");
    let d = dims_of(&call);
    let pairs = a.data.chunks(d.m * d.k).zip(b.data.chunks(d.k * d.n));
    HostTensor::new(out[0], pairs.flat_map(|(a, b)| product(&d, a, b)).collect())
}

fn matmul_backward(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [a, b] = call.inputs else { unreachable!("matmul has two inputs") };
    let c = call.dout();
    let flat = call.attrs.int[2] == 1;
    let times = |x: &Tensor, y: &Tensor, tx, ty| record(x, y, tx, ty, flat).map(Some);
    let (ta, tb) = (call.attrs.int[0] == 1, call.attrs.int[1] == 1);
    let da = match (call.wanted[0], ta) {
        (false, _) => None,
        (_, false) => times(c, b, false, !tb)?,
        (_, true) => times(b, c, tb, true)?,
    };
    let db = match (call.wanted[1], tb) {
        (false, _) => None,
        (_, false) => times(a, c, !ta, false)?,
        (_, true) => times(c, a, true, ta)?,
    };
    Ok(vec![da, db])
}

#[track_caller]
fn record(a: &Tensor, b: &Tensor, ta: bool, tb: bool, flat: bool) -> Result<Tensor> {
    let attrs = Attrs::ints(&[ta.into(), tb.into(), flat.into()]);
    if let Some(dims) = Dims::of(a.shape(), b.shape(), &attrs)
        && dims.k > longest_sum(a)
    {
        return in_parts(a, b, attrs, dims.k, longest_sum(a));
    }
    Tensor::record1(&MATMUL, attrs, &[a, b])
}

/// Terms of a sum that one dispatch can add: the cpu kernel needs a loop turn for two.
pub(super) fn longest_sum(value: &Tensor) -> usize {
    2 * (turns::most(value) as usize).saturating_sub(2048).max(4)
}

/// A product whose sums of `k` terms are too long for one dispatch: parts of `most` terms, added.
fn in_parts(a: &Tensor, b: &Tensor, attrs: Attrs, k: usize, most: usize) -> Result<Tensor> {
    let [transpose_a, transpose_b, flat] = [0, 1, 2].map(|slot| attrs.int[slot] == 1);
    let whole_rows = flat && transpose_a;
    let matrix = |value: &Tensor| match whole_rows {
        true => value.reshape([value.shape().rows(), value.shape().last()]),
        false => Ok(value.clone()),
    };
    let (a, b) = (matrix(a)?, matrix(b)?);
    let axis = |value: &Tensor, first: bool| value.shape().rank() - if first { 2 } else { 1 };
    let (axis_a, axis_b) = (axis(&a, transpose_a), axis(&b, !transpose_b));
    let mut sum: Option<Tensor> = None;
    for first in (0..k).step_by(most) {
        let len = most.min(k - first);
        let parts = [&a.narrow(axis_a, first, len)?, &b.narrow(axis_b, first, len)?];
        let part = Tensor::record1(&MATMUL, attrs, &parts)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    Ok(sum.expect("a sum of many terms has a part"))
}

/// The gradient `dy^T x` of a weight, summed over all rows.
#[track_caller]
pub(super) fn weight_gradient(dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    record(dy, x, true, false, true)
}

fn infer_linear(call: &OpCall) -> Inferred {
    let expected = "[.., in], [out, in] and [out], all f32";
    let [x, w, bias] = call.inputs else { return refuse(call, expected) };
    if call.inputs.iter().any(|spec| spec.dtype != DType::F32) || x.shape.rank() == 0 {
        return refuse(call, expected);
    }
    let shape = match (w.shape.dims(), bias.shape.dims()) {
        ([out, inputs], [bias]) if *inputs == x.shape.last() && out == bias => {
            widened(x.shape, *out)
        }
        _ => None,
    };
    match shape {
        Some(shape) => Ok(vec![Spec::f32(shape)]),
        None => refuse(call, expected),
    }
}

fn linear_family(call: &OpCall) -> &'static str {
    let rows = call.inputs[0].shape.rows();
    let outputs = call.inputs[2].shape.last();
    if small(1, rows, outputs) { "linear_small" } else { "linear" }
}

fn launch_linear(call: &OpCall, variant: &Variant) -> Launch {
    let (x, outputs) = (call.inputs[0].shape, call.inputs[2].shape.last());
    Launch {
        groups: tiles(x.rows(), outputs, variant),
        push: [x.rows(), outputs, x.last()].map(|value| value as u32).to_vec(),
        spec: Vec::new(),
    }
}

fn linear_reference(inputs: &[HostTensor]) -> HostTensor {
    let [x, w, bias] = inputs else { unreachable!("linear has three inputs") };
    let mut y = matmul_reference(x, w, &Attrs::ints(&[0, 1, 1]));
    for row in y.data.chunks_mut(bias.data.len()) {
        row.iter_mut().zip(&bias.data).for_each(|(y, bias)| *y += bias);
    }
    y
}

fn linear_backward(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [x, w, _] = call.inputs else { unreachable!("linear has three inputs") };
    let dy = call.dout();
    Ok(vec![
        call.wanted[0].then(|| record(dy, w, false, false, true)).transpose()?,
        call.wanted[1].then(|| weight_gradient(dy, x)).transpose()?,
        call.wanted[2].then(|| dy.sum_rows()).transpose()?,
    ])
}

impl Tensor {
    /// The matrix product `op(self) op(b)`, where op transposes an operand whose flag is set.
    ///
    /// Both have two dimensions, or both have three and the first counts a batch. A value of any
    /// rank times a matrix is a product over its last axis.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together.
    #[track_caller]
    pub fn matmul(&self, b: &Tensor, transpose_a: bool, transpose_b: bool) -> Result<Tensor> {
        record(self, b, transpose_a, transpose_b, b.shape().rank() == 2)
    }

    /// `self w^T + bias` over the last axis of `self` (`[.., in]`); `w` is `[out, in]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together.
    #[track_caller]
    pub fn linear(&self, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match bias {
            Some(bias) if self.shape().last() > longest_sum(self) => {
                record(self, w, false, true, true)?.add_broadcast(bias)
            }
            Some(bias) => Tensor::record1(&LINEAR, Attrs::NONE, &[self, w, bias]),
            None => record(self, w, false, true, true),
        }
    }
}

fn matmul_sample(a: &[usize], b: &[usize], ints: [u32; 3]) -> Sample {
    let shape = |dims| Shape::try_new(dims).expect("a sample has at most four dimensions");
    let inputs = vec![signed(shape(a), 11), signed(shape(b), 12)];
    Sample::new(inputs, Attrs::ints(&ints))
}

fn matmul_samples() -> Vec<Sample> {
    let s = matmul_sample;
    vec![
        s(&[1, 1], &[1, 1], [0, 0, 1]),
        s(&[3, 5], &[5, 4], [0, 0, 1]),
        s(&[3, 5], &[4, 5], [0, 1, 1]),
        s(&[5, 3], &[5, 4], [1, 0, 1]),
        s(&[5, 3], &[4, 5], [1, 1, 1]),
        s(&[129, 5], &[3, 5], [0, 1, 1]),
        s(&[2, 127], &[127, 3], [0, 0, 1]),
        s(&[2, 3], &[3, 129], [0, 0, 1]),
        s(&[2, 3, 4], &[4, 5], [0, 0, 1]),
        s(&[2, 3, 4], &[5, 4], [0, 1, 1]),
        s(&[2, 3, 4], &[2, 3, 5], [1, 0, 1]),
        s(&[2, 3, 4], &[2, 4, 5], [0, 0, 0]),
        s(&[2, 3, 4], &[2, 5, 4], [0, 1, 0]),
        s(&[2, 4, 3], &[2, 4, 5], [1, 0, 0]),
        s(&[2, 4, 3], &[2, 5, 4], [1, 1, 0]),
        s(&[193, 2, 3], &[193, 1, 3], [0, 1, 0]),
        s(&[2, 129], &[129, 3], [0, 0, 1]),
        s(&[131, 2], &[131, 3], [1, 0, 1]),
        s(&[127, 129], &[129, 130], [0, 0, 1]).large(),
        s(&[2500, 17], &[2500, 33], [1, 0, 1]).large(),
        s(&[2, 4099, 5], &[2, 3, 4099], [1, 1, 0]).large(),
        s(&[129, 127], &[65, 127], [0, 1, 1]).large(),
        s(&[1000, 33], &[1000, 70], [1, 0, 1]).large(),
        s(&[1, 300], &[513, 300], [0, 1, 1]).large(),
        s(&[3, 65, 40], &[3, 40, 129], [0, 0, 0]).large(),
        s(&[1000, 20], &[20, 800], [0, 0, 1]).large(),
        s(&[12, 4, 16, 600], &[500, 600], [0, 1, 1]).large(),
    ]
}

fn linear_samples() -> Vec<Sample> {
    let s = |x: Shape, outputs: usize| {
        let w = signed([outputs, x.last()], 14);
        Sample::new(vec![signed(x, 13), w, signed([outputs], 15)], Attrs::NONE)
    };
    vec![
        s([1, 1].into(), 1),
        s([5].into(), 3),
        s([3, 5].into(), 4),
        s([2, 3, 4].into(), 5),
        s([2, 1, 3, 4].into(), 3),
        s([129, 3].into(), 2),
        s([2, 127].into(), 3),
        s([3, 2].into(), 129),
        s([12_225, 1].into(), 1),
        s([127, 129].into(), 130).large(),
        s([1100, 40].into(), 700).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::oracle::evaluate;

    #[test]
    fn long_sums_in_parts_are_the_product() {
        for sample in matmul_samples().into_iter().filter(|sample| !sample.large) {
            let graph = Graph::detached();
            let host = |index: usize| {
                let input: &HostTensor = &sample.inputs[index];
                graph.host(input.spec, input.to_bytes().into()).expect("the sample fits")
            };
            let (a, b) = (host(0), host(1));
            let k = Dims::of(a.shape(), b.shape(), &sample.attrs).expect("it is admitted").k;
            let whole = Tensor::record1(&MATMUL, sample.attrs, &[&a, &b]).expect("admitted");
            let parts = in_parts(&a, &b, sample.attrs, k, 3).expect("parts are admitted");
            let [whole, parts] = &evaluate(&[&whole, &parts])[..] else { panic!("two values") };
            assert_eq!(whole.spec, parts.spec);
            for (whole, parts) in whole.data.iter().zip(&parts.data) {
                assert!((whole - parts).abs() < 1e-12, "{whole} in parts is {parts}");
            }
        }
    }
}
