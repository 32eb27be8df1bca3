//! Ops that change a state in place: store, the AdamW step, and rows written into a cache.
//!
//! An update is an effect, not a value: the graph keeps updates in the order of recording. One
//! dispatch serves a whole arena of parameters. Schedules and bias corrections are the caller's:
//! they arrive as eight floats, so a replayed plan takes them like any other input.

use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed, uniform};
use super::{Backward, Launch, Lower, OpCall, OpDef};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

const EFFECT: &str = "it changes a state; differentiate the value before the update";

/// The second input's bytes replace the first input, a state.
pub static STORE: OpDef = OpDef {
    name: "store",
    doc: "A state takes over a value of its shape and element type.",
    infer: |call| match call.inputs {
        [state, value] if state == value => Ok(Vec::new()),
        _ => refuse(call, "a state and a value of its shape and element type"),
    },
    lower: Lower::Store,
    backward: Backward::None(EFFECT),
    reference: |inputs, _| vec![inputs[1].clone()],
    samples: || vec![Sample::new(vec![signed([3, 5], 1), signed([3, 5], 2)], Attrs::NONE)],
    mutates: &[0],
    in_place: None,
};

/// One AdamW step over a flat arena; output: the gradient's norm before clipping, `[1]`.
///
/// Inputs: params, grads, m, v `[n]`; decay `[n / 64]`; partials (sums of squares, at most 256);
/// hyper `[8]`: lr, b1, b2, eps, weight decay, 1 - b1^t, 1 - b2^t, max norm (0: no clipping).
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

/// Sums of squares of consecutive chunks, at most 256 of them.
pub static NORM_PARTIALS: OpDef = OpDef {
    name: "norm_partials",
    doc: "Sums of squares of at most 256 chunks of a value: their sum's root is its norm.",
    infer: |call| match call.inputs {
        [x] if x.dtype == DType::F32 => Ok(vec![Spec::f32([partials(x.shape.elems())])]),
        _ => refuse(call, "one f32 value"),
    },
    lower: Lower::Kernel { family: |_| "norm_partials", launch: launch_norm_partials },
    backward: Backward::None("it serves the optimizer; use mul and sum for a norm in a loss"),
    reference: norm_partials_reference,
    samples: norm_partials_samples,
    mutates: &[],
    in_place: None,
};

/// Rows written into a cache at a position. Inputs: cache `[B, Tmax, ..]`, x `[B, T, ..]`, position
/// u32 `[1]`. Rows that would lie at or beyond Tmax are not written.
pub static WRITE_ROWS: OpDef = OpDef {
    name: "write_rows",
    doc: "Writes x into the rows position, position + 1, .. of a cache, per batch entry.",
    infer: infer_write_rows,
    lower: Lower::Kernel { family: |_| "write_rows", launch: launch_write_rows },
    backward: Backward::None(EFFECT),
    reference: write_rows_reference,
    samples: write_rows_samples,
    mutates: &[0],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&STORE, &ADAMW, &NORM_PARTIALS, &WRITE_ROWS];

/// Elements that one factor of the weight decay stands for.
pub const DECAY_BLOCK: usize = 64;

/// Elements per partial sum, until 256 partials are reached.
const PARTIAL_ELEMS: usize = 4096;

fn partials(elems: usize) -> usize {
    elems.div_ceil(PARTIAL_ELEMS).clamp(1, 256)
}

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
    /// Factor of the weight decay per block of 64 elements, `[n / 64]`.
    pub decay: &'a Tensor,
    /// [`Tensor::norm_partials`] of all gradients.
    pub partials: &'a Tensor,
    /// `[8]`: learning rate, b1, b2, eps, weight decay, 1 - b1^t, 1 - b2^t, and the largest norm
    /// of the gradient (0: no clipping).
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
    let AdamWInputs { params, grads, m, v, decay, partials, hyper } = inputs;
    Tensor::record1(&ADAMW, Attrs::NONE, &[params, grads, m, v, decay, partials, hyper])
}

