//! `cargo xtask tidy`: the structure of the sources, checked rather than remembered.
//!
//! Exists so that the rules of ARCHITECTURE.md which a machine can check are checked by one. Each
//! check is a pure function from texts to findings with a test that breaks its rule. Formatting,
//! function length of Rust and missing documentation belong to rustfmt, clippy and rustc.

mod code;
mod generated;
mod headers;
mod homes;
mod layers;
mod links;
mod names;
mod orphans;
mod paths;
mod size;
mod words;

use crate::workspace::{self, File};
use anyhow::{Result, bail};
use std::fmt;

/// One broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, from the root folder.
    pub path: String,
    /// Line, counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// What is wrong and what the rule is.
    pub message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A check of one file at a time.
type Check = fn(&File) -> Vec<Finding>;

/// Every check that looks at one file at a time.
const CHECKS: [Check; 7] = [
    generated::check,
    headers::check,
    homes::check,
    names::check,
    size::check,
    size::check_slang_functions,
    words::check,
];

/// Runs `cargo xtask tidy`: prints each finding, fails when there is one.
pub fn run() -> Result<()> {
    let root = workspace::root();
    let files = workspace::files(&root)?;
    let mut findings: Vec<Finding> =
        files.iter().flat_map(|file| CHECKS.iter().flat_map(|check| check(file))).collect();
    findings.extend(homes::check_crates(&files));
    findings.extend(orphans::check(&files));
    findings.extend(links::check(&files));
    findings.extend(paths::check(&files, &paths::of_this_machine(&root)));
    findings.extend(layers::check(&layers::read()?));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: {} files, no finding", files.len()),
        count => bail!("tidy: {} files, {count} findings", files.len()),
    }
    Ok(())
}

#[cfg(test)]
mod fixture {
    //! Files for the tests of the checks.

    use super::{File, Finding};

    /// A file of a test.
    pub fn file(path: &str, text: &str) -> File {
        File { path: path.to_string(), text: text.to_string() }
    }

    /// The lines and messages of findings.
    pub fn said(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.to_string()).collect()
    }
}
