//! Error metrics, and every tolerance of the project in one place.
//!
//! The numbers are those of the model specification, section 10: the largest absolute error over
//! the largest absolute value of the tensor. Nothing else in the tests may state a tolerance.

use serde::Serialize;

/// How an error is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Largest absolute error over the largest absolute value of the expected tensor.
    Relative,
    /// Largest absolute error.
    Absolute,
    /// Number of elements whose bits differ.
    Exact,
}

/// A bound on an error: an error equal to the limit still passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// How the error is measured.
    pub metric: Metric,
    /// The largest error that passes.
    pub limit: f64,
}

impl Tolerance {
    /// One op of 32-bit floats.
    pub const OP: Tolerance = Tolerance::relative(2.0e-6);
    /// A block of ops, or a scan over time.
    pub const BLOCK: Tolerance = Tolerance::relative(1.0e-5);
    /// Logits and gradients of a language model.
    pub const MODEL: Tolerance = Tolerance::relative(3.0e-5);
    /// Parameters of a language model after six AdamW steps: AdamW divides tiny gradients by tiny
    /// roots, so the specification bounds the absolute error.
    pub const FINAL: Tolerance = Tolerance { metric: Metric::Absolute, limit: 2.0e-3 };
    /// Integers, random words and masks.
    pub const EXACT: Tolerance = Tolerance { metric: Metric::Exact, limit: 0.0 };

    /// A bound on the relative error.
    pub const fn relative(limit: f64) -> Tolerance {
        Tolerance { metric: Metric::Relative, limit }
    }

    /// The bound on a loss of step `step` of `steps`: 1e-5 absolute at the first step and 1e-4 at
    /// the last one, growing by the same factor each step.
    pub fn loss(step: usize, steps: usize) -> Tolerance {
        let progress = step as f64 / steps.saturating_sub(1).max(1) as f64;
        Tolerance { metric: Metric::Absolute, limit: 1.0e-5 * 10f64.powf(progress) }
    }
}

/// How far one tensor is from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Largest absolute error; infinite when a value is not finite or the lengths differ.
    pub absolute: f64,
    /// Largest absolute expected value.
    pub scale: f64,
    /// Largest distance in units in the last place of a 32-bit float.
    pub ulps: u64,
    /// Elements whose bits differ.
    pub unequal: usize,
    /// Where the largest absolute error is.
    pub index: usize,
}

impl Difference {
    /// The difference of `got` from `want`. Differing lengths and values that are not finite where
    /// the expected ones are count as infinitely wrong.
    pub fn between(got: &[f32], want: &[f64]) -> Difference {
        let mut difference =
            Difference { absolute: 0.0, scale: 0.0, ulps: 0, unequal: 0, index: 0 };
        if got.len() != want.len() {
            difference.absolute = f64::INFINITY;
            difference.unequal = got.len().max(want.len());
            return difference;
        }
        for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
            let same = f64::from(got) == want || (got.is_nan() && want.is_nan());
            let error = match f64::from(got) - want {
                _ if same => 0.0,
                error if error.is_finite() => error.abs(),
                _ => f64::INFINITY,
            };
            if error > difference.absolute {
                difference.absolute = error;
                difference.index = index;
            }
            if want.is_finite() {
                difference.scale = difference.scale.max(want.abs());
            }
            difference.ulps = difference.ulps.max(ulps(got, want as f32));
            difference.unequal += usize::from(got.to_bits() != (want as f32).to_bits());
        }
        difference
    }

    /// The error in the given metric. The relative error of an all-zero tensor is its absolute one.
    pub fn error(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Absolute => self.absolute,
            Metric::Exact => self.unequal as f64,
            Metric::Relative if self.scale == 0.0 => self.absolute,
            Metric::Relative => self.absolute / self.scale,
        }
    }
}

/// Distance of two floats in units in the last place; the two zeros are equal, a NaN is infinitely
/// far from every number.
pub fn ulps(a: f32, b: f32) -> u64 {
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() && b.is_nan() { 0 } else { u64::MAX };
    }
    let ordered = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7FFF_FFFF);
        if x.is_sign_negative() { -bits } else { bits }
    };
    ordered(a).abs_diff(ordered(b))
}

/// Number of elements that differ; differing lengths count as all of them.
pub fn unequal<T: PartialEq>(got: &[T], want: &[T]) -> usize {
    if got.len() != want.len() {
        return got.len().max(want.len());
    }
    got.iter().zip(want).filter(|(got, want)| got != want).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_measured_against_the_largest_value() {
        let difference = Difference::between(&[1.0, -4.0, 0.5], &[1.0, -4.0, 0.25]);
        assert_eq!(difference.error(Metric::Relative), 0.0625);
        assert_eq!(difference.error(Metric::Absolute), 0.25);
        assert_eq!(difference.error(Metric::Exact), 1.0);
        assert_eq!(difference.index, 2);
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_wrong() {
        for got in [f32::NAN, f32::INFINITY] {
            assert_eq!(Difference::between(&[got], &[1.0]).absolute, f64::INFINITY);
        }
        assert_eq!(Difference::between(&[1.0], &[1.0, 2.0]).absolute, f64::INFINITY);
        assert_eq!(Difference::between(&[f32::NAN], &[f64::NAN]).absolute, 0.0);
    }

    #[test]
    fn neighbouring_floats_are_one_unit_apart() {
        assert_eq!(ulps(1.0, 1.0 + f32::EPSILON), 1);
        assert_eq!(ulps(0.0, -0.0), 0);
        assert_eq!(ulps(f32::from_bits(1), -f32::from_bits(1)), 2);
        assert_eq!(ulps(f32::NAN, 1.0), u64::MAX);
    }

    #[test]
    fn the_bound_of_a_loss_grows_tenfold_over_a_run() {
        assert_eq!(Tolerance::loss(0, 6).limit, 1.0e-5);
        assert!((Tolerance::loss(5, 6).limit - 1.0e-4).abs() < 1.0e-12);
        assert_eq!(Tolerance::loss(0, 1).limit, 1.0e-5);
    }
}
