//! Sums over everything, over rows and over columns, and the place of a row's largest element.
//!
//! A long sum is a tree of kernels: each call sums parts of bounded length, and the parts are
//! summed again. So no result is one serial chain of additions, at any size.

use super::rule::{Inferred, refuse};
use super::sample::{Sample, elements_past_f32, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Elements that one team sums: two levels reach 268 million elements.
const SUM_CHUNK: usize = 16_384;

/// Rows that one workgroup of a column kernel sums: 64 a lane.
pub(super) const ROW_CHUNK: usize = 1024;

/// `y[r] = alpha sum x[r chunk ..]` over consecutive elements. Integer attribute: chunk. Float
/// attribute: alpha.
pub static ROW_SUM: OpDef = OpDef {
    name: "row_sum",
    doc: "Sums of consecutive elements: `y[r] = alpha sum of x[r chunk .. (r + 1) chunk]`.",
    infer: infer_row_sum,
    lower: Lower::Kernel { family: row_sum_family, launch: launch_row_sum },
    backward: Backward::Rule(|g| {
        let [chunk, ..] = g.attrs.int;
        let parts = (chunk as usize, 1);
        Ok(vec![Some(g.dout().expand(g.inputs[0].shape(), parts, g.attrs.float[0])?)])
    }),
    reference: |x, attrs| vec![row_sum_reference(&x[0], attrs)],
    samples: row_sum_samples,
    mutates: &[],
    in_place: None,
};

/// `y[p, c] = alpha sum x[r, c]` over the rows of part p. Integer attribute: rows of a part. Float
/// attribute: alpha.
pub static COLUMN_SUM: OpDef = OpDef {
    name: "column_sum",
    doc: "Column sums of parts of `chunk` rows: `y[p, c] = alpha sum of x[r, c]` over part `p`.",
    infer: infer_column_sum,
    lower: Lower::Kernel { family: |_| "column_sum", launch: launch_column_sum },
    backward: Backward::Rule(column_sum_backward),
    reference: |x, attrs| vec![column_sum_reference(&x[0], attrs)],
    samples: column_sum_samples,
    mutates: &[],
    in_place: None,
};

/// Index of the largest element over the last axis.
pub static ARGMAX: OpDef = OpDef {
    name: "argmax",
    doc: "Index of the largest element over the last axis; ties go to the lower index.",
    infer: infer_argmax,
    lower: Lower::Kernel { family: argmax_family, launch: launch_argmax },
    backward: Backward::None("an index is a discrete choice"),
    reference: |x, _| {
        let best = x[0].data.chunks(x[0].shape().last()).map(best_index);
        vec![HostTensor::new(
            Spec::u32(without_last(x[0].shape())),
            best.map(|i| i as f64).collect(),
        )]
    },
    samples: argmax_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&ROW_SUM, &COLUMN_SUM, &ARGMAX];

/// A shape without its innermost dimension.
pub(super) fn without_last(shape: Shape) -> Shape {
    let leading = shape.dims().split_last().map_or(&[][..], |(_, leading)| leading);
    Shape::try_new(leading).expect("a shape with fewer dimensions is a shape")
}

/// Index of the largest element; the first one wins a tie, and a NaN never wins.
pub(super) fn best_index(row: &[f64]) -> usize {
    let mut best = 0;
    for (index, &value) in row.iter().enumerate() {
        if value > row[best] || (row[best].is_nan() && !value.is_nan()) {
            best = index;
        }
    }
    best
}

/// Numbers of a row summed in pairs, so that the reference itself loses nothing.
pub(super) fn sum(values: &[f64]) -> f64 {
    match values.len() {
        0..=64 => values.iter().sum(),
        len => {
            let (a, b) = values.split_at(len / 2);
            sum(a) + sum(b)
        }
    }
}

fn infer_row_sum(call: &OpCall) -> Inferred {
    let chunk = call.attrs.int[0] as usize;
    match call.inputs {
        [x] if x.dtype == DType::F32 && chunk > 0 => {
            Ok(vec![Spec::f32([x.shape.elems().div_ceil(chunk)])])
        }
        _ => refuse(call, "one f32 value and parts of at least one element"),
    }
}

fn row_sum_family(call: &OpCall) -> &'static str {
    let cols = (call.attrs.int[0] as usize).min(call.inputs[0].shape.elems());
    launch::by_row_length(cols, "row_sum", "row_sum_long")
}

fn launch_row_sum(call: &OpCall, variant: &Variant) -> Launch {
    let (count, chunk) = (call.inputs[0].shape.elems(), call.attrs.int[0] as usize);
    let rest = [count as u32, call.attrs.float[0].to_bits()];
    launch::rows(count.div_ceil(chunk), chunk.min(count), &rest, variant)
}

fn row_sum_reference(x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let alpha = f64::from(attrs.float[0]);
    let sums: Vec<f64> =
        x.data.chunks(attrs.int[0] as usize).map(|part| alpha * sum(part)).collect();
    HostTensor::f32([sums.len()], sums)
}

