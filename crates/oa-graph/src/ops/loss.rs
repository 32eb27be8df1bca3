//! Cross-entropy, and whether a prediction is right.
//!
//! The mean is taken over the rows that are not ignored, on the device: the forward is one kernel
//! over the logits (log-sum-exp of each row) and one over the rows, the backward is one kernel. The
//! loss op takes the log-sum-exp as an input that must belong to the logits; its derivative goes to
//! the logits directly, so the tape never differentiates the log-sum-exp.

use super::activation::FIRST_ORDER;
use super::reduce::{best_index, sum, without_last};
use super::rule::{Inferred, refuse};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{Class, DType, Variant};

mod sample;
#[cfg(test)]
mod tests;

/// Rows that one workgroup averages at most; above, the rows are summed in parts.
const MEAN_ROWS: usize = 16_384;

/// Log-sum-exp and mean of each row.
pub static LOG_SUM_EXP: OpDef = OpDef {
    name: "log_sum_exp",
    doc: "Per row over the last axis: `log sum exp(x)` and the mean.",
    infer: infer_log_sum_exp,
    lower: Lower::Kernel { family: log_sum_exp_family, launch: launch_rows },
    backward: Backward::None("the loss ops differentiate their logits directly"),
    reference: |x, _| log_sum_exp_reference(&x[0]),
    samples: sample::log_sum_exp,
    mutates: &[],
    in_place: None,
};

/// Mean cross-entropy over the valid rows, and one over their number. Integer attribute: the
/// ignored target. Float attributes: smoothing, z-loss coefficient.
pub static CROSS_ENTROPY: OpDef = OpDef {
    name: "cross_entropy",
    doc: "Mean over valid rows of `(1-e)(lse - l_target) + e(lse - mean(l)) + c lse^2`; \
          also returns one over their number.",
    infer: infer_cross_entropy,
    lower: Lower::Kernel { family: |_| "cross_entropy", launch: launch_cross_entropy },
    backward: Backward::Rule(cross_entropy_rule),
    reference: |x, attrs| {
        let inverse = inverse_of(&x[1], attrs);
        let loss = inverse * sum(&row_losses(&x[0], &x[1], attrs));
        vec![HostTensor::f32(Shape::SCALAR, vec![loss]), HostTensor::f32([1], vec![inverse])]
    },
    samples: sample::cross_entropy,
    mutates: &[],
    in_place: None,
};

/// Cross-entropy times a given inverse count, summed in parts. Integer attributes: the ignored
/// target, rows of a part. Float attributes: smoothing, z-loss coefficient.
pub static CROSS_ENTROPY_SCALED: OpDef = OpDef {
    name: "cross_entropy_scaled",
    doc: "Sums over parts of rows of the cross-entropy times a given inverse count.",
    infer: infer_cross_entropy_scaled,
    lower: Lower::Kernel { family: |_| "cross_entropy_scaled", launch: launch_scaled },
    backward: Backward::Rule(scaled_rule),
    reference: |x, attrs| {
        let losses = row_losses(&x[0], &x[1], attrs);
        let parts = losses.chunks(attrs.int[1] as usize);
        let parts: Vec<f64> = parts.map(|part| sum(part) * x[4].data[0]).collect();
        vec![HostTensor::f32([parts.len()], parts)]
    },
    samples: sample::cross_entropy_scaled,
    mutates: &[],
    in_place: None,
};

