//! Known failures as data.
//!
//! A row says which case fails on which driver and why. A case that fails as expected is reported
//! as skipped with that reason; a case that passes although a row expects a failure fails, so that
//! no row outlives its fault.

use crate::case::Verdict;

/// One known failure.
#[derive(Clone, Copy, Debug)]
pub struct KnownFailure {
    /// Part of "device name, driver name, driver info"; empty matches every driver.
    pub driver: &'static str,
    /// Case name; `*` stands for any text.
    pub case: &'static str,
    /// What is wrong, with the evidence.
    pub reason: &'static str,
}

/// Every known failure.
pub const KNOWN: &[KnownFailure] = &[KnownFailure {
    driver: "NVIDIA",
    case: "*/recurrent/*_cpu",
    reason: "driver 580.159 refuses pipelines with a private array of 16 KiB (VK_ERROR_UNKNOWN); \
             the selector takes cpu variants on software drivers only",
}];

/// The verdict of a case in the light of the known failures.
pub fn judge(known: &[KnownFailure], driver: &str, case: &str, verdict: Verdict) -> Verdict {
    let mut rows = known.iter();
    let row = rows.find(|row| driver.contains(row.driver) && matches(row.case, case));
    match (row, verdict) {
        (None, verdict) | (Some(_), verdict @ Verdict::Skipped(_)) => verdict,
        (Some(row), Verdict::Failed(_)) => {
            Verdict::Skipped(format!("known failure: {}", row.reason))
        }
        (Some(row), Verdict::Passed) => Verdict::Failed(format!(
            "passes, but a row of expect.rs expects a failure ({}): remove the row",
            row.reason
        )),
    }
}

/// True when `text` matches `pattern`, in which `*` stands for any text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[KnownFailure] =
        &[KnownFailure { driver: "pipe", case: "ops/*/cpu", reason: "drops a dispatch" }];

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, want) in [
            ("", "", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("a*c", "abc", true),
            ("a*c", "ab", false),
            ("*/cpu", "ops/x/cpu", true),
            ("a*b*c", "axxbyyc", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} on {text}");
        }
    }

    #[test]
    fn an_unexpected_pass_fails() {
        let judge = |driver, case, verdict| judge(ROWS, driver, case, verdict);
        let failed = || Verdict::Failed("wrong".to_owned());
        assert!(matches!(judge("llvmpipe", "ops/add/cpu", failed()), Verdict::Skipped(_)));
        assert!(matches!(judge("llvmpipe", "ops/add/cpu", Verdict::Passed), Verdict::Failed(_)));
        assert_eq!(judge("llvmpipe", "ops/add/portable", failed()), failed());
        assert_eq!(judge("SwiftShader", "ops/add/cpu", Verdict::Passed), Verdict::Passed);
    }
}
