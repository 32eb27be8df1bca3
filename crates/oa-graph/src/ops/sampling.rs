//! Choosing the next token on the device.
//!
//! One dispatch per step: greedy, or a draw from the tempered softmax restricted to the k best
//! tokens and then to the smallest set of probability p. Equal logits enter by index, so the set is
//! exact and the same everywhere.

use super::rng::{block, unit};
use super::rule::{Inferred, refuse};
use super::sample::{Sample, Source, uniform};
use super::{Backward, Launch, Lower, OpCall, OpDef};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{Class, DType, Variant};

/// A token per row of logits.
///
/// Inputs: logits `[B, V]`; controls f32 `[4]` (temperature, where 0 is greedy; top k, where 0 is
/// all; top p, where 0 and 1 are all; unused); counter u32 `[4]` (seed low, seed high, stream,
/// step).
pub static SAMPLE: OpDef = OpDef {
    name: "sample",
    doc: "Token per row: argmax, or a Philox draw from softmax(x / temperature) within the k best \
          tokens and the smallest set of them with probability p.",
    infer,
    lower: Lower::Kernel { family: |_| "sample", launch },
    backward: Backward::None("a sampled token is a discrete choice"),
    reference: |x, _| vec![reference(x)],
    samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&SAMPLE];

fn infer(call: &OpCall) -> Inferred {
    match call.inputs {
        [logits, controls, counter]
            if logits.dtype == DType::F32
                && logits.shape.rank() == 2
                && *controls == Spec::f32([4])
                && *counter == Spec::u32([4]) =>
        {
            Ok(vec![Spec::u32([logits.shape.rows()])])
        }
        _ => refuse(call, "f32 logits [rows, classes], f32 controls [4] and a u32 counter [4]"),
    }
}

fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let logits = call.inputs[0].shape;
    let covered = match variant.class {
        Class::Cpu => variant.tile[0] as usize,
        Class::Subgroup | Class::Portable => 1,
    };
    Launch {
        groups: logits.rows().div_ceil(covered) as u64,
        push: vec![logits.rows() as u32, logits.last() as u32],
        spec: Vec::new(),
    }
}

fn reference(x: &[HostTensor]) -> HostTensor {
    let (logits, controls) = (&x[0], &x[1].data);
    let counter: Vec<u32> = x[2].data.iter().map(|&word| word as u32).collect();
    let rows = logits.data.chunks(logits.shape().last()).enumerate();
    let tokens = rows.map(|(row, logits)| {
        let words = block([counter[0], counter[1]], [row as u32, 0, counter[2], counter[3]]);
        choose(logits, controls, unit(words[0])) as f64
    });
    HostTensor::new(Spec::u32([logits.shape().rows()]), tokens.collect())
}

/// The token of one row for a uniform number.
fn choose(logits: &[f64], controls: &[f64], unit: f64) -> usize {
    let mut best: Vec<usize> = (0..logits.len()).filter(|&i| !logits[i].is_nan()).collect();
    best.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let Some(&first) = best.first() else { return 0 };
    if controls[0] <= 0.0 {
        return first;
    }
    if controls[1] >= 1.0 {
        best.truncate(controls[1] as usize);
    }
    let weight = |i: usize| ((logits[i] - logits[first]) / controls[0]).exp();
    if controls[2] > 0.0 && controls[2] < 1.0 {
        let quota = controls[2] * best.iter().map(|&i| weight(i)).sum::<f64>();
        let mut sum = 0.0;
        let enough = best.iter().position(|&i| {
            sum += weight(i);
            sum >= quota
        });
        best.truncate(enough.map_or(best.len(), |last| last + 1));
    }
    let target = unit * best.iter().map(|&i| weight(i)).sum::<f64>();
    best.sort_unstable();
    let mut sum = 0.0;
    let passed = best.iter().find(|&&i| {
        sum += weight(i);
        sum > target
    });
    passed.or(best.last()).copied().unwrap_or(first)
}

fn samples() -> Vec<Sample> {
    let of = |rows: usize, classes: usize, controls: [f64; 4], seed: u64| {
        let logits = uniform([rows, classes], -4.0, 4.0, seed);
        let mut source = Source::new(seed ^ 0x5A);
        let counter = (0..4).map(|_| f64::from(source.bits() as u32)).collect();
        let controls = controls.map(|value| f64::from(value as f32)).to_vec();
        let (controls, counter) =
            (HostTensor::f32([4], controls), HostTensor::new(Spec::u32([4]), counter));
        Sample::new(vec![logits, controls, counter], Attrs::NONE)
    };
    let mut tied = of(3, 129, [1.0, 7.0, 0.0, 0.0], 907);
    tied.inputs[0].data.iter_mut().for_each(|value| *value = value.round());
    let mut all = vec![tied];
    for (index, classes) in [1, 2, 7, 8, 9, 16, 17, 31, 127, 129, 255, 256, 1000].iter().enumerate()
    {
        let seed = 900 + index as u64;
        all.push(of(5, *classes, [0.0, 0.0, 0.0, 0.0], seed));
        all.push(of(5, *classes, [1.0, 0.0, 0.0, 0.0], seed));
        all.push(of(5, *classes, [0.7, 5.0, 0.0, 0.0], seed));
        all.push(of(5, *classes, [1.3, 40.0, 0.9, 0.0], seed));
    }
    all.push(Sample::later(move || of(33, 50_257, [0.8, 100.0, 0.95, 0.0], 920)));
    all
}

impl Tensor {
    /// A token per row of these logits `[B, V]`, chosen on the device; u32 `[B]`.
    ///
    /// `controls` is f32 `[4]`: temperature (0 is greedy, ties to the lower index), top k (0 is
    /// all), top p (0 and 1 are all), unused. `counter` is u32 `[4]`: seed low, seed high, stream,
    /// step.
    ///
    /// # Errors
    ///
    /// When shapes or element types differ from these.
    #[track_caller]
    pub fn sample(&self, controls: &Tensor, counter: &Tensor) -> Result<Tensor> {
        Tensor::record1(&SAMPLE, Attrs::NONE, &[self, controls, counter])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_cut_by_rank_and_by_probability() {
        let logits = [0.0, 3.0f64.ln(), 2.0f64.ln(), f64::NAN, 0.0];
        let draw = |controls: [f64; 3], unit| choose(&logits, &controls, unit);
        assert_eq!(draw([0.0, 0.0, 0.0], 0.9), 1, "greedy");
        assert_eq!([0.0, 0.2, 0.6, 0.99].map(|u| draw([1.0, 0.0, 0.0], u)), [0, 1, 2, 4]);
        assert_eq!([0.0, 0.99].map(|u| draw([1.0, 3.0, 0.0], u)), [0, 2], "a tie goes to 0");
        assert_eq!([0.0, 0.99].map(|u| draw([1.0, 0.0, 0.6], u)), [1, 2], "3/7 and 2/7 reach 0.6");
        assert_eq!(choose(&[f64::NAN], &[1.0, 0.0, 0.0], 0.5), 0);
    }
}
