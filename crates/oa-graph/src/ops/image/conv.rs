//! Convolution, its transpose, and the gradient of its kernel.
//!
//! All three are products of matrices whose second operand is gathered from an image (implicit
//! matrix products): see `shaders/lib/conv.slang`. The gradient of a kernel is a sum over all
//! pixels of a batch; parts of at most [`PART`] pixels are summed by the column kernel.
//!
//! Measured on lavapipe of Mesa 25, two cores shared with other work, best of eight, GFLOP/s: 3 x 3
//! kernels forward 10 to 19 (16 to 64 channels, 14 x 14 to 32 x 32 pixels), the gradient of images 13
//! to 20, of kernels 11 to 15, a matrix product of 512 in the same runs 13 to 16. With stride 2 the
//! gradient of images does four times the work that counts (3.5), and fewer than 16 channels of a
//! group leave rows of a tile idle: a depthwise convolution uses one of sixteen.
//!
//! A stride above 1 is a constant of the transposed pipeline, which divides by it.

use super::conv_reference::{input_reference, reference, weights_reference};
use super::sample::{conv_bias_samples, conv_samples, input_samples, weights_samples};
use super::window::{self, Convolution, WindowFault, pair, unpair};
use crate::attrs::Attrs;
use crate::error::{Error, Result};
use crate::host::Spec;
use crate::ops::activation::FIRST_ORDER;
use crate::ops::matmul::longest_sum;
use crate::ops::rule::{Inferred, refuse};
use crate::ops::{Backward, GradCall, Launch, Lower, OpCall, OpDef};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};
use std::panic::Location;

/// `y = w * x`. Integer attributes: stride, padding, dilation (pairs of rows and columns), groups.
pub static CONV2D: OpDef = OpDef {
    name: "conv2d",
    doc: "Convolution of images: `y[b, o, r, c]` is the sum over `i, j, k` of \
          `w[o, i, j, k] x[b, i, r s + j d - p, c s + k d - p]`.",
    infer: infer_conv,
    lower: Lower::Kernel { family: |_| "conv2d", launch: launch_forward },
    backward: Backward::Rule(conv_rule),
    reference: |x, attrs| vec![reference(&x[0], &x[1], None, attrs)],
    samples: conv_samples,
    mutates: &[],
    in_place: None,
};

/// [`CONV2D`] with a bias for each channel of the result. Attributes as there.
pub static CONV2D_BIAS: OpDef = OpDef {
    name: "conv2d_bias",
    doc: "Convolution of images plus a bias for each channel of the result.",
    infer: infer_conv_bias,
    lower: Lower::Kernel { family: |_| "conv2d_bias", launch: launch_forward },
    backward: Backward::Rule(conv_rule),
    reference: |x, attrs| vec![reference(&x[0], &x[1], Some(&x[2]), attrs)],
    samples: conv_bias_samples,
    mutates: &[],
    in_place: None,
};

/// The transpose of [`CONV2D`], which is also its derivative with respect to the image. Integer
/// attributes: as there, then rows and columns of the image.
pub static CONV2D_INPUT: OpDef = OpDef {
    name: "conv2d_input",
    doc: "Transposed convolution: images whose every pixel is the sum of `w dy` over the results \
          that read it.",
    infer: infer_input,
    lower: Lower::Kernel { family: |_| "conv2d_input", launch: launch_input },
    backward: Backward::Rule(input_rule),
    reference: |x, attrs| vec![input_reference(&x[0], &x[1], attrs)],
    samples: input_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`CONV2D`] with respect to the kernel, in parts. Integer attributes: as there,
/// then rows and columns of the kernel, then pixels of a part.
pub static CONV2D_WEIGHTS: OpDef = OpDef {
    name: "conv2d_weights",
    doc: "`dw[p, ..]`: the sum of `dy x` over the results of part `p`, for each element of a \
          kernel.",
    infer: infer_weights,
    lower: Lower::Kernel { family: |_| "conv2d_weights", launch: launch_weights },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, attrs| vec![weights_reference(&x[0], &x[1], attrs)],
    samples: weights_samples,
    mutates: &[],
    in_place: None,
};

