//! Batch norm over the second axis: training by the statistics of the batch, evaluation by given
//! ones.
//!
//! Training is three dispatches: moments of planes, their merger, the norm itself. The norm takes
//! the statistics so as not to sum again, but it is a function of x alone: its reference ignores
//! them, and its derivative goes through them.

use super::batch_norm_reference::{
    channel_norm_reference, input_reference, norm_reference, sums_reference,
};
use super::channels::{planes, statistics};
use super::conv::floats;
use super::sample::{channel_norm_samples, input_norm_samples, norm_samples, sums_samples};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::Spec;
use crate::ops::activation::FIRST_ORDER;
use crate::ops::rule::{Inferred, refuse};
use crate::ops::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::value::Tensor;
use oa_kernels::Variant;
use std::panic::Location;

/// Norm by the batch's own statistics, which the last two inputs must be. Float attribute: eps.
pub static BATCH_NORM: OpDef = OpDef {
    name: "batch_norm",
    doc: "`y = gain (x - mean) / sqrt(var + eps) + bias` per channel of `[B, C, ..]` with the \
          batch's mean and population variance, which are inputs so as not to be summed again.",
    infer: infer_norm,
    lower: Lower::Kernel { family: |_| "batch_norm", launch: launch_norm },
    backward: Backward::Rule(batch_rule),
    reference: norm_reference,
    samples: norm_samples,
    mutates: &[],
    in_place: Some(0),
};

/// Norm by given statistics. Float attribute: eps.
pub static CHANNEL_NORM: OpDef = OpDef {
    name: "channel_norm",
    doc: "`y = gain (x - mean) / sqrt(var + eps) + bias` per channel of `[B, C, ..]` with given \
          mean and variance.",
    infer: infer_norm,
    lower: Lower::Kernel { family: |_| "batch_norm", launch: launch_norm },
    backward: Backward::Rule(channel_rule),
    reference: channel_norm_reference,
    samples: channel_norm_samples,
    mutates: &[],
    in_place: Some(0),
};

/// Sums of a norm's backward over each plane. Float attribute: eps.
pub static BATCH_NORM_SUMS: OpDef = OpDef {
    name: "batch_norm_sums",
    doc: "Sums over each plane of `[B, C, ..]`: `dy (x - mean) / sqrt(var + eps)` and `dy`.",
    infer: infer_sums,
    lower: Lower::Kernel { family: sums_family, launch: launch_sums },
    backward: Backward::None(FIRST_ORDER),
    reference: sums_reference,
    samples: sums_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`BATCH_NORM`] with respect to x. Float attribute: eps.
pub static BATCH_NORM_INPUT: OpDef = OpDef {
    name: "batch_norm_input",
    doc: "`dx = gain r (dy - (dbias + xh dgain) / n)` with `r = 1 / sqrt(var + eps)`, \
          `xh = (x - mean) r` and `n` values of a channel.",
    infer: infer_input,
    lower: Lower::Kernel { family: |_| "batch_norm_input", launch: launch_input },
    backward: Backward::None(FIRST_ORDER),
    reference: input_reference,
    samples: input_norm_samples,
    mutates: &[],
    in_place: Some(0),
};

/// A normalised batch and what it was normalised by.
pub struct BatchStatistics {
    /// The normalised values.
    pub y: Tensor,
    /// Mean of each channel, `[C]`.
    pub mean: Tensor,
    /// Population variance of each channel, `[C]`.
    pub variance: Tensor,
    /// Values of a channel in the batch.
    pub values: usize,
}

/// True when x has channels and `vectors` have an element for each.
fn fits(call: &OpCall, x: Spec, vectors: &[Spec]) -> bool {
    let channels = planes(x.shape).map(|[_, channels, _]| channels);
    floats(call)
        && vectors.iter().all(|vector| Some(vector.shape.elems()) == channels)
        && vectors.iter().all(|vector| vector.shape.rank() == 1)
        && channels.is_some()
}

fn infer_norm(call: &OpCall) -> Inferred {
    match call.inputs {
        [x, vectors @ ..] if vectors.len() == 4 && fits(call, *x, vectors) => Ok(vec![*x]),
        _ => refuse(call, "x [B, C, ..], gain, bias, mean and variance [C], all f32"),
    }
}

fn infer_sums(call: &OpCall) -> Inferred {
    match call.inputs {
        [dy, x, vectors @ ..] if vectors.len() == 2 && dy == x && fits(call, *x, vectors) => {
            let dims = x.shape;
            Ok(vec![Spec::f32([dims.dims()[0], dims.dims()[1]]); 2])
        }
        _ => refuse(call, "dy and x [B, C, ..], mean and variance [C], all f32"),
    }
}

fn infer_input(call: &OpCall) -> Inferred {
    match call.inputs {
        [dy, x, vectors @ ..] if vectors.len() == 5 && dy == x && fits(call, *x, vectors) => {
            Ok(vec![*x])
        }
        _ => refuse(call, "dy and x [B, C, ..], gain, mean, variance, dgain and dbias [C], f32"),
    }
}

fn sizes(spec: Spec) -> [usize; 3] {
    planes(spec.shape).expect("infer admitted the shape")
}

