//! The derivative of attention: one op per pass over the scores, weights recomputed from `lse`.
//!
//! delta is the part of the softmax derivative that a row shares; dq sums over keys, dk and dv over
//! the rows of a key's group of heads. Each sum has one owner, so the result never depends on the
//! order in which workgroups finish.

use super::attention::{MAX_HEAD_DIM, Sizes, cases, dot};
use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

const SECOND: &str = "second derivatives of attention are not available";

/// `delta = sum_d dout o - dlse`. Inputs: dout and o `[B, Tq, Hq, d]`, dlse `[B, Hq, Tq]`.
pub static ATTENTION_DELTA: OpDef = OpDef {
    name: "attention_delta",
    doc: "Backward of attention, the rows' share: `delta = sum_d dout o - dlse`.",
    infer: infer_delta,
    lower: Lower::Kernel { family: |_| "attention_delta", launch: launch_delta },
    backward: Backward::None(SECOND),
    reference: delta_reference,
    samples: delta_samples,
    mutates: &[],
    in_place: None,
};

/// Gradient of the queries. Inputs: q, k, v, dout, lse, delta, offset.
pub static ATTENTION_DQ: OpDef = OpDef {
    name: "attention_dq",
    doc: "Backward of attention, queries: `dq_i = sum_j P_ij (dout_i v_j - delta_i) k_j / sqrt(d)`.",
    infer: infer_dq,
    lower: Lower::Kernel { family: |_| "attention_dq", launch: launch_dq },
    backward: Backward::None(SECOND),
    reference: dq_reference,
    samples: gradient_samples,
    mutates: &[],
    in_place: None,
};

/// Gradients of the keys and values. Inputs: q, k, v, dout, lse, delta, offset.
pub static ATTENTION_DKV: OpDef = OpDef {
    name: "attention_dkv",
    doc: "Backward of attention, keys and values: `dk_j = sum_i P_ij (dout_i v_j - delta_i) q_i / \
          sqrt(d)` and `dv_j = sum_i P_ij dout_i` over the rows of the key's heads.",
    infer: infer_dkv,
    lower: Lower::Kernel { family: |_| "attention_dkv", launch: launch_dkv },
    backward: Backward::None(SECOND),
    reference: dkv_reference,
    samples: gradient_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&ATTENTION_DELTA, &ATTENTION_DQ, &ATTENTION_DKV];

/// The derivative rule of attention.
pub(super) fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [q, k, v, offset] = call.inputs else { unreachable!("attention has four inputs") };
    let [o, lse] = call.outputs else { unreachable!("attention has two outputs") };
    let or_zero = |given: &Option<Tensor>, like: &Tensor| match given {
        Some(gradient) => Ok(gradient.clone()),
        None => like.graph().filled_f32(like.shape(), 0.0),
    };
    let dout = or_zero(&call.douts[0], o)?;
    let dlse = or_zero(&call.douts[1], lse)?;
    let delta = Tensor::record1(&ATTENTION_DELTA, Attrs::NONE, &[&dout, o, &dlse])?;
    let inputs = [q, k, v, &dout, lse, &delta, offset];
    let sizes = Sizes::of(q.shape(), k.shape(), call.attrs).expect("infer admitted the shapes");
    let walked = sizes.queries * (sizes.heads / sizes.kv_heads);
    turns::check(&ATTENTION_DQ, &[q, k], sizes.turns(sizes.keys, 3))?;
    turns::check(&ATTENTION_DKV, &[q, k], sizes.turns(walked, 4))?;
    let mut gradients = vec![None, None, None, None];
    if call.wanted[0] {
        gradients[0] = Some(Tensor::record1(&ATTENTION_DQ, *call.attrs, &inputs)?);
    }
    if call.wanted[1] || call.wanted[2] {
        let both = Tensor::record(&ATTENTION_DKV, *call.attrs, &inputs)?;
        for (gradient, found) in gradients[1..].iter_mut().zip(both) {
            *gradient = Some(found);
        }
    }
    Ok(gradients)
}

fn infer_delta(call: &OpCall) -> Inferred {
    let expected = "dout and o [B, Tq, Hq, d] and dlse [B, Hq, Tq], d at most 128";
    let [dout, o, dlse] = call.inputs else { return refuse(call, expected) };
    match *dout.shape.dims() {
        [b, t, h, d]
            if dout == o
                && o.dtype == DType::F32
                && *dlse == Spec::f32([b, h, t])
                && d <= MAX_HEAD_DIM =>
        {
            Ok(vec![*dlse])
        }
        _ => refuse(call, expected),
    }
}

fn launch_delta(call: &OpCall, variant: &Variant) -> Launch {
    let shape = call.inputs[0].shape;
    let s = Sizes::of(shape, shape, call.attrs).expect("infer admitted the shapes");
    let rows = call.outputs[0].shape.elems();
    s.launch(rows.div_ceil(variant.tile[0] as usize), variant)
}

fn delta_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dout, o, dlse] = inputs else { unreachable!("attention_delta has three inputs") };
    let s = Sizes::of(o.shape(), o.shape(), attrs).expect("infer admitted the shapes");
    let mut delta = dlse.clone();
    s.rows(0, |row| {
        let product = dot(&dout.data, row.at, &o.data, row.at, s.dim);
        delta.data[row.index] = product - dlse.data[row.index];
    });
    vec![delta]
}

