//! Root-mean-square norm and layer norm over the last axis.
//!
//! The forward keeps a row's statistics as further outputs, so that the backward need not sum
//! again. The gradient of the gain is a column sum in parts: up to 1,024 rows it is one dispatch,
//! independent of the one for the input.

use super::activation::FIRST_ORDER;
use super::reduce::{ROW_CHUNK, sum, without_last};
use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// `y = gain x r`, `r = 1/sqrt(mean(x^2) + eps)`; also returns r per row. Float attribute: eps.
pub static RMS_NORM: OpDef = OpDef {
    name: "rms_norm",
    doc: "`y = gain x r` over the last axis with `r = 1/sqrt(mean(x^2) + eps)`; also returns `r`.",
    infer: infer_rms_norm,
    lower: Lower::Kernel { family: rms_norm_family, launch: launch_forward },
    backward: Backward::Rule(rms_norm_rule),
    reference: rms_norm_reference,
    samples: rms_norm_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`RMS_NORM`] with respect to x.
pub static RMS_NORM_BACKWARD: OpDef = OpDef {
    name: "rms_norm_backward",
    doc: "`dx = r (u - x r^2 mean(u x))` with `u = dy gain`.",
    infer: infer_rms_norm_backward,
    lower: Lower::Kernel { family: rms_norm_backward_family, launch: launch_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: rms_norm_backward_reference,
    samples: rms_norm_backward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`RMS_NORM`] with respect to the gain, in parts. Integer attribute: rows of a
/// part.
pub static RMS_NORM_BACKWARD_GAIN: OpDef = OpDef {
    name: "rms_norm_backward_gain",
    doc: "`dgain[p, c]`: the sum of `dy x r` over the rows of part `p`.",
    infer: infer_rms_norm_gain,
    lower: Lower::Kernel { family: |_| "rms_norm_backward_gain", launch: launch_parts },
    backward: Backward::None(FIRST_ORDER),
    reference: rms_norm_gain_reference,
    samples: rms_norm_gain_samples,
    mutates: &[],
    in_place: None,
};

/// `y = gain (x - mean) r + bias`, `r = 1/sqrt(var + eps)`; also returns mean and r per row. Float
/// attribute: eps.
pub static LAYER_NORM: OpDef = OpDef {
    name: "layer_norm",
    doc: "`y = gain (x - mean) r + bias` over the last axis, `r = 1/sqrt(var + eps)`; \
          also returns `mean` and `r`.",
    infer: infer_layer_norm,
    lower: Lower::Kernel { family: layer_norm_family, launch: launch_forward },
    backward: Backward::Rule(layer_norm_rule),
    reference: layer_norm_reference,
    samples: layer_norm_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`LAYER_NORM`] with respect to x.
pub static LAYER_NORM_BACKWARD: OpDef = OpDef {
    name: "layer_norm_backward",
    doc: "`dx = r (u - mean(u) - xh mean(u xh))` with `u = dy gain`, `xh = (x - mean) r`.",
    infer: infer_layer_norm_backward,
    lower: Lower::Kernel { family: layer_norm_backward_family, launch: launch_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: layer_norm_backward_reference,
    samples: layer_norm_backward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivatives of [`LAYER_NORM`] with respect to gain and bias, in parts. Integer attribute: rows
/// of a part.
pub static LAYER_NORM_BACKWARD_AFFINE: OpDef = OpDef {
    name: "layer_norm_backward_affine",
    doc: "Sums over the rows of part `p`: `dgain[p, c]` of `dy (x - mean) r`, \
          `dbias[p, c]` of `dy`.",
    infer: infer_layer_norm_affine,
    lower: Lower::Kernel { family: |_| "layer_norm_backward_affine", launch: launch_parts },
    backward: Backward::None(FIRST_ORDER),
    reference: layer_norm_affine_reference,
    samples: layer_norm_affine_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[
    &RMS_NORM,
    &RMS_NORM_BACKWARD,
    &RMS_NORM_BACKWARD_GAIN,
    &LAYER_NORM,
    &LAYER_NORM_BACKWARD,
    &LAYER_NORM_BACKWARD_AFFINE,
];

/// True when all inputs are f32 and there are `count` of them.
fn floats(call: &OpCall, count: usize) -> bool {
    call.inputs.len() == count && call.inputs.iter().all(|spec| spec.dtype == DType::F32)
}

/// True when x has a last axis and `vectors` are as long as it.
fn fits(x: Spec, vectors: &[Spec]) -> bool {
    let long = |vector: &Spec| vector.shape.dims() == [x.shape.last()];
    x.shape.rank() > 0 && vectors.iter().all(long)
}

fn statistic(x: Spec) -> Spec {
    Spec::f32(without_last(x.shape))
}

fn infer_rms_norm(call: &OpCall) -> Inferred {
    match call.inputs {
        &[x, gain] if floats(call, 2) && fits(x, &[gain]) => Ok(vec![x, statistic(x)]),
        _ => refuse(call, "x [.., C] and gain [C], all f32"),
    }
}

fn infer_layer_norm(call: &OpCall) -> Inferred {
    match call.inputs {
        &[x, gain, bias] if floats(call, 3) && fits(x, &[gain, bias]) => {
            Ok(vec![x, statistic(x), statistic(x)])
        }
        _ => refuse(call, "x [.., C], gain [C] and bias [C], all f32"),
    }
}

fn infer_rms_norm_backward(call: &OpCall) -> Inferred {
    match call.inputs {
        &[dy, x, gain, r]
            if floats(call, 4) && dy == x && fits(x, &[gain]) && r == statistic(x) =>
        {
            Ok(vec![x])
        }
        _ => refuse(call, "dy and x [.., C], gain [C] and r [..], all f32"),
    }
}

fn infer_layer_norm_backward(call: &OpCall) -> Inferred {
    match call.inputs {
        &[dy, x, gain, mean, r]
            if floats(call, 5) && dy == x && fits(x, &[gain]) && [mean, r] == [statistic(x); 2] =>
        {
            Ok(vec![x])
        }
        _ => refuse(call, "dy and x [.., C], gain [C], mean and r [..], all f32"),
    }
}

fn parts(call: &OpCall, x: Spec) -> Option<Spec> {
    let chunk = call.attrs.int[0] as usize;
    (chunk > 0).then(|| Spec::f32([x.shape.rows().div_ceil(chunk), x.shape.last()]))
}

fn infer_rms_norm_gain(call: &OpCall) -> Inferred {
    let expected = "dy and x [.., C] and r [..], all f32, in parts of at least one row";
    match call.inputs {
        &[dy, x, r] if floats(call, 3) && dy == x && fits(x, &[]) && r == statistic(x) => {
            parts(call, x).map(|spec| vec![spec]).map_or_else(|| refuse(call, expected), Ok)
        }
        _ => refuse(call, expected),
    }
}

fn infer_layer_norm_affine(call: &OpCall) -> Inferred {
    let expected = "dy and x [.., C], mean and r [..], all f32, in parts of at least one row";
    match call.inputs {
        &[dy, x, mean, r]
            if floats(call, 4) && dy == x && fits(x, &[]) && [mean, r] == [statistic(x); 2] =>
        {
            parts(call, x).map(|spec| vec![spec; 2]).map_or_else(|| refuse(call, expected), Ok)
        }
        _ => refuse(call, expected),
    }
}

fn rms_norm_family(call: &OpCall) -> &'static str {
    launch::by_row_length(call.inputs[0].shape.last(), "rms_norm", "rms_norm_long")
}

fn rms_norm_backward_family(call: &OpCall) -> &'static str {
    launch::by_row_length(
        call.inputs[0].shape.last(),
        "rms_norm_backward",
        "rms_norm_backward_long",
    )
}

fn layer_norm_family(call: &OpCall) -> &'static str {
    launch::by_row_length(call.inputs[0].shape.last(), "layer_norm", "layer_norm_long")
}

fn layer_norm_backward_family(call: &OpCall) -> &'static str {
    launch::by_row_length(
        call.inputs[0].shape.last(),
        "layer_norm_backward",
        "layer_norm_backward_long",
    )
}

