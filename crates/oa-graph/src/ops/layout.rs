//! Ops that move elements and compute nothing: other shapes, windows of an axis, joined values.
//!
//! They take every element type, since kernels see 32-bit words.

use super::rule::{Inferred, refuse};
use super::sample::{Sample, ids, signed};
use super::{Backward, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::{MAX_DIMS, Shape};
use crate::value::Tensor;
use oa_kernels::Variant;

/// The same elements under another shape. Integer attributes: rank, then the dimensions.
pub static RESHAPE: OpDef = OpDef {
    name: "reshape",
    doc: "The same elements under another shape; no work.",
    infer: infer_reshape,
    lower: Lower::View,
    backward: Backward::Rule(|g| Ok(vec![Some(g.dout().reshape(g.inputs[0].shape())?)])),
    reference: |x, attrs| {
        let shape = shape_of(attrs).expect("infer admitted the shape");
        vec![HostTensor::new(Spec { shape, ..x[0].spec }, x[0].data.clone())]
    },
    samples: reshape_samples,
    mutates: &[],
    in_place: None,
};

/// A window of one axis. Integer attributes: axis, start, length.
pub static NARROW: OpDef = OpDef {
    name: "narrow",
    doc: "The window `[start, start + len)` of one axis.",
    infer: infer_narrow,
    lower: Lower::Kernel { family: |_| "narrow", launch: launch_narrow },
    backward: Backward::Rule(|g| {
        let [axis, start, ..] = g.attrs.int;
        let whole = g.inputs[0].shape().dims()[axis as usize];
        Ok(vec![Some(g.dout().pad(axis as usize, start as usize, whole)?)])
    }),
    reference: |x, attrs| vec![narrow_reference(&x[0], attrs)],
    samples: narrow_samples,
    mutates: &[],
    in_place: None,
};

/// Zeros around a value along one axis. Integer attributes: axis, start, length of the result.
pub static PAD: OpDef = OpDef {
    name: "pad",
    doc: "Zeros of length `whole` along one axis with the value at `start`.",
    infer: infer_pad,
    lower: Lower::Kernel { family: |_| "pad", launch: launch_pad },
    backward: Backward::Rule(|g| {
        let [axis, start, ..] = g.attrs.int.map(|value| value as usize);
        let part = g.inputs[0].shape().dims()[axis];
        Ok(vec![Some(g.dout().narrow(axis, start, part)?)])
    }),
    reference: |x, attrs| vec![pad_reference(&x[0], attrs)],
    samples: pad_samples,
    mutates: &[],
    in_place: None,
};

/// Two values joined along one axis. Integer attribute: axis.
pub static CONCAT: OpDef = OpDef {
    name: "concat",
    doc: "Two values joined along one axis.",
    infer: infer_concat,
    lower: Lower::Kernel { family: |_| "concat", launch: launch_concat },
    backward: Backward::Rule(|g| {
        let axis = g.attrs.int[0] as usize;
        let [a, b] = [0, 1].map(|input| g.inputs[input].shape().dims()[axis]);
        Ok(vec![
            g.wanted[0].then(|| g.dout().narrow(axis, 0, a)).transpose()?,
            g.wanted[1].then(|| g.dout().narrow(axis, a, b)).transpose()?,
        ])
    }),
    reference: |x, attrs| vec![concat_reference(&x[0], &x[1], attrs.int[0] as usize)],
    samples: concat_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&RESHAPE, &NARROW, &PAD, &CONCAT];

/// The shape that a reshape's attributes say; `None` when they say none.
fn shape_of(attrs: &Attrs) -> Option<Shape> {
    let rank = attrs.int[0] as usize;
    let dims: Vec<usize> = attrs.int[1..].iter().map(|&dim| dim as usize).collect();
    if rank > MAX_DIMS { None } else { Shape::try_new(&dims[..rank]) }
}

fn infer_reshape(call: &OpCall) -> Inferred {
    match (call.inputs, shape_of(call.attrs)) {
        ([x], Some(shape)) if shape.elems() == x.shape.elems() => {
            Ok(vec![Spec { shape, dtype: x.dtype }])
        }
        _ => refuse(call, "one value with as many elements as the new shape"),
    }
}

/// A shape with one axis replaced; `None` when there is no such axis or the result is too large.
fn with_axis(shape: Shape, axis: usize, len: usize) -> Option<Shape> {
    let mut dims = shape.dims().to_vec();
    *dims.get_mut(axis)? = len;
    Shape::try_new(&dims)
}

/// Elements of a run: the axis and everything inside it.
fn run(shape: Shape, axis: usize) -> usize {
    shape.dims()[axis..].iter().product()
}

/// Elements of one step along the axis.
fn inner(shape: Shape, axis: usize) -> usize {
    shape.dims()[axis + 1..].iter().product()
}

fn infer_narrow(call: &OpCall) -> Inferred {
    let expected = "one value with a window that lies inside its axis";
    let [axis, start, len, ..] = call.attrs.int.map(|value| value as usize);
    let [x] = call.inputs else { return refuse(call, expected) };
    let inside = x.shape.dims().get(axis).is_some_and(|&whole| start + len <= whole);
    match with_axis(x.shape, axis, len) {
        Some(shape) if inside && len > 0 => Ok(vec![Spec { shape, dtype: x.dtype }]),
        _ => refuse(call, expected),
    }
}

fn infer_pad(call: &OpCall) -> Inferred {
    let expected = "one value that fits into the padded axis";
    let [axis, start, whole, ..] = call.attrs.int.map(|value| value as usize);
    let [x] = call.inputs else { return refuse(call, expected) };
    let inside = x.shape.dims().get(axis).and_then(|part| part.checked_add(start));
    match with_axis(x.shape, axis, whole) {
        Some(shape) if inside.is_some_and(|end| end <= whole) => {
            Ok(vec![Spec { shape, dtype: x.dtype }])
        }
        _ => refuse(call, expected),
    }
}

fn infer_concat(call: &OpCall) -> Inferred {
    let expected = "two values of one element type whose shapes differ along the axis only";
    let axis = call.attrs.int[0] as usize;
    let [a, b] = call.inputs else { return refuse(call, expected) };
    let length = |spec: &Spec| spec.shape.dims().get(axis).copied();
    let (Some(in_a), Some(in_b)) = (length(a), length(b)) else { return refuse(call, expected) };
    let alike = a.dtype == b.dtype && with_axis(b.shape, axis, in_a) == Some(a.shape);
    match in_a.checked_add(in_b).and_then(|len| with_axis(a.shape, axis, len)) {
        Some(shape) if alike => Ok(vec![Spec { shape, dtype: a.dtype }]),
        _ => refuse(call, expected),
    }
}

fn launch_narrow(call: &OpCall, variant: &Variant) -> Launch {
    let [axis, start, ..] = call.attrs.int.map(|value| value as usize);
    let (x, y) = (call.inputs[0].shape, call.outputs[0].shape);
    let sizes = [run(x, axis), run(y, axis), start * inner(x, axis)].map(|size| size as u32);
    launch::elements(y.elems(), &sizes, variant)
}

fn launch_pad(call: &OpCall, variant: &Variant) -> Launch {
    let [axis, start, ..] = call.attrs.int.map(|value| value as usize);
    let (x, y) = (call.inputs[0].shape, call.outputs[0].shape);
    let sizes = [run(y, axis), run(x, axis), start * inner(x, axis)].map(|size| size as u32);
    launch::elements(y.elems(), &sizes, variant)
}

fn launch_concat(call: &OpCall, variant: &Variant) -> Launch {
    let axis = call.attrs.int[0] as usize;
    let runs = [0, 1].map(|input| run(call.inputs[input].shape, axis) as u32);
    launch::elements(call.outputs[0].shape.elems(), &runs, variant)
}

fn narrow_reference(x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let [axis, start, len, ..] = attrs.int.map(|value| value as usize);
    let shape = with_axis(x.shape(), axis, len).expect("infer admitted the window");
    let step = inner(x.shape(), axis);
    let window = start * step..(start + len) * step;
    let runs = x.data.chunks(run(x.shape(), axis));
    let data = runs.flat_map(|run| run[window.clone()].iter().copied()).collect();
    HostTensor::new(Spec { shape, ..x.spec }, data)
}

fn pad_reference(x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let [axis, start, whole, ..] = attrs.int.map(|value| value as usize);
    let shape = with_axis(x.shape(), axis, whole).expect("infer admitted the axis");
    let mut data = vec![0.0; shape.elems()];
    let (from, offset) = (run(x.shape(), axis), start * inner(x.shape(), axis));
    for (to, part) in data.chunks_mut(run(shape, axis)).zip(x.data.chunks(from)) {
        to[offset..offset + from].copy_from_slice(part);
    }
    HostTensor::new(Spec { shape, ..x.spec }, data)
}

fn concat_reference(a: &HostTensor, b: &HostTensor, axis: usize) -> HostTensor {
    let len = a.shape().dims()[axis] + b.shape().dims()[axis];
    let shape = with_axis(a.shape(), axis, len).expect("infer admitted the shapes");
    let runs = a.data.chunks(run(a.shape(), axis)).zip(b.data.chunks(run(b.shape(), axis)));
    let data = runs.flat_map(|(a, b)| a.iter().chain(b).copied()).collect();
    HostTensor::new(Spec { shape, ..a.spec }, data)
}

impl Tensor {
    /// The same elements under another shape.
    ///
    /// # Errors
    ///
    /// When the number of elements differs.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape == self.shape() {
            return Ok(self.clone());
        }
        let mut ints = vec![shape.rank() as u32];
        ints.extend(shape.dims().iter().map(|&dim| dim as u32));
        Tensor::record1(&RESHAPE, Attrs::ints(&ints), &[self])
    }

    /// The window `[start, start + len)` of one axis; the whole axis is the value itself.
    ///
    /// # Errors
    ///
    /// When the window is empty or does not lie inside the axis.
    #[track_caller]
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Tensor> {
        if start == 0 && self.shape().dims().get(axis) == Some(&len) {
            return Ok(self.clone());
        }
        let ints = [axis, start, len].map(|value| value as u32);
        Tensor::record1(&NARROW, Attrs::ints(&ints), &[self])
    }

    /// Zeros of length `whole` along one axis, with this value from `start` on.
    ///
    /// # Errors
    ///
    /// When the value does not fit.
    #[track_caller]
    pub fn pad(&self, axis: usize, start: usize, whole: usize) -> Result<Tensor> {
        if start == 0 && self.shape().dims().get(axis) == Some(&whole) {
            return Ok(self.clone());
        }
        let ints = [axis, start, whole].map(|value| value as u32);
        Tensor::record1(&PAD, Attrs::ints(&ints), &[self])
    }

    /// This value followed by `other` along one axis.
    ///
    /// # Errors
    ///
    /// When the shapes differ along another axis, or the element types differ.
    #[track_caller]
    pub fn concat(&self, other: &Tensor, axis: usize) -> Result<Tensor> {
        Tensor::record1(&CONCAT, Attrs::ints(&[axis as u32]), &[self, other])
    }
}