fn launch_norm(call: &OpCall, variant: &Variant) -> Launch {
    let [_, channels, pixels] = sizes(call.inputs[0]);
    let rest = [channels as u32, pixels as u32, call.attrs.float[0].to_bits()];
    launch::elements(call.inputs[0].shape.elems(), &rest, variant)
}

fn launch_input(call: &OpCall, variant: &Variant) -> Launch {
    let [batch, channels, pixels] = sizes(call.inputs[0]);
    let inverse = inverse(batch * pixels);
    let floats = [call.attrs.float[0], inverse].map(f32::to_bits);
    let rest = [channels as u32, pixels as u32, floats[0], floats[1]];
    launch::elements(call.inputs[0].shape.elems(), &rest, variant)
}

fn inverse(values: usize) -> f32 {
    (1.0 / values as f64) as f32
}

fn sums_family(call: &OpCall) -> &'static str {
    let [.., pixels] = sizes(call.inputs[0]);
    launch::by_row_length(pixels, "batch_norm_sums", "batch_norm_sums_long")
}

fn launch_sums(call: &OpCall, variant: &Variant) -> Launch {
    let [batch, channels, pixels] = sizes(call.inputs[0]);
    let rest = [channels as u32, call.attrs.float[0].to_bits()];
    launch::rows(batch * channels, pixels, &rest, variant)
}

/// Gradients of gain and bias.
fn affine_gradients(g: &GradCall) -> Result<(Tensor, Tensor)> {
    let [x, _, _, mean, variance] = g.inputs else { unreachable!("a norm has five inputs") };
    let sums = Tensor::record(&BATCH_NORM_SUMS, *g.attrs, &[g.dout(), x, mean, variance])?;
    Ok((sums[0].sum_rows()?, sums[1].sum_rows()?))
}

fn batch_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [x, gain, _, mean, variance] = g.inputs else { unreachable!("a norm has five inputs") };
    let (dgain, dbias) = affine_gradients(g)?;
    let mut dx = None;
    if g.wanted[0] {
        let inputs = [g.dout(), x, gain, mean, variance, &dgain, &dbias];
        dx = Some(Tensor::record1(&BATCH_NORM_INPUT, *g.attrs, &inputs)?);
    }
    let (dgain, dbias) = (g.wanted[1].then_some(dgain), g.wanted[2].then_some(dbias));
    Ok(vec![dx, dgain, dbias, None, None])
}

fn channel_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [_, gain, _, _, variance] = g.inputs else { unreachable!("a norm has five inputs") };
    let channels = gain.shape().last();
    let filled = |fill: f32| gain.graph().filled_f32([channels].into(), fill);
    let (zeros, ones) = (filled(0.0)?, filled(1.0)?);
    let scaled = |x: &Tensor, gain: &Tensor| {
        Tensor::record1(&CHANNEL_NORM, *g.attrs, &[x, gain, &zeros, &zeros, variance])
    };
    let dx = g.wanted[0].then(|| scaled(g.dout(), gain)).transpose()?;
    if !g.wanted[1..].contains(&true) {
        return Ok(vec![dx, None, None, None, None]);
    }
    let (dgain, dbias) = affine_gradients(g)?;
    // gain / sqrt(var + eps) and 1 / sqrt(var + eps), as [1, C].
    let slope = scaled(&gain.reshape([1, channels])?, &ones)?.reshape([channels])?;
    let inverse = scaled(&ones.reshape([1, channels])?, &ones)?.reshape([channels])?;
    let dmean = g.wanted[3].then(|| slope.mul(&dbias)?.neg()).transpose()?;
    let dvariance = || slope.mul(&inverse)?.mul(&dgain)?.scale(-0.5);
    let dvariance = g.wanted[4].then(dvariance).transpose()?;
    let (dgain, dbias) = (g.wanted[1].then_some(dgain), g.wanted[2].then_some(dbias));
    Ok(vec![dx, dgain, dbias, dmean, dvariance])
}

impl Tensor {
    /// Batch norm of `[B, C, ..]` by the mean and population variance that each channel has in the
    /// batch; `gain` and `bias` are `[C]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit, and when a channel has fewer than two values.
    #[track_caller]
    pub fn batch_norm(&self, gain: &Tensor, bias: &Tensor, eps: f32) -> Result<BatchStatistics> {
        let (mean, variance, values) = statistics(self, "batch_norm", Location::caller())?;
        let inputs = [self, gain, bias, &mean, &variance];
        let y = Tensor::record1(&BATCH_NORM, Attrs::floats(&[eps]), &inputs)?;
        Ok(BatchStatistics { y, mean, variance, values })
    }

    /// `gain (x - mean) / sqrt(variance + eps) + bias` for each channel of `[B, C, ..]`: batch norm
    /// with statistics that were kept; all four are `[C]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn channel_norm(
        &self,
        gain: &Tensor,
        bias: &Tensor,
        mean: &Tensor,
        variance: &Tensor,
        eps: f32,
    ) -> Result<Tensor> {
        let inputs = [self, gain, bias, mean, variance];
        Tensor::record1(&CHANNEL_NORM, Attrs::floats(&[eps]), &inputs)
    }
}
