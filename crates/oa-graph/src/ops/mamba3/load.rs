//! Folding of the token before the first into the initial state.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// The pre-loaded state. Inputs: h `[B, H, P N]`, k `[B, R H, N]`, v `[B, R H, P]`, s0 `[B, H]`.
pub static MAMBA3_LOAD: OpDef = OpDef {
    name: "mamba3_load",
    doc: "State before the first token with the token before folded in: `G = h + s0 sum_r v_r k_r^T`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: |_| "mamba3_load", launch: launch_forward },
    backward: Backward::Rule(gradients),
    reference: |inputs, _| vec![forward_reference(inputs)],
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAMBA3_LOAD`]. Inputs: dG, k, v, s0. Outputs: dk, dv, ds0.
pub static MAMBA3_LOAD_BACKWARD: OpDef = OpDef {
    name: "mamba3_load_backward",
    doc: "Backward of the folding: `dk_r = s0 dG^T v_r`, `dv_r = s0 dG k_r`, `ds0 = sum_r v_r^T dG \
          k_r`.",
    infer: infer_backward,
    lower: Lower::Kernel { family: |_| "mamba3_load_backward", launch: launch_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// Batch, heads, ranks, N and P.
fn sizes([state, k, v, s0]: [&Spec; 4]) -> Option<[usize; 5]> {
    let (&[b, h, both], &[_, rows, n], &[_, _, p]) =
        (state.shape.dims(), k.shape.dims(), v.shape.dims())
    else {
        return None;
    };
    let ranks = rows.checked_div(h)?;
    let fits = state.dtype == DType::F32
        && rows == ranks * h
        && both == n * p
        && *k == Spec::f32([b, rows, n])
        && *v == Spec::f32([b, rows, p])
        && *s0 == Spec::f32([b, h]);
    fits.then_some([b, h, ranks, n, p])
}

const EXPECTED: &str = "a state [B, H, P N], k [B, R H, N], v [B, R H, P] and s0 [B, H]";

fn of_call(call: &OpCall) -> Option<[usize; 5]> {
    let [state, k, v, s0] = call.inputs else { return None };
    sizes([state, k, v, s0])
}

fn infer_forward(call: &OpCall) -> Inferred {
    match of_call(call) {
        Some(_) => Ok(vec![call.inputs[0]]),
        None => refuse(call, EXPECTED),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    match of_call(call) {
        Some(_) => Ok(call.inputs[1..].to_vec()),
        None => refuse(call, EXPECTED),
    }
}

fn launch(call: &OpCall, units: usize, variant: &Variant) -> Launch {
    let sizes = of_call(call).expect("infer admitted the shapes");
    let groups = units.div_ceil(variant.tile[0] as usize) as u64;
    Launch { groups, push: sizes.map(|size| size as u32).to_vec(), spec: Vec::new() }
}

/// A lane per element of the state.
fn launch_forward(call: &OpCall, variant: &Variant) -> Launch {
    launch(call, call.inputs[0].shape.elems(), variant)
}

/// A workgroup per sequence and head; on software drivers a lane.
fn launch_backward(call: &OpCall, variant: &Variant) -> Launch {
    launch(call, call.inputs[3].shape.elems(), variant)
}

fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [_, k, v, s0] = call.inputs else { unreachable!("mamba3_load has four inputs") };
    let mut gradients = vec![Some(call.dout().clone())];
    if call.wanted[1..].contains(&true) {
        let specs = [&call.inputs[0].spec(), &k.spec(), &v.spec(), &s0.spec()];
        let [_, _, ranks, n, p] = sizes(specs).expect("infer admitted the shapes");
        // A lane of the cpu kernel has a whole head, four terms a turn.
        let needed = ranks * (n * (p / 4 + 6) + p * (n / 4 + 6));
        turns::check(&MAMBA3_LOAD_BACKWARD, &[k, v], needed)?;
        let inputs = [call.dout(), k, v, s0];
        let found = Tensor::record(&MAMBA3_LOAD_BACKWARD, Attrs::NONE, &inputs)?;
        gradients.extend(found.into_iter().map(Some));
    }
    gradients.resize(4, None);
    Ok(gradients)
}

/// Calls `body` with the offsets of the state's element, of the key's, of the value's and of s0.
fn each(inputs: &[HostTensor], mut body: impl FnMut([usize; 4])) {
    let [state, k, v, s0] = inputs else { unreachable!("four inputs") };
    let specs = [&state.spec, &k.spec, &v.spec, &s0.spec];
    let [b, h, ranks, n, p] = sizes(specs).expect("infer admitted the shapes");
    for at in 0..b * h * p * n {
        let (head, row, column) = (at / n / p, at / n % p, at % n);
        for r in 0..ranks {
            let key = (head / h * ranks + r) * h + head % h;
            body([at, key * n + column, key * p + row, head]);
        }
    }
}

fn forward_reference(inputs: &[HostTensor]) -> HostTensor {
    let [state, k, v, s0] = inputs else { unreachable!("mamba3_load has four inputs") };
    let mut loaded = state.clone();
    each(inputs, |[at, key, value, head]| {
        loaded.data[at] += s0.data[head] * v.data[value] * k.data[key];
    });
    loaded
}

fn backward_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [dstate, k, v, s0] = inputs else { unreachable!("mamba3_load_backward has four inputs") };
    let zero = |like: &HostTensor| HostTensor::new(like.spec, vec![0.0; like.data.len()]);
    let (mut dk, mut dv, mut ds0) = (zero(k), zero(v), zero(s0));
    each(inputs, |[at, key, value, head]| {
        let d = dstate.data[at];
        dk.data[key] += s0.data[head] * d * v.data[value];
        dv.data[value] += s0.data[head] * d * k.data[key];
        ds0.data[head] += d * v.data[value] * k.data[key];
    });
    vec![dk, dv, ds0]
}

fn sample([b, h, r, n, p]: [usize; 5]) -> Sample {
    let inputs = vec![
        signed([b, h, p * n], 931),
        signed([b, r * h, n], 932),
        signed([b, r * h, p], 933),
        uniform([b, h], 0.0, 0.8, 934),
    ];
    Sample::new(inputs, Attrs::NONE)
}

fn forward_samples() -> Vec<Sample> {
    let small = [[1, 1, 1, 1, 1], [2, 3, 1, 4, 3], [1, 2, 4, 5, 6], [9, 1, 2, 3, 2]];
    let large = Sample::later(|| sample([2, 5, 3, 128, 64]));
    small.into_iter().map(sample).chain([large]).collect()
}

fn backward_samples() -> Vec<Sample> {
    forward_samples()
}
