//! Arithmetic element by element: sums, products, scalars, and the transposes of reductions.
//!
//! A second operand may be a suffix of the first one's shape (a bias, a gain); its gradient is then
//! summed over the rows it was repeated for. There is no general broadcasting: what an op repeats
//! is visible in its name.

use super::reduce::{COLUMN_SUM, ROW_SUM};
use super::rule::{Inferred, is_suffix, refuse, same1, same2};
use super::sample::{Sample, elements_past_f32, ragged, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// `a + b`.
pub static ADD: OpDef = OpDef {
    name: "add",
    doc: "Sum of two values of one shape: `a + b`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "add", launch: each },
    backward: Backward::Rule(|g| Ok(vec![Some(g.dout().clone()), Some(g.dout().clone())])),
    reference: |x, _| vec![zip(&x[0], &x[1], |a, b| a + b)],
    samples: pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `a - b`.
pub static SUB: OpDef = OpDef {
    name: "sub",
    doc: "Difference of two values of one shape: `a - b`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "sub", launch: each },
    backward: Backward::Rule(|g| {
        let negative = g.wanted[1].then(|| g.dout().neg()).transpose()?;
        Ok(vec![Some(g.dout().clone()), negative])
    }),
    reference: |x, _| vec![zip(&x[0], &x[1], |a, b| a - b)],
    samples: pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `a * b`.
pub static MUL: OpDef = OpDef {
    name: "mul",
    doc: "Product of two values of one shape, element by element: `a * b`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "mul", launch: each },
    backward: Backward::Rule(|g| {
        Ok(vec![
            g.wanted[0].then(|| g.dout().mul(&g.inputs[1])).transpose()?,
            g.wanted[1].then(|| g.dout().mul(&g.inputs[0])).transpose()?,
        ])
    }),
    reference: |x, _| vec![zip(&x[0], &x[1], |a, b| a * b)],
    samples: pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `alpha a + beta b`. Float attributes: alpha, beta.
pub static BLEND: OpDef = OpDef {
    name: "blend",
    doc: "Weighted sum of two values of one shape: `alpha a + beta b`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "blend", launch: each_scalars },
    backward: Backward::Rule(|g| {
        let [alpha, beta, ..] = g.attrs.float;
        Ok(vec![
            g.wanted[0].then(|| g.dout().scale(alpha)).transpose()?,
            g.wanted[1].then(|| g.dout().scale(beta)).transpose()?,
        ])
    }),
    reference: |x, attrs| {
        let [alpha, beta, ..] = attrs.float.map(f64::from);
        vec![zip(&x[0], &x[1], |a, b| alpha * a + beta * b)]
    },
    samples: blend_samples,
    mutates: &[],
    in_place: Some(0),
};

/// `a + b`, where the shape of b is a suffix of that of a.
pub static ADD_BROADCAST: OpDef = OpDef {
    name: "add_broadcast",
    doc: "`a + b`, where the shape of `b` is a suffix of that of `a`.",
    infer: suffix,
    lower: Lower::Kernel { family: |_| "add_broadcast", launch: each_suffix },
    backward: Backward::Rule(|g| {
        let shape = g.inputs[1].shape();
        let db = g.wanted[1].then(|| sum_to_suffix(g.dout(), shape)).transpose()?;
        Ok(vec![Some(g.dout().clone()), db])
    }),
    reference: |x, _| vec![zip_suffix(&x[0], &x[1], |a, b| a + b)],
    samples: suffix_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `a * b`, where the shape of b is a suffix of that of a.
pub static MUL_BROADCAST: OpDef = OpDef {
    name: "mul_broadcast",
    doc: "`a * b`, where the shape of `b` is a suffix of that of `a`.",
    infer: suffix,
    lower: Lower::Kernel { family: |_| "mul_broadcast", launch: each_suffix },
    backward: Backward::Rule(|g| {
        let [a, b] = g.inputs else { unreachable!("mul_broadcast has two inputs") };
        let db = || sum_to_suffix(&g.dout().mul(a)?, b.shape());
        Ok(vec![
            g.wanted[0].then(|| g.dout().mul_broadcast(b)).transpose()?,
            g.wanted[1].then(db).transpose()?,
        ])
    }),
    reference: |x, _| vec![zip_suffix(&x[0], &x[1], |a, b| a * b)],
    samples: suffix_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `alpha x`. Float attribute: alpha.
pub static SCALE: OpDef = OpDef {
    name: "scale",
    doc: "Product with a number: `alpha x`.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "scale", launch: each_scalars },
    backward: Backward::Rule(|g| Ok(vec![Some(g.dout().scale(g.attrs.float[0])?)])),
    reference: |x, attrs| {
        let alpha = f64::from(attrs.float[0]);
        vec![map(&x[0], |x| alpha * x)]
    },
    samples: || singles(Attrs::floats(&[-0.75])),
    mutates: &[],
    in_place: Some(0),
};

/// `alpha x + beta`. Float attributes: alpha, beta.
pub static AFFINE: OpDef = OpDef {
    name: "affine",
    doc: "Product with a number plus a number: `alpha x + beta`.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "affine", launch: each_scalars },
    backward: Backward::Rule(|g| Ok(vec![Some(g.dout().scale(g.attrs.float[0])?)])),
    reference: |x, attrs| {
        let [alpha, beta] = [0, 1].map(|slot| f64::from(attrs.float[slot]));
        vec![map(&x[0], |x| alpha * x + beta)]
    },
    samples: || singles(Attrs::floats(&[0.5, -1.25])),
    mutates: &[],
    in_place: Some(0),
};

/// `y[i] = alpha x[(i / outer) * inner + i % inner]`. Integer attributes: outer, inner, number of
/// elements of y. Float attribute: alpha.
pub static EXPAND: OpDef = OpDef {
    name: "expand",
    doc: "Repeats elements, the transpose of a sum: \
          `y[i] = alpha x[(i / outer) inner + i % inner]`.",
    infer: infer_expand,
    lower: Lower::Kernel { family: |_| "expand", launch: launch_expand },
    backward: Backward::Rule(expand_backward),
    reference: |x, attrs| vec![expand_reference(&x[0], attrs)],
    samples: expand_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] =
    &[&ADD, &SUB, &MUL, &BLEND, &ADD_BROADCAST, &MUL_BROADCAST, &SCALE, &AFFINE, &EXPAND];

/// The launch of an op whose only scalar is the number of elements.
pub(super) fn each(call: &OpCall, variant: &Variant) -> Launch {
    launch::elements(call.inputs[0].shape.elems(), &[], variant)
}

/// The launch of an op with two scalars: the number of elements, then these.
pub(super) fn each_scalars(call: &OpCall, variant: &Variant) -> Launch {
    let scalars = [0, 1].map(|slot| call.attrs.float[slot].to_bits());
    launch::elements(call.inputs[0].shape.elems(), &scalars, variant)
}

fn each_suffix(call: &OpCall, variant: &Variant) -> Launch {
    let len = call.inputs[1].shape.elems() as u32;
    launch::elements(call.inputs[0].shape.elems(), &[len], variant)
}

/// `f` of every element.
pub(super) fn map(x: &HostTensor, f: impl Fn(f64) -> f64) -> HostTensor {
    HostTensor::new(x.spec, x.data.iter().map(|&x| f(x)).collect())
}

/// `f` of every pair of elements.
pub(super) fn zip(a: &HostTensor, b: &HostTensor, f: impl Fn(f64, f64) -> f64) -> HostTensor {
    HostTensor::new(a.spec, a.data.iter().zip(&b.data).map(|(&a, &b)| f(a, b)).collect())
}

fn zip_suffix(a: &HostTensor, b: &HostTensor, f: impl Fn(f64, f64) -> f64) -> HostTensor {
    let repeated = b.data.iter().cycle();
    HostTensor::new(a.spec, a.data.iter().zip(repeated).map(|(&a, &b)| f(a, b)).collect())
}

fn suffix(call: &OpCall) -> Inferred {
    match call.inputs {
        [a, b] if a.dtype == DType::F32 && b.dtype == DType::F32 && is_suffix(b.shape, a.shape) => {
            Ok(vec![*a])
        }
        _ => refuse(call, "two f32 values, the second one's shape a suffix of the first one's"),
    }
}

/// Sums the leading axes away until `shape` is left.
fn sum_to_suffix(value: &Tensor, shape: Shape) -> Result<Tensor> {
    let (count, len) = (value.shape().elems(), shape.elems());
    if count == len {
        return value.reshape(shape);
    }
    value.reshape([count / len, len])?.sum_rows()?.reshape(shape)
}

fn infer_expand(call: &OpCall) -> Inferred {
    let expected = "one f32 value with `inner` elements for each `outer` elements of the result";
    let [outer, inner, count, ..] = call.attrs.int.map(|value| value as usize);
    let [x] = call.inputs else { return refuse(call, expected) };
    let fits = inner > 0
        && outer > 0
        && outer.is_multiple_of(inner)
        && count.is_multiple_of(inner)
        && count.div_ceil(outer).checked_mul(inner) == Some(x.shape.elems());
    if fits && x.dtype == DType::F32 {
        return Ok(vec![Spec::f32([count])]);
    }
    refuse(call, expected)
}

fn launch_expand(call: &OpCall, variant: &Variant) -> Launch {
    let [outer, inner, count, ..] = call.attrs.int;
    launch::elements(count as usize, &[outer, inner, call.attrs.float[0].to_bits()], variant)
}

fn expand_backward(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [outer, inner, count, ..] = g.attrs.int;
    let alpha = g.attrs.float[0];
    let dx = if inner == 1 {
        Tensor::record1(&ROW_SUM, Attrs::ints(&[outer]).with_floats(&[alpha]), &[g.dout()])?
    } else {
        let matrix = g.dout().reshape([(count / inner) as usize, inner as usize])?;
        if outer >= count {
            matrix.sum_rows()?.scale(alpha)?
        } else {
            let attrs = Attrs::ints(&[outer / inner]).with_floats(&[alpha]);
            Tensor::record1(&COLUMN_SUM, attrs, &[&matrix])?
        }
    };
    Ok(vec![Some(dx.reshape(g.inputs[0].shape())?)])
}

fn expand_reference(x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let [outer, inner, count, ..] = attrs.int.map(|value| value as usize);
    let alpha = f64::from(attrs.float[0]);
    let data = (0..count).map(|i| alpha * x.data[(i / outer) * inner + i % inner]).collect();
    HostTensor::f32([count], data)
}

impl Tensor {
    /// `self + b`, of one shape.
    ///
    /// # Errors
    ///
    /// When the shapes differ or an element type is not f32.
    #[track_caller]
    pub fn add(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::record1(&ADD, Attrs::NONE, &[self, b])
    }

    /// `self - b`, of one shape.
    ///
    /// # Errors
    ///
    /// As [`Tensor::add`].
    #[track_caller]
    pub fn sub(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::record1(&SUB, Attrs::NONE, &[self, b])
    }

    /// `self * b` element by element, of one shape.
    ///
    /// # Errors
    ///
    /// As [`Tensor::add`].
    #[track_caller]
    pub fn mul(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::record1(&MUL, Attrs::NONE, &[self, b])
    }

    /// `alpha self + beta b`, for values of one shape.
    ///
    /// # Errors
    ///
    /// As [`Tensor::add`].
    #[track_caller]
    pub fn blend(&self, alpha: f32, b: &Tensor, beta: f32) -> Result<Tensor> {
        Tensor::record1(&BLEND, Attrs::floats(&[alpha, beta]), &[self, b])
    }

    /// `self + b`, where the shape of `b` is a suffix of this one: a bias, a position table.
    ///
    /// # Errors
    ///
    /// When it is not, or an element type is not f32.
    #[track_caller]
    pub fn add_broadcast(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::record1(&ADD_BROADCAST, Attrs::NONE, &[self, b])
    }

    /// `self * b`, where the shape of `b` is a suffix of this one: a gain.
    ///
    /// # Errors
    ///
    /// As [`Tensor::add_broadcast`].
    #[track_caller]
    pub fn mul_broadcast(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::record1(&MUL_BROADCAST, Attrs::NONE, &[self, b])
    }

    /// `alpha self`.
    ///
    /// # Errors
    ///
    /// When the element type is not f32.
    #[track_caller]
    pub fn scale(&self, alpha: f32) -> Result<Tensor> {
        Tensor::record1(&SCALE, Attrs::floats(&[alpha]), &[self])
    }

    /// `alpha self + beta`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::scale`].
    #[track_caller]
    pub fn affine(&self, alpha: f32, beta: f32) -> Result<Tensor> {
        Tensor::record1(&AFFINE, Attrs::floats(&[alpha, beta]), &[self])
    }

    /// `-self`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::scale`].
    #[track_caller]
    pub fn neg(&self) -> Result<Tensor> {
        self.scale(-1.0)
    }

    /// Element `i` of the result, in `shape`, is `alpha self[(i / outer) inner + i % inner]`.
    #[track_caller]
    pub(crate) fn expand(
        &self,
        shape: Shape,
        (outer, inner): (usize, usize),
        alpha: f32,
    ) -> Result<Tensor> {
        let sizes = [outer, inner, shape.elems()].map(|size| size as u32);
        let attrs = Attrs::ints(&sizes).with_floats(&[alpha]);
        Tensor::record1(&EXPAND, attrs, &[self])?.reshape(shape)
    }
}

/// One value in every ragged shape, and one with more elements than f32 counts exactly.
pub(super) fn singles(attrs: Attrs) -> Vec<Sample> {
    let single = move |shape: Shape| Sample::new(vec![uniform(shape, -3.0, 3.0, 101)], attrs);
    let mut samples: Vec<Sample> = ragged().map(single).into();
    samples.push(Sample::later(move || single(elements_past_f32())));
    samples
}

/// Two values in every ragged shape, and two large ones.
pub(super) fn pairs() -> Vec<Sample> {
    let pair = |shape: Shape| {
        let inputs = vec![uniform(shape, -3.0, 3.0, 103), uniform(shape, -3.0, 3.0, 104)];
        Sample::new(inputs, Attrs::NONE)
    };
    let mut samples: Vec<Sample> = ragged().map(pair).into();
    samples.push(Sample::later(move || pair(elements_past_f32())));
    samples
}

fn blend_samples() -> Vec<Sample> {
    let weighted = |mut sample: Sample| {
        sample.attrs = Attrs::floats(&[-1.75, 0.5]);
        sample
    };
    // Changing a large one would make it.
    pairs().into_iter().filter(|sample| !sample.large).map(weighted).collect()
}

fn suffix_pairs() -> Vec<Sample> {
    let pair = |a: Shape, b: Shape| {
        Sample::new(vec![signed(a, 105), uniform(b, -2.0, 2.0, 106)], Attrs::NONE)
    };
    vec![
        pair([1].into(), [1].into()),
        pair([1].into(), Shape::SCALAR),
        pair([7].into(), Shape::SCALAR),
        pair([127, 1].into(), [1].into()),
        pair([3, 129].into(), [129].into()),
        pair([2, 3, 5].into(), [3, 5].into()),
        pair([2, 3, 5].into(), [5].into()),
        pair([2, 2, 3, 5].into(), [2, 3, 5].into()),
        pair([2, 3].into(), [2, 3].into()),
        Sample::later(move || pair([1031, 33].into(), [33].into())),
        Sample::later(move || pair([129_057, 131].into(), [131].into())),
    ]
}

fn expand_samples() -> Vec<Sample> {
    let sample = |elems: usize, ints: [u32; 3]| {
        let attrs = Attrs::ints(&ints).with_floats(&[0.75]);
        Sample::new(vec![signed([elems], 107)], attrs)
    };
    vec![
        sample(1, [1, 1, 1]),
        sample(1, [129, 1, 129]),
        sample(3, [43, 1, 127]),
        sample(5, [35, 5, 35]),
        sample(6, [15, 3, 21]),
        sample(129, [1, 1, 129]),
        Sample::later(move || sample(1025, [16_384, 1, 16_777_217])),
        Sample::later(move || sample(131, [16_906_467, 131, 16_906_467])),
    ]
}
