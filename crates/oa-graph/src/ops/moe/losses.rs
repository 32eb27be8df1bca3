//! Losses of a router: balance of its experts, and the size of its logits.
//!
//! `c_aux E sum_e f_e P_e + c_z mean lse^2` with f_e the expert's share of the assignments, which
//! is a count and has no gradient, and P_e its mean probability. Every token counts.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use super::sample::{chosen, dispatched, distinct};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{Class, DType, Variant};

/// Tokens of a part.
const PART: usize = 128;

/// Parts of the losses. Inputs: logits `[T, E]`, log-sum-exp `[T]`, offsets u32 `[E + 1]`. Integer
/// attribute: k. Float attributes: coefficients of the balance loss and of the z loss.
pub static MOE_LOSSES: OpDef = OpDef {
    name: "moe_losses",
    doc: "Router losses in parts of 128 tokens, `aux E sum_e f_e P_e + z mean lse^2`, where \
          `f_e` is the expert's share of the assignments and `P_e` its mean probability.",
    infer: infer_losses,
    lower: Lower::Kernel { family: |_| "moe_losses", launch: launch_losses },
    backward: Backward::Rule(losses_backward),
    reference: losses_reference,
    samples: losses_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MOE_LOSSES`] with respect to logits and log-sum-exp, taken as two inputs.
/// Inputs: logits, log-sum-exp, offsets, gradient of the parts. Attributes as there.
pub static MOE_LOSSES_BACKWARD: OpDef = OpDef {
    name: "moe_losses_backward",
    doc: "`dlogits = d aux (E/n) f_e p` and `dlse = d (2 z lse / n - aux (E/n) sum_e f_e p)`.",
    infer: infer_losses_backward,
    lower: Lower::Kernel { family: |_| "moe_losses_backward", launch: launch_losses_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: losses_backward_reference,
    samples: losses_backward_samples,
    mutates: &[],
    in_place: None,
};

impl Tensor {
    /// Losses of the router whose logits `[T, E]` these are: `aux` times the load-balance loss
    /// (1 when uniform) plus `z` times the mean squared log-sum-exp, a scalar. `lse` and `offsets`
    /// are what routing and dispatch gave; k is the number of experts of a token.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together.
    #[track_caller]
    pub fn moe_losses(
        &self,
        lse: &Tensor,
        offsets: &Tensor,
        k: usize,
        [aux, z]: [f32; 2],
    ) -> Result<Tensor> {
        let attrs = Attrs::ints(&[k as u32]).with_floats(&[aux, z]);
        Tensor::record1(&MOE_LOSSES, attrs, &[self, lse, offsets])?.sum()
    }
}

fn infer_losses(call: &OpCall) -> Inferred {
    let expected = "router logits [T, E], log-sum-exp [T], u32 offsets [E + 1] and k at least 1";
    let [logits, lse, offsets] = call.inputs else { return refuse(call, expected) };
    match *logits.shape.dims() {
        [tokens, experts]
            if logits.dtype == DType::F32
                && tokens > 0
                && call.attrs.int[0] > 0
                && *lse == Spec::f32([tokens])
                && *offsets == Spec::u32([experts + 1]) =>
        {
            Ok(vec![Spec::f32([tokens.div_ceil(PART)])])
        }
        _ => refuse(call, expected),
    }
}

fn infer_losses_backward(call: &OpCall) -> Inferred {
    let expected = "what moe_losses took, and the gradient of its parts";
    let [logits, lse, _, dparts] = call.inputs else { return refuse(call, expected) };
    let forward = OpCall { inputs: &call.inputs[..3], outputs: &[], attrs: call.attrs };
    match infer_losses(&forward) {
        Ok(found) if found[0] == *dparts => Ok(vec![*logits, *lse]),
        _ => refuse(call, expected),
    }
}

/// What a row of an expert times a probability counts, and what a squared log-sum-exp counts.
fn scales(logits: &Spec, attrs: &Attrs) -> [f64; 2] {
    let [tokens, experts] = [logits.shape.rows(), logits.shape.last()].map(|size| size as f64);
    let [aux, z, ..] = attrs.float.map(f64::from);
    [aux * experts / (f64::from(attrs.int[0]) * tokens * tokens), z / tokens]
}

fn launch_losses(call: &OpCall, variant: &Variant) -> Launch {
    let (logits, parts) = (call.inputs[0], call.outputs[0].shape.elems());
    let sizes = [logits.shape.rows(), logits.shape.last(), parts].map(|size| size as u32);
    let scales = scales(&logits, call.attrs).map(|scale| (scale as f32).to_bits());
    let groups = match variant.class {
        Class::Cpu => parts.div_ceil(variant.tile[0] as usize),
        Class::Subgroup | Class::Portable => parts,
    };
    Launch { groups: groups as u64, push: [&sizes[..], &scales].concat(), spec: Vec::new() }
}

fn launch_losses_backward(call: &OpCall, variant: &Variant) -> Launch {
    let logits = call.inputs[0];
    let [aux, z] = scales(&logits, call.attrs).map(|scale| (scale as f32).to_bits());
    launch::elements(logits.shape.rows(), &[logits.shape.last() as u32, aux, z], variant)
}

fn losses_backward(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let inputs = [&g.inputs[0], &g.inputs[1], &g.inputs[2], g.dout()];
    let found = Tensor::record(&MOE_LOSSES_BACKWARD, *g.attrs, &inputs)?;
    Ok(found.into_iter().map(Some).chain([None]).collect())
}

/// Rows of each expert.
fn counts(offsets: &HostTensor) -> Vec<f64> {
    offsets.data.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn losses_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [logits, lse, offsets] = inputs else { unreachable!("moe_losses has three inputs") };
    let ([aux, z], counts) = (scales(&logits.spec, attrs), counts(offsets));
    let mut parts = vec![0.0; lse.data.len().div_ceil(PART)];
    for (token, row) in logits.data.chunks(counts.len()).enumerate() {
        let lse = lse.data[token];
        let balance: f64 = row.iter().zip(&counts).map(|(g, rows)| rows * (g - lse).exp()).sum();
        parts[token / PART] += aux * balance + z * lse * lse;
    }
    vec![HostTensor::f32([parts.len()], parts)]
}

fn losses_backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [logits, lse, offsets, dparts] = inputs else { unreachable!("it has four inputs") };
    let ([aux, z], counts) = (scales(&logits.spec, attrs), counts(offsets));
    let (mut dlogits, mut dlse) = (Vec::new(), Vec::new());
    for (token, row) in logits.data.chunks(counts.len()).enumerate() {
        let (lse, d) = (lse.data[token], dparts.data[token / PART]);
        let slope = |(g, rows): (&f64, &f64)| d * aux * rows * (g - lse).exp();
        let slopes: Vec<f64> = row.iter().zip(&counts).map(slope).collect();
        dlse.push(2.0 * d * z * lse - slopes.iter().sum::<f64>());
        dlogits.extend(slopes);
    }
    vec![HostTensor::new(logits.spec, dlogits), HostTensor::new(lse.spec, dlse)]
}

/// Tokens, experts, k.
const SIZES: [(usize, usize, usize); 5] =
    [(1, 1, 1), (17, 5, 2), (129, 4, 2), (128, 3, 1), (300, 9, 4)];

fn inputs((tokens, experts, k): (usize, usize, usize)) -> (Vec<HostTensor>, Attrs) {
    let logits = distinct(tokens, experts, 851);
    let attrs = Attrs::ints(&[k as u32, 1]);
    let route = super::route::route_reference(std::slice::from_ref(&logits), &attrs);
    let lse = chosen(route).last().expect("moe_route has three outputs");
    let [offsets, _] = dispatched(tokens, k, experts, 852);
    (vec![logits, lse, offsets], Attrs::ints(&[k as u32]).with_floats(&[0.5, 0.25]))
}

fn losses_samples() -> Vec<Sample> {
    let sample = |size| {
        let (inputs, attrs) = inputs(size);
        Sample::new(inputs, attrs)
    };
    let mut samples: Vec<Sample> = SIZES.into_iter().map(sample).collect();
    samples.push(Sample::later(move || sample((65_537, 16, 2))));
    samples
}

fn losses_backward_samples() -> Vec<Sample> {
    let sample = |size: (usize, usize, usize)| {
        let (mut inputs, attrs) = inputs(size);
        inputs.push(signed([size.0.div_ceil(PART)], 853));
        Sample::new(inputs, attrs)
    };
    let mut samples: Vec<Sample> = SIZES.into_iter().map(sample).collect();
    samples.push(Sample::later(move || sample((65_537, 16, 2))));
    samples
}