/// Pixels of the results that one part of a kernel's gradient sums.
const PART: usize = 4096;

/// Most parts, and most elements of all parts together.
const MOST_PARTS: usize = 256;
const MOST_PART_ELEMS: usize = 1 << 24;

/// All sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Channels of a group of the image, and of the result.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) image: [usize; 2],
    pub(super) result: [usize; 2],
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
}

impl Sizes {
    /// The sizes that an image and a kernel have together, if they fit.
    pub(super) fn of(x: &[usize], w: &[usize], attrs: &Attrs) -> Option<Sizes> {
        let (&[batch, channels, height, width], &[results, from, rows, cols]) = (x, w) else {
            return None;
        };
        let [stride, padding, dilation] = [0, 1, 2].map(|slot| unpair(attrs.int[slot]));
        let groups = attrs.int[3] as usize;
        let shared = groups > 0 && results % groups == 0 && channels == from * groups;
        let (image, kernel) = ([height, width], [rows, cols]);
        let positive = [stride, dilation, kernel].iter().flatten().all(|&size| size > 0);
        if !shared || !positive {
            return None;
        }
        let place = |axis: usize| {
            let span = window::span(kernel[axis], dilation[axis]);
            window::places(image[axis], span, stride[axis], padding[axis])
        };
        let result = [place(0)?, place(1)?];
        let to = results / groups;
        Some(Sizes { batch, groups, from, to, image, result, kernel, stride, padding, dilation })
    }

    /// The sizes of a transposed convolution of `dy`.
    fn of_input(dy: &[usize], w: &[usize], attrs: &Attrs) -> Option<Sizes> {
        let (&[batch, results, ..], &[_, from, ..]) = (dy, w) else { return None };
        let [height, width] = unpair(attrs.int[4]);
        let x = [batch, from * attrs.int[3] as usize, height, width];
        let sizes = Sizes::of(&x, w, attrs)?;
        (dy[2..] == sizes.result && results == sizes.groups * sizes.to).then_some(sizes)
    }

    /// The sizes of the gradient of a kernel.
    fn of_weights(dy: &[usize], x: &[usize], attrs: &Attrs) -> Option<Sizes> {
        let (&[batch, results, ..], &[_, channels, ..]) = (dy, x) else { return None };
        let ([rows, cols], groups) = (unpair(attrs.int[4]), attrs.int[3] as usize);
        let w = [results, channels.checked_div(groups)?, rows, cols];
        let sizes = Sizes::of(x, &w, attrs)?;
        (dy[2..] == sizes.result && batch == sizes.batch && attrs.int[5] > 0).then_some(sizes)
    }