fn infer_column_sum(call: &OpCall) -> Inferred {
    let chunk = call.attrs.int[0] as usize;
    match call.inputs {
        [x] if x.dtype == DType::F32 && chunk > 0 && x.shape.rank() > 0 => {
            Ok(vec![Spec::f32([x.shape.rows().div_ceil(chunk), x.shape.last()])])
        }
        _ => refuse(call, "one f32 value [.., columns] and parts of at least one row"),
    }
}

fn launch_column_sum(call: &OpCall, _: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    launch::columns(
        x.rows(),
        x.last(),
        call.attrs.int[0] as usize,
        &[call.attrs.float[0].to_bits()],
    )
}

fn column_sum_backward(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let x = g.inputs[0].shape();
    let chunk = (g.attrs.int[0] as usize).min(x.rows());
    Ok(vec![Some(g.dout().expand(x, (chunk * x.last(), x.last()), g.attrs.float[0])?)])
}

fn column_sum_reference(x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let (cols, alpha) = (x.shape().last(), f64::from(attrs.float[0]));
    let mut out = Vec::new();
    for part in x.data.chunks((attrs.int[0] as usize).min(x.shape().rows()) * cols) {
        let mut sums = vec![0.0; cols];
        for row in part.chunks(cols) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += alpha * x);
        }
        out.extend(sums);
    }
    HostTensor::f32([out.len() / cols, cols], out)
}

fn infer_argmax(call: &OpCall) -> Inferred {
    match call.inputs {
        [x] if x.dtype == DType::F32 && x.shape.rank() > 0 => {
            Ok(vec![Spec::u32(without_last(x.shape))])
        }
        _ => refuse(call, "one f32 value with at least one dimension"),
    }
}

fn argmax_family(call: &OpCall) -> &'static str {
    launch::by_row_length(call.inputs[0].shape.last(), "argmax", "argmax_long")
}

fn launch_argmax(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    launch::rows(x.rows(), x.last(), &[], variant)
}

impl Tensor {
    /// Sum of all elements, as a scalar.
    ///
    /// # Errors
    ///
    /// When the element type is not f32.
    #[track_caller]
    pub fn sum(&self) -> Result<Tensor> {
        self.total(1.0)
    }

    /// Mean of all elements, as a scalar.
    ///
    /// # Errors
    ///
    /// As [`Tensor::sum`].
    #[track_caller]
    pub fn mean(&self) -> Result<Tensor> {
        self.total((1.0 / self.shape().elems() as f64) as f32)
    }

    /// Sums over all axes but the last: `[.., C]` to `[C]`.
    ///
    /// # Errors
    ///
    /// When the value has no dimension or its element type is not f32.
    #[track_caller]
    pub fn sum_rows(&self) -> Result<Tensor> {
        let attrs = Attrs::ints(&[ROW_CHUNK as u32]).with_floats(&[1.0]);
        let mut parts = Tensor::record1(&COLUMN_SUM, attrs, &[self])?;
        while parts.shape().rows() > 1 {
            parts = Tensor::record1(&COLUMN_SUM, attrs, &[&parts])?;
        }
        parts.reshape([self.shape().last()])
    }

    /// Sums over the last axis: `[.., C]` to `[..]`.
    ///
    /// # Errors
    ///
    /// When the element type is not f32.
    #[track_caller]
    pub fn sum_cols(&self) -> Result<Tensor> {
        let attrs = Attrs::ints(&[self.shape().last() as u32]).with_floats(&[1.0]);
        let sums = Tensor::record1(&ROW_SUM, attrs, &[self])?;
        sums.reshape(without_last(self.shape()))
    }

    /// Index of the largest element over the last axis: `[.., C]` to u32 `[..]`. Ties go to the
    /// lower index; a row of NaNs answers 0.
    ///
    /// # Errors
    ///
    /// When the value has no dimension or its element type is not f32.
    #[track_caller]
    pub fn argmax(&self) -> Result<Tensor> {
        Tensor::record1(&ARGMAX, Attrs::NONE, &[self])
    }

    #[track_caller]
    fn total(&self, alpha: f32) -> Result<Tensor> {
        let mut parts = self.clone();
        while parts.shape().elems() > SUM_CHUNK {
            let attrs = Attrs::ints(&[SUM_CHUNK as u32]).with_floats(&[1.0]);
            parts = Tensor::record1(&ROW_SUM, attrs, &[&parts])?;
        }
        let attrs = Attrs::ints(&[parts.shape().elems() as u32]).with_floats(&[alpha]);
        Tensor::record1(&ROW_SUM, attrs, &[&parts])?.reshape(Shape::SCALAR)
    }
}