fn launch_forward(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    launch::rows(x.rows(), x.last(), &[call.attrs.float[0].to_bits()], variant)
}

fn launch_backward(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[1].shape;
    launch::rows(x.rows(), x.last(), &[], variant)
}

fn launch_parts(call: &OpCall, _: &Variant) -> Launch {
    let x = call.inputs[1].shape;
    launch::columns(x.rows(), x.last(), call.attrs.int[0] as usize, &[])
}

fn chunk() -> Attrs {
    Attrs::ints(&[ROW_CHUNK as u32])
}

fn rms_norm_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [x, gain] = g.inputs else { unreachable!("rms_norm has two inputs") };
    let r = &g.outputs[1];
    let (mut dx, mut dgain) = (None, None);
    if let Some(dy) = &g.douts[0] {
        if g.wanted[0] {
            dx = Some(Tensor::record1(&RMS_NORM_BACKWARD, Attrs::NONE, &[dy, x, gain, r])?);
        }
        if g.wanted[1] {
            let parts = Tensor::record1(&RMS_NORM_BACKWARD_GAIN, chunk(), &[dy, x, r])?;
            dgain = Some(sum_parts(&parts)?);
        }
    }
    if let (Some(dr), true) = (&g.douts[1], g.wanted[0]) {
        dx = Some(plus(dx, through_r(x, r, dr)?)?);
    }
    Ok(vec![dx, dgain])
}

