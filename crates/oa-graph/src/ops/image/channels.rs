//! Statistics of the channels of a batch, in two steps: those of each plane, then of them all.
//!
//! Squares are summed over centred values in both steps, so nothing cancels; all sums are trees of
//! a bounded length.

use super::conv::floats;
use super::sample::{merge_samples, moments_samples};
use crate::attrs::Attrs;
use crate::error::{Error, Result};
use crate::host::{HostTensor, Spec};
use crate::ops::image::WindowFault;
use crate::ops::reduce::sum;
use crate::ops::rule::{Inferred, refuse};
use crate::ops::{Backward, Launch, Lower, OpCall, OpDef, launch, turns};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::Variant;
use std::panic::Location;

const PART_OF_NORM: &str = "the derivative of a batch norm contains that of its statistics";

/// Mean and sum of squared deviations of each plane of `[B, C, ..]`.
pub static CHANNEL_MOMENTS: OpDef = OpDef {
    name: "channel_moments",
    doc: "Mean and sum of squared deviations of each plane of `[B, C, ..]`: `[B, C]` each.",
    infer: infer_moments,
    lower: Lower::Kernel { family: moments_family, launch: launch_moments },
    backward: Backward::None(PART_OF_NORM),
    reference: |x, _| moments_reference(&x[0]),
    samples: moments_samples,
    mutates: &[],
    in_place: None,
};

/// Mean and variance of each channel from those of its planes. Integer attribute: pixels of a
/// plane.
pub static MERGE_MOMENTS: OpDef = OpDef {
    name: "merge_moments",
    doc: "Mean and population variance of each channel from the moments of its planes.",
    infer: infer_merge,
    lower: Lower::Kernel { family: |_| "merge_moments", launch: launch_merge },
    backward: Backward::None(PART_OF_NORM),
    reference: |x, attrs| merge_reference(&x[0], &x[1], attrs),
    samples: merge_samples,
    mutates: &[],
    in_place: None,
};

/// Batch, channels and pixels of `[B, C, ..]`.
pub(super) fn planes(shape: Shape) -> Option<[usize; 3]> {
    match shape.dims() {
        [batch, channels, pixels @ ..] => Some([*batch, *channels, pixels.iter().product()]),
        _ => None,
    }
}

fn infer_moments(call: &OpCall) -> Inferred {
    match call.inputs {
        [x] if floats(call) && x.shape.rank() >= 2 => {
            let [batch, channels, ..] = x.shape.dims() else { unreachable!("two dimensions") };
            Ok(vec![Spec::f32([*batch, *channels]); 2])
        }
        _ => refuse(call, "x [B, C, ..], f32"),
    }
}

fn moments_family(call: &OpCall) -> &'static str {
    let [.., pixels] = planes(call.inputs[0].shape).expect("infer admitted the shape");
    launch::by_row_length(pixels, "channel_moments", "channel_moments_long")
}

fn launch_moments(call: &OpCall, variant: &Variant) -> Launch {
    let [batch, channels, pixels] = planes(call.inputs[0].shape).expect("infer admitted the shape");
    launch::rows(batch * channels, pixels, &[], variant)
}

fn infer_merge(call: &OpCall) -> Inferred {
    match call.inputs {
        [means, squares]
            if floats(call)
                && means == squares
                && means.shape.rank() == 2
                && call.attrs.int[0] > 0 =>
        {
            Ok(vec![Spec::f32([means.shape.last()]); 2])
        }
        _ => refuse(call, "means and squares [B, C], f32, of planes of at least one pixel"),
    }
}

fn launch_merge(call: &OpCall, _: &Variant) -> Launch {
    let shape = call.inputs[0].shape;
    launch::columns(shape.rows(), shape.last(), shape.rows(), &[call.attrs.int[0]])
}

/// Mean and sum of squared deviations.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = sum(values) / values.len() as f64;
    let squares: Vec<f64> = values.iter().map(|x| (x - mean).powi(2)).collect();
    (mean, sum(&squares))
}

fn moments_reference(x: &HostTensor) -> Vec<HostTensor> {
    let [batch, channels, pixels] = planes(x.shape()).expect("infer admitted the shape");
    let (means, squares) = x.data.chunks(pixels).map(moments).unzip();
    vec![HostTensor::f32([batch, channels], means), HostTensor::f32([batch, channels], squares)]
}

fn merge_reference(means: &HostTensor, squares: &HostTensor, attrs: &Attrs) -> Vec<HostTensor> {
    let (rows, cols) = (means.shape().rows(), means.shape().last());
    let pixels = f64::from(attrs.int[0]);
    let column = |x: &HostTensor, at: usize| -> Vec<f64> {
        x.data.iter().skip(at).step_by(cols).copied().collect()
    };
    let merged = (0..cols).map(|at| {
        let (mean, between) = moments(&column(means, at));
        let within = sum(&column(squares, at));
        (mean, (within + pixels * between) / (rows as f64 * pixels))
    });
    let (mean, variance) = merged.unzip();
    vec![HostTensor::f32([cols], mean), HostTensor::f32([cols], variance)]
}

/// Mean and population variance `[C]` of the channels of `[B, C, ..]`, and values of a channel.
pub(super) fn statistics(
    x: &Tensor,
    op: &'static str,
    site: &'static Location<'static>,
) -> Result<(Tensor, Tensor, usize)> {
    let fault = |fault| Error::window(op, site, fault);
    let Some([batch, _, pixels]) = planes(x.shape()) else {
        return Err(fault(WindowFault::Rank { rank: x.shape().rank() }));
    };
    let values = batch * pixels;
    if values < 2 {
        return Err(fault(WindowFault::Variance { values }));
    }
    // Two passes over the planes of a channel: eight and eight terms a turn.
    let most = 2 * turns::most(x) as usize;
    if batch > most {
        return Err(fault(WindowFault::Sum { terms: batch, most }));
    }
    let moments = Tensor::record(&CHANNEL_MOMENTS, Attrs::NONE, &[x])?;
    let attrs = Attrs::ints(&[pixels as u32]);
    let mut merged = Tensor::record(&MERGE_MOMENTS, attrs, &[&moments[0], &moments[1]])?;
    let variance = merged.swap_remove(1);
    Ok((merged.swap_remove(0), variance, values))
}