fn reshape_samples() -> Vec<Sample> {
    vec![
        Sample::new(vec![signed([6], 501)], Attrs::ints(&[2, 2, 3])),
        Sample::new(vec![signed([2, 3, 5], 502)], Attrs::ints(&[2, 6, 5])),
        Sample::new(vec![signed([1], 503)], Attrs::ints(&[0])),
        Sample::new(vec![ids([4, 2], 9, 504)], Attrs::ints(&[1, 8])),
    ]
}

fn narrow_samples() -> Vec<Sample> {
    let sample =
        |shape: Shape, ints: [u32; 3]| Sample::new(vec![signed(shape, 505)], Attrs::ints(&ints));
    vec![
        sample([1].into(), [0, 0, 1]),
        sample([129].into(), [0, 1, 127]),
        sample([3, 7].into(), [0, 2, 1]),
        sample([3, 7].into(), [1, 6, 1]),
        sample([2, 5, 3].into(), [1, 1, 3]),
        sample([2, 3, 5, 7].into(), [2, 2, 2]),
        Sample::new(vec![ids([3, 5], 1000, 506)], Attrs::ints(&[1, 1, 3])),
        Sample::later(move || sample([33, 1031, 5].into(), [1, 7, 1000])),
        Sample::later(move || sample([2, 8_388_613].into(), [1, 3, 8_388_609])),
    ]
}