fn layer_norm_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [x, gain, _] = g.inputs else { unreachable!("layer_norm has three inputs") };
    let (mean, r) = (&g.outputs[1], &g.outputs[2]);
    let (mut dx, mut dgain, mut dbias) = (None, None, None);
    if let Some(dy) = &g.douts[0] {
        if g.wanted[0] {
            let inputs = [dy, x, gain, mean, r];
            dx = Some(Tensor::record1(&LAYER_NORM_BACKWARD, Attrs::NONE, &inputs)?);
        }
        // One kernel sums both, so the bias's gradient has the same bits when the gain is frozen.
        if g.wanted[1] || g.wanted[2] {
            let inputs = [dy, x, mean, r];
            let parts = Tensor::record(&LAYER_NORM_BACKWARD_AFFINE, chunk(), &inputs)?;
            let sum = |index: usize| sum_parts(&parts[index]);
            dgain = g.wanted[1].then(|| sum(0)).transpose()?;
            dbias = g.wanted[2].then(|| sum(1)).transpose()?;
        }
    }
    let repeat = (x.shape().last(), 1);
    if let (Some(dmean), true) = (&g.douts[1], g.wanted[0]) {
        dx = Some(plus(dx, dmean.expand(x.shape(), repeat, inverse(x.shape().last()))?)?);
    }
    if let (Some(dr), true) = (&g.douts[2], g.wanted[0]) {
        let centred = x.sub(&mean.expand(x.shape(), repeat, 1.0)?)?;
        dx = Some(plus(dx, through_r(&centred, r, dr)?)?);
    }
    Ok(vec![dx, dgain, dbias])
}

/// One row is the sum already.
fn sum_parts(parts: &Tensor) -> Result<Tensor> {
    match parts.shape().rows() {
        1 => parts.reshape([parts.shape().last()]),
        _ => parts.sum_rows(),
    }
}

fn plus(sum: Option<Tensor>, more: Tensor) -> Result<Tensor> {
    match sum {
        Some(sum) => sum.add(&more),
        None => Ok(more),
    }
}

fn inverse(count: usize) -> f32 {
    (1.0 / count as f64) as f32
}

/// Gradient that reaches the (centred) input through `r = 1/sqrt(mean(x^2) + eps)`:
/// `-x r^3 dr / C`.
fn through_r(x: &Tensor, r: &Tensor, dr: &Tensor) -> Result<Tensor> {
    let cols = x.shape().last();
    let weight = r.mul(r)?.mul(r)?.mul(dr)?;
    x.mul(&weight.expand(x.shape(), (cols, 1), -inverse(cols))?)
}

impl Tensor {
    /// Root-mean-square norm over the last axis: `gain x / sqrt(mean(x^2) + eps)`; `gain` is `[C]`.
    ///
    /// # Errors
    ///
    /// When the gain is not as long as the last axis, or an element type is not f32.
    #[track_caller]
    pub fn rms_norm(&self, gain: &Tensor, eps: f32) -> Result<Tensor> {
        Tensor::record1(&RMS_NORM, Attrs::floats(&[eps]), &[self, gain])
    }