/// The sizes, if the seven inputs of dq and dkv fit together.
fn gradient_sizes(call: &OpCall) -> Option<Sizes> {
    let [q, k, v, dout, lse, delta, offset] = call.inputs else { return None };
    let s = Sizes::of(q.shape, k.shape, call.attrs)?;
    let row = Spec::f32([s.batch, s.heads, s.queries]);
    let fits = q == dout
        && k == v
        && q.dtype == DType::F32
        && k.dtype == DType::F32
        && *lse == row
        && *delta == row
        && *offset == Spec::u32([1]);
    fits.then_some(s)
}

const SEVEN: &str = "q and dout [B, Tq, Hq, d], k and v [B, Tk, Hkv, d], lse and delta [B, Hq, Tq] \
                     and an offset u32 [1]";

fn infer_dq(call: &OpCall) -> Inferred {
    match gradient_sizes(call) {
        Some(_) => Ok(vec![call.inputs[0]]),
        None => refuse(call, SEVEN),
    }
}

fn infer_dkv(call: &OpCall) -> Inferred {
    match gradient_sizes(call) {
        Some(_) => Ok(vec![call.inputs[1]; 2]),
        None => refuse(call, SEVEN),
    }
}

fn launch_dq(call: &OpCall, variant: &Variant) -> Launch {
    let s = gradient_sizes(call).expect("infer admitted the shapes");
    let blocks = s.queries.div_ceil(variant.tile[0] as usize);
    s.launch(s.batch * s.heads * blocks, variant)
}

fn launch_dkv(call: &OpCall, variant: &Variant) -> Launch {
    let s = gradient_sizes(call).expect("infer admitted the shapes");
    let blocks = s.keys.div_ceil(variant.tile[0] as usize);
    s.launch(s.batch * s.kv_heads * blocks, variant)
}

/// Calls `body` with (row offset, key offset, weight, derivative of the score) of every pair.
fn pairs(inputs: &[HostTensor], attrs: &Attrs, mut body: impl FnMut(usize, usize, f64, f64)) {
    let [q, k, v, dout, lse, delta, offset] = inputs else {
        unreachable!("the gradients of attention have seven inputs")
    };
    let s = Sizes::of(q.shape(), k.shape(), attrs).expect("infer admitted the shapes");
    s.rows(offset.data[0] as usize, |row| {
        for &key in &row.keys {
            let score = s.scale() * dot(&q.data, row.at, &k.data, key, s.dim);
            let weight = (score - lse.data[row.index]).exp();
            let product = dot(&dout.data, row.at, &v.data, key, s.dim);
            body(row.at, key, weight, weight * (product - delta.data[row.index]) * s.scale());
        }
    });
}

fn dq_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let (q, k) = (&inputs[0], &inputs[1]);
    let mut dq = vec![0.0; q.data.len()];
    let dim = q.shape().last();
    pairs(inputs, attrs, |row, key, _, ds| {
        for c in 0..dim {
            dq[row + c] += ds * k.data[key + c];
        }
    });
    vec![HostTensor::new(q.spec, dq)]
}

fn dkv_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let (q, k, dout) = (&inputs[0], &inputs[1], &inputs[3]);
    let (mut dk, mut dv) = (vec![0.0; k.data.len()], vec![0.0; k.data.len()]);
    let dim = q.shape().last();
    pairs(inputs, attrs, |row, key, weight, ds| {
        for c in 0..dim {
            dk[key + c] += ds * q.data[row + c];
            dv[key + c] += weight * dout.data[row + c];
        }
    });
    vec![HostTensor::new(k.spec, dk), HostTensor::new(k.spec, dv)]
}

fn delta_samples() -> Vec<Sample> {
    let sample = |[b, t, h, d]: [usize; 4]| {
        let inputs =
            vec![signed([b, t, h, d], 61), signed([b, t, h, d], 62), signed([b, h, t], 63)];
        Sample::new(inputs, Attrs::NONE)
    };
    vec![
        sample([1, 1, 1, 1]),
        sample([2, 5, 3, 6]),
        sample([1, 129, 1, 4]),
        sample([3, 127, 2, 128]).large(),
    ]
}

/// The forward's cases, with upstream gradients and the rows' true log-sum-exp.
fn gradient_samples() -> Vec<Sample> {
    let with_upstream = |mut inputs: Vec<HostTensor>, attrs: &Attrs| {
        let forward = (super::attention::ATTENTION.reference)(&inputs, attrs);
        let offset = inputs.pop().expect("attention has four inputs");
        let rows = forward[1].shape();
        let rounded = forward[1].data.iter().map(|x| f64::from(*x as f32)).collect();
        inputs.push(signed(inputs[0].shape(), 64));
        inputs.push(HostTensor::new(forward[1].spec, rounded));
        inputs.push(uniform(rows, -0.5, 0.5, 65));
        inputs.push(offset);
        inputs
    };
    cases().into_iter().map(|case| case.map(with_upstream)).collect()
}