/// Records that `x` is written into rows position, position + 1, .. of `cache`, a read of a state.
///
/// # Errors
///
/// When the shapes do not fit together, or `cache` is not a current read of a state.
#[track_caller]
pub fn write_rows(cache: &Tensor, x: &Tensor, position: &Tensor) -> Result<()> {
    Tensor::record(&WRITE_ROWS, Attrs::NONE, &[cache, x, position])?;
    Ok(())
}

impl Tensor {
    /// Sums of squares of consecutive chunks (at most 256 of them): what [`adamw`] clips by.
    ///
    /// # Errors
    ///
    /// When the value does not hold f32.
    #[track_caller]
    pub fn norm_partials(&self) -> Result<Tensor> {
        Tensor::record1(&NORM_PARTIALS, Attrs::NONE, &[self])
    }
}

fn infer_adamw(call: &OpCall) -> Inferred {
    let expected = "params, grads, m and v [n], decay [n / 64], at most 256 partials and hyper \
                    [8], all f32 and n a multiple of 64";
    let [params, grads, m, v, decay, partials, hyper] = call.inputs else {
        return refuse(call, expected);
    };
    let n = params.shape.elems();
    let fits = *params == Spec::f32([n])
        && [grads, m, v].iter().all(|spec| *spec == params)
        && n.is_multiple_of(DECAY_BLOCK)
        && *decay == Spec::f32([n / DECAY_BLOCK])
        && (1..=256).contains(&partials.shape.elems())
        && *partials == Spec::f32([partials.shape.elems()])
        && *hyper == Spec::f32([8]);
    if fits { Ok(vec![Spec::f32([1])]) } else { refuse(call, expected) }
}

fn launch_adamw(call: &OpCall, variant: &Variant) -> Launch {
    let n = call.inputs[0].shape.elems();
    let count = call.inputs[5].shape.elems();
    Launch {
        groups: n.div_ceil(variant.tile[0] as usize) as u64,
        push: vec![n as u32, count as u32],
        spec: Vec::new(),
    }
}

fn adamw_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [params, grads, m, v, decay, partials, hyper] = inputs else {
        unreachable!("adamw has seven inputs")
    };
    let &[lr, b1, b2, eps, weight_decay, correction1, correction2, max_norm] = &hyper.data[..]
    else {
        unreachable!("infer admitted eight hyperparameters")
    };
    let norm = partials.data.iter().sum::<f64>().sqrt();
    let scale = if max_norm > 0.0 { (max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 };
    let (mut params, mut m, mut v) = (params.clone(), m.clone(), v.clone());
    if norm.is_finite() {
        for (i, grad) in grads.data.iter().enumerate() {
            let g = grad * scale;
            let (first, second) = (&mut m.data[i], &mut v.data[i]);
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            let root = second.sqrt() / correction2.sqrt() + eps;
            let kept = params.data[i] * (1.0 - lr * weight_decay * decay.data[i / DECAY_BLOCK]);
            params.data[i] = kept - lr / correction1 * *first / root;
        }
    }
    vec![HostTensor::f32([1], vec![norm]), params, m, v]
}

fn launch_norm_partials(call: &OpCall, variant: &Variant) -> Launch {
    let n = call.inputs[0].shape.elems();
    let count = partials(n);
    Launch {
        groups: count.div_ceil(variant.tile[0] as usize) as u64,
        push: vec![n as u32, count as u32, n.div_ceil(count) as u32],
        spec: Vec::new(),
    }
}

fn norm_partials_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let x = &inputs[0].data;
    let count = partials(x.len());
    let mut sums: Vec<f64> = x
        .chunks(x.len().div_ceil(count))
        .map(|chunk| chunk.iter().map(|value| value * value).sum())
        .collect();
    sums.resize(count, 0.0);
    vec![HostTensor::f32([count], sums)]
}