    /// Layer norm over the last axis: `gain (x - mean) / sqrt(var + eps) + bias` with the
    /// population variance; `gain` and `bias` are `[C]`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::rms_norm`].
    #[track_caller]
    pub fn layer_norm(&self, gain: &Tensor, bias: &Tensor, eps: f32) -> Result<Tensor> {
        Tensor::record1(&LAYER_NORM, Attrs::floats(&[eps]), &[self, gain, bias])
    }
}

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    sum(&values) / values.len() as f64
}

fn rms_norm_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [x, gain] = inputs else { unreachable!("rms_norm has two inputs") };
    let (mut y, mut r) = (Vec::new(), Vec::new());
    for row in x.data.chunks(gain.data.len()) {
        let scale = (mean_of(row.iter().map(|x| x * x)) + f64::from(attrs.float[0])).sqrt().recip();
        y.extend(row.iter().zip(&gain.data).map(|(x, gain)| gain * x * scale));
        r.push(scale);
    }
    vec![HostTensor::new(x.spec, y), HostTensor::new(statistic(x.spec), r)]
}

fn layer_norm_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [x, gain, bias] = inputs else { unreachable!("layer_norm has three inputs") };
    let (mut y, mut means, mut r) = (Vec::new(), Vec::new(), Vec::new());
    for row in x.data.chunks(gain.data.len()) {
        let mean = mean_of(row.iter().copied());
        let variance = mean_of(row.iter().map(|x| (x - mean).powi(2)));
        let scale = (variance + f64::from(attrs.float[0])).sqrt().recip();
        let affine = gain.data.iter().zip(&bias.data);
        y.extend(row.iter().zip(affine).map(|(x, (gain, bias))| gain * (x - mean) * scale + bias));
        means.push(mean);
        r.push(scale);
    }
    let statistic = statistic(x.spec);
    vec![
        HostTensor::new(x.spec, y),
        HostTensor::new(statistic, means),
        HostTensor::new(statistic, r),
    ]
}

fn rms_norm_backward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [dy, x, gain, r] = inputs else { unreachable!("rms_norm_backward has four inputs") };
    let cols = gain.data.len();
    let mut dx = Vec::new();
    for ((dy, x), r) in dy.data.chunks(cols).zip(x.data.chunks(cols)).zip(&r.data) {
        let u: Vec<f64> = dy.iter().zip(&gain.data).map(|(dy, gain)| dy * gain).collect();
        let pull = r * r * mean_of(u.iter().zip(x).map(|(u, x)| u * x));
        dx.extend(u.iter().zip(x).map(|(u, x)| r * (u - x * pull)));
    }
    vec![HostTensor::new(x.spec, dx)]
}

fn layer_norm_backward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [dy, x, gain, mean, r] = inputs else { unreachable!("the op has five inputs") };
    let cols = gain.data.len();
    let rows = dy.data.chunks(cols).zip(x.data.chunks(cols)).zip(mean.data.iter().zip(&r.data));
    let mut dx = Vec::new();
    for ((dy, x), (mean, r)) in rows {
        let u: Vec<f64> = dy.iter().zip(&gain.data).map(|(dy, gain)| dy * gain).collect();
        let xh: Vec<f64> = x.iter().map(|x| (x - mean) * r).collect();
        let pull = mean_of(u.iter().copied());
        let turn = mean_of(u.iter().zip(&xh).map(|(u, xh)| u * xh));
        dx.extend(u.iter().zip(&xh).map(|(u, xh)| r * (u - pull - xh * turn)));
    }
    vec![HostTensor::new(x.spec, dx)]
}

/// Column sums of `term(row, column)` over parts of rows.
fn part_sums(shape: Shape, attrs: &Attrs, term: impl Fn(usize, usize) -> f64) -> HostTensor {
    let (rows, cols) = (shape.rows(), shape.last());
    let chunk = (attrs.int[0] as usize).min(rows);
    let mut sums = vec![0.0; rows.div_ceil(chunk) * cols];
    for row in 0..rows {
        for column in 0..cols {
            sums[row / chunk * cols + column] += term(row, column);
        }
    }
    HostTensor::f32([rows.div_ceil(chunk), cols], sums)
}

