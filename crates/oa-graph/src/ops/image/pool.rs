//! Max and mean pooling over windows of images.
//!
//! Backward passes gather: a pixel asks the windows that cover it, so nothing is added by two
//! lanes. Max pooling keeps which pixel won as a second output; the mean needs nothing kept.

use super::conv::floats;
use super::pool_reference::{
    avg_backward_reference, avg_reference, max_backward_reference, max_reference,
};
use super::sample::{avg_backward_samples, avg_samples, max_backward_samples, max_samples};
use super::window::{self, Pooling, WindowFault, pair, unpair};
use crate::attrs::Attrs;
use crate::error::{Error, Result};
use crate::host::Spec;
use crate::ops::activation::FIRST_ORDER;
use crate::ops::rule::{Inferred, refuse};
use crate::ops::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};
use std::panic::Location;

/// Largest element of each window, and its index in its plane. Integer attributes: kernel, stride,
/// padding (pairs of rows and columns).
pub static MAX_POOL: OpDef = OpDef {
    name: "max_pool",
    doc: "Largest element of each window and its index in its plane; ties go to the lower index, \
          padding never wins.",
    infer: |call| {
        let y = infer_forward(call)?;
        Ok(vec![y[0], Spec::u32(y[0].shape)])
    },
    lower: Lower::Kernel { family: |_| "max_pool", launch: launch_forward },
    backward: Backward::Rule(max_rule),
    reference: |x, attrs| max_reference(&x[0], attrs),
    samples: max_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAX_POOL`]. Integer attributes: as there, then rows and columns of the image.
pub static MAX_POOL_BACKWARD: OpDef = OpDef {
    name: "max_pool_backward",
    doc: "`dx[p]`: the sum of `dy` over the windows whose index is `p`.",
    infer: infer_max_backward,
    lower: Lower::Kernel { family: |_| "max_pool_backward", launch: launch_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, attrs| vec![max_backward_reference(&x[0], &x[1], attrs)],
    samples: max_backward_samples,
    mutates: &[],
    in_place: None,
};

/// Mean of each window. Integer attributes: kernel, stride, padding, two unused, then 1 if padding
/// counts as zeros.
pub static AVG_POOL: OpDef = OpDef {
    name: "avg_pool",
    doc: "Mean of each window, over all of its elements or over those inside the image.",
    infer: infer_forward,
    lower: Lower::Kernel { family: |_| "avg_pool", launch: launch_forward },
    backward: Backward::Rule(avg_rule),
    reference: |x, attrs| vec![avg_reference(&x[0], attrs)],
    samples: avg_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`AVG_POOL`]. Integer attributes: kernel, stride, padding, rows and columns of the
/// image, one unused, then 1 if padding counts.
pub static AVG_POOL_BACKWARD: OpDef = OpDef {
    name: "avg_pool_backward",
    doc: "`dx[p]`: the sum of `dy` over the windows that cover `p`, each divided by its elements.",
    infer: infer_avg_backward,
    lower: Lower::Kernel { family: |_| "avg_pool_backward", launch: launch_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, attrs| vec![avg_backward_reference(&x[0], attrs)],
    samples: avg_backward_samples,
    mutates: &[],
    in_place: None,
};

/// Loop turns that a lane may spend, by which the number of its elements is chosen.
const LANE_TURNS: usize = 16_384;
/// Most elements of a lane.
const LANE_ELEMS: usize = 64;

/// Turns of the two loops over a window.
fn turns_of([rows, cols]: [usize; 2]) -> usize {
    rows * (cols + 2) + 2
}

/// All sizes of a pooling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) planes: usize,
    pub(super) image: [usize; 2],
    pub(super) result: [usize; 2],
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) count_padding: bool,
}

impl Sizes {
    /// The sizes of windows over an image, if they fit.
    pub(super) fn of(x: &[usize], attrs: &Attrs) -> Option<Sizes> {
        let &[batch, channels, height, width] = x else { return None };
        let [kernel, stride, padding] = [0, 1, 2].map(|slot| unpair(attrs.int[slot]));
        let image = [height, width];
        let place = |axis: usize| {
            let fits = kernel[axis] > 0 && 2 * padding[axis] <= kernel[axis];
            let all = window::places(image[axis], kernel[axis], stride[axis], padding[axis]);
            all.filter(|_| fits)
        };
        let result = [place(0)?, place(1)?];
        let (planes, count_padding) = (batch * channels, attrs.int[5] == 1);
        Some(Sizes { planes, image, result, kernel, stride, padding, count_padding })
    }

    /// The sizes whose results have the shape of `dy`.
    pub(super) fn of_backward(dy: &[usize], attrs: &Attrs) -> Option<Sizes> {
        let &[batch, channels, rows, cols] = dy else { return None };
        let [height, width] = unpair(attrs.int[3]);
        let sizes = Sizes::of(&[batch, channels, height, width], attrs)?;
        (sizes.result == [rows, cols]).then_some(sizes)
    }
}

/// A shape with other rows and columns.
fn resized(shape: Shape, [rows, cols]: [usize; 2]) -> Option<Shape> {
    let dims = shape.dims();
    Shape::try_new(&[dims[0], dims[1], rows, cols])
}

fn infer_forward(call: &OpCall) -> Inferred {
    let found = match call.inputs {
        [x] if floats(call) => {
            let sizes = Sizes::of(x.shape.dims(), call.attrs);
            sizes.and_then(|sizes| resized(x.shape, sizes.result))
        }
        _ => None,
    };
    match found {
        Some(shape) => Ok(vec![Spec::f32(shape)]),
        None => refuse(call, "x [B, C, H, W], f32, with a window that fits"),
    }
}

fn backward(call: &OpCall, fits: bool) -> Option<Vec<Spec>> {
    let dy = call.inputs.first().filter(|dy| fits && dy.dtype == DType::F32)?;
    let sizes = Sizes::of_backward(dy.shape.dims(), call.attrs)?;
    Some(vec![Spec::f32(resized(dy.shape, sizes.image)?)])
}

fn infer_max_backward(call: &OpCall) -> Inferred {
    let expected = "dy [B, C, R, S], f32, and index of that shape, u32, of an image that fits";
    let fits = match call.inputs {
        [dy, index] => *index == Spec::u32(dy.shape),
        _ => false,
    };
    backward(call, fits).map_or_else(|| refuse(call, expected), Ok)
}

fn infer_avg_backward(call: &OpCall) -> Inferred {
    let expected = "dy [B, C, R, S], f32, of an image that fits";
    backward(call, call.inputs.len() == 1).map_or_else(|| refuse(call, expected), Ok)
}

/// Several elements per lane, fewer of them for large windows.
fn launch(sizes: &Sizes, count: usize, window: [usize; 2], variant: &Variant) -> Launch {
    let lanes = variant.tile[0] as usize;
    let each = lanes * (LANE_TURNS / turns_of(window)).clamp(1, LANE_ELEMS);
    let s = sizes;
    let push = [
        count,
        each,
        s.image[0],
        s.image[1],
        s.result[0],
        s.result[1],
        s.kernel[0],
        s.kernel[1],
        s.padding[0],
        s.padding[1],
        s.count_padding.into(),
    ];
    let strides = [(0, s.stride[0] as u32), (1, s.stride[1] as u32)];
    let declared = |(id, _): &(u32, u32)| variant.spec_ids.contains(id);
    Launch {
        groups: count.div_ceil(each) as u64,
        push: push.map(|size| size as u32).to_vec(),
        spec: strides.into_iter().filter(declared).collect(),
    }
}

fn launch_forward(call: &OpCall, variant: &Variant) -> Launch {
    let s = Sizes::of(call.inputs[0].shape.dims(), call.attrs).expect("infer admitted the sizes");
    launch(&s, call.outputs[0].shape.elems(), s.kernel, variant)
}

fn launch_backward(call: &OpCall, variant: &Variant) -> Launch {
    let dy = call.inputs[0].shape;
    let s = Sizes::of_backward(dy.dims(), call.attrs).expect("infer admitted the sizes");
    let covering = [0, 1].map(|axis| s.kernel[axis].div_ceil(s.stride[axis]));
    launch(&s, call.outputs[0].shape.elems(), covering, variant)
}

fn image_attrs(g: &GradCall) -> Attrs {
    let mut attrs = *g.attrs;
    let shape = g.inputs[0].shape();
    attrs.int[3] = pair([shape.dims()[2], shape.dims()[3]]);
    attrs
}

fn max_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let inputs = [g.dout(), &g.outputs[1]];
    Ok(vec![Some(Tensor::record1(&MAX_POOL_BACKWARD, image_attrs(g), &inputs)?)])
}

fn avg_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(Tensor::record1(&AVG_POOL_BACKWARD, image_attrs(g), &[g.dout()])?)])
}

/// What is wrong with the geometry, in numbers.
fn check(x: &Tensor, pool: &Pooling) -> std::result::Result<(), WindowFault> {
    let shape = x.shape();
    let &[_, _, height, width] = shape.dims() else {
        return Err(WindowFault::Rank { rank: shape.rank() });
    };
    let Pooling { kernel, stride, padding } = *pool;
    let image = [height, width];
    window::check_sizes(&[
        ("stride", stride),
        ("padding", padding),
        ("window", kernel),
        ("image", image),
    ])?;
    if (0..2).any(|axis| 2 * padding[axis] > kernel[axis]) {
        let ([rows, cols], [kernel_rows, kernel_cols]) = (padding, kernel);
        return Err(WindowFault::Padding { rows, cols, kernel_rows, kernel_cols });
    }
    let most = turns::most(x) as usize;
    if turns_of(kernel) > most {
        return Err(WindowFault::Sum { terms: kernel[0] * kernel[1], most });
    }
    window::check_kernel(image, kernel, [1; 2], padding)
}

impl Tensor {
    /// The largest element of each window of images `[B, C, H, W]`: `[B, C, R, S]` with `R = (H + 2
    /// padding - kernel) / stride + 1`. Of equal elements the first one gets the gradient; a NaN
    /// wins, padding never does.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] names the sizes that do not fit.
    #[track_caller]
    pub fn max_pool2d(&self, pool: Pooling) -> Result<Tensor> {
        let site = Location::caller();
        check(self, &pool).map_err(|fault| Error::window("max_pool2d", site, fault))?;
        let sizes = [pool.kernel, pool.stride, pool.padding].map(pair);
        Tensor::record1(&MAX_POOL, Attrs::ints(&sizes), &[self])
    }

    /// The mean of each window of images `[B, C, H, W]`, of the shape that
    /// [`Tensor::max_pool2d`] has. Padding counts as zeros when `count_include_pad` is set;
    /// otherwise a mean is over the elements inside the image.
    ///
    /// # Errors
    ///
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn avg_pool2d(&self, pool: Pooling, count_include_pad: bool) -> Result<Tensor> {
        let site = Location::caller();
        check(self, &pool).map_err(|fault| Error::window("avg_pool2d", site, fault))?;
        let [kernel, stride, padding] = [pool.kernel, pool.stride, pool.padding].map(pair);
        let ints = [kernel, stride, padding, 0, 0, count_include_pad.into()];
        Tensor::record1(&AVG_POOL, Attrs::ints(&ints), &[self])
    }

    /// The mean of each channel of images `[B, C, H, W]`: `[B, C]`.
    ///
    /// # Errors
    ///
    /// When the value is no f32 batch of images.
    #[track_caller]
    pub fn global_avg_pool2d(&self) -> Result<Tensor> {
        let shape = self.shape();
        let &[batch, channels, height, width] = shape.dims() else {
            let fault = WindowFault::Rank { rank: shape.rank() };
            return Err(Error::window("global_avg_pool2d", Location::caller(), fault));
        };
        let pixels = height * width;
        let sums = self.reshape([batch, channels, pixels])?.sum_cols()?;
        sums.scale((1.0 / pixels as f64) as f32)
    }
}