    fn window(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Pixels of all results of a channel.
    pub(super) fn pixels(&self) -> usize {
        self.batch * self.result[0] * self.result[1]
    }

    /// Elements of all kernels.
    pub(super) fn weights(&self) -> usize {
        self.groups * self.to * self.from * self.window()
    }

    fn x(&self) -> [usize; 4] {
        [self.batch, self.groups * self.from, self.image[0], self.image[1]]
    }

    fn y(&self) -> [usize; 4] {
        [self.batch, self.groups * self.to, self.result[0], self.result[1]]
    }
}

/// True when all inputs are f32.
pub(super) fn floats(call: &OpCall) -> bool {
    call.inputs.iter().all(|spec| spec.dtype == DType::F32)
}

type Read = fn(&[usize], &[usize], &Attrs) -> Option<Sizes>;

fn sizes(call: &OpCall, read: Read) -> Option<Sizes> {
    let [a, b, ..] = call.inputs else { return None };
    read(a.shape.dims(), b.shape.dims(), call.attrs).filter(|_| floats(call))
}

fn one(call: &OpCall, shape: Option<Shape>, expected: &'static str) -> Inferred {
    shape.map_or_else(|| refuse(call, expected), |shape| Ok(vec![Spec::f32(shape)]))
}

fn infer_conv(call: &OpCall) -> Inferred {
    let found = sizes(call, Sizes::of).filter(|_| call.inputs.len() == 2);
    let shape = found.and_then(|sizes| Shape::try_new(&sizes.y()));
    one(call, shape, "x [B, C, H, W] and w [O, C / groups, h, w], f32, with a window that fits")
}

fn infer_conv_bias(call: &OpCall) -> Inferred {
    let expected = "x [B, C, H, W], w [O, C / groups, h, w] and bias [O], f32, with a window that \
                    fits";
    let found = sizes(call, Sizes::of).filter(|sizes| match call.inputs {
        [_, _, bias] => bias.shape.dims() == [sizes.groups * sizes.to],
        _ => false,
    });
    one(call, found.and_then(|sizes| Shape::try_new(&sizes.y())), expected)
}

fn infer_input(call: &OpCall) -> Inferred {
    let found = sizes(call, Sizes::of_input).filter(|_| call.inputs.len() == 2);
    let shape = found.and_then(|sizes| Shape::try_new(&sizes.x()));
    one(call, shape, "dy [B, O, R, S] and w [O, C / groups, h, w], f32, of an image that fits")
}

fn infer_weights(call: &OpCall) -> Inferred {
    let found = sizes(call, Sizes::of_weights).filter(|_| call.inputs.len() == 2);
    let shape = found.and_then(|sizes| {
        let parts = sizes.pixels().div_ceil(call.attrs.int[5] as usize);
        Shape::try_new(&[parts, sizes.weights()])
    });
    one(call, shape, "dy [B, O, R, S] and x [B, C, H, W], f32, in parts of at least one pixel")
}

/// Workgroups, push constants and pipeline constants of one product of `m` rows and `n` columns in
/// `parts`.
fn launch(
    sizes: &Sizes,
    (m, n, parts): (usize, usize, usize),
    chunk: usize,
    variant: &Variant,
) -> Launch {
    let [rows, cols, _] = variant.tile.map(|size| size as usize);
    let s = sizes;
    let push = [
        s.batch,
        s.groups,
        s.from,
        s.to,
        s.image[0],
        s.image[1],
        s.result[0],
        s.result[1],
        s.kernel[0],
        s.kernel[1],
        s.stride[0],
        s.stride[1],
        s.padding[0],
        s.padding[1],
        s.dilation[0],
        s.dilation[1],
        chunk,
    ];
    let strides = [(0, s.stride[0] as u32), (1, s.stride[1] as u32)];
    let declared = |(id, _): &(u32, u32)| variant.spec_ids.contains(id);
    Launch {
        groups: (s.groups * parts * m.div_ceil(rows) * n.div_ceil(cols)) as u64,
        push: push.map(|size| size as u32).to_vec(),
        spec: strides.into_iter().filter(declared).collect(),
    }
}

fn launch_forward(call: &OpCall, variant: &Variant) -> Launch {
    let s = sizes(call, Sizes::of).expect("infer admitted the shapes");
    launch(&s, (s.to, s.pixels(), 1), 0, variant)
}

fn launch_input(call: &OpCall, variant: &Variant) -> Launch {
    let s = sizes(call, Sizes::of_input).expect("infer admitted the shapes");
    launch(&s, (s.from, s.batch * s.image[0] * s.image[1], 1), 0, variant)
}

fn launch_weights(call: &OpCall, variant: &Variant) -> Launch {
    let s = sizes(call, Sizes::of_weights).expect("infer admitted the shapes");
    let chunk = call.attrs.int[5] as usize;
    let parts = s.pixels().div_ceil(chunk);
    launch(&s, (s.to, s.from * s.window(), parts), chunk, variant)
}

/// The first four attributes and others after them.
fn with(attrs: &Attrs, more: &[u32]) -> Attrs {
    let mut all = attrs.int[..4].to_vec();
    all.extend(more);
    Attrs::ints(&all)
}

fn last_two(value: &Tensor) -> [usize; 2] {
    let shape = value.shape();
    [shape.dims()[2], shape.dims()[3]]
}

/// The gradient of a kernel `[O, C / groups, h, w]`.
fn weights_gradient(dy: &Tensor, x: &Tensor, w: &Tensor, attrs: &Attrs) -> Result<Tensor> {
    let shape = w.shape();
    let pixels = dy.shape().elems() / dy.shape().dims()[1];
    let parts = (MOST_PART_ELEMS / shape.elems()).clamp(1, MOST_PARTS);
    let chunk = pixels.div_ceil(parts).max(PART).min(most_terms(dy));
    let attrs = with(attrs, &[pair(last_two(w)), chunk as u32]);
    Tensor::record1(&CONV2D_WEIGHTS, attrs, &[dy, x])?.sum_rows()?.reshape(shape)
}

/// The sum of images over everything but channels.
fn channel_sums(x: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    let [batch, channels, height, width] = shape.dims() else { unreachable!("x is images") };
    x.reshape([*batch, *channels, height * width])?.sum_cols()?.sum_rows()
}

fn conv_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let ([x, w, ..], dy) = (g.inputs, g.dout()) else { unreachable!("x and w are inputs") };
    let image = || with(g.attrs, &[pair(last_two(x))]);
    let mut gradients = vec![
        g.wanted[0].then(|| Tensor::record1(&CONV2D_INPUT, image(), &[dy, w])).transpose()?,
        g.wanted[1].then(|| weights_gradient(dy, x, w, g.attrs)).transpose()?,
    ];
    if let Some(wanted) = g.wanted.get(2) {
        gradients.push(wanted.then(|| channel_sums(dy)).transpose()?);
    }
    Ok(gradients)
}

