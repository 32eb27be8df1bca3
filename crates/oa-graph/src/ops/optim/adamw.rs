//! AdamW: decoupled weight decay, bias-corrected moments.

use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, Launch, Lower, OpCall, OpDef};
use super::{EFFECT, SIZES, block, clip, fits, launch, sample_inputs};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::Variant;

/// One AdamW step over a flat arena; output: the gradient's norm before clipping, `[1]`.
///
/// Inputs: params, grads, m, v `[n]`; blocks `[n / 64, 2]` (rate factor, weight decay; a negative
/// factor leaves the block alone); partials (sums of squares, at most 256); hyper `[8]`, of which
/// the momentum is not read.
pub static ADAMW: OpDef = OpDef {
    name: "adamw",
    doc: "AdamW step in place over an arena, with clipping by the global norm; skipped when the \
          norm is not finite.",
    infer: infer_adamw,
    lower: Lower::Kernel { family: |_| "adamw", launch: launch_adamw },
    backward: Backward::None(EFFECT),
    reference: adamw_reference,
    samples: adamw_samples,
    mutates: &[0, 2, 3],
    in_place: None,
};

/// What [`adamw`] reads and changes. The first, third and fourth are reads of states.
#[derive(Clone, Copy, Debug)]
pub struct AdamWInputs<'a> {
    /// Parameters `[n]`, n a multiple of 64: changed.
    pub params: &'a Tensor,
    /// Gradients `[n]`.
    pub grads: &'a Tensor,
    /// First moments `[n]`: changed.
    pub m: &'a Tensor,
    /// Second moments `[n]`: changed.
    pub v: &'a Tensor,
    /// Rate factor and weight decay per block of 64 elements, `[n / 64, 2]`. A negative factor
    /// leaves parameters and moments of the block alone.
    pub blocks: &'a Tensor,
    /// [`Tensor::norm_partials`] of all gradients.
    pub partials: &'a Tensor,
    /// The words of [`super::Hyper`], `[8]`.
    pub hyper: &'a Tensor,
}

/// One AdamW step in place. Returns the gradient's norm before clipping, `[1]`; when it is not
/// finite, nothing was changed.
///
/// # Errors
///
/// When the shapes do not fit together, or params, m and v are not current reads of states.
#[track_caller]
pub fn adamw(inputs: AdamWInputs) -> Result<Tensor> {
    let AdamWInputs { params, grads, m, v, blocks, partials, hyper } = inputs;
    Tensor::record1(&ADAMW, Attrs::NONE, &[params, grads, m, v, blocks, partials, hyper])
}

fn infer_adamw(call: &OpCall) -> Inferred {
    match call.inputs {
        [params, grads, m, v, blocks, partials, hyper]
            if fits(&[params, grads, m, v], [blocks, partials, hyper]) =>
        {
            Ok(vec![Spec::f32([1])])
        }
        _ => refuse(
            call,
            "params, grads, m and v [n], blocks [n / 64, 2], at most 256 partials and hyper [8], \
             all f32 and n a multiple of 64",
        ),
    }
}

fn launch_adamw(call: &OpCall, variant: &Variant) -> Launch {
    launch(call.inputs[0].shape.elems(), &call.inputs[5], &[], variant)
}

fn adamw_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [params, grads, m, v, blocks, partials, hyper] = inputs else {
        unreachable!("adamw has seven inputs")
    };
    let &[lr, b1, b2, eps, _, correction1, correction2, max_norm] = &hyper.data[..] else {
        unreachable!("infer admitted eight settings")
    };
    let (norm, scale) = clip(partials, max_norm);
    let (mut params, mut m, mut v) = (params.clone(), m.clone(), v.clone());
    for (i, grad) in grads.data.iter().enumerate().filter(|_| norm.is_finite()) {
        let Some((factor, decay)) = block(blocks, i) else { continue };
        let g = grad * scale;
        let (first, second) = (&mut m.data[i], &mut v.data[i]);
        *first = b1 * *first + (1.0 - b1) * g;
        *second = b2 * *second + (1.0 - b2) * g * g;
        let root = second.sqrt() / correction2.sqrt() + eps;
        let kept = params.data[i] * (1.0 - lr * factor * decay);
        params.data[i] = kept - lr * factor / correction1 * *first / root;
    }
    vec![HostTensor::f32([1], vec![norm]), params, m, v]
}

fn adamw_samples() -> Vec<Sample> {
    let sample = |(n, size, max_norm): (usize, f64, f64)| {
        let [grads, blocks, partials, hyper] = sample_inputs(n, size, max_norm);
        let (m, v) = (uniform([n], -0.1, 0.1, 23), uniform([n], 0.001, 0.1, 24));
        let inputs = vec![signed([n], 21), grads, m, v, blocks, partials, hyper];
        Sample::new(inputs, Attrs::NONE)
    };
    let mut samples: Vec<Sample> = SIZES.into_iter().map(sample).collect();
    samples.push(sample((64 * 2049, 0.1, 1.0)).large());
    samples
}
