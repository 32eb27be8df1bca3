//! Writing to the output: lines of JSON for programs, tables for people.
//!
//! A reader that went away is an error to be passed on, never a panic.

use std::io::{self, Write};

/// Writes one line of JSON.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

/// Writes a value as indented JSON.
pub fn json_document(value: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Writes text.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Bytes in the unit that suits them.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let steps = (0..units.len() - 1).take_while(|step| count >> (10 * (step + 1)) > 0).count();
    match steps {
        0 => format!("{count} B"),
        _ => format!("{:.1} {}", count as f64 / (1u64 << (10 * steps)) as f64, units[steps]),
    }
}

/// A count with its thousands set apart: `857,216`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Today's date in UTC, `2026-12-01`.
pub fn date() -> String {
    time::OffsetDateTime::now_utc().date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        assert_eq!(count(7), "7");
        assert_eq!(count(857_216), "857,216");
        assert_eq!(count(1_000), "1,000");
    }
}