/// Derivative of the cross-entropy with respect to the logits. Integer attributes: the ignored
/// target, rows of a part. Float attributes: weight of the target, weight of every class, twice the
/// z-loss coefficient.
pub static CROSS_ENTROPY_BACKWARD: OpDef = OpDef {
    name: "cross_entropy_backward",
    doc: "`dlogits = dloss inverse (p (1 + 2c lse) - (1-e) onehot - e/V)`; ignored rows give 0.",
    infer: infer_cross_entropy_backward,
    lower: Lower::Kernel { family: |_| "cross_entropy_backward", launch: launch_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, attrs| vec![cross_entropy_backward_reference(x, attrs)],
    samples: sample::cross_entropy_backward,
    mutates: &[],
    in_place: Some(0),
};

/// One over the number of valid targets. Integer attribute: the ignored target.
pub static INVERSE_COUNT: OpDef = OpDef {
    name: "inverse_count",
    doc: "One over the number of targets that are not ignored; 0 when there are none.",
    infer: |call| match call.inputs {
        [targets] if targets.dtype == DType::I32 => Ok(vec![Spec::f32([1])]),
        _ => refuse(call, "i32 targets"),
    },
    lower: Lower::Kernel { family: |_| "inverse_count", launch: launch_inverse_count },
    backward: Backward::None("targets are integers"),
    reference: |x, attrs| vec![HostTensor::f32([1], vec![inverse_of(&x[0], attrs)])],
    samples: sample::inverse_count,
    mutates: &[],
    in_place: None,
};

/// 1 where the largest logit is the target. Integer attribute: the ignored target.
pub static CORRECT_ROWS: OpDef = OpDef {
    name: "correct_rows",
    doc: "1 where the largest logit of a row (the lower index on ties) is its target, else 0.",
    infer: |call| match call.inputs {
        [logits, targets] if belong(logits, targets) => {
            Ok(vec![Spec::f32(without_last(logits.shape))])
        }
        _ => refuse(call, EXPECTED),
    },
    lower: Lower::Kernel { family: correct_rows_family, launch: launch_correct_rows },
    backward: Backward::None("the place of the largest logit is a discrete choice"),
    reference: |x, attrs| vec![correct_rows_reference(&x[0], &x[1], attrs)],
    samples: sample::correct_rows,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[
    &LOG_SUM_EXP,
    &CROSS_ENTROPY,
    &CROSS_ENTROPY_SCALED,
    &CROSS_ENTROPY_BACKWARD,
    &INVERSE_COUNT,
    &CORRECT_ROWS,
];

/// How a cross-entropy is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Label smoothing: this share of the target's weight is spread over all classes.
    pub smoothing: f32,
    /// Coefficient of the z-loss, the square of the log-sum-exp.
    pub z_coef: f32,
    /// Target of rows that do not count.
    pub ignore: i32,
}

impl Default for CrossEntropy {
    /// No smoothing, no z-loss, -100 is ignored.
    fn default() -> CrossEntropy {
        CrossEntropy { smoothing: 0.0, z_coef: 0.0, ignore: IGNORE }
    }
}

/// Target of rows that do not count, unless an op is told another.
const IGNORE: i32 = -100;

const EXPECTED: &str = "f32 logits [.., V] and one i32 target per row";

/// True for f32 logits with one i32 target per row.
fn belong(logits: &Spec, targets: &Spec) -> bool {
    logits.dtype == DType::F32
        && targets.dtype == DType::I32
        && logits.shape.rank() > 0
        && logits.shape.rows() == targets.shape.elems()
}

fn statistic(logits: &Spec) -> Spec {
    Spec::f32(without_last(logits.shape))
}

fn infer_log_sum_exp(call: &OpCall) -> Inferred {
    match call.inputs {
        [x] if x.dtype == DType::F32 && x.shape.rank() > 0 => Ok(vec![statistic(x); 2]),
        _ => refuse(call, "one f32 value with at least one dimension"),
    }
}

fn infer_cross_entropy(call: &OpCall) -> Inferred {
    match call.inputs {
        [logits, targets, lse, mean]
            if belong(logits, targets) && [*lse, *mean] == [statistic(logits); 2] =>
        {
            Ok(vec![Spec::f32(Shape::SCALAR), Spec::f32([1])])
        }
        _ => refuse(call, EXPECTED),
    }
}

fn infer_cross_entropy_scaled(call: &OpCall) -> Inferred {
    let chunk = call.attrs.int[1] as usize;
    match call.inputs {
        [logits, targets, lse, mean, inverse]
            if belong(logits, targets)
                && [*lse, *mean] == [statistic(logits); 2]
                && *inverse == Spec::f32([1])
                && chunk > 0 =>
        {
            Ok(vec![Spec::f32([logits.shape.rows().div_ceil(chunk)])])
        }
        _ => {
            refuse(call, "f32 logits [.., V], one i32 target per row and an f32 inverse count [1]")
        }
    }
}

fn infer_cross_entropy_backward(call: &OpCall) -> Inferred {
    let expected = "logits, targets, log-sum-exp, an inverse count [1] and a gradient per part";
    let chunk = call.attrs.int[1] as usize;
    match call.inputs {
        [logits, targets, lse, inverse, dloss]
            if belong(logits, targets)
                && *lse == statistic(logits)
                && *inverse == Spec::f32([1])
                && dloss.dtype == DType::F32
                && chunk > 0
                && dloss.shape.elems() == logits.shape.rows().div_ceil(chunk) =>
        {
            Ok(vec![*logits])
        }
        _ => refuse(call, expected),
    }
}

fn log_sum_exp_family(call: &OpCall) -> &'static str {
    launch::by_row_length(call.inputs[0].shape.last(), "log_sum_exp", "log_sum_exp_long")
}

fn correct_rows_family(call: &OpCall) -> &'static str {
    launch::by_row_length(call.inputs[0].shape.last(), "correct_rows", "correct_rows_long")
}

fn launch_rows(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    launch::rows(x.rows(), x.last(), &[], variant)
}

fn launch_correct_rows(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    launch::rows(x.rows(), x.last(), &[call.attrs.int[0]], variant)
}

