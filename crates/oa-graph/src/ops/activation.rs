//! Activations and their derivatives as ops of their own.
//!
//! A derivative takes the gradient and what the forward kept: its input, or its output where the
//! slope is a function of that. Every function is finite wherever the mathematics is, also at plus
//! and minus infinity.

use super::pointwise::{each, each_scalars, map, zip};
use super::rule::{Inferred, refuse, same1, same2, same3};
use super::sample::{Sample, away_from_zero, elements_past_f32, ragged, uniform};
use super::{Backward, GradCall, Lower, OpCall, OpDef};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::HostTensor;
use crate::shape::Shape;
use crate::value::Tensor;

/// Why the derivatives have none themselves.
pub(super) const FIRST_ORDER: &str = "OA differentiates once: this op is itself a derivative";

/// `x Phi(x)`, exact.
pub static GELU: OpDef = OpDef {
    name: "gelu",
    doc: "`x Phi(x)` with the normal distribution function Phi, exact (erf).",
    infer: same1,
    lower: Lower::Kernel { family: |_| "gelu", launch: each_scalars },
    backward: Backward::Rule(|g| of_input(g, &GELU_BACKWARD)),
    reference: |x, _| vec![map(&x[0], gelu)],
    samples: wide,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`GELU`].
pub static GELU_BACKWARD: OpDef = OpDef {
    name: "gelu_backward",
    doc: "`dy (Phi(x) + x phi(x))`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "gelu_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| vec![zip(&x[0], &x[1], |dy, x| dy * gelu_slope(x))],
    samples: wide_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// GELU in its tanh form.
pub static GELU_TANH: OpDef = OpDef {
    name: "gelu_tanh",
    doc: "`0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "gelu_tanh", launch: each_scalars },
    backward: Backward::Rule(|g| of_input(g, &GELU_TANH_BACKWARD)),
    reference: |x, _| vec![map(&x[0], gelu_tanh)],
    samples: wide,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`GELU_TANH`].
pub static GELU_TANH_BACKWARD: OpDef = OpDef {
    name: "gelu_tanh_backward",
    doc: "`dy` times the derivative of the tanh form of GELU at `x`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "gelu_tanh_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| vec![zip(&x[0], &x[1], |dy, x| dy * gelu_tanh_slope(x))],
    samples: wide_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `x sigma(x)`.
pub static SILU: OpDef = OpDef {
    name: "silu",
    doc: "`x sigma(x)` with the logistic function sigma.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "silu", launch: each_scalars },
    backward: Backward::Rule(|g| of_input(g, &SILU_BACKWARD)),
    reference: |x, _| vec![map(&x[0], silu)],
    samples: wide,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`SILU`].
pub static SILU_BACKWARD: OpDef = OpDef {
    name: "silu_backward",
    doc: "`dy sigma(x) (1 + x (1 - sigma(x)))`.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "silu_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| vec![zip(&x[0], &x[1], |dy, x| dy * silu_slope(x))],
    samples: wide_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// Hyperbolic tangent.
pub static TANH: OpDef = OpDef {
    name: "tanh",
    doc: "Hyperbolic tangent.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "tanh", launch: each_scalars },
    backward: Backward::Rule(|g| of_output(g, &TANH_BACKWARD)),
    reference: |x, _| vec![map(&x[0], f64::tanh)],
    samples: wide,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`TANH`], from its output.
pub static TANH_BACKWARD: OpDef = OpDef {
    name: "tanh_backward",
    doc: "`dy (1 - y^2)` with the output `y` of tanh.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "tanh_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| vec![zip(&x[0], &x[1], |dy, y| dy * (1.0 - y * y))],
    samples: unit_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// Logistic function.
pub static SIGMOID: OpDef = OpDef {
    name: "sigmoid",
    doc: "Logistic function `1 / (1 + e^-x)`.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "sigmoid", launch: each_scalars },
    backward: Backward::Rule(|g| of_output(g, &SIGMOID_BACKWARD)),
    reference: |x, _| vec![map(&x[0], sigmoid)],
    samples: wide,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`SIGMOID`], from its output.
pub static SIGMOID_BACKWARD: OpDef = OpDef {
    name: "sigmoid_backward",
    doc: "`dy y (1 - y)` with the output `y` of the logistic function.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "sigmoid_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| vec![zip(&x[0], &x[1], |dy, y| dy * y * (1.0 - y))],
    samples: unit_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `max(x, 0)`.
pub static RELU: OpDef = OpDef {
    name: "relu",
    doc: "`max(x, 0)`; its derivative at 0 is 0.",
    infer: same1,
    lower: Lower::Kernel { family: |_| "relu", launch: each_scalars },
    backward: Backward::Rule(|g| of_output(g, &RELU_BACKWARD)),
    reference: |x, _| vec![map(&x[0], |x| if x > 0.0 || x.is_nan() { x } else { 0.0 })],
    samples: kinked,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`RELU`], from its output.
pub static RELU_BACKWARD: OpDef = OpDef {
    name: "relu_backward",
    doc: "`dy` where the output `y` of relu is positive, else 0.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "relu_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| vec![zip(&x[0], &x[1], |dy, y| if y > 0.0 { dy } else { 0.0 })],
    samples: unit_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// `silu(a) b`.
pub static SWIGLU_GATE: OpDef = OpDef {
    name: "swiglu_gate",
    doc: "`silu(a) b`, the gated product of SwiGLU.",
    infer: same2,
    lower: Lower::Kernel { family: |_| "swiglu_gate", launch: each },
    backward: Backward::Rule(|g| {
        let inputs = [g.dout(), &g.inputs[0], &g.inputs[1]];
        let found = Tensor::record(&SWIGLU_GATE_BACKWARD, Attrs::NONE, &inputs)?;
        Ok(found.into_iter().map(Some).collect())
    }),
    reference: |x, _| vec![zip(&x[0], &x[1], |a, b| silu(a) * b)],
    samples: wide_pairs,
    mutates: &[],
    in_place: Some(0),
};

/// Derivative of [`SWIGLU_GATE`] with respect to both factors.
pub static SWIGLU_GATE_BACKWARD: OpDef = OpDef {
    name: "swiglu_gate_backward",
    doc: "`da = dy b silu'(a)` and `db = dy silu(a)`.",
    infer: twice,
    lower: Lower::Kernel { family: |_| "swiglu_gate_backward", launch: each },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, _| {
        let da = zip(&zip(&x[0], &x[2], |dy, b| dy * b), &x[1], |g, a| g * silu_slope(a));
        vec![da, zip(&x[0], &x[1], |dy, a| dy * silu(a))]
    },
    samples: triples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[
    &GELU,
    &GELU_BACKWARD,
    &GELU_TANH,
    &GELU_TANH_BACKWARD,
    &SILU,
    &SILU_BACKWARD,
    &TANH,
    &TANH_BACKWARD,
    &SIGMOID,
    &SIGMOID_BACKWARD,
    &RELU,
    &RELU_BACKWARD,
    &SWIGLU_GATE,
    &SWIGLU_GATE_BACKWARD,
];

fn of_input(g: &GradCall, def: &'static OpDef) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(Tensor::record1(def, Attrs::NONE, &[g.dout(), &g.inputs[0]])?)])
}

fn of_output(g: &GradCall, def: &'static OpDef) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(Tensor::record1(def, Attrs::NONE, &[g.dout(), &g.outputs[0]])?)])
}

fn twice(call: &OpCall) -> Inferred {
    match same3(call) {
        Ok(specs) => Ok(vec![specs[0]; 2]),
        Err(_) => refuse(call, "three f32 values of one shape"),
    }
}

/// `erfc(t)` for `t >= 0`: a series without cancellation below 1.5, a continued fraction above.
fn erfc(t: f64) -> f64 {
    let root_pi = std::f64::consts::PI.sqrt();
    if t < 1.5 {
        // erf(t) = 2/sqrt(pi) t e^(-t^2) sum of (2 t^2)^n / (1 3 5 .. (2n + 1))
        let (mut term, mut sum, mut odd) = (1.0, 1.0, 1.0);
        while term > 1.0e-18 * sum {
            odd += 2.0;
            term *= 2.0 * t * t / odd;
            sum += term;
        }
        return 1.0 - 2.0 / root_pi * t * (-t * t).exp() * sum;
    }
    let fraction = (1..=120).rev().fold(t, |below, n| t + f64::from(n) / 2.0 / below);
    (-t * t).exp() / root_pi / fraction
}

/// The standard normal distribution function.
fn normal_cdf(x: f64) -> f64 {
    let tail = 0.5 * erfc(x.abs() / std::f64::consts::SQRT_2);
    if x < 0.0 { tail } else { 1.0 - tail }
}

fn gelu(x: f64) -> f64 {
    if x < -40.0 { -0.0 } else { x * normal_cdf(x) }
}

fn gelu_slope(x: f64) -> f64 {
    let c = x.clamp(-40.0, 40.0);
    normal_cdf(c) + c * (-0.5 * c * c).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

fn silu(x: f64) -> f64 {
    if x < -740.0 { -0.0 } else { x * sigmoid(x) }
}

fn silu_slope(x: f64) -> f64 {
    let c = x.clamp(-740.0, 740.0);
    let s = sigmoid(c);
    s * (1.0 + c * (1.0 - s))
}

/// Twice the argument of the tanh: `0.5 (1 + tanh u) = sigma(2u)`.
fn tanh_argument(x: f64) -> f64 {
    2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

fn gelu_tanh(x: f64) -> f64 {
    if x < -40.0 { -0.0 } else { x * sigmoid(tanh_argument(x)) }
}

fn gelu_tanh_slope(x: f64) -> f64 {
    let c = x.clamp(-40.0, 40.0);
    let s = sigmoid(tanh_argument(c));
    let inner = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * c * c);
    s + c * s * (1.0 - s) * inner
}

impl Tensor {
    /// `x Phi(x)`, the exact form of GELU.
    ///
    /// # Errors
    ///
    /// When the element type is not f32; so it is for every activation.
    #[track_caller]
    pub fn gelu(&self) -> Result<Tensor> {
        Tensor::record1(&GELU, Attrs::NONE, &[self])
    }

    /// GELU in its tanh form.
    ///
    /// # Errors
    ///
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        Tensor::record1(&GELU_TANH, Attrs::NONE, &[self])
    }

    /// `x sigma(x)`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn silu(&self) -> Result<Tensor> {
        Tensor::record1(&SILU, Attrs::NONE, &[self])
    }

    /// Hyperbolic tangent.
    ///
    /// # Errors
    ///
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn tanh(&self) -> Result<Tensor> {
        Tensor::record1(&TANH, Attrs::NONE, &[self])
    }

    /// Logistic function.
    ///
    /// # Errors
    ///
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn sigmoid(&self) -> Result<Tensor> {
        Tensor::record1(&SIGMOID, Attrs::NONE, &[self])
    }

    /// `max(x, 0)`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn relu(&self) -> Result<Tensor> {
        Tensor::record1(&RELU, Attrs::NONE, &[self])
    }

    /// `silu(self) b`, of one shape.
    ///
    /// # Errors
    ///
    /// When the shapes differ or an element type is not f32.
    #[track_caller]
    pub fn swiglu_gate(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::record1(&SWIGLU_GATE, Attrs::NONE, &[self, b])
    }
}

/// Every ragged shape, and the tails of the functions: around zero, far out, and the smallest
/// numbers.
fn wide() -> Vec<Sample> {
    let sample = |x| Sample::new(vec![x], Attrs::NONE);
    let mut samples: Vec<Sample> =
        ragged().map(|shape| sample(uniform(shape, -4.0, 4.0, 301))).into();
    samples.extend([
        sample(uniform([129], -1.0e-4, 1.0e-4, 302)),
        sample(uniform([129], -6.0, -4.0, 303)),
        sample(uniform([129], -30.0, 30.0, 304)),
        Sample::later(move || sample(sweep())),
        Sample::later(move || sample(uniform(elements_past_f32(), -6.0, 6.0, 305))),
    ]);
    samples
}

/// -1e4 to 1e4, both zeros and infinities, the smallest normal numbers and a subnormal one.
fn sweep() -> HostTensor {
    let mut data: Vec<f64> = (-10_000..=10_000).map(f64::from).collect();
    let edges = [0.0, f64::INFINITY, 1.2e-38, 1.0e-40];
    data.extend(edges.into_iter().flat_map(|x| [x, -x]).map(|x| f64::from(x as f32)));
    HostTensor::f32([data.len()], data)
}

fn wide_pairs() -> Vec<Sample> {
    let pair =
        |x: HostTensor| Sample::new(vec![uniform(x.shape(), -1.0, 1.0, 306), x], Attrs::NONE);
    let mut samples: Vec<Sample> =
        ragged().map(|shape| pair(uniform(shape, -4.0, 4.0, 307))).into();
    samples.extend([
        pair(uniform([129], -30.0, 30.0, 308)),
        Sample::later(move || pair(sweep())),
        Sample::later(move || pair(uniform(elements_past_f32(), -6.0, 6.0, 309))),
    ]);
    samples
}

/// A gradient and an output between 0 and 1.
fn unit_pairs() -> Vec<Sample> {
    let pair = |shape: Shape| {
        let dy = uniform(shape, -1.0, 1.0, 310);
        Sample::new(vec![dy, uniform(shape, 0.0, 1.0, 311)], Attrs::NONE)
    };
    let mut samples: Vec<Sample> = ragged().map(pair).into();
    samples.push(Sample::later(move || pair(elements_past_f32())));
    samples
}

/// Inputs away from zero, where a finite difference would cross the kink.
fn kinked() -> Vec<Sample> {
    let sample = |x| Sample::new(vec![x], Attrs::NONE);
    let mut samples: Vec<Sample> = ragged().map(|shape| sample(away_from_zero(shape, 312))).into();
    samples.push(Sample::later(move || sample(sweep())));
    samples.push(Sample::later(move || sample(away_from_zero(elements_past_f32(), 313))));
    samples
}

fn triples() -> Vec<Sample> {
    let triple = |shape: Shape| {
        let inputs = [314, 315, 316].map(|seed| uniform(shape, -4.0, 4.0, seed));
        Sample::new(inputs.into(), Attrs::NONE)
    };
    let mut samples: Vec<Sample> = ragged().map(triple).into();
    samples.push(Sample::later(move || triple(elements_past_f32())));
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the complementary error function to 17 digits.
    #[test]
    fn erfc_is_exact() {
        let known = [
            (0.0, 1.0),
            (0.5, 0.4795001221869535),
            (1.0, 0.15729920705028513),
            (2.0, 0.004677734981047266),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_035e-12),
        ];
        for (t, want) in known {
            let error = (erfc(t) - want).abs() / want;
            assert!(error < 1.0e-14, "erfc({t}) = {} is off by {error}", erfc(t));
        }
        let (below, above) = (erfc(1.5 - 1.0e-12), erfc(1.5));
        assert!((below / above - 1.0).abs() < 1.0e-11, "the two forms meet at 1.5");
    }

    #[test]
    fn limits_are_those_of_the_mathematics() {
        let infinity = f64::INFINITY;
        for f in [gelu, gelu_tanh, silu] {
            assert_eq!((f(-infinity), f(infinity)), (0.0, infinity));
        }
        for slope in [gelu_slope, gelu_tanh_slope, silu_slope] {
            assert!(slope(-infinity).abs() < 1.0e-300 && (slope(infinity) - 1.0).abs() < 1.0e-15);
        }
    }
}
