//! Stochastic gradient descent with momentum, in PyTorch's form.
//!
//! Weight decay is coupled (added to the gradient before the momentum) unless the update is told to
//! decouple it; there is no dampening.

use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, Launch, Lower, OpCall, OpDef};
use super::{EFFECT, SIZES, block, clip, fits, launch, sample_inputs};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::Variant;

/// One step of gradient descent over a flat arena; output: the gradient's norm before clipping,
/// `[1]`.
///
/// Inputs: params, grads, m `[n]`; blocks `[n / 64, 2]` (rate factor, weight decay; a negative
/// factor leaves the block alone); partials (sums of squares, at most 256); hyper `[8]`, of which
/// rate, momentum and largest norm are read. Integer attributes: Nesterov's form, decoupled decay.
pub static SGD: OpDef = OpDef {
    name: "sgd",
    doc: "Gradient-descent step with momentum in place over an arena, with clipping by the global \
          norm; skipped when the norm is not finite.",
    infer: infer_sgd,
    lower: Lower::Kernel { family: |_| "sgd", launch: launch_sgd },
    backward: Backward::None(EFFECT),
    reference: sgd_reference,
    samples: sgd_samples,
    mutates: &[0, 2],
    in_place: None,
};

/// What [`sgd`] reads and changes. The first and third are reads of states.
#[derive(Clone, Copy, Debug)]
pub struct SgdInputs<'a> {
    /// Parameters `[n]`, n a multiple of 64: changed.
    pub params: &'a Tensor,
    /// Gradients `[n]`.
    pub grads: &'a Tensor,
    /// Momentum `[n]`: changed.
    pub m: &'a Tensor,
    /// As in [`super::adamw::AdamWInputs`].
    pub blocks: &'a Tensor,
    /// [`Tensor::norm_partials`] of all gradients.
    pub partials: &'a Tensor,
    /// The words of [`super::Hyper`], `[8]`.
    pub hyper: &'a Tensor,
    /// Step along `g + momentum m` instead of `m`.
    pub nesterov: bool,
    /// Shrink parameters by `rate decay` instead of adding `decay p` to the gradient.
    pub decoupled: bool,
}

/// One step of gradient descent in place: `m = momentum m + g`, then `p -= rate m`. Returns the
/// gradient's norm before clipping, `[1]`; when it is not finite, nothing was changed.
///
/// # Errors
///
/// When the shapes do not fit together, or params and m are not current reads of states.
#[track_caller]
pub fn sgd(inputs: SgdInputs) -> Result<Tensor> {
    let SgdInputs { params, grads, m, blocks, partials, hyper, nesterov, decoupled } = inputs;
    let attrs = Attrs::ints(&[nesterov.into(), decoupled.into()]);
    Tensor::record1(&SGD, attrs, &[params, grads, m, blocks, partials, hyper])
}

fn infer_sgd(call: &OpCall) -> Inferred {
    match call.inputs {
        [params, grads, m, blocks, partials, hyper]
            if fits(&[params, grads, m], [blocks, partials, hyper]) =>
        {
            Ok(vec![Spec::f32([1])])
        }
        _ => refuse(
            call,
            "params, grads and m [n], blocks [n / 64, 2], at most 256 partials and hyper [8], all \
             f32 and n a multiple of 64",
        ),
    }
}

fn launch_sgd(call: &OpCall, variant: &Variant) -> Launch {
    launch(call.inputs[0].shape.elems(), &call.inputs[4], &call.attrs.int[..2], variant)
}

fn sgd_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [params, grads, m, blocks, partials, hyper] = inputs else {
        unreachable!("sgd has six inputs")
    };
    let (lr, momentum, max_norm) = (hyper.data[0], hyper.data[4], hyper.data[7]);
    let (nesterov, decoupled) = (attrs.int[0] != 0, attrs.int[1] != 0);
    let (norm, scale) = clip(partials, max_norm);
    let (mut params, mut m) = (params.clone(), m.clone());
    for (i, grad) in grads.data.iter().enumerate().filter(|_| norm.is_finite()) {
        let Some((factor, decay)) = block(blocks, i) else { continue };
        let (p, velocity) = (&mut params.data[i], &mut m.data[i]);
        let coupled = if decoupled { 0.0 } else { decay * *p };
        let g = grad * scale + coupled;
        *velocity = momentum * *velocity + g;
        let direction = if nesterov { g + momentum * *velocity } else { *velocity };
        let kept = if decoupled { 1.0 - lr * factor * decay } else { 1.0 };
        *p = *p * kept - lr * factor * direction;
    }
    vec![HostTensor::f32([1], vec![norm]), params, m]
}

fn sgd_samples() -> Vec<Sample> {
    let sample = |(n, size, max_norm): (usize, f64, f64), ints: [u32; 2]| {
        let [grads, blocks, partials, hyper] = sample_inputs(n, size, max_norm);
        let inputs =
            vec![signed([n], 21), grads, uniform([n], -0.1, 0.1, 23), blocks, partials, hyper];
        Sample::new(inputs, Attrs::ints(&ints))
    };
    let forms = [[0, 0], [1, 0], [0, 1], [1, 1], [1, 0]];
    let mut samples: Vec<Sample> =
        SIZES.into_iter().zip(forms).map(|(size, form)| sample(size, form)).collect();
    samples.push(sample((64 * 2049, 0.1, 1.0), [1, 0]).large());
    samples
}
