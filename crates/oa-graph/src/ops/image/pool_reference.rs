//! Pooling in double precision, by the definition: a walk over the elements of every window.

use super::pool::Sizes;
use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};

/// The indices in its plane of the elements that a window covers, in order.
fn covered(s: &Sizes, place: usize) -> Vec<usize> {
    let at = [place / s.result[1], place % s.result[1]];
    let inside = |axis: usize| {
        let start = at[axis] * s.stride[axis];
        let (padding, pixels) = (s.padding[axis], s.image[axis]);
        let places = (start..start + s.kernel[axis]).filter_map(move |x| x.checked_sub(padding));
        places.filter(move |&x| x < pixels).collect::<Vec<usize>>()
    };
    let (rows, cols) = (inside(0), inside(1));
    rows.iter().flat_map(|row| cols.iter().map(move |col| row * s.image[1] + col)).collect()
}

/// Every window: its plane's first pixel, its number among all results, and what it covers.
fn windows(s: &Sizes) -> impl Iterator<Item = (usize, usize, Vec<usize>)> + '_ {
    let places = s.result[0] * s.result[1];
    (0..s.planes * places).map(move |window| {
        let plane = window / places * s.image[0] * s.image[1];
        (plane, window, covered(s, window % places))
    })
}

fn forward_sizes(x: &HostTensor, attrs: &Attrs) -> (Sizes, [usize; 4]) {
    let s = Sizes::of(x.shape().dims(), attrs).expect("infer admitted the sizes");
    (s, [x.shape().dims()[0], x.shape().dims()[1], s.result[0], s.result[1]])
}

pub(super) fn max_reference(x: &HostTensor, attrs: &Attrs) -> Vec<HostTensor> {
    let (s, shape) = forward_sizes(x, attrs);
    let (mut y, mut index) = (Vec::new(), Vec::new());
    for (plane, _, pixels) in windows(&s) {
        let mut best = pixels[0];
        for &pixel in &pixels {
            let (most, value) = (x.data[plane + best], x.data[plane + pixel]);
            if value > most || (value.is_nan() && !most.is_nan()) {
                best = pixel;
            }
        }
        y.push(x.data[plane + best]);
        index.push(best as f64);
    }
    vec![HostTensor::f32(shape, y), HostTensor::new(Spec::u32(shape), index)]
}

pub(super) fn avg_reference(x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let (s, shape) = forward_sizes(x, attrs);
    let mean = |(plane, _, pixels): (usize, usize, Vec<usize>)| {
        let sum: f64 = pixels.iter().map(|pixel| x.data[plane + pixel]).sum();
        sum / divisor(&s, &pixels)
    };
    HostTensor::f32(shape, windows(&s).map(mean).collect())
}

fn divisor(s: &Sizes, pixels: &[usize]) -> f64 {
    let all = s.kernel[0] * s.kernel[1];
    if s.count_padding { all as f64 } else { pixels.len() as f64 }
}

fn backward_sizes(dy: &HostTensor, attrs: &Attrs) -> (Sizes, [usize; 4]) {
    let s = Sizes::of_backward(dy.shape().dims(), attrs).expect("infer admitted the sizes");
    (s, [dy.shape().dims()[0], dy.shape().dims()[1], s.image[0], s.image[1]])
}

/// Only indices inside their window count, as only those can come from the forward pass.
pub(super) fn max_backward_reference(
    dy: &HostTensor,
    index: &HostTensor,
    attrs: &Attrs,
) -> HostTensor {
    let (s, shape) = backward_sizes(dy, attrs);
    let mut dx = vec![0.0; shape.iter().product()];
    for (plane, window, pixels) in windows(&s) {
        let winner = index.data[window] as usize;
        if pixels.contains(&winner) {
            dx[plane + winner] += dy.data[window];
        }
    }
    HostTensor::f32(shape, dx)
}

pub(super) fn avg_backward_reference(dy: &HostTensor, attrs: &Attrs) -> HostTensor {
    let (s, shape) = backward_sizes(dy, attrs);
    let mut dx = vec![0.0; shape.iter().product()];
    for (plane, window, pixels) in windows(&s) {
        let share = dy.data[window] / divisor(&s, &pixels);
        pixels.iter().for_each(|pixel| dx[plane + pixel] += share);
    }
    HostTensor::f32(shape, dx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::image::window::pair;

    fn pool(kernel: usize, stride: usize, padding: usize, count: u32) -> Attrs {
        let [kernel, stride, padding] = [kernel, stride, padding].map(|size| pair([size; 2]));
        Attrs::ints(&[kernel, stride, padding, 0, 0, count])
    }

    #[test]
    fn ties_go_to_the_lower_index_and_padding_never_wins() {
        let x = HostTensor::f32([1, 1, 2, 3], vec![-5.0, -5.0, -7.0, -5.0, -6.0, -7.0]);
        let [y, index] = &max_reference(&x, &pool(2, 1, 1, 0))[..] else { panic!("two outputs") };
        assert_eq!(y.shape().dims(), [1, 1, 3, 4]);
        assert_eq!(
            y.data,
            [-5.0, -5.0, -5.0, -7.0, -5.0, -5.0, -5.0, -7.0, -5.0, -5.0, -6.0, -7.0]
        );
        assert_eq!(index.data, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_mean_counts_padding_when_asked() {
        let x = HostTensor::f32([1, 1, 2, 2], vec![4.0, 8.0, 12.0, 16.0]);
        assert_eq!(avg_reference(&x, &pool(2, 2, 1, 1)).data, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(avg_reference(&x, &pool(2, 2, 1, 0)).data, [4.0, 8.0, 12.0, 16.0]);
    }
}
