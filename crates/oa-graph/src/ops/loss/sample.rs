//! Sample logits and targets for the ops of the loss family.
//!
//! Class counts are those around subgroup sizes that have been wrong somewhere, up to a real
//! vocabulary. Some targets are ignored; statistics that an op takes are those of its logits.

use super::super::reduce::class_counts;
use super::super::sample::{Sample, Source, uniform};
use super::{IGNORE, log_sum_exp_reference};
use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;

/// Small shapes: every class count, then other ranks.
fn small() -> Vec<Shape> {
    let mut shapes: Vec<Shape> = class_counts().map(|classes| [5, classes].into()).into();
    let others: [Shape; 4] = [[7].into(), [1, 1].into(), [2, 3, 5].into(), [129, 3].into()];
    shapes.extend(others);
    shapes
}

/// Large shapes: a real vocabulary, many rows, and more than 2^24 logits.
fn large() -> [Shape; 3] {
    [[33, 50_257].into(), [40_007, 9].into(), [16_384, 1025].into()]
}

fn samples(of: impl Fn(Shape) -> Sample + Copy + Send + 'static) -> Vec<Sample> {
    let large = large().map(|shape| Sample::later(move || of(shape)));
    small().into_iter().map(of).chain(large).collect()
}

fn logits(shape: Shape) -> HostTensor {
    uniform(shape, -4.0, 6.0, 801)
}

/// A class for each row, every seventh row ignored.
fn targets(logits: Shape) -> HostTensor {
    let mut source = Source::new(802);
    let target = |row: usize| {
        let class = source.bits() % logits.last() as u64;
        if row % 7 == 3 { f64::from(IGNORE) } else { class as f64 }
    };
    let data: Vec<f64> = (0..logits.rows()).map(target).collect();
    HostTensor::new(Spec::i32([data.len()]), data)
}

fn rounded(mut x: HostTensor) -> HostTensor {
    x.data.iter_mut().for_each(|x| *x = f64::from(*x as f32));
    x
}

fn statistics(logits: &HostTensor) -> [HostTensor; 2] {
    let mut found = log_sum_exp_reference(logits).into_iter();
    [0, 1].map(|_| rounded(found.next().expect("a row has two statistics")))
}

pub(super) fn log_sum_exp() -> Vec<Sample> {
    let mut all = samples(move |shape| Sample::new(vec![logits(shape)], Attrs::NONE));
    let far = |low, high| Sample::new(vec![uniform([3, 129], low, high, 803)], Attrs::NONE);
    all.extend([far(-1.0e4, 1.0e4), far(9.0e3, 9.1e3), far(-9.1e3, -9.0e3)]);
    all
}

pub(super) fn cross_entropy() -> Vec<Sample> {
    let sample = |shape: Shape, floats: [f32; 2]| {
        let (logits, ints) = (logits(shape), Attrs::ints(&[IGNORE as u32]));
        let [lse, mean] = statistics(&logits);
        Sample::new(vec![logits, targets(shape), lse, mean], ints.with_floats(&floats))
    };
    let mut all = samples(move |shape| sample(shape, [0.0, 0.0]));
    all.extend([[0.1, 0.0], [0.0, 1.0e-3], [0.3, 1.0e-2]].map(|f| sample([11, 17].into(), f)));
    let mut ignored = sample([2, 5].into(), [0.1, 0.0]);
    ignored.inputs[1].data.fill(f64::from(IGNORE));
    all.push(ignored);
    all
}

pub(super) fn cross_entropy_scaled() -> Vec<Sample> {
    let sample = |shape: Shape, chunk: u32, floats: [f32; 2]| {
        let (logits, ints) = (logits(shape), Attrs::ints(&[IGNORE as u32, chunk]));
        let [lse, mean] = statistics(&logits);
        let inverse = HostTensor::f32([1], vec![0.125]);
        let inputs = vec![logits, targets(shape), lse, mean, inverse];
        Sample::new(inputs, ints.with_floats(&floats))
    };
    let mut all = samples(move |shape| sample(shape, 16_384, [0.0, 0.0]));
    all.extend([(1, [0.1, 0.0]), (4, [0.0, 1.0e-3])].map(|(c, f)| sample([11, 17].into(), c, f)));
    all
}

pub(super) fn cross_entropy_backward() -> Vec<Sample> {
    let sample = |shape: Shape, chunk: u32, floats: [f32; 3]| {
        let (logits, ints) = (logits(shape), Attrs::ints(&[IGNORE as u32, chunk]));
        let [lse, _] = statistics(&logits);
        let parts = shape.rows().div_ceil(chunk as usize);
        let dloss = uniform([parts], 0.5, 1.5, 804);
        let inverse = HostTensor::f32([1], vec![0.25]);
        let inputs = vec![logits, targets(shape), lse, inverse, dloss];
        Sample::new(inputs, ints.with_floats(&floats))
    };
    let mut all = samples(move |shape| sample(shape, 16_384, [1.0, 0.0, 0.0]));
    let smooth = [(3, [0.9, 0.1 / 17.0, 0.0]), (11, [0.7, 0.3 / 17.0, 2.0e-3])];
    all.extend(smooth.map(|(chunk, floats)| sample([11, 17].into(), chunk, floats)));
    all
}

pub(super) fn inverse_count() -> Vec<Sample> {
    let sample =
        |rows: usize| Sample::new(vec![targets([rows, 9].into())], Attrs::ints(&[IGNORE as u32]));
    let mut all: Vec<Sample> = [1, 4, 127, 129, 1000].map(sample).into();
    let none = HostTensor::new(Spec::i32([3]), vec![f64::from(IGNORE); 3]);
    all.push(Sample::new(vec![none], Attrs::ints(&[IGNORE as u32])));
    all.push(Sample::later(move || sample(16_777_217)));
    all
}

pub(super) fn correct_rows() -> Vec<Sample> {
    let sample = |logits: HostTensor| {
        let targets = targets(logits.shape());
        Sample::new(vec![logits, targets], Attrs::ints(&[IGNORE as u32]))
    };
    let mut all = samples(move |shape| sample(logits(shape)));
    // Three equal maxima in each row: only the first one is right.
    let tied = (0..129 * 3).map(|i| if i % 3 == 0 { 2.0 } else { f64::from(i % 3) });
    all.push(sample(HostTensor::f32([129, 3], tied.collect())));
    all
}