fn launch_inverse_count(call: &OpCall, _: &Variant) -> Launch {
    launch::single(vec![call.inputs[0].shape.elems() as u32, call.attrs.int[0]])
}

fn launch_cross_entropy(call: &OpCall, _: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    let [smoothing, z, ..] = call.attrs.float.map(f32::to_bits);
    launch::single(vec![x.rows() as u32, x.last() as u32, call.attrs.int[0], smoothing, z])
}

fn launch_scaled(call: &OpCall, _: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    let [ignore, chunk, ..] = call.attrs.int;
    let [smoothing, z, ..] = call.attrs.float.map(f32::to_bits);
    Launch {
        groups: x.rows().div_ceil(chunk as usize) as u64,
        push: vec![x.rows() as u32, x.last() as u32, ignore, chunk, smoothing, z],
        spec: Vec::new(),
    }
}

fn launch_backward(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[0].shape;
    let [ignore, chunk, ..] = call.attrs.int;
    let [hard, soft, two_z, _] = call.attrs.float.map(f32::to_bits);
    let rest = [x.rows() as u32, x.last() as u32, ignore, chunk, hard, soft, two_z];
    let mut launch = launch::elements(x.elems(), &rest, variant);
    if variant.class == Class::Cpu {
        // Whole rows of few classes, or pieces of one row of many.
        let tile = variant.tile[0] as usize;
        let (pieces, rows) = (x.last().div_ceil(tile), (tile / x.last()).max(1));
        launch.groups = (pieces * x.rows().div_ceil(rows)) as u64;
    }
    launch
}

/// The gradient of the logits for the attributes of a loss op; a part is `chunk` rows.
fn dlogits(g: &GradCall, inverse: &Tensor, dloss: &Tensor, chunk: usize) -> Result<Tensor> {
    let [logits, targets, lse, ..] = g.inputs else { unreachable!("a loss has logits first") };
    let [smoothing, z, ..] = g.attrs.float;
    let soft = f64::from(smoothing) / logits.shape().last() as f64;
    let ints = [g.attrs.int[0], chunk as u32];
    let attrs = Attrs::ints(&ints).with_floats(&[1.0 - smoothing, soft as f32, 2.0 * z]);
    Tensor::record1(&CROSS_ENTROPY_BACKWARD, attrs, &[logits, targets, lse, inverse, dloss])
}

/// The second output, a count, depends on integers only.
fn cross_entropy_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let rows = g.inputs[0].shape().rows();
    let found = match &g.douts[0] {
        Some(dloss) if g.wanted[0] => Some(dlogits(g, &g.outputs[1], dloss, rows)?),
        _ => None,
    };
    Ok(vec![found, None, None, None])
}

fn scaled_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [logits, targets, lse, mean, inverse] = g.inputs else {
        unreachable!("cross_entropy_scaled has five inputs")
    };
    let chunk = g.attrs.int[1] as usize;
    let found = g.wanted[0].then(|| dlogits(g, inverse, g.dout(), chunk)).transpose()?;
    let dinverse = g.wanted[4].then(|| {
        let one = inverse.graph().filled_f32([1].into(), 1.0)?;
        let inputs = [logits, targets, lse, mean, &one];
        let sums = Tensor::record1(&CROSS_ENTROPY_SCALED, *g.attrs, &inputs)?;
        sums.mul(g.dout())?.sum()?.reshape([1])
    });
    Ok(vec![found, None, None, None, dinverse.transpose()?])
}

fn ignored(attrs: &Attrs) -> f64 {
    f64::from(attrs.int[0] as i32)
}

fn inverse_of(targets: &HostTensor, attrs: &Attrs) -> f64 {
    let count = targets.data.iter().filter(|&&target| target != ignored(attrs)).count();
    if count == 0 { 0.0 } else { 1.0 / count as f64 }
}

fn lse_of(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shift = largest.clamp(f64::MIN, f64::MAX);
    let terms: Vec<f64> = row.iter().map(|x| (x - shift).exp()).collect();
    largest + sum(&terms).ln()
}

fn log_sum_exp_reference(x: &HostTensor) -> Vec<HostTensor> {
    let rows = || x.data.chunks(x.shape().last());
    let statistic = statistic(&x.spec);
    let mean = |row: &[f64]| sum(row) / row.len() as f64;
    vec![
        HostTensor::new(statistic, rows().map(lse_of).collect()),
        HostTensor::new(statistic, rows().map(mean).collect()),
    ]
}

/// The loss of each row, from the logits alone; 0 for ignored rows, NaN for a target that is no
/// class.
fn row_losses(logits: &HostTensor, targets: &HostTensor, attrs: &Attrs) -> Vec<f64> {
    let [smoothing, z, ..] = attrs.float.map(f64::from);
    let rows = logits.data.chunks(logits.shape().last()).zip(&targets.data);
    rows.map(|(row, &target)| {
        if target == ignored(attrs) {
            return 0.0;
        }
        if target < 0.0 || target >= row.len() as f64 {
            return f64::NAN;
        }
        let lse = lse_of(row);
        let mean = sum(row) / row.len() as f64;
        (1.0 - smoothing) * (lse - row[target as usize]) + smoothing * (lse - mean) + z * lse * lse
    })
    .collect()
}

