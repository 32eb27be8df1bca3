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

    /// The counts of a runner's closing line: `test result: ok. 3 passed; 0 failed; 1 ignored; …`
    /// or `3 passed, 0 failed, 1 skipped`. `None` for every other line.
    pub fn of_line(line: &str) -> Option<Tally> {
        let counts = match line.trim().strip_prefix("test result: ") {
            Some(rest) => rest.split_once(". ")?.1,
            None if line.trim().starts_with(|first: char| first.is_ascii_digit()) => line.trim(),
            None => return None,
        };
        let mut tally = Tally::default();
        let mut seen = 0;
        for part in counts.split([';', ',']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(word)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => (tally.passed, seen) = (number, seen + 1),
                "failed" => (tally.failed, seen) = (number, seen + 1),
                "ignored" | "skipped" => tally.skipped = number,
                _ => {}
            }
        }
        (seen == 2).then_some(tally)
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
        assert_eq!(Tally::of_line(line), Some(tally));
        assert_eq!(Tally::of_line(&tally.to_string()), Some(tally));
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in ["", "test a::b ... ok", "running 3 tests", "12 files", "3 passed", "1 failed"]
        {
            assert_eq!(Tally::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn counts_add_up() {
        let mut sum = Tally::PASS;
        sum += Tally::SKIP;
        sum += Tally { passed: 2, failed: 5, skipped: 0 };
        assert_eq!(sum.to_string(), "3 passed, 5 failed, 1 skipped");
    }
}