fn pad_samples() -> Vec<Sample> {
    let sample =
        |shape: Shape, ints: [u32; 3]| Sample::new(vec![signed(shape, 507)], Attrs::ints(&ints));
    vec![
        sample([1].into(), [0, 0, 1]),
        sample([127].into(), [0, 1, 129]),
        sample([1, 7].into(), [0, 2, 3]),
        sample([3, 1].into(), [1, 6, 7]),
        sample([2, 3, 3].into(), [1, 1, 5]),
        sample([2, 3, 2, 7].into(), [2, 2, 5]),
        Sample::later(move || sample([2, 8_388_600].into(), [1, 3, 8_388_609])),
    ]
}

fn concat_samples() -> Vec<Sample> {
    let sample = |a: Shape, b: Shape, axis: u32| {
        Sample::new(vec![signed(a, 508), signed(b, 509)], Attrs::ints(&[axis]))
    };
    vec![
        sample([1].into(), [1].into(), 0),
        sample([127].into(), [2].into(), 0),
        sample([3, 7].into(), [2, 7].into(), 0),
        sample([3, 1].into(), [3, 6].into(), 1),
        sample([2, 3, 5].into(), [2, 4, 5].into(), 1),
        sample([2, 3, 2, 7].into(), [2, 3, 5, 7].into(), 2),
        Sample::later(move || sample([2, 8_388_608].into(), [2, 1].into(), 1)),
    ]
}
