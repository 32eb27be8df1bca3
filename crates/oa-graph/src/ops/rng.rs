//! Random numbers from counters, and dropout.
//!
//! Philox 4x32-10: the key is the seed, the counter is (block, stream, step), element `i` of a
//! stream is word `i % 4` of block `i / 4`. Nothing is stored and any tiling draws the same
//! numbers, so the backward of dropout draws its mask again. The step is a value on the device: a
//! captured plan draws new numbers at each replay.

use super::rule::{Inferred, refuse};
use super::sample::{Sample, elements_past_f32, ragged, uniform as uniform_sample};
use super::{Backward, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Random words. Integer attributes: seed low and high, stream, first element low and high, number
/// of elements.
pub static RANDOM_WORDS: OpDef = OpDef {
    name: "random_words",
    doc: "32-bit random words of a Philox stream.",
    infer: |call| infer_draw(call, DType::U32),
    lower: Lower::Kernel { family: |_| "random_words", launch: launch_draw },
    backward: Backward::None(CONSTANT),
    reference: |x, attrs| vec![draw(x, attrs, DType::U32, |words| words.map(f64::from))],
    samples: draw_samples,
    mutates: &[],
    in_place: None,
};

/// Uniform numbers in `[0, 1)`. Integer attributes: as [`RANDOM_WORDS`].
pub static RANDOM_UNIFORM: OpDef = OpDef {
    name: "random_uniform",
    doc: "Uniform numbers in [0, 1): `(word >> 8) 2^-24`.",
    infer: |call| infer_draw(call, DType::F32),
    lower: Lower::Kernel { family: |_| "random_uniform", launch: launch_draw },
    backward: Backward::None(CONSTANT),
    reference: |x, attrs| vec![draw(x, attrs, DType::F32, |words| words.map(unit))],
    samples: draw_samples,
    mutates: &[],
    in_place: None,
};

/// Standard normal numbers. Integer attributes: as [`RANDOM_WORDS`].
pub static RANDOM_NORMAL: OpDef = OpDef {
    name: "random_normal",
    doc: "Standard normal numbers: Box-Muller pairs of words with `u1 = ((word >> 8) + 1) 2^-24`.",
    infer: |call| infer_draw(call, DType::F32),
    lower: Lower::Kernel { family: |_| "random_normal", launch: launch_draw },
    backward: Backward::None(CONSTANT),
    reference: |x, attrs| vec![draw(x, attrs, DType::F32, normals)],
    samples: draw_samples,
    mutates: &[],
    in_place: None,
};

/// Dropout. Integer attributes: seed low and high, stream, threshold. Float attribute: 1/(1 - p).
pub static DROPOUT: OpDef = OpDef {
    name: "dropout",
    doc: "`x keep / (1 - p)`, where an element is kept if `word >> 8 >= round(p 2^24)`.",
    infer: infer_dropout,
    lower: Lower::Kernel { family: |_| "dropout", launch: launch_dropout },
    backward: Backward::Rule(|g| {
        let dx = Tensor::record1(&DROPOUT, *g.attrs, &[g.dout(), &g.inputs[1]])?;
        Ok(vec![Some(dx), None])
    }),
    reference: |x, attrs| vec![dropout_reference(&x[0], &x[1], attrs)],
    samples: dropout_samples,
    mutates: &[],
    in_place: Some(0),
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&RANDOM_WORDS, &RANDOM_UNIFORM, &RANDOM_NORMAL, &DROPOUT];

const CONSTANT: &str = "random numbers depend on counters only";

/// `shape` random u32 words: elements `first_element ..` of a stream at the step that `step` (u32
/// `[1]`) holds.
///
/// # Errors
///
/// When the step is no u32 `[1]`.
#[track_caller]
pub fn words(
    step: &Tensor,
    shape: impl Into<Shape>,
    seed: u64,
    stream: u32,
    first_element: u64,
) -> Result<Tensor> {
    record(&RANDOM_WORDS, step, shape.into(), (seed, stream, first_element))
}

/// `shape` uniform numbers in `[0, 1)`; see [`words`].
///
/// # Errors
///
/// As [`words`].
#[track_caller]
pub fn uniform(
    step: &Tensor,
    shape: impl Into<Shape>,
    seed: u64,
    stream: u32,
    first_element: u64,
) -> Result<Tensor> {
    record(&RANDOM_UNIFORM, step, shape.into(), (seed, stream, first_element))
}

/// `shape` standard normal numbers; see [`words`].
///
/// # Errors
///
/// As [`words`].
#[track_caller]
pub fn normal(
    step: &Tensor,
    shape: impl Into<Shape>,
    seed: u64,
    stream: u32,
    first_element: u64,
) -> Result<Tensor> {
    record(&RANDOM_NORMAL, step, shape.into(), (seed, stream, first_element))
}

#[track_caller]
fn record(
    def: &'static OpDef,
    step: &Tensor,
    shape: Shape,
    (seed, stream, first): (u64, u32, u64),
) -> Result<Tensor> {
    let ints = address(seed, stream, first, shape.elems());
    Tensor::record1(def, Attrs::ints(&ints), &[step])?.reshape(shape)
}

fn address(seed: u64, stream: u32, first: u64, count: usize) -> [u32; 6] {
    let halves = |value: u64| [value as u32, (value >> 32) as u32];
    let ([seed_low, seed_high], [first_low, first_high]) = (halves(seed), halves(first));
    [seed_low, seed_high, stream, first_low, first_high, count as u32]
}

/// Four words of a block, on the host: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, 2011) for a
/// key (seed low, seed high) and a counter (block low, block high, stream, step).
pub fn block(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let (mut k, mut c) = (key, counter);
    for _ in 0..10 {
        let [p, q] = [(0xD251_1F53u64, c[0]), (0xCD9E_8D57, c[2])].map(|(m, c)| m * u64::from(c));
        c = [(q >> 32) as u32 ^ c[1] ^ k[0], q as u32, (p >> 32) as u32 ^ c[3] ^ k[1], p as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

pub(super) fn unit(word: u32) -> f64 {
    f64::from(word >> 8) / 16_777_216.0
}

fn normals(words: [u32; 4]) -> [f64; 4] {
    let pair = |a: u32, b: u32| {
        let radius = (-2.0 * (f64::from((a >> 8) + 1) / 16_777_216.0).ln()).max(0.0).sqrt();
        let angle = 2.0 * std::f64::consts::PI * unit(b);
        (radius * angle.cos(), radius * angle.sin())
    };
    let ((a, b), (c, d)) = (pair(words[0], words[1]), pair(words[2], words[3]));
    [a, b, c, d]
}

fn is_step(spec: &Spec) -> bool {
    *spec == Spec::u32([1])
}

fn infer_draw(call: &OpCall, dtype: DType) -> Inferred {
    match call.inputs {
        [step] if is_step(step) => {
            Ok(vec![Spec { shape: [call.attrs.int[5] as usize].into(), dtype }])
        }
        _ => refuse(call, "the step as u32 [1]"),
    }
}

fn infer_dropout(call: &OpCall) -> Inferred {
    match call.inputs {
        [x, step] if x.dtype == DType::F32 && is_step(step) && call.attrs.float[0].is_finite() => {
            Ok(vec![*x])
        }
        _ => refuse(call, "an f32 value, the step as u32 [1], and a probability in [0, 1)"),
    }
}

/// A lane draws blocks of four; a first element inside a block makes one more of them.
fn launch_draw(call: &OpCall, variant: &Variant) -> Launch {
    let [seed_low, seed_high, stream, first_low, first_high, count, ..] = call.attrs.int;
    let covered = count as usize + (first_low & 3) as usize;
    Launch {
        groups: covered.div_ceil(variant.tile[0] as usize) as u64,
        push: vec![count, seed_low, seed_high, stream, first_low, first_high],
        spec: Vec::new(),
    }
}

fn launch_dropout(call: &OpCall, variant: &Variant) -> Launch {
    let [seed_low, seed_high, stream, threshold, ..] = call.attrs.int;
    let rest = [seed_low, seed_high, stream, threshold, call.attrs.float[0].to_bits()];
    launch::elements(call.inputs[0].shape.elems(), &rest, variant)
}

/// Elements of a stream, each block turned into values.
fn draw(
    inputs: &[HostTensor],
    attrs: &Attrs,
    dtype: DType,
    of: impl Fn([u32; 4]) -> [f64; 4],
) -> HostTensor {
    let [seed_low, seed_high, stream, first_low, first_high, count, ..] = attrs.int;
    let first = u64::from(first_low) | u64::from(first_high) << 32;
    let step = inputs[0].data[0] as u32;
    let value = |i: u64| {
        let element = first.wrapping_add(i);
        let [low, high] = [element / 4, (element / 4) >> 32].map(|half| half as u32);
        of(block([seed_low, seed_high], [low, high, stream, step]))[(element % 4) as usize]
    };
    let shape = Shape::from([count as usize]);
    HostTensor::new(Spec { shape, dtype }, (0..u64::from(count)).map(value).collect())
}

fn dropout_reference(x: &HostTensor, step: &HostTensor, attrs: &Attrs) -> HostTensor {
    let [seed_low, seed_high, stream, threshold, ..] = attrs.int;
    let ints = [seed_low, seed_high, stream, 0, 0, x.data.len() as u32];
    let inputs = std::slice::from_ref(step);
    let words = draw(inputs, &Attrs::ints(&ints), DType::U32, |words| words.map(f64::from));
    let scale = f64::from(attrs.float[0]);
    let kept = |word: f64| (word as u32) >> 8 >= threshold;
    let pairs = x.data.iter().zip(words.data);
    HostTensor::new(
        x.spec,
        pairs.map(|(x, word)| if kept(word) { x * scale } else { 0.0 }).collect(),
    )
}

impl Tensor {
    /// Dropout: each element is kept with probability `1 - p` and then divided by it. The mask is
    /// that of `stream` (one per dropout site) at the step that `step` (u32 `[1]`) holds.
    ///
    /// # Errors
    ///
    /// When `p` is not in `[0, 1)` or an input does not fit.
    #[track_caller]
    pub fn dropout(&self, p: f32, seed: u64, stream: u32, step: &Tensor) -> Result<Tensor> {
        let threshold = (f64::from(p) * 16_777_216.0).round() as u32;
        let scale = match (0.0..1.0).contains(&p) {
            true => (1.0 / (1.0 - f64::from(p))) as f32,
            false => f32::NAN,
        };
        let ints = [seed as u32, (seed >> 32) as u32, stream, threshold];
        Tensor::record1(&DROPOUT, Attrs::ints(&ints).with_floats(&[scale]), &[self, step])
    }
}

fn step() -> HostTensor {
    HostTensor::new(Spec::u32([1]), vec![7.0])
}

/// Streams that start at a block, inside one, and beyond 2^34 elements.
fn draw_samples() -> Vec<Sample> {
    let sample = |first: u64, count: usize| {
        let ints = address(0x1234_5678_9ABC_DEF0, 3, first, count);
        Sample::new(vec![step()], Attrs::ints(&ints))
    };
    vec![
        sample(0, 1),
        sample(0, 127),
        sample(3, 2),
        sample(5, 129),
        sample((1 << 34) - 6, 13),
        sample((1 << 34) + 2, 1027),
        sample(u64::MAX - 1030, 1025),
        Sample::later(move || sample(1, 16_777_217)),
    ]
}

fn dropout_samples() -> Vec<Sample> {
    let sample = |shape: Shape, p: f64| {
        let ints = [99, 1, 5, (p * 16_777_216.0).round() as u32];
        let attrs = Attrs::ints(&ints).with_floats(&[(1.0 / (1.0 - p)) as f32]);
        Sample::new(vec![uniform_sample(shape, -2.0, 2.0, 701), step()], attrs)
    };
    let mut samples: Vec<Sample> = ragged().map(|shape| sample(shape, 0.3)).into();
    samples.push(sample([33].into(), 0.0));
    samples.push(Sample::later(move || sample(elements_past_f32(), 0.1)));
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123 for philox4x32-10.
    #[test]
    fn blocks_are_the_published_ones() {
        let ones = u32::MAX;
        let known = [
            ([0, 0], [0; 4], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
            ([ones; 2], [ones; 4], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
        ];
        for (key, counter, want) in known {
            assert_eq!(block(key, counter), want);
        }
    }

    #[test]
    fn a_far_element_has_a_far_block() {
        let far = Attrs::ints(&address(42, 1, (1 << 34) + 5, 1));
        let words = draw(&[step()], &far, DType::U32, |words| words.map(f64::from));
        assert_eq!(words.data[0] as u32, block([42, 0], [1, 1, 1, 7])[1]);
    }
}
