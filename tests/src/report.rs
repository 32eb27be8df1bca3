//! What a run found, as JSON: the same rows that its lines on the screen come from.
//!
//! A report belongs to exact bytes: it names the device and driver, the commit, and the hash of
//! the committed kernels.

use crate::case::{Check, Checks, Verdict};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::process::Command;

/// The device that a run used.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceRow {
    /// Name of the device.
    pub name: String,
    /// Name of its driver.
    pub driver: String,
    /// The driver's own description of its version.
    pub driver_info: String,
}

/// One case of a run.
#[derive(Clone, Debug, Serialize)]
pub struct CaseRow {
    /// Name of the case.
    pub case: String,
    /// What it came to.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The check of each group that used up most of its bound.
    pub worst: Vec<Check>,
    /// Checks measured against another scale than the tensor's own, with the reasons.
    pub loosened: Vec<Check>,
    /// How many tensors were compared.
    pub compared: usize,
    /// Wall-clock seconds.
    pub seconds: f64,
}

impl CaseRow {
    /// The row of a case from its checks.
    pub fn new(case: &str, verdict: Verdict, checks: &Checks, seconds: f64) -> CaseRow {
        let groups = checks.groups();
        CaseRow {
            case: case.to_owned(),
            verdict,
            worst: groups.iter().filter_map(|group| checks.worst(Some(group))).cloned().collect(),
            loosened: checks.list.iter().filter(|check| check.reason.is_some()).cloned().collect(),
            compared: checks.list.len(),
            seconds,
        }
    }
}

/// How many cases came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that did not apply; each names its reason.
    pub skipped: usize,
}

impl Tally {
    /// Counts the rows.
    pub fn of(rows: &[CaseRow]) -> Tally {
        let mut tally = Tally::default();
        for row in rows {
            match row.verdict {
                Verdict::Passed => tally.passed += 1,
                Verdict::Failed(_) => tally.failed += 1,
                Verdict::Skipped(_) => tally.skipped += 1,
            }
        }
        tally
    }
}

/// The last line of every run.
impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which runner wrote it: `gate` or `vectors`.
    pub runner: &'static str,
    /// The device; `null` when no case needed one.
    pub device: Option<DeviceRow>,
    /// The day of the run in UTC, `2026-12-01`.
    pub date: String,
    /// What `OA_COMMIT` says, else the commit of the sources, with `+` when the tree had changes; `unknown` outside of git.
    pub commit: String,
    /// Hash of `kernels.lock`.
    pub kernels_lock: &'static str,
    /// Counts over all cases.
    pub tally: Tally,
    /// One row a case.
    pub cases: Vec<CaseRow>,
}

impl Report {
    /// A report of these rows.
    pub fn new(runner: &'static str, device: Option<DeviceRow>, cases: Vec<CaseRow>) -> Report {
        let (tally, kernels_lock) = (Tally::of(&cases), oa_kernels::LOCK_HASH);
        let date = time::OffsetDateTime::now_utc().date().to_string();
        Report { runner, device, date, commit: commit(), kernels_lock, tally, cases }
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("a report is plain data")?;
        text.push('\n');
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

/// The commit that the environment names (a bundle runs far from its repository), else the one that
/// is checked out, asked of git.
fn commit() -> String {
    if let Ok(commit) = std::env::var("OA_COMMIT") {
        return commit;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    };
    let Some(head) = git(&["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain"]).is_none_or(|text| !text.trim().is_empty());
    format!("{}{}", head.trim(), if changed { "+" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Tolerance;

    #[test]
    fn a_report_counts_its_rows_and_is_json() {
        let mut checks = Checks::default();
        checks.floats("outputs", "out.y", (&[f32::NAN], &[1.0]), Tolerance::OP);
        let rows = vec![
            CaseRow::new("a", Verdict::Passed, &Checks::default(), 0.0),
            CaseRow::new("b", checks.verdict(), &checks, 0.0),
            CaseRow::new("c", Verdict::Skipped("needs f16".to_owned()), &checks, 0.0),
        ];
        let report = Report::new("gate", None, rows);
        assert_eq!(report.tally.to_string(), "1 passed, 1 failed, 1 skipped");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["cases"][0]["verdict"], "passed");
        assert_eq!(json["cases"][2]["reason"], "needs f16");
    }
}