fn row_sum_samples() -> Vec<Sample> {
    let sample = |shape: Shape, chunk: u32| {
        let attrs = Attrs::ints(&[chunk]).with_floats(&[0.5]);
        Sample::new(vec![uniform(shape, 0.0, 1.0, 201)], attrs)
    };
    let mut samples: Vec<Sample> = [1, 2, 3, 127, 128, 129, 255, 257, 1000]
        .map(|n: usize| sample([n].into(), n as u32))
        .into();
    samples.extend([
        sample(Shape::SCALAR, 1),
        sample([129].into(), 16),
        sample([5, 7].into(), 7),
        sample([2, 3, 1].into(), 1),
        sample([33, 127].into(), 127),
        Sample::later(move || sample(elements_past_f32(), SUM_CHUNK as u32)),
        Sample::later(move || sample([3, 50_257].into(), 50_257)),
        Sample::later(move || sample([131_073, 129].into(), 129)),
        Sample::later(move || sample([2, 8_388_609].into(), 8_388_609)),
    ]);
    samples
}

fn column_sum_samples() -> Vec<Sample> {
    let sample = |shape: Shape, chunk: u32| {
        let attrs = Attrs::ints(&[chunk]).with_floats(&[0.5]);
        Sample::new(vec![uniform(shape, 0.0, 1.0, 202)], attrs)
    };
    vec![
        sample([1].into(), 1024),
        sample([7].into(), 1024),
        sample([1, 1].into(), 1024),
        sample([127, 1].into(), 1024),
        sample([3, 129].into(), 1024),
        sample([129, 3].into(), 16),
        sample([2, 3, 5].into(), 4),
        sample([33, 8].into(), 33),
        Sample::later(move || sample([1031, 33].into(), 1024)),
        Sample::later(move || sample([16_777_217, 1].into(), 1024)),
        Sample::later(move || sample([129_057, 131].into(), 1024)),
        Sample::later(move || sample([129_057, 131].into(), 129_057)),
    ]
}

/// Samples of rows of logits at every class count that has found a fault somewhere.
pub(super) fn class_counts() -> [usize; 11] {
    [1, 2, 7, 8, 9, 16, 17, 31, 255, 256, 1000]
}

fn argmax_samples() -> Vec<Sample> {
    let sample = |x: HostTensor| Sample::new(vec![x], Attrs::NONE);
    let mut samples: Vec<Sample> =
        class_counts().map(|classes| sample(signed([5, classes], 203))).into();
    let tied = HostTensor::f32([2, 129], (0..258).map(|i| f64::from(i % 3)).collect());
    samples.extend([
        sample(signed([7], 204)),
        sample(signed([2, 3, 129], 205)),
        sample(tied),
        sample(HostTensor::f32([1, 40], vec![-2.5; 40])),
        Sample::later(move || sample(signed([3, 50_257], 206))),
        Sample::later(move || sample(signed([131_073, 129], 207))),
    ]);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::{grad, oracle};

    /// What is left of the input's total, and the gradient of that with respect to the input.
    fn check(shape: Shape, reduce: fn(&Tensor) -> Result<Tensor>) -> (f64, Vec<f64>) {
        let graph = Graph::detached();
        let data = uniform(shape, 0.0, 1.0, 9);
        let x = graph.host(data.spec, data.to_bytes().into()).unwrap();
        let y = reduce(&x).unwrap();
        let seed = graph.filled_f32(y.shape(), 1.0).unwrap();
        let dx = grad::gradients(&[(&y, &seed)], &[&x]).unwrap().remove(0).unwrap();
        assert_eq!(dx.shape(), shape);
        let found = oracle::evaluate(&[&y, &dx]);
        (sum(&found[0].data) / sum(&data.data), found[1].data.clone())
    }

    #[test]
    fn a_total_of_any_length_is_a_tree() {
        for n in [1, 127, 129, SUM_CHUNK, SUM_CHUNK + 1, 3 * SUM_CHUNK + 5] {
            let (ratio, gradient) = check([n].into(), Tensor::sum);
            assert!((ratio - 1.0).abs() < 1.0e-12, "the sum of {n} elements is off by {ratio}");
            assert!(gradient.iter().all(|&g| g == 1.0), "{n} elements");
            let (ratio, gradient) = check([n].into(), Tensor::mean);
            let each = 1.0 / n as f64;
            assert!((ratio / each - 1.0).abs() < 1.0e-6, "the mean of {n} elements");
            assert!(gradient.iter().all(|&g| (g / each - 1.0).abs() < 1.0e-6), "{n} elements");
        }
    }

    #[test]
    fn rows_and_columns_keep_the_total() {
        for shape in [[1, 1], [ROW_CHUNK + 1, 3], [3 * ROW_CHUNK, 2], [2, 129]] {
            for reduce in [Tensor::sum_rows, Tensor::sum_cols] {
                let (ratio, gradient) = check(shape.into(), reduce);
                assert!((ratio - 1.0).abs() < 1.0e-12, "{shape:?} is off by {ratio}");
                assert!(gradient.iter().all(|&g| g == 1.0), "{shape:?}");
            }
        }
    }
}
