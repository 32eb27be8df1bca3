//! The references against another library: sums that ONNX Runtime 1.32 prints for the same inputs.
//!
//! The references and the kernels were written with one idea of padding, dilation and groups in
//! mind; these numbers were not. It computes in single precision, hence the bound.

use super::{Convolution, Pooling};
use crate::graph::Graph;
use crate::host::HostTensor;
use crate::oracle::evaluate;
use crate::shape::Shape;
use crate::value::Tensor;
use std::sync::Arc;

/// Multiples of 1/128 between -0.375 and 0.41, exact in single precision.
fn ramp(graph: &Arc<Graph>, shape: &[usize], seed: usize) -> Tensor {
    let shape = Shape::try_new(shape).expect("at most four dimensions");
    let value = |i: usize| ((i * 37 + seed * 11) % 101) as f64 / 128.0 - 0.375;
    given(graph, &HostTensor::f32(shape, (0..shape.elems()).map(value).collect()))
}

fn given(graph: &Arc<Graph>, value: &HostTensor) -> Tensor {
    graph.host(value.spec, value.to_bytes().into()).expect("the value fits")
}

/// Compares the sum of all elements, and that with weights which tell places apart.
fn check(value: &Tensor, shape: &[usize], sums: [f64; 2]) {
    let found = evaluate(&[value]).swap_remove(0);
    assert_eq!(found.shape().dims(), shape);
    let weighted = |(at, x): (usize, &f64)| x * (((at + 1) % 7) as f64 - 3.0);
    let plain: f64 = found.data.iter().sum();
    let weighted: f64 = found.data.iter().enumerate().map(weighted).sum();
    for (found, wanted) in [plain, weighted].into_iter().zip(sums) {
        assert!((found - wanted).abs() < 2e-5, "{shape:?}: {found} is not {wanted}");
    }
}

fn geometry(sizes: [[usize; 2]; 3], groups: usize) -> Convolution {
    let [stride, padding, dilation] = sizes;
    Convolution { stride, padding, dilation, groups }
}

#[test]
fn convolutions_are_those_of_another_library() {
    let graph = Graph::detached();
    let (x, bias) = (ramp(&graph, &[2, 4, 7, 6], 1), ramp(&graph, &[8], 3));
    for (sizes, groups, shape, sums) in [
        ([[2, 1], [1, 2], [1, 2]], 2, [2, 8, 4, 8], [4.387695, 5.205078]),
        ([[1, 1], [0, 1], [2, 1]], 4, [2, 8, 3, 7], [2.132141, 2.038513]),
        ([[3, 2], [2, 1], [1, 1]], 1, [2, 8, 3, 4], [2.336548, -8.980408]),
    ] {
        let w = ramp(&graph, &[8, 4 / groups, 3, 2], 2);
        let y = x.conv2d(&w, Some(&bias), geometry(sizes, groups)).expect("the window fits");
        check(&y, &shape, sums);
    }
    let (y, w) = (ramp(&graph, &[2, 8, 3, 4], 4), ramp(&graph, &[8, 3, 3, 2], 5));
    for (sizes, groups, more, shape, sums) in [
        ([[2, 1], [1, 0], [1, 2]], 2, [1, 0], [2, 6, 6, 6], [0.389404, -0.711609]),
        ([[3, 2], [1, 1], [2, 1]], 1, [2, 1], [2, 3, 11, 7], [0.561401, 0.008362]),
    ] {
        let x = y.conv_transpose2d(&w, None, geometry(sizes, groups), more);
        check(&x.expect("the window fits"), &shape, sums);
    }
}

#[test]
fn pools_and_norms_are_those_of_another_library() {
    let graph = Graph::detached();
    let x = ramp(&graph, &[2, 4, 7, 6], 1);
    let window = Pooling { kernel: [3, 2], stride: [2, 1], padding: [1, 1] };
    let shape = [2, 4, 4, 7];
    check(&x.max_pool2d(window).expect("it fits"), &shape, [61.914062, 26.0]);
    for (count, sums) in [(false, [2.938802, 6.578776]), (true, [2.531250, 5.509115])] {
        check(&x.avg_pool2d(window, count).expect("it fits"), &shape, sums);
    }
    let [gain, bias, mean] = [6, 7, 8].map(|seed| ramp(&graph, &[4], seed));
    let spread = evaluate(&[&ramp(&graph, &[4], 9)]).swap_remove(0);
    let positive = spread.data.iter().map(|x| x.abs() + 0.5).collect();
    let variance = given(&graph, &HostTensor::f32([4], positive));
    let y = x.channel_norm(&gain, &bias, &mean, &variance, 1e-5).expect("the shapes fit");
    check(&y, &[2, 4, 7, 6], [4.196059, 2.090013]);
}
