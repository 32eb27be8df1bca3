//! Sample images, kernels and windows: odd sizes, strides, dilation, groups, kernels that are not
//! square, and batches around the sizes of tiles.

use super::batch_norm_reference::statistics;
use super::conv::Sizes;
use super::pool;
use super::pool_reference::max_reference;
use super::window::{Convolution, Pooling, pair};
use crate::attrs::Attrs;
use crate::host::HostTensor;
use crate::ops::sample::{Sample, Source, signed, uniform};
use crate::shape::Shape;

/// Shape of an image, shape of a kernel, geometry.
#[derive(Clone, Copy)]
struct Case([usize; 4], [usize; 4], Convolution);

fn geometry(
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Convolution {
    Convolution { stride, padding, dilation, groups }
}

fn small() -> Vec<Case> {
    let plain = Convolution::default();
    let padded = |padding: usize| geometry([1; 2], [padding; 2], [1; 2], 1);
    vec![
        Case([1, 1, 1, 1], [1, 1, 1, 1], plain),
        Case([1, 1, 3, 3], [1, 1, 2, 2], plain),
        Case([2, 3, 5, 5], [4, 3, 1, 1], plain),
        Case([1, 2, 5, 7], [3, 2, 3, 3], padded(1)),
        Case([2, 1, 5, 4], [2, 1, 2, 3], padded(0)),
        Case([1, 2, 7, 6], [2, 2, 3, 3], geometry([2; 2], [1; 2], [1; 2], 1)),
        Case([1, 1, 7, 9], [2, 1, 3, 2], geometry([2, 3], [0, 1], [1; 2], 1)),
        Case([1, 2, 7, 7], [1, 2, 3, 3], geometry([1; 2], [2; 2], [2; 2], 1)),
        Case([1, 1, 6, 7], [1, 1, 2, 2], geometry([2, 1], [1, 0], [3, 2], 1)),
        Case([2, 4, 4, 3], [6, 2, 3, 1], geometry([1; 2], [1, 0], [1; 2], 2)),
        Case([1, 5, 4, 4], [5, 1, 3, 3], geometry([1; 2], [1; 2], [1; 2], 5)),
        Case([1, 3, 5, 5], [6, 1, 3, 3], geometry([2; 2], [1; 2], [1; 2], 3)),
        Case([2, 2, 1, 9], [3, 2, 1, 5], geometry([1; 2], [0, 2], [1; 2], 1)),
        Case([1, 1, 2, 2], [1, 1, 3, 3], geometry([3; 2], [2; 2], [1; 2], 1)),
        Case([3, 1, 4, 4], [33, 1, 2, 2], plain),
        Case([1, 37, 3, 3], [2, 37, 3, 3], padded(1)),
    ]
}

fn large() -> Vec<Case> {
    let padded = |padding: usize| geometry([1; 2], [padding; 2], [1; 2], 1);
    vec![
        Case([3, 16, 28, 28], [32, 16, 3, 3], padded(1)),
        Case([2, 3, 32, 32], [17, 3, 5, 5], padded(2)),
        Case([2, 40, 15, 13], [70, 40, 3, 3], geometry([2; 2], [1; 2], [1; 2], 1)),
        Case([2, 48, 14, 14], [48, 1, 3, 3], geometry([1; 2], [1; 2], [1; 2], 48)),
        Case([5, 130, 9, 7], [65, 130, 1, 1], padded(0)),
        Case([1, 24, 20, 20], [36, 12, 3, 3], geometry([1; 2], [2; 2], [2; 2], 2)),
    ]
}

fn samples(of: fn(Case) -> Sample) -> Vec<Sample> {
    let large = large().into_iter().map(|case| Sample::later(move || of(case)));
    small().into_iter().map(of).chain(large).collect()
}

fn ints(conv: &Convolution, more: &[u32]) -> Attrs {
    let mut all = [conv.stride, conv.padding, conv.dilation].map(pair).to_vec();
    all.push(conv.groups as u32);
    all.extend(more);
    Attrs::ints(&all)
}

/// The shape of the result.
fn result(Case(x, w, conv): Case) -> [usize; 4] {
    let sizes = Sizes::of(&x, &w, &ints(&conv, &[])).expect("a sample's window fits");
    [x[0], w[0], sizes.result[0], sizes.result[1]]
}

pub(super) fn conv_samples() -> Vec<Sample> {
    samples(|Case(x, w, conv)| Sample::new(vec![signed(x, 901), signed(w, 902)], ints(&conv, &[])))
}

pub(super) fn conv_bias_samples() -> Vec<Sample> {
    samples(|Case(x, w, conv)| {
        let inputs = vec![signed(x, 903), signed(w, 904), signed([w[0]], 905)];
        Sample::new(inputs, ints(&conv, &[]))
    })
}

pub(super) fn input_samples() -> Vec<Sample> {
    samples(|case| {
        let Case([_, _, height, width], w, conv) = case;
        let inputs = vec![signed(result(case), 906), signed(w, 907)];
        Sample::new(inputs, ints(&conv, &[pair([height, width])]))
    })
}

pub(super) fn weights_samples() -> Vec<Sample> {
    let of = |case: Case, chunk: u32| {
        let Case(x, [_, _, rows, cols], conv) = case;
        let inputs = vec![signed(result(case), 908), signed(x, 909)];
        Sample::new(inputs, ints(&conv, &[pair([rows, cols]), chunk]))
    };
    let mut samples: Vec<Sample> = small().into_iter().map(|case| of(case, 4096)).collect();
    samples.extend(small().into_iter().map(|case| of(case, 7)));
    samples.extend(large().into_iter().map(|case| Sample::later(move || of(case, 300))));
    samples
}

/// Values that are far apart and in no order, so that a difference never changes a maximum.
fn apart(shape: [usize; 4], seed: u64) -> HostTensor {
    let count = shape.iter().product::<usize>();
    let mut order: Vec<usize> = (0..count).collect();
    let mut source = Source::new(seed);
    for at in (1..count).rev() {
        order.swap(at, (source.bits() % (at as u64 + 1)) as usize);
    }
    let centre = count as f64 / 2.0;
    HostTensor::f32(shape, order.into_iter().map(|rank| (rank as f64 - centre) / 64.0).collect())
}

/// Few values, so that windows hold several of the largest.
fn tied(shape: [usize; 4], seed: u64) -> HostTensor {
    let mut x = uniform(shape, -3.0, 0.0, seed);
    x.data.iter_mut().for_each(|x| *x = x.floor());
    x
}

/// Shape of an image and a window.
type Window = ([usize; 4], Pooling);

fn windows() -> Vec<Window> {
    let pool = |kernel, stride, padding| Pooling { kernel, stride, padding };
    vec![
        ([1, 1, 1, 1], Pooling::square(1)),
        ([1, 2, 4, 4], Pooling::square(2)),
        ([2, 3, 5, 7], Pooling::square(2)),
        ([1, 2, 7, 5], pool([3; 2], [2; 2], [1; 2])),
        ([1, 2, 6, 6], pool([3; 2], [1; 2], [1; 2])),
        ([2, 1, 5, 8], pool([2, 4], [3, 1], [1, 2])),
        ([1, 1, 9, 9], pool([2; 2], [4, 3], [0; 2])),
        ([3, 43, 2, 3], pool([2, 1], [1; 2], [1, 0])),
    ]
}

fn large_windows() -> Vec<Window> {
    vec![
        ([5, 33, 28, 28], Pooling::square(2)),
        ([2, 7, 65, 67], Pooling { kernel: [5, 3], stride: [3, 2], padding: [2, 1] }),
        ([2, 3, 90, 70], Pooling { kernel: [61; 2], stride: [7; 2], padding: [30; 2] }),
    ]
}

fn pool_ints(pool: &Pooling, image: [usize; 2], count: bool) -> Attrs {
    let [kernel, stride, padding] = [pool.kernel, pool.stride, pool.padding].map(pair);
    Attrs::ints(&[kernel, stride, padding, pair(image), 0, count.into()])
}

fn pool_samples(of: impl Fn(Window) -> Sample + Copy + Send + 'static) -> Vec<Sample> {
    let large = large_windows().into_iter().map(|case| Sample::later(move || of(case)));
    windows().into_iter().map(of).chain(large).collect()
}

pub(super) fn max_samples() -> Vec<Sample> {
    pool_samples(|(x, pool)| Sample::new(vec![apart(x, 911)], pool_ints(&pool, [0; 2], false)))
}

pub(super) fn avg_samples() -> Vec<Sample> {
    let of = |count| {
        pool_samples(move |(x, pool): Window| {
            Sample::new(vec![signed(x, 912)], pool_ints(&pool, [0; 2], count))
        })
    };
    of(true).into_iter().chain(of(false)).collect()
}

fn pooled((x, pool): Window) -> ([usize; 4], Attrs) {
    let attrs = pool_ints(&pool, [x[2], x[3]], false);
    let sizes = pool::Sizes::of(&x, &attrs).expect("a sample's window fits");
    ([x[0], x[1], sizes.result[0], sizes.result[1]], attrs)
}

/// Indices are those of a forward pass over values with ties.
pub(super) fn max_backward_samples() -> Vec<Sample> {
    pool_samples(|(x, pool)| {
        let (y, attrs) = pooled((x, pool));
        let index = max_reference(&tied(x, 913), &attrs).swap_remove(1);
        Sample::new(vec![signed(y, 914), index], attrs)
    })
}

pub(super) fn avg_backward_samples() -> Vec<Sample> {
    let of = |count: bool| {
        pool_samples(move |(x, pool): Window| {
            let (y, mut attrs) = pooled((x, pool));
            attrs.int[5] = count.into();
            Sample::new(vec![signed(y, 915)], attrs)
        })
    };
    of(true).into_iter().chain(of(false)).collect()
}

/// Batches with channels: images, sequences, vectors.
fn batches(of: fn(Shape) -> Sample) -> Vec<Sample> {
    let small: [Shape; 7] = [
        [3, 1].into(),
        [5, 3].into(),
        [129, 2].into(),
        [2, 3, 5].into(),
        [3, 2, 4, 5].into(),
        [1, 9, 2, 3].into(),
        [2, 2, 1, 129].into(),
    ];
    let large: [Shape; 4] =
        [[33, 17, 28, 28].into(), [3, 5, 40, 31].into(), [2, 130, 7].into(), [1031, 9].into()];
    let later = large.into_iter().map(|shape| Sample::later(move || of(shape)));
    small.into_iter().map(of).chain(later).collect()
}

/// Values around 2, so that a channel's mean is as large as its deviation.
fn values(shape: Shape, seed: u64) -> HostTensor {
    uniform(shape, 0.0, 4.0, seed)
}

const EPS: f32 = 1.0e-5;

fn channels(shape: Shape) -> Shape {
    [shape.dims()[1]].into()
}

pub(super) fn moments_samples() -> Vec<Sample> {
    batches(|shape| Sample::new(vec![values(shape, 921)], Attrs::NONE))
}

pub(super) fn merge_samples() -> Vec<Sample> {
    let of = |rows: usize, cols: usize, pixels: u32| {
        let inputs = vec![signed([rows, cols], 922), uniform([rows, cols], 0.0, 5.0, 923)];
        Sample::new(inputs, Attrs::ints(&[pixels]))
    };
    vec![
        of(1, 1, 1),
        of(3, 7, 1),
        of(5, 9, 6),
        of(129, 3, 16),
        Sample::later(move || of(4001, 33, 784)),
    ]
}

/// A norm's inputs after x: gain, bias, and the statistics of x as a device holds them.
fn own_statistics(x: &HostTensor) -> Vec<HostTensor> {
    let shape = channels(x.shape());
    let rounded = |values: Vec<f64>| {
        HostTensor::f32(shape, values.into_iter().map(|x| f64::from(x as f32)).collect())
    };
    let [mean, variance] = statistics(x).map(rounded);
    vec![uniform(shape, 0.5, 1.5, 924), signed(shape, 925), mean, variance]
}

pub(super) fn norm_samples() -> Vec<Sample> {
    batches(|shape| {
        let x = values(shape, 926);
        let rest = own_statistics(&x);
        Sample::new([vec![x], rest].concat(), Attrs::floats(&[EPS]))
    })
}

pub(super) fn channel_norm_samples() -> Vec<Sample> {
    batches(|shape| {
        let of = channels(shape);
        let vectors = vec![
            uniform(of, 0.5, 1.5, 927),
            signed(of, 928),
            uniform(of, 1.0, 3.0, 929),
            uniform(of, 0.5, 2.0, 930),
        ];
        let inputs = [vec![values(shape, 931)], vectors].concat();
        Sample::new(inputs, Attrs::floats(&[EPS]))
    })
}

pub(super) fn sums_samples() -> Vec<Sample> {
    batches(|shape| {
        let of = channels(shape);
        let vectors = vec![uniform(of, 1.0, 3.0, 932), uniform(of, 0.5, 2.0, 933)];
        let inputs = [vec![signed(shape, 934), values(shape, 935)], vectors].concat();
        Sample::new(inputs, Attrs::floats(&[EPS]))
    })
}

pub(super) fn input_norm_samples() -> Vec<Sample> {
    batches(|shape| {
        let of = channels(shape);
        let vectors = vec![
            uniform(of, 0.5, 1.5, 936),
            uniform(of, 1.0, 3.0, 937),
            uniform(of, 0.5, 2.0, 938),
            signed(of, 939),
            signed(of, 940),
        ];
        let inputs = [vec![signed(shape, 941), values(shape, 942)], vectors].concat();
        Sample::new(inputs, Attrs::floats(&[EPS]))
    })
}
