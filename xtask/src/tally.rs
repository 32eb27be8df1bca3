//! Counts of passed, failed and skipped tests over several runners.
//!
//! Exists so that a run of many test programs ends with one line that says how many tests ran. Reads
//! the closing line of each runner; does not judge single tests.

use std::fmt;
use std::ops::AddAssign;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that ran and passed.
    pub passed: u64,
    /// Tests that ran and failed, and runners that died.
    pub failed: u64,
    /// Tests that did not run; each was named with its reason.
    pub skipped: u64,
}

impl Tally {
    /// One more thing that passed.
    pub const PASS: Tally = Tally { passed: 1, failed: 0, skipped: 0 };
    /// One more thing that failed.
    pub const FAIL: Tally = Tally { passed: 0, failed: 1, skipped: 0 };
    /// One more thing that was not run.
    pub const SKIP: Tally = Tally { passed: 0, failed: 0, skipped: 1 };

    /// The counts of the line a test program of Rust closes with:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`. `None` for every other line.
    pub fn of_test_program(line: &str) -> Option<Tally> {
        let (_, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        Tally::read(counts, ';')
    }

    /// The counts of a line `3 passed, 0 failed, 1 skipped` that stands alone. `None` for every
    /// other line.
    pub fn of_closing_line(line: &str) -> Option<Tally> {
        let tally = Tally::read(line, ',')?;
        (tally.to_string() == line.trim()).then_some(tally)
    }

    fn read(counts: &str, separator: char) -> Option<Tally> {
        let count = |word: &str| {
            counts.split(separator).find_map(|part| {
                let (number, name) = part.trim().split_once(' ')?;
                if name == word { number.parse::<u64>().ok() } else { None }
            })
        };
        let skipped = count("ignored").or_else(|| count("skipped"))?;
        Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_kinds_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; \
                    7 filtered out; finished in 0.52s";
        let tally = Tally { passed: 12, failed: 3, skipped: 1 };
        assert_eq!(Tally::of_test_program(line), Some(tally));
        assert_eq!(Tally::of_closing_line(line), None);
        assert_eq!(Tally::of_closing_line(&tally.to_string()), Some(tally));
        assert_eq!(Tally::of_test_program(&tally.to_string()), None);
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in ["", "test a::b ... ok", "running 3 tests", "12 files", "3 passed, 1 failed"] {
            assert_eq!(Tally::of_test_program(line), None, "{line}");
            assert_eq!(Tally::of_closing_line(line), None, "{line}");
        }
        assert_eq!(Tally::of_closing_line("gate: 1 passed, 0 failed, 0 skipped"), None);
    }

    #[test]
    fn counts_add_up() {
        let mut sum = Tally::PASS;
        sum += Tally::SKIP;
        sum += Tally { passed: 2, failed: 5, skipped: 0 };
        assert_eq!(sum.to_string(), "3 passed, 5 failed, 1 skipped");
    }
}