fn rms_norm_gain_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dy, x, r] = inputs else { unreachable!("the op has three inputs") };
    let cols = x.shape().last();
    let at = |row: usize, column: usize| row * cols + column;
    let term = |row, column| dy.data[at(row, column)] * x.data[at(row, column)] * r.data[row];
    vec![part_sums(x.shape(), attrs, term)]
}

fn layer_norm_affine_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dy, x, mean, r] = inputs else { unreachable!("the op has four inputs") };
    let cols = x.shape().last();
    let at = |row: usize, column: usize| row * cols + column;
    let term = |row, column| {
        dy.data[at(row, column)] * (x.data[at(row, column)] - mean.data[row]) * r.data[row]
    };
    let dbias = |row, column| dy.data[at(row, column)];
    vec![part_sums(x.shape(), attrs, term), part_sums(x.shape(), attrs, dbias)]
}

/// Small shapes, then large ones.
fn shapes() -> ([Shape; 7], [Shape; 3]) {
    (
        [
            [1].into(),
            [5].into(),
            [3, 7].into(),
            [2, 3, 32].into(),
            [127, 3].into(),
            [3, 129].into(),
            [2, 1000].into(),
        ],
        [[1031, 127].into(), [5, 50_257].into(), [131_073, 129].into()],
    )
}

/// Samples of every shape; the statistics of a backward are those of its input.
fn samples(
    attrs: Attrs,
    inputs: impl Fn(Shape) -> Vec<HostTensor> + Copy + Send + 'static,
) -> Vec<Sample> {
    let (small, large) = shapes();
    let of = move |shape: Shape| Sample::new(inputs(shape), attrs);
    let large = large.map(|shape| Sample::later(move || of(shape)));
    small.map(of).into_iter().chain(large).collect()
}

fn gain(shape: Shape) -> HostTensor {
    uniform([shape.last()], 0.5, 1.5, 402)
}

/// Rows with a mean, so that centring shows.
fn rows(shape: Shape) -> HostTensor {
    uniform(shape, -1.0, 2.0, 401)
}

const EPS: f32 = 1.0e-5;

fn rounded(mut x: HostTensor) -> HostTensor {
    x.data.iter_mut().for_each(|x| *x = f64::from(*x as f32));
    x
}

/// With an eps that keeps the gradient of a row of one element away from zero.
fn rms_statistic(x: &HostTensor) -> HostTensor {
    let inputs = [x.clone(), gain(x.shape())];
    rounded(rms_norm_reference(&inputs, &Attrs::floats(&[0.25])).swap_remove(1))
}

fn layer_statistics(x: &HostTensor) -> [HostTensor; 2] {
    let inputs = [x.clone(), gain(x.shape()), gain(x.shape())];
    let mut found = layer_norm_reference(&inputs, &Attrs::floats(&[EPS])).into_iter().skip(1);
    [0, 1].map(|_| rounded(found.next().expect("layer_norm has two statistics")))
}

fn rms_norm_samples() -> Vec<Sample> {
    samples(Attrs::floats(&[EPS]), |shape| vec![rows(shape), gain(shape)])
}

fn layer_norm_samples() -> Vec<Sample> {
    samples(Attrs::floats(&[EPS]), |shape| {
        vec![rows(shape), gain(shape), signed([shape.last()], 403)]
    })
}

fn rms_norm_backward_samples() -> Vec<Sample> {
    samples(Attrs::NONE, |shape| {
        let x = rows(shape);
        let r = rms_statistic(&x);
        vec![signed(shape, 404), x, gain(shape), r]
    })
}

fn layer_norm_backward_samples() -> Vec<Sample> {
    samples(Attrs::NONE, |shape| {
        let x = rows(shape);
        let [mean, r] = layer_statistics(&x);
        vec![signed(shape, 405), x, gain(shape), mean, r]
    })
}

fn rms_norm_gain_samples() -> Vec<Sample> {
    samples(Attrs::ints(&[16]), |shape| {
        let x = rows(shape);
        let r = rms_statistic(&x);
        vec![uniform(shape, 0.0, 1.0, 406), x, r]
    })
}

fn layer_norm_affine_samples() -> Vec<Sample> {
    samples(chunk(), |shape| {
        let x = rows(shape);
        let [mean, r] = layer_statistics(&x);
        vec![uniform(shape, 0.0, 1.0, 407), x, mean, r]
    })
}
