//! One case: the checks it made and the verdict they add up to.
//!
//! A case never stops at its first bad tensor: all checks are made, and the worst one is named.
//! What a case computes is the business of the suite that owns it.

use crate::compare::{Difference, Metric, Tolerance, unequal};
use serde::Serialize;

/// One comparison of one tensor.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was compared: `outputs`, `gradients`, `trajectory`, …
    pub group: &'static str,
    /// Name of the tensor.
    pub tensor: String,
    /// The error in the tolerance's metric; `null` in a report when it is infinite.
    pub error: f64,
    /// The bound.
    pub tolerance: Tolerance,
    /// Largest distance in units in the last place; 0 for integers.
    pub ulps: u64,
    /// True when the tolerance is the tensor's own, stated with a reason by the suite.
    pub reason: Option<&'static str>,
}

impl Check {
    /// True when the error is within the bound; an error that is not a number is not.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance.limit
    }

    /// How much of the bound is used up; infinite for a failed exact check.
    pub fn ratio(&self) -> f64 {
        match self.error {
            0.0 => 0.0,
            error => error / self.tolerance.limit,
        }
    }
}

/// What a case came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// Every check is within its bound.
    Passed,
    /// A check is not, or the case could not be carried out.
    Failed(String),
    /// The case does not apply here, and this is why.
    Skipped(String),
}

/// The checks of one case, in the order they were made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checks {
    /// All of them.
    pub list: Vec<Check>,
}

impl Checks {
    /// Compares floats with the reference.
    pub fn floats(
        &mut self,
        group: &'static str,
        tensor: impl Into<String>,
        (got, want): (&[f32], &[f64]),
        tolerance: Tolerance,
    ) {
        let difference = Difference::between(got, want);
        self.list.push(Check {
            group,
            tensor: tensor.into(),
            error: difference.error(tolerance.metric),
            tolerance,
            ulps: difference.ulps,
            reason: None,
        });
    }

    /// As [`Checks::floats`], with an absolute error measured against a scale that is not the
    /// tensor's own; `reason` says why.
    pub fn floats_against_scale(
        &mut self,
        group: &'static str,
        tensor: impl Into<String>,
        (got, want): (&[f32], &[f64]),
        (tolerance, scale, reason): (Tolerance, f64, &'static str),
    ) {
        let difference = Difference::between(got, want);
        self.list.push(Check {
            group,
            tensor: tensor.into(),
            error: difference.absolute / scale,
            tolerance,
            ulps: difference.ulps,
            reason: Some(reason),
        });
    }

    /// Compares discrete values: every element must be equal.
    pub fn exact<T: PartialEq>(
        &mut self,
        group: &'static str,
        tensor: impl Into<String>,
        got: &[T],
        want: &[T],
    ) {
        let (error, tolerance) = (unequal(got, want) as f64, Tolerance::EXACT);
        self.list.push(Check {
            group,
            tensor: tensor.into(),
            error,
            tolerance,
            ulps: 0,
            reason: None,
        });
    }

    /// The check that uses up most of its bound, overall or in one group.
    pub fn worst(&self, group: Option<&str>) -> Option<&Check> {
        let of_group = self.list.iter().filter(|check| group.is_none_or(|g| g == check.group));
        of_group.max_by(|a, b| rank(a).total_cmp(&rank(b)))
    }

    /// Names of the groups, in the order of their first check.
    pub fn groups(&self) -> Vec<&'static str> {
        let mut groups = Vec::new();
        for check in &self.list {
            if !groups.contains(&check.group) {
                groups.push(check.group);
            }
        }
        groups
    }

    /// Passed when there is at least one check and all of them are within their bounds.
    pub fn verdict(&self) -> Verdict {
        let failed = self.list.iter().filter(|check| !check.passed()).count();
        match self.worst(None) {
            None => Verdict::Failed("the case compared nothing".to_owned()),
            Some(_) if failed == 0 => Verdict::Passed,
            Some(worst) => Verdict::Failed(format!(
                "{failed} of {} tensors are off; the worst is {} ({}): {}",
                self.list.len(),
                worst.tensor,
                worst.group,
                describe(worst)
            )),
        }
    }
}

/// A failed check without a finite ratio is worse than every other.
fn rank(check: &Check) -> f64 {
    match check.ratio() {
        ratio if ratio.is_nan() => f64::INFINITY,
        ratio => ratio,
    }
}

/// An error and its bound as text, such as `3.1e-7 of 2.0e-6`.
pub fn describe(check: &Check) -> String {
    match check.tolerance.metric {
        Metric::Exact if check.error == 0.0 => "exact".to_owned(),
        Metric::Exact => format!("{} elements differ", check.error),
        Metric::Relative => format!("{:.1e} of {:.1e}", check.error, check.tolerance.limit),
        Metric::Absolute => {
            format!("{:.1e} of {:.1e} absolute", check.error, check.tolerance.limit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_checks_fails() {
        assert!(matches!(Checks::default().verdict(), Verdict::Failed(_)));
    }

    #[test]
    fn the_worst_tensor_is_named() {
        let mut checks = Checks::default();
        checks.floats("outputs", "out.y", (&[1.0], &[1.0]), Tolerance::OP);
        checks.floats("gradients", "g.x", (&[1.0, 2.0], &[1.0, 2.5]), Tolerance::OP);
        checks.exact("outputs", "ids", &[1, 2], &[1, 2]);
        let Verdict::Failed(reason) = checks.verdict() else { panic!("g.x is wrong") };
        assert!(reason.starts_with("1 of 3 tensors are off; the worst is g.x"), "{reason}");
        assert_eq!(checks.groups(), ["outputs", "gradients"]);
        assert!(checks.worst(Some("outputs")).is_some_and(Check::passed));
    }

    #[test]
    fn a_value_that_is_not_a_number_fails() {
        let mut checks = Checks::default();
        checks.floats("outputs", "out.y", (&[f32::NAN], &[1.0]), Tolerance::FINAL);
        assert!(matches!(checks.verdict(), Verdict::Failed(_)));
    }
}
