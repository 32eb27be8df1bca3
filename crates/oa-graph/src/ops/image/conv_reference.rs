//! Convolutions in double precision, by the definition: a walk over every product there is.
//!
//! One enumeration of (image, kernel, result) triples serves all three directions, and shares
//! nothing with the kernels' idea of a matrix product.

use super::conv::Sizes;
use super::window::unpair;
use crate::attrs::Attrs;
use crate::host::HostTensor;

/// Calls `visit` with the indices of an element of the image, of the kernel and of the result for
/// every product of a convolution.
fn products(s: &Sizes, mut visit: impl FnMut(usize, usize, usize)) {
    let [rows, cols] = s.result;
    for result in 0..s.batch * s.groups * s.to {
        let (batch, channel) = (result / (s.groups * s.to), result % (s.groups * s.to));
        let group = channel / s.to;
        for pixel in 0..rows * cols {
            let at = [pixel / cols, pixel % cols];
            for element in 0..s.from * s.kernel[0] * s.kernel[1] {
                let window = s.kernel[0] * s.kernel[1];
                let (from, tap) = (element / window, element % window);
                let tap = [tap / s.kernel[1], tap % s.kernel[1]];
                let place = [0, 1].map(|axis| {
                    let padded = at[axis] * s.stride[axis] + tap[axis] * s.dilation[axis];
                    padded.checked_sub(s.padding[axis]).filter(|&place| place < s.image[axis])
                });
                let [Some(y), Some(x)] = place else { continue };
                let plane = (batch * s.groups + group) * s.from + from;
                let image = (plane * s.image[0] + y) * s.image[1] + x;
                let kernel = channel * s.from * window + element;
                visit(image, kernel, result * rows * cols + pixel);
            }
        }
    }
}

/// The result of a convolution.
pub(super) fn reference(
    x: &HostTensor,
    w: &HostTensor,
    bias: Option<&HostTensor>,
    attrs: &Attrs,
) -> HostTensor {
    let s = Sizes::of(x.shape().dims(), w.shape().dims(), attrs).expect("infer admitted the sizes");
    let (results, pixels) = (s.groups * s.to, s.result[0] * s.result[1]);
    let start = |at: usize| bias.map_or(0.0, |bias| bias.data[at / pixels % results]);
    let mut y: Vec<f64> = (0..s.batch * results * pixels).map(start).collect();
    products(&s, |image, kernel, result| y[result] += x.data[image] * w.data[kernel]);
    HostTensor::f32([s.batch, results, s.result[0], s.result[1]], y)
}

/// The image of a transposed convolution.
pub(super) fn input_reference(dy: &HostTensor, w: &HostTensor, attrs: &Attrs) -> HostTensor {
    let [height, width] = unpair(attrs.int[4]);
    let channels = w.shape().dims()[1] * attrs.int[3] as usize;
    let x = [dy.shape().dims()[0], channels, height, width];
    let s = Sizes::of(&x, w.shape().dims(), attrs).expect("infer admitted the sizes");
    let mut dx = vec![0.0; x.iter().product()];
    products(&s, |image, kernel, result| dx[image] += dy.data[result] * w.data[kernel]);
    HostTensor::f32(x, dx)
}

/// The gradient of a kernel, in parts.
pub(super) fn weights_reference(dy: &HostTensor, x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let [rows, cols] = unpair(attrs.int[4]);
    let from = x.shape().dims()[1] / attrs.int[3] as usize;
    let w = [dy.shape().dims()[1], from, rows, cols];
    let s = Sizes::of(x.shape().dims(), &w, attrs).expect("infer admitted the sizes");
    let (plane, results) = (s.result[0] * s.result[1], s.groups * s.to);
    let chunk = attrs.int[5] as usize;
    let parts = s.pixels().div_ceil(chunk);
    let mut dw = vec![0.0; parts * s.weights()];
    products(&s, |image, kernel, result| {
        let pixel = result / (plane * results) * plane + result % plane;
        dw[pixel / chunk * s.weights() + kernel] += dy.data[result] * x.data[image];
    });
    HostTensor::f32([parts, s.weights()], dw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::image::window::pair;

    /// One image of 3 x 3, one kernel of 2 x 2, worked out by hand.
    #[test]
    fn a_small_convolution_is_that_of_the_definition() {
        let x = HostTensor::f32([1, 1, 3, 3], (1..=9).map(f64::from).collect());
        let w = HostTensor::f32([1, 1, 2, 2], vec![1.0, 10.0, 100.0, 1000.0]);
        let attrs = Attrs::ints(&[pair([1, 1]), 0, pair([1, 1]), 1]);
        assert_eq!(reference(&x, &w, None, &attrs).data, [5421.0, 6532.0, 8754.0, 9865.0]);
        let attrs = Attrs::ints(&[pair([2, 1]), pair([1, 0]), pair([1, 1]), 1]);
        assert_eq!(reference(&x, &w, None, &attrs).data, [2100.0, 3200.0, 8754.0, 9865.0]);
        let attrs = Attrs::ints(&[pair([1, 1]), 0, pair([2, 2]), 1]);
        assert_eq!(reference(&x, &w, None, &attrs).data, [9731.0]);
    }
}
