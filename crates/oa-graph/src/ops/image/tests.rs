//! What users see of the image ops: results by known numbers, adjoints, refusals with their sizes.

use super::{Convolution, Pooling};
use crate::error::Result;
use crate::graph::Graph;
use crate::host::HostTensor;
use crate::ops::sample::signed;
use crate::oracle::evaluate;
use crate::value::Tensor;
use std::sync::Arc;

fn given(graph: &Arc<Graph>, value: &HostTensor) -> Tensor {
    graph.host(value.spec, value.to_bytes().into()).expect("the sample fits")
}

fn of(graph: &Arc<Graph>, shape: &[usize]) -> Tensor {
    let shape = crate::Shape::try_new(shape).expect("at most four dimensions");
    given(graph, &signed(shape, 7))
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    let [a, b] = &evaluate(&[a, b])[..] else { panic!("two values") };
    assert_eq!(a.spec, b.spec);
    a.data.iter().zip(&b.data).map(|(a, b)| a * b).sum()
}

#[test]
fn a_transposed_convolution_is_the_adjoint() {
    let graph = Graph::detached();
    for (stride, padding, dilation, groups, more) in
        [(1, 0, 1, 1, 0), (2, 1, 1, 2, 1), (3, 2, 2, 4, 2), (2, 0, 1, 1, 0)]
    {
        let both = |value: usize| [value; 2];
        let conv = Convolution {
            stride: both(stride),
            padding: both(padding),
            dilation: both(dilation),
            groups,
        };
        let y = of(&graph, &[2, 8, 3, 4]);
        let w = of(&graph, &[8, 3, 3, 2]);
        let image = y.conv_transpose2d(&w, None, conv, both(more)).expect("the window fits");
        let x = of(&graph, image.shape().dims());
        let forth = x.conv2d(&w, None, conv).expect("the window fits");
        assert_eq!(forth.shape(), y.shape(), "{conv:?}");
        let (a, b) = (dot(&forth, &y), dot(&x, &image));
        assert!((a - b).abs() < 1e-9, "{conv:?}: {a} is not {b}");
    }
}

#[test]
fn a_bias_is_added_to_each_channel() {
    let graph = Graph::detached();
    let (y, w, bias) = (of(&graph, &[2, 3, 4, 4]), of(&graph, &[3, 2, 2, 2]), of(&graph, &[2]));
    let conv = Convolution::default();
    let plain = y.conv_transpose2d(&w, None, conv, [0; 2]).expect("the window fits");
    let biased = y.conv_transpose2d(&w, Some(&bias), conv, [0; 2]).expect("the window fits");
    let [plain, biased, bias] = &evaluate(&[&plain, &biased, &bias])[..] else { panic!("three") };
    for (at, (plain, biased)) in plain.data.iter().zip(&biased.data).enumerate() {
        assert!((biased - plain - bias.data[at / 25 % 2]).abs() < 1e-12, "element {at}");
    }
}

#[test]
fn a_channel_mean_over_the_image_is_its_mean() {
    let graph = Graph::detached();
    let x = HostTensor::f32([1, 2, 1, 3], vec![1.0, 2.0, 6.0, -1.0, 0.0, 4.0]);
    let means = given(&graph, &x).global_avg_pool2d().expect("images");
    let means = &evaluate(&[&means])[0];
    assert_eq!(means.shape().dims(), [1, 2]);
    for (mean, want) in means.data.iter().zip([3.0, 1.0]) {
        assert!((mean - want).abs() < 1e-6, "{mean} is not {want}");
    }
}

/// The words after the line number.
fn said(result: Result<Tensor>) -> String {
    let message = result.expect_err("it must be refused").to_string();
    let (place, words) = message.split_once(": ").expect("an op at a line, then what is wrong");
    assert!(place.contains("image/tests.rs:"), "{place} is not the caller's line");
    words.to_owned()
}

#[test]
fn sizes_that_do_not_fit_are_named() {
    let graph = Graph::detached();
    let x = of(&graph, &[1, 4, 5, 6]);
    let conv = |w: &[usize], conv: Convolution| said(x.conv2d(&of(&graph, w), None, conv));
    let plain = Convolution::default();
    assert_eq!(
        conv(&[2, 4, 7, 3], Convolution { dilation: [1, 3], ..plain }),
        "the kernel spans 7 x 7 pixels, the padded image has 5 x 6"
    );
    assert_eq!(
        conv(&[2, 4, 3, 3], Convolution { stride: [1, 0], ..plain }),
        "the stride is 1 x 0; both must be at least 1"
    );
    assert_eq!(
        conv(&[2, 4, 3, 3], Convolution { padding: [70_000, 0], ..plain }),
        "the padding is 70000 x 0; both must be at most 65535"
    );
    for (results, groups) in [(4, 3), (6, 4), (4, 0)] {
        assert_eq!(
            conv(&[results, 1, 3, 3], Convolution { groups, ..plain }),
            format!("{groups} groups cannot share 4 channels and {results} results evenly")
        );
    }
    assert_eq!(
        conv(&[2, 3, 3, 3], Convolution { groups: 2, ..plain }),
        "the kernel reads 3 channels, a group of the image has 2"
    );
    let flat = of(&graph, &[4, 5]);
    assert_eq!(
        said(flat.conv2d(&x, None, plain)),
        "the image has 2 dimensions, it needs batch, channels, height and width"
    );
    let bias = of(&graph, &[3]);
    let biased = said(x.conv2d(&of(&graph, &[2, 4, 3, 3]), Some(&bias), plain));
    assert!(biased.starts_with("needs x [B, C, H, W], w [O, C / groups, h, w]"), "{biased}");
}

#[test]
fn windows_and_transposes_that_do_not_fit_are_named() {
    let graph = Graph::detached();
    let x = of(&graph, &[1, 4, 5, 6]);
    assert_eq!(
        said(x.max_pool2d(Pooling { padding: [1, 2], ..Pooling::square(3) })),
        "a padding of 1 x 2 is more than half of a window of 3 x 3"
    );
    assert_eq!(
        said(x.avg_pool2d(Pooling::square(6), true)),
        "the kernel spans 6 x 6 pixels, the padded image has 5 x 6"
    );
    assert_eq!(
        said(x.max_pool2d(Pooling { stride: [0, 2], ..Pooling::square(2) })),
        "the stride is 0 x 2; both must be at least 1"
    );
    let w = of(&graph, &[4, 1, 3, 3]);
    assert_eq!(
        said(x.conv_transpose2d(&w, None, Convolution::default(), [1, 0])),
        "an image of 5 x 6 does not become 8 x 8 pixels: the padding takes them all, or the \
         output padding is not below the stride"
    );
    let (one, vector) = (of(&graph, &[1, 4, 1, 1]), of(&graph, &[4]));
    let normed = one.batch_norm(&vector, &vector, 1e-5).map(|batch| batch.y);
    assert_eq!(said(normed), "a variance needs at least two values of a channel, the batch has 1");
}