fn cross_entropy_backward_reference(x: &[HostTensor], attrs: &Attrs) -> HostTensor {
    let [logits, targets, lse, inverse, dloss] = x else { unreachable!("the op has five inputs") };
    let [hard, soft, two_z, _] = attrs.float.map(f64::from);
    let classes = logits.shape().last();
    let mut out = Vec::with_capacity(logits.data.len());
    for (row, logits) in logits.data.chunks(classes).enumerate() {
        let (target, lse) = (targets.data[row], lse.data[row]);
        let scale = dloss.data[row / attrs.int[1] as usize] * inverse.data[0];
        let slope = |(class, logit): (usize, &f64)| {
            let onehot = if class as f64 == target { hard } else { 0.0 };
            scale * ((logit - lse).exp() * (1.0 + two_z * lse) - soft - onehot)
        };
        let valid = target >= 0.0 && target < classes as f64;
        match target == ignored(attrs) {
            true => out.extend(vec![0.0; classes]),
            false if valid => out.extend(logits.iter().enumerate().map(slope)),
            false => out.extend(vec![f64::NAN; classes]),
        }
    }
    HostTensor::new(logits.spec, out)
}

fn correct_rows_reference(logits: &HostTensor, targets: &HostTensor, attrs: &Attrs) -> HostTensor {
    let rows = logits.data.chunks(logits.shape().last()).zip(&targets.data);
    let right = rows.map(|(row, &target)| {
        f64::from(u8::from(target != ignored(attrs) && best_index(row) as f64 == target))
    });
    HostTensor::new(statistic(&logits.spec), right.collect())
}

impl Tensor {
    /// Mean cross-entropy in nats of these logits `[.., V]` over the rows whose target is not
    /// ignored; 0 when there are none. `targets` is i32 with one element per row.
    ///
    /// # Errors
    ///
    /// When the shapes or element types do not fit.
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor, options: CrossEntropy) -> Result<Tensor> {
        if self.shape().rows() > MEAN_ROWS {
            let inverse = targets.inverse_count(options.ignore)?;
            return self.cross_entropy_with(targets, &inverse, options);
        }
        let rows = Tensor::record(&LOG_SUM_EXP, Attrs::NONE, &[self])?;
        let attrs =
            Attrs::ints(&[options.ignore as u32]).with_floats(&[options.smoothing, options.z_coef]);
        Tensor::record1(&CROSS_ENTROPY, attrs, &[self, targets, &rows[0], &rows[1]])
    }

    /// The sum of the cross-entropy over the valid rows times `inverse_count` (f32 `[1]`). With one
    /// over the valid count of a whole batch, the results of its parts add up to the batch's mean.
    ///
    /// # Errors
    ///
    /// As [`Tensor::cross_entropy`].
    #[track_caller]
    pub fn cross_entropy_with(
        &self,
        targets: &Tensor,
        inverse_count: &Tensor,
        options: CrossEntropy,
    ) -> Result<Tensor> {
        let rows = Tensor::record(&LOG_SUM_EXP, Attrs::NONE, &[self])?;
        let attrs = Attrs::ints(&[options.ignore as u32, MEAN_ROWS as u32])
            .with_floats(&[options.smoothing, options.z_coef]);
        let inputs = [self, targets, &rows[0], &rows[1], inverse_count];
        let parts = Tensor::record1(&CROSS_ENTROPY_SCALED, attrs, &inputs)?;
        if parts.shape().elems() == 1 { parts.reshape(Shape::SCALAR) } else { parts.sum() }
    }

    /// One over the number of these i32 targets that are not `ignore`, as f32 `[1]`; 0 when there
    /// are none.
    ///
    /// # Errors
    ///
    /// When the element type is not i32.
    #[track_caller]
    pub fn inverse_count(&self, ignore: i32) -> Result<Tensor> {
        Tensor::record1(&INVERSE_COUNT, Attrs::ints(&[ignore as u32]), &[self])
    }

    /// Per row of these logits `[.., V]`: 1 where the largest one is the row's target, else 0. Ties
    /// go to the lower index; rows whose target is -100 give 0.
    ///
    /// # Errors
    ///
    /// When the shapes or element types do not fit.
    #[track_caller]
    pub fn correct_rows(&self, targets: &Tensor) -> Result<Tensor> {
        Tensor::record1(&CORRECT_ROWS, Attrs::ints(&[IGNORE as u32]), &[self, targets])
    }
}
