//! The router: which experts a token goes to, and with which weights.
//!
//! The choice is discrete and has no gradient; weights and log-sum-exp have one. Ids are always
//! different and in range, whatever the logits hold.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use super::sample::{chosen, distinct};
use super::{MAX_EXPERTS, MAX_TOP_K};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Top-k of the logits `[T, E]`. Integer attributes: k, 1 for weights that sum to 1. Outputs: ids
/// u32 `[T, k]`, weights `[T, k]`, log-sum-exp `[T]`.
pub static MOE_ROUTE: OpDef = OpDef {
    name: "moe_route",
    doc: "The k largest logits of each token (ties to the lower index), their softmax weights over \
          the chosen or over all experts, and the log-sum-exp.",
    infer: infer_route,
    lower: Lower::Kernel { family: |_| "moe_route", launch: launch_tokens },
    backward: Backward::Rule(route_backward),
    reference: route_reference,
    samples: route_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MOE_ROUTE`]. Inputs: logits, ids, weights, log-sum-exp, then the gradients of
/// weights and log-sum-exp. Integer attributes: k, 1 for weights that sum to 1.
pub static MOE_ROUTE_BACKWARD: OpDef = OpDef {
    name: "moe_route_backward",
    doc: "`dg = dlse p + w (dw - sum w dw)` at the chosen experts; without renormalisation \
          `dg = dlse p + w dw - p sum w dw`.",
    infer: infer_route_backward,
    lower: Lower::Kernel { family: |_| "moe_route_backward", launch: launch_tokens },
    backward: Backward::None(FIRST_ORDER),
    reference: route_backward_reference,
    samples: route_backward_samples,
    mutates: &[],
    in_place: None,
};

/// What a router decided.
pub struct Route {
    /// Experts of each token, best first: u32 `[T, k]`.
    pub ids: Tensor,
    /// Their weights, `[T, k]`.
    pub weights: Tensor,
    /// Log-sum-exp of the logits, `[T]`.
    pub lse: Tensor,
}

impl Tensor {
    /// Chooses `top_k` experts for each row of these router logits `[T, E]`: the largest, ties to
    /// the lower index. With `renormalise` the weights of a token sum to 1, else they are the
    /// probabilities of its experts.
    ///
    /// # Errors
    ///
    /// When this is no f32 `[T, E]` with E at most [`MAX_EXPERTS`], or `top_k` is 0, exceeds E or
    /// [`MAX_TOP_K`].
    #[track_caller]
    pub fn moe_route(&self, top_k: usize, renormalise: bool) -> Result<Route> {
        let top_k = u32::try_from(top_k).unwrap_or(u32::MAX);
        let attrs = Attrs::ints(&[top_k, renormalise.into()]);
        let mut found = Tensor::record(&MOE_ROUTE, attrs, &[self])?.into_iter();
        let mut next = || found.next().expect("moe_route has three outputs");
        Ok(Route { ids: next(), weights: next(), lse: next() })
    }
}

fn infer_route(call: &OpCall) -> Inferred {
    let expected =
        "f32 router logits [T, E] with 1 <= top-k <= E, E at most 256 and top-k at most 32";
    let k = call.attrs.int[0] as usize;
    match call.inputs {
        [g] if g.dtype == DType::F32 && g.shape.rank() == 2 => match *g.shape.dims() {
            [tokens, experts]
                if (1..=MAX_EXPERTS).contains(&experts)
                    && (1..=experts.min(MAX_TOP_K)).contains(&k) =>
            {
                Ok(vec![Spec::u32([tokens, k]), Spec::f32([tokens, k]), Spec::f32([tokens])])
            }
            _ => refuse(call, expected),
        },
        _ => refuse(call, expected),
    }
}

fn infer_route_backward(call: &OpCall) -> Inferred {
    let expected = "what moe_route took and gave, then gradients of its weights and log-sum-exp";
    let [logits, ids, w, lse, dw, dlse] = call.inputs else { return refuse(call, expected) };
    let forward = OpCall { inputs: &call.inputs[..1], outputs: &[], attrs: call.attrs };
    match infer_route(&forward) {
        Ok(found) if found[..] == [*ids, *w, *lse] && w == dw && lse == dlse => Ok(vec![*logits]),
        _ => refuse(call, expected),
    }
}

fn launch_tokens(call: &OpCall, variant: &Variant) -> Launch {
    let [k, renormalise, ..] = call.attrs.int;
    let logits = call.inputs[0].shape;
    launch::elements(logits.rows(), &[logits.last() as u32, k, renormalise], variant)
}

fn route_backward(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let logits = &g.inputs[0];
    let [ids, w, lse] = g.outputs else { unreachable!("moe_route has three outputs") };
    let or_zeros = |dout: &Option<Tensor>, like: &Tensor| match dout {
        Some(dout) => Ok(dout.clone()),
        None => logits.graph().filled_f32(like.shape(), 0.0),
    };
    let (dw, dlse) = (or_zeros(&g.douts[1], w)?, or_zeros(&g.douts[2], lse)?);
    let inputs = [logits, ids, w, lse, &dw, &dlse];
    Ok(vec![Some(Tensor::record1(&MOE_ROUTE_BACKWARD, *g.attrs, &inputs)?)])
}

/// The experts of a row in the order of preference; a NaN comes last.
fn preference(row: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    let key = |e: usize| if row[e].is_nan() { None } else { Some(row[e] + 0.0) };
    // The sort is stable, so ties keep the lower index first.
    order.sort_by(|&a, &b| key(b).partial_cmp(&key(a)).expect("numbers and absences are ordered"));
    order
}

pub(super) fn route_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let logits = &inputs[0];
    let (tokens, experts) = (logits.shape().rows(), logits.shape().last());
    let (k, renormalise) = (attrs.int[0] as usize, attrs.int[1] == 1);
    let (mut ids, mut weights, mut norms) = (Vec::new(), Vec::new(), Vec::new());
    for row in logits.data.chunks(experts) {
        let order = preference(row);
        let top = row[order[0]];
        let share = |e: usize| (row[e] - top).exp();
        let all: f64 = (0..experts).map(share).sum();
        let taken: f64 = order[..k].iter().map(|&e| share(e)).sum();
        ids.extend(order[..k].iter().map(|&e| e as f64));
        let scale = if renormalise { taken } else { all };
        weights.extend(order[..k].iter().map(|&e| share(e) / scale));
        norms.push(top + all.ln());
    }
    vec![
        HostTensor::new(Spec::u32([tokens, k]), ids),
        HostTensor::f32([tokens, k], weights),
        HostTensor::f32([tokens], norms),
    ]
}

fn route_backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [logits, ids, w, lse, dw, dlse] = inputs else { unreachable!("it has six inputs") };
    let (experts, k) = (logits.shape().last(), attrs.int[0] as usize);
    let renormalise = attrs.int[1] == 1;
    let mut out = Vec::with_capacity(logits.data.len());
    for (token, row) in logits.data.chunks(experts).enumerate() {
        let at = token * k..(token + 1) * k;
        let (w, dw) = (&w.data[at.clone()], &dw.data[at.clone()]);
        let s: f64 = w.iter().zip(dw).map(|(w, dw)| w * dw).sum();
        let every = dlse.data[token] - if renormalise { 0.0 } else { s };
        let mut slopes: Vec<f64> =
            row.iter().map(|g| every * (g - lse.data[token]).exp()).collect();
        for (j, &id) in ids.data[at].iter().enumerate() {
            slopes[id as usize] += w[j] * (dw[j] - if renormalise { s } else { 0.0 });
        }
        out.extend(slopes);
    }
    vec![HostTensor::new(logits.spec, out)]
}

/// Tokens, experts, k, renormalised or not.
const SIZES: [(usize, usize, usize, u32); 9] = [
    (1, 1, 1, 1),
    (3, 2, 1, 0),
    (5, 4, 2, 1),
    (7, 4, 1, 0),
    (17, 5, 2, 0),
    (9, 8, 8, 1),
    (6, 9, 3, 1),
    (129, 4, 2, 1),
    (33, 33, 5, 0),
];

const LARGE: [(usize, usize, usize, u32); 3] =
    [(1031, 64, 6, 1), (70_000, 8, 2, 1), (257, 256, 32, 0)];

fn route_samples() -> Vec<Sample> {
    let sample = |(tokens, experts, k, renormalise)| {
        Sample::new(vec![distinct(tokens, experts, 801)], Attrs::ints(&[k as u32, renormalise]))
    };
    let mut samples: Vec<Sample> = SIZES.into_iter().map(sample).collect();
    samples.extend(LARGE.into_iter().map(|size| Sample::later(move || sample(size))));
    let tied = HostTensor::f32([33, 5], (0..165).map(|i| f64::from(i * 7 % 3)).collect());
    // Large, because a finite difference would decide its ties.
    samples.push(Sample::new(vec![tied], Attrs::ints(&[3, 1])).large());
    samples.push(
        Sample::new(vec![HostTensor::f32([9, 6], vec![-1.5; 54])], Attrs::ints(&[2, 0])).large(),
    );
    samples
}

fn route_backward_samples() -> Vec<Sample> {
    let sample = |(tokens, experts, k, renormalise): (usize, usize, usize, u32)| {
        let attrs = Attrs::ints(&[k as u32, renormalise]);
        let logits = distinct(tokens, experts, 802);
        let mut inputs = vec![logits.clone()];
        inputs.extend(chosen(route_reference(&[logits], &attrs)));
        inputs.extend([signed([tokens, k], 803), signed([tokens], 804)]);
        Sample::new(inputs, attrs)
    };
    let mut samples: Vec<Sample> = SIZES.into_iter().map(sample).collect();
    samples.extend(LARGE.into_iter().map(|size| Sample::later(move || sample(size))));
    samples
}