fn input_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let ([y, w], dx) = (g.inputs, g.dout()) else { unreachable!("dy and w are inputs") };
    let attrs = with(g.attrs, &[]);
    Ok(vec![
        g.wanted[0].then(|| Tensor::record1(&CONV2D, attrs, &[dx, w])).transpose()?,
        g.wanted[1].then(|| weights_gradient(y, dx, w, g.attrs)).transpose()?,
    ])
}

/// What is wrong with the geometry, in numbers; what else is wrong the shape rule says.
fn check(x: &[usize], w: &[usize], conv: &Convolution) -> std::result::Result<(), WindowFault> {
    let &[_, channels, height, width] = x else {
        return Err(WindowFault::Rank { rank: x.len() });
    };
    let &[results, from, rows, cols] = w else { return Ok(()) };
    let (image, kernel, groups) = ([height, width], [rows, cols], conv.groups);
    window::check_sizes(&[
        ("stride", conv.stride),
        ("padding", conv.padding),
        ("dilation", conv.dilation),
        ("kernel", kernel),
        ("image", image),
    ])?;
    if groups == 0 || channels % groups != 0 || results % groups != 0 {
        return Err(WindowFault::Groups { groups, channels, results });
    }
    if channels / groups != from {
        return Err(WindowFault::Channels { kernel: from, image: channels / groups });
    }
    window::check_kernel(image, kernel, conv.dilation, conv.padding)
}

/// Terms that one dispatch adds: the loops take up to twice the turns of a matrix product's.
fn most_terms(value: &Tensor) -> usize {
    longest_sum(value) / 2
}

/// Refuses sums that a driver would end early.
fn check_sum(value: &Tensor, terms: usize) -> std::result::Result<(), WindowFault> {
    let most = most_terms(value);
    if terms > most { Err(WindowFault::Sum { terms, most }) } else { Ok(()) }
}

fn ints(conv: &Convolution) -> Vec<u32> {
    let [stride, padding, dilation] = [conv.stride, conv.padding, conv.dilation].map(pair);
    vec![stride, padding, dilation, conv.groups as u32]
}

/// Rows or columns of the image that a transposed convolution makes; `None` when there are none or
/// a convolution would not lead back.
fn transposed(conv: &Convolution, len: usize, kernel: usize, more: usize, axis: usize) -> isize {
    let whole = (len - 1) * conv.stride[axis] + window::span(kernel, conv.dilation[axis]) + more;
    whole as isize - 2 * conv.padding[axis] as isize
}

