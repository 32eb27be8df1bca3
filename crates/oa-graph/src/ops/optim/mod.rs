//! Optimizer updates: one dispatch over a whole arena of parameters, gradients and moments.
//!
//! An update clips by the global norm, which every workgroup takes from the same partial sums, and
//! changes nothing when that norm is not finite. Schedules and bias corrections are the caller's:
//! they arrive as eight floats, the same for every optimizer, so a replayed plan takes them like any
//! other input. What differs between parameters is a table of blocks of 64 elements.

pub mod adamw;
pub mod muon;
pub mod sgd;

use super::rule::refuse;
use super::sample::{Sample, Source, signed, uniform};
use super::{Backward, Launch, Lower, OpCall, OpDef};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Why an update has no derivative.
const EFFECT: &str = "it changes a state; differentiate the value before the update";

/// Why what only an optimizer uses has none.
const SERVES: &str = "it serves the optimizer; use mul and sum for a norm in a loss";

/// Sums of squares of consecutive chunks, at most 256 of them.
pub static NORM_PARTIALS: OpDef = OpDef {
    name: "norm_partials",
    doc: "Sums of squares of at most 256 chunks of a value: their sum's root is its norm.",
    infer: |call| match call.inputs {
        [x] if x.dtype == DType::F32 => Ok(vec![Spec::f32([partials(x.shape.elems())])]),
        _ => refuse(call, "one f32 value"),
    },
    lower: Lower::Kernel { family: |_| "norm_partials", launch: launch_norm_partials },
    backward: Backward::None(SERVES),
    reference: norm_partials_reference,
    samples: norm_partials_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this folder.
pub static OPS: &[&OpDef] = &[
    &adamw::ADAMW,
    &sgd::SGD,
    &muon::MUON_MOMENTUM,
    &muon::MUON_UNIT,
    &muon::MUON_APPLY,
    &NORM_PARTIALS,
];

/// Elements that share a row of the table of blocks.
pub const BLOCK: usize = 64;

/// Elements per partial sum, until 256 partials are reached.
const PARTIAL_ELEMS: usize = 4096;

fn partials(elems: usize) -> usize {
    elems.div_ceil(PARTIAL_ELEMS).clamp(1, 256)
}

/// The eight settings of one update, in the order of the device: the same eight for every
/// optimizer, which reads those it has a use for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hyper {
    /// Learning rate of a block whose rate factor is 1.
    pub rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Momentum.
    pub momentum: f64,
    /// Largest norm of all gradients; 0 for no clipping.
    pub max_norm: f32,
}

impl Hyper {
    /// The words of update number `update`, counted from 1. The two bias corrections `1 - b^update`
    /// are computed in double precision.
    pub fn words(&self, update: u64) -> [f32; 8] {
        let correction = |beta: f64| (1.0 - beta.powf(update as f64)) as f32;
        let Hyper { rate, beta1, beta2, eps, momentum, max_norm } = *self;
        let [rate, b1, b2, eps, momentum] = [rate, beta1, beta2, eps, momentum].map(|x| x as f32);
        [rate, b1, b2, eps, momentum, correction(beta1), correction(beta2), max_norm]
    }
}

impl Tensor {
    /// Sums of squares of consecutive chunks (at most 256 of them): what updates clip by.
    ///
    /// # Errors
    ///
    /// When the value does not hold f32.
    #[track_caller]
    pub fn norm_partials(&self) -> Result<Tensor> {
        Tensor::record1(&NORM_PARTIALS, Attrs::NONE, &[self])
    }
}

/// True when these are the inputs of an update over arenas of `n` elements: arenas `[n]`, n a
/// multiple of 64, blocks `[n / 64, 2]`, at most 256 partials, eight settings.
fn fits(arenas: &[&Spec], [blocks, partials, hyper]: [&Spec; 3]) -> bool {
    let n = arenas[0].shape.elems();
    arenas.iter().all(|spec| **spec == Spec::f32([n]))
        && n.is_multiple_of(BLOCK)
        && *blocks == Spec::f32([n / BLOCK, 2])
        && settings_fit(partials, hyper)
}

fn settings_fit(partials: &Spec, hyper: &Spec) -> bool {
    (1..=256).contains(&partials.shape.elems())
        && *partials == Spec::f32([partials.shape.elems()])
        && *hyper == Spec::f32([8])
}

/// Geometry of an update of `n` elements that sums `partials` partial sums in each workgroup.
fn launch(n: usize, partials: &Spec, rest: &[u32], variant: &Variant) -> Launch {
    let mut push = vec![n as u32, partials.shape.elems() as u32];
    push.extend(rest);
    Launch { groups: n.div_ceil(variant.tile[0] as usize) as u64, push, spec: Vec::new() }
}

/// The norm of all gradients, and the factor that clips them.
fn clip(partials: &HostTensor, max_norm: f64) -> (f64, f64) {
    let norm = partials.data.iter().sum::<f64>().sqrt();
    (norm, if max_norm > 0.0 { (max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 })
}

/// Rate factor and weight decay of an element, unless its block is left alone.
fn block(blocks: &HostTensor, element: usize) -> Option<(f64, f64)> {
    let row = element / BLOCK * 2;
    let factor = blocks.data[row];
    (factor >= 0.0).then_some((factor, blocks.data[row + 1]))
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

/// Gradients in `[-size, size)`, a table of blocks some of which are left alone, and the partials
/// and settings that go with them.
fn sample_inputs(n: usize, size: f64, max_norm: f64) -> [HostTensor; 4] {
    let grads = uniform([n], -size, size, 22);
    let mut source = Source::new(25);
    let factor = |source: &mut Source| match source.bits() % 4 {
        0 => -1.0,
        1 => 1.0,
        _ => source.uniform(0.0, 2.0),
    };
    let rows = (0..n / BLOCK).flat_map(|_| [factor(&mut source), source.uniform(0.0, 0.2)]);
    let blocks = HostTensor::f32([n / BLOCK, 2], rows.collect());
    let mut partials = norm_partials_reference(std::slice::from_ref(&grads), &Attrs::NONE);
    let mut partials = partials.swap_remove(0);
    // As f32 holds them.
    partials.data.iter_mut().for_each(|x| *x = f64::from(*x as f32));
    let hyper = vec![0.01, 0.9, 0.95, 1e-8, 0.9, 0.271, 0.142625, max_norm];
    let hyper = hyper.into_iter().map(|value| f64::from(value as f32)).collect();
    [grads, blocks, partials, HostTensor::f32([8], hyper)]
}

/// Sizes, gradients and clipping bounds that every update is tested with.
const SIZES: [(usize, f64, f64); 5] =
    [(64, 1.0, 0.0), (128, 1.0, 1.0), (8256, 1.0, 1e3), (64, 0.0, 1.0), (64 * 513, 0.1, 1.0)];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bias_corrections_are_those_of_the_formula() {
        let settings = Hyper { rate: 0.5, beta1: 0.9, beta2: 0.95, ..Hyper::default() };
        let words = settings.words(1);
        assert_eq!(words[0], 0.5);
        assert_eq!(words[5], (1.0 - 0.9f64) as f32);
        assert_eq!(words[6], (1.0 - 0.95f64) as f32);
        let late = settings.words(1_000_000);
        assert_eq!((late[5], late[6], late[7]), (1.0, 1.0, 0.0));
    }
}
