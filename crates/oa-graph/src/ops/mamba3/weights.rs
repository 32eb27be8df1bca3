//! Coefficients of the recurrence from step sizes and the trapezoid's weights.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Coefficients. Inputs: a, dt and lambda `[B, T, H]`. Outputs: `[B, T, 3, H]` of a, w and gamma,
/// and the weight of the token before the first, `[B, H]`.
pub static MAMBA3_WEIGHTS: OpDef = OpDef {
    name: "mamba3_weights",
    doc: "Coefficients `a`, `w_t = gamma_t + s_{t+1}` and `gamma_t = lambda_t dt_t` of the \
          pre-loaded state, with `s_t = (1 - lambda_t) dt_t` and nothing after the last token; \
          also returns `s_0`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: |_| "mamba3_weights", launch },
    backward: Backward::Rule(gradients),
    reference: forward_reference,
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAMBA3_WEIGHTS`]. Inputs: dt, lambda, the gradients of both outputs. Integer
/// attribute: 1 when the second one counts; otherwise it is not read. Outputs: da, ddt, dlambda.
pub static MAMBA3_WEIGHTS_BACKWARD: OpDef = OpDef {
    name: "mamba3_weights_backward",
    doc: "Backward of the coefficients: with `g = dgamma + dw` and `ds_{t+1} = dw_t`, `ddt = \
          lambda g + (1 - lambda) ds` and `dlambda = dt (g - ds)`.",
    infer: infer_backward,
    lower: Lower::Kernel { family: |_| "mamba3_weights_backward", launch },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

fn infer_forward(call: &OpCall) -> Inferred {
    let expected = "a, dt and lambda [B, T, H], T at least 1";
    let [a, dt, lambda] = call.inputs else { return refuse(call, expected) };
    match *a.shape.dims() {
        [b, t, h] if t > 0 && a == dt && a == lambda && a.dtype == DType::F32 => {
            Ok(vec![Spec::f32([b, t, 3, h]), Spec::f32([b, h])])
        }
        _ => refuse(call, expected),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "dt and lambda [B, T, H], dc [B, T, 3, H] and ds0 [B, H]";
    let [dt, lambda, dc, ds0] = call.inputs else { return refuse(call, expected) };
    match *dt.shape.dims() {
        [b, t, h]
            if dt == lambda
                && dt.dtype == DType::F32
                && *dc == Spec::f32([b, t, 3, h])
                && (call.attrs.int[0] == 0 || *ds0 == Spec::f32([b, h])) =>
        {
            Ok(vec![*dt; 3])
        }
        _ => refuse(call, expected),
    }
}

/// A lane per token and head; `push` is the count, steps, heads and the attribute.
fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let shape = call.inputs[0].shape;
    let rest = [shape.dims()[1] as u32, shape.last() as u32, call.attrs.int[0]];
    launch::elements(shape.elems(), &rest, variant)
}

fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [_, dt, lambda] = call.inputs else { unreachable!("mamba3_weights has three inputs") };
    let dc = match &call.douts[0] {
        Some(dc) => dc.clone(),
        None => dt.graph().filled_f32(call.outputs[0].shape(), 0.0)?,
    };
    let (ds0, flag) = call.douts[1].as_ref().map_or((&dc, 0), |ds0| (ds0, 1));
    let inputs = [dt, lambda, &dc, ds0];
    let found = Tensor::record(&MAMBA3_WEIGHTS_BACKWARD, Attrs::ints(&[flag]), &inputs)?;
    Ok(found.into_iter().map(Some).collect())
}

fn forward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [a, dt, lambda] = inputs else { unreachable!("mamba3_weights has three inputs") };
    let &[batch, time, heads] = a.shape().dims() else { unreachable!("infer admitted three") };
    let mut c = vec![0.0; 3 * a.data.len()];
    let mut s0 = vec![0.0; batch * heads];
    let s = |at: usize| (1.0 - lambda.data[at]) * dt.data[at];
    for at in 0..a.data.len() {
        let (token, head) = (at / heads, at % heads);
        let gamma = lambda.data[at] * dt.data[at];
        let later = if token % time + 1 < time { s(at + heads) } else { 0.0 };
        for (which, value) in [a.data[at], gamma + later, gamma].into_iter().enumerate() {
            c[(token * 3 + which) * heads + head] = value;
        }
        if token % time == 0 {
            s0[token / time * heads + head] = s(at);
        }
    }
    vec![HostTensor::f32([batch, time, 3, heads], c), HostTensor::f32([batch, heads], s0)]
}

fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dt, lambda, dc, ds0] = inputs else { unreachable!("the backward has four inputs") };
    let &[_, time, heads] = dt.shape().dims() else { unreachable!("infer admitted three") };
    let mut found = [dt.clone(), dt.clone(), dt.clone()];
    for at in 0..dt.data.len() {
        let (token, head) = (at / heads, at % heads);
        let of = |token: usize, which: usize| dc.data[(token * 3 + which) * heads + head];
        let g = of(token, 1) + of(token, 2);
        let ds = match (token % time, attrs.int[0]) {
            (0, 0) => 0.0,
            (0, _) => ds0.data[token / time * heads + head],
            _ => of(token - 1, 1),
        };
        found[0].data[at] = of(token, 0);
        found[1].data[at] = lambda.data[at] * g + (1.0 - lambda.data[at]) * ds;
        found[2].data[at] = dt.data[at] * (g - ds);
    }
    found.into()
}

const SHAPES: [[usize; 3]; 4] = [[1, 1, 1], [2, 3, 5], [3, 7, 2], [1, 43, 3]];

fn forward_sample(shape: [usize; 3]) -> Sample {
    let inputs = vec![
        uniform(shape, -1.0, -0.01, 911),
        uniform(shape, 0.05, 0.8, 912),
        uniform(shape, 0.05, 0.95, 913),
    ];
    Sample::new(inputs, Attrs::NONE)
}

fn forward_samples() -> Vec<Sample> {
    let large = Sample::later(|| forward_sample([3, 1031, 7]));
    SHAPES.into_iter().map(forward_sample).chain([large]).collect()
}

fn backward_sample(shape @ [b, t, h]: [usize; 3], flag: u32) -> Sample {
    let inputs = vec![
        uniform(shape, 0.05, 0.8, 914),
        uniform(shape, 0.05, 0.95, 915),
        signed([b, t, 3, h], 916),
        signed([b, h], 917),
    ];
    Sample::new(inputs, Attrs::ints(&[flag]))
}

fn backward_samples() -> Vec<Sample> {
    let small = SHAPES.into_iter().flat_map(|s| [backward_sample(s, 0), backward_sample(s, 1)]);
    small.chain([Sample::later(|| backward_sample([3, 1031, 7], 1))]).collect()
}