fn infer_write_rows(call: &OpCall) -> Inferred {
    let expected = "a cache [B, Tmax, ..], x [B, T, ..] and a position u32 [1]";
    let [cache, x, position] = call.inputs else { return refuse(call, expected) };
    let fits = cache.dtype == x.dtype
        && *position == Spec::u32([1])
        && match (cache.shape.dims(), x.shape.dims()) {
            ([cache_batch, _, cache_row @ ..], [x_batch, _, x_row @ ..]) => {
                cache_batch == x_batch && cache_row == x_row
            }
            _ => false,
        };
    if fits { Ok(Vec::new()) } else { refuse(call, expected) }
}

fn launch_write_rows(call: &OpCall, variant: &Variant) -> Launch {
    let (cache, x) = (call.inputs[0].shape, call.inputs[1].shape);
    let row: usize = x.dims()[2..].iter().product();
    let words = [x.elems(), x.dims()[1], cache.dims()[1], row];
    Launch {
        groups: x.elems().div_ceil(variant.tile[0] as usize) as u64,
        push: words.map(|word| word as u32).to_vec(),
        spec: Vec::new(),
    }
}

fn write_rows_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [cache, x, position] = inputs else { unreachable!("write_rows has three inputs") };
    let (rows, limit) = (x.shape().dims()[1], cache.shape().dims()[1]);
    let row: usize = x.shape().dims()[2..].iter().product();
    let mut cache = cache.clone();
    for (index, source) in x.data.chunks(row).enumerate() {
        let (batch, at) = (index / rows, index % rows + position.data[0] as usize);
        if at < limit {
            let start = (batch * limit + at) * row;
            cache.data[start..start + row].copy_from_slice(source);
        }
    }
    vec![cache]
}

fn adamw_samples() -> Vec<Sample> {
    let sample = |n: usize, max_norm: f64, grad: f64| {
        let hyper = vec![0.01, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, max_norm];
        let hyper = hyper.into_iter().map(|value| f64::from(value as f32)).collect();
        let grads = uniform([n], -grad, grad, 22);
        let partials = norm_partials_reference(std::slice::from_ref(&grads), &Attrs::NONE);
        let inputs = vec![
            signed([n], 21),
            grads,
            uniform([n], -0.1, 0.1, 23),
            uniform([n], 0.001, 0.1, 24),
            uniform([n / DECAY_BLOCK], 0.0, 1.0, 25),
            rounded(partials),
            HostTensor::f32([8], hyper),
        ];
        Sample::new(inputs, Attrs::NONE)
    };
    vec![
        sample(64, 0.0, 1.0),
        sample(128, 1.0, 1.0),
        sample(8256, 1e3, 1.0),
        sample(64, 1.0, 0.0),
        sample(64 * 2049, 1.0, 0.1).large(),
    ]
}

/// The only value, with its elements as f32 holds them.
fn rounded(mut values: Vec<HostTensor>) -> HostTensor {
    let mut value = values.swap_remove(0);
    value.data.iter_mut().for_each(|x| *x = f64::from(*x as f32));
    value
}

fn norm_partials_samples() -> Vec<Sample> {
    let sample = |n: usize| Sample::new(vec![signed([n], 31)], Attrs::NONE);
    vec![
        sample(1),
        sample(127),
        sample(129),
        sample(4097),
        sample(12_345),
        Sample::new(vec![signed([3, 5, 7], 32)], Attrs::NONE),
        sample(256 * 4096 + 1).large(),
    ]
}

fn write_rows_samples() -> Vec<Sample> {
    let sample = |cache: [usize; 4], rows: usize, position: u32| {
        let [batch, _, heads, width] = cache;
        let inputs = vec![
            signed(cache, 41),
            signed([batch, rows, heads, width], 42),
            HostTensor::new(Spec::u32([1]), vec![f64::from(position)]),
        ];
        Sample::new(inputs, Attrs::NONE)
    };
    vec![
        sample([1, 1, 1, 1], 1, 0),
        sample([2, 7, 3, 4], 1, 6),
        sample([2, 7, 3, 4], 3, 2),
        sample([2, 7, 3, 4], 3, 5),
        sample([3, 129, 2, 32], 127, 1),
    ]
}