/// The image that a transposed convolution of `y` makes, if the geometry allows it.
fn check_transposed(
    y: &[usize],
    w: &[usize],
    conv: &Convolution,
    more: [usize; 2],
) -> std::result::Result<[usize; 2], WindowFault> {
    let &[batch, results, rows, cols] = y else {
        return Err(WindowFault::Rank { rank: y.len() });
    };
    let &[_, from, kernel_rows, kernel_cols] = w else { return Ok([1; 2]) };
    let (len, kernel) = ([rows, cols], [kernel_rows, kernel_cols]);
    window::check_sizes(&[("image", len), ("stride", conv.stride), ("kernel", kernel)])?;
    let image = [0, 1].map(|axis| transposed(conv, len[axis], kernel[axis], more[axis], axis));
    let [image_rows, image_cols] = image;
    let fault = WindowFault::Transposed { rows, cols, image_rows, image_cols };
    if image.iter().any(|&pixels| pixels < 1) || (0..2).any(|axis| more[axis] >= conv.stride[axis])
    {
        return Err(fault);
    }
    let image = image.map(|pixels| pixels as usize);
    let channels = from * conv.groups;
    check(
        &[batch, channels, image[0], image[1]],
        &[results, from, kernel_rows, kernel_cols],
        conv,
    )?;
    Ok(image)
}

impl Tensor {
    /// Convolution of images `[B, C, H, W]` with kernels `w` `[O, C / groups, h, w]` and a bias
    /// `[O]`, to `[B, O, R, S]` with `R = (H + 2 padding - dilation (h - 1) - 1) / stride + 1`.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] names the sizes that do not fit: a kernel larger than the padded image,
    /// groups that do not divide the channels, a stride of 0.
    #[track_caller]
    pub fn conv2d(&self, w: &Tensor, bias: Option<&Tensor>, conv: Convolution) -> Result<Tensor> {
        let (x, kernel, site) = (self.shape(), w.shape(), Location::caller());
        let terms: usize = kernel.dims().iter().skip(1).product();
        check(x.dims(), kernel.dims(), &conv)
            .and_then(|()| check_sum(self, terms))
            .map_err(|fault| Error::window("conv2d", site, fault))?;
        let attrs = Attrs::ints(&ints(&conv));
        match bias {
            Some(bias) => Tensor::record1(&CONV2D_BIAS, attrs, &[self, w, bias]),
            None => Tensor::record1(&CONV2D, attrs, &[self, w]),
        }
    }

    /// Transposed convolution of `[B, O, R, S]` with kernels `w` `[O, C / groups, h, w]` and a bias
    /// `[C]`, to images `[B, C, H, W]` with `H = (R - 1) stride - 2 padding + dilation (h - 1) + 1 +
    /// output_padding`: the linear map that [`Tensor::conv2d`] with the same geometry transposes.
    ///
    /// # Errors
    ///
    /// As [`Tensor::conv2d`]; also when the output padding is not below the stride.
    #[track_caller]
    pub fn conv_transpose2d(
        &self,
        w: &Tensor,
        bias: Option<&Tensor>,
        conv: Convolution,
        output_padding: [usize; 2],
    ) -> Result<Tensor> {
        let (y, kernel, site) = (self.shape(), w.shape(), Location::caller());
        let window: usize = kernel.dims().iter().skip(2).product();
        let terms = y.dims().get(1).map_or(0, |results| results / conv.groups.max(1) * window);
        let image = check_transposed(y.dims(), kernel.dims(), &conv, output_padding)
            .and_then(|image| check_sum(self, terms).map(|()| image))
            .map_err(|fault| Error::window("conv_transpose2d", site, fault))?;
        let mut words = ints(&conv);
        words.push(pair(image));
        let x = Tensor::record1(&CONV2D_INPUT, Attrs::ints(&words), &[self, w])?;
        let Some(bias) = bias else { return Ok(x) };
        let shape = x.shape();
        let planes = shape.dims()[0] * shape.dims()[1];
        let of_planes = bias.expand([planes].into(), (planes, shape.dims()[1]), 1.0)?;
        x.add(&of_planes.expand(shape, (shape.dims()[2] * shape.dims()[3], 1), 1.0)?)
    }
}
