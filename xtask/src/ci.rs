//! `cargo xtask ci`: every check that a change must pass, in the order of their price.
//!
//! Exists so that a laptop and a build machine judge by the same command. Each step is printed with
//! its time; the first that fails ends the run. A step that cannot run here is counted as skipped and
//! says why.

use crate::demo;
use crate::ops_doc;
use crate::setup::{self, Prepared, Wants};
use crate::shell;
use crate::tally::Tally;
use crate::test_run::{self, Choice};
use crate::tidy;
use crate::workspace;
use anyhow::{Result, bail};
use std::path::Path;
use std::time::Instant;

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub struct Options {
    /// Run only steps whose name contains this word.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Leave out steps whose name contains this word; may be given several times.
    #[arg(long, value_name = "WORD")]
    skip: Vec<String>,
}

impl Options {
    /// The flag that leaves a step out.
    fn leaves_out(&self, name: &str) -> Option<&'static str> {
        match &self.only {
            Some(word) if !name.contains(word.as_str()) => Some("--only"),
            _ => self.skip.iter().any(|word| name.contains(word.as_str())).then_some("--skip"),
        }
    }
}

/// A step: its name and what it does.
type Step = (&'static str, fn(&Prepared) -> Result<Tally>);

const STEPS: [Step; 13] = [
    ("fmt", fmt),
    ("tidy", |_| passed(tidy::run())),
    ("clippy", clippy),
    ("shaders", shaders),
    ("ops-doc", |_| passed(ops_doc::run(&ops_doc::Options { check: true }))),
    ("rustdoc", rustdoc),
    ("deny", deny),
    ("test", |prepared| tests(prepared, Choice::Lavapipe)),
    ("test-subgroups", subgroups),
    ("test-second-driver", second_driver),
    ("contract", contract),
    ("demo", |prepared| show(prepared, Choice::Lavapipe)),
    ("demo-second-driver", second_demo),
];

/// Runs `cargo xtask ci`.
pub fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    let prepared = setup::prepare(Wants { lavapipe: true, swiftshader: true, validation: true })?;
    println!("ci: set-up took {:.0} s", began.elapsed().as_secs_f64());
    let mut total = Tally::default();
    let mut times = Vec::new();
    for (name, step) in STEPS {
        if let Some(flag) = options.leaves_out(name) {
            total += skipped(&format!("{name}, left out by {flag}"));
            continue;
        }
        println!("\nci: {name}");
        let started = Instant::now();
        let outcome = step(&prepared);
        let seconds = started.elapsed().as_secs_f64();
        times.push(format!("  {name:<20} {seconds:>6.0} s"));
        println!("ci: {name} took {seconds:.0} s");
        let failed = match outcome {
            Ok(tally) => {
                total += tally;
                tally.failed > 0
            }
            Err(error) => {
                println!("ci: {name} failed: {error:#}");
                total += Tally::FAIL;
                true
            }
        };
        if failed {
            println!("{total}");
            bail!("ci ended at {name}");
        }
    }
    println!("\nci: every step passed in {:.0} s", began.elapsed().as_secs_f64());
    println!("{}", times.join("\n"));
    println!("{total}");
    Ok(())
}

fn passed(outcome: Result<()>) -> Result<Tally> {
    outcome.map(|()| Tally::PASS)
}

fn skipped(reason: &str) -> Tally {
    println!("skipped: {reason}");
    Tally::SKIP
}

fn fmt(_: &Prepared) -> Result<Tally> {
    let mut command = workspace::cargo();
    command.args(["fmt", "--all", "--", "--check"]);
    passed(shell::run(&mut command))
}

fn clippy(_: &Prepared) -> Result<Tally> {
    // A target that `cargo test` leaves alone is no target of all to clippy: it is named.
    let targets: [&[&str]; 2] = [&["--all-targets"], &["--package", "oa-tests", "--test", "gate"]];
    for targets in targets {
        let mut command = workspace::cargo();
        command.arg("clippy").args(targets).args(["--", "-D", "warnings"]);
        shell::run(&mut command)?;
    }
    Ok(Tally::PASS)
}

/// The compiler crate is no default member, so it runs as the command a person would type.
fn shaders(_: &Prepared) -> Result<Tally> {
    let mut command = workspace::cargo();
    command.args(["xtask", "shaders", "--check"]);
    passed(shell::run(&mut command))
}

fn rustdoc(_: &Prepared) -> Result<Tally> {
    let mut command = workspace::cargo();
    command.args(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    passed(shell::run(&mut command))
}

fn deny(_: &Prepared) -> Result<Tally> {
    if !shell::works("cargo", &["deny", "--version"]) {
        return Ok(skipped("cargo-deny is not installed (cargo install cargo-deny)"));
    }
    let mut command = workspace::cargo();
    command.args(["deny", "check", "licenses", "bans", "sources"]);
    passed(shell::run(&mut command))
}

fn tests(prepared: &Prepared, choice: Choice) -> Result<Tally> {
    test_run::whole(&test_run::place(prepared, choice, true)?)
}

fn subgroups(prepared: &Prepared) -> Result<Tally> {
    test_run::subgroups(&test_run::place(prepared, Choice::Lavapipe, false)?)
}

fn second_driver(prepared: &Prepared) -> Result<Tally> {
    match &prepared.swiftshader {
        Ok(_) => tests(prepared, Choice::Swiftshader),
        Err(reason) => Ok(skipped(&format!("there is no SwiftShader here: {reason}"))),
    }
}

/// Every family with every tokenizer. The second driver trains the byte workloads in the gate; the
/// others run the same kernels at other sizes.
fn contract(prepared: &Prepared) -> Result<Tally> {
    test_run::contract(&test_run::place(prepared, Choice::Lavapipe, false)?, &[])
}

fn show(prepared: &Prepared, choice: Choice) -> Result<Tally> {
    let place = test_run::place(prepared, choice, false)?;
    let out = match choice {
        Choice::Swiftshader => "target/demo-second-driver",
        _ => "target/demo",
    };
    passed(demo::show(&place, Path::new(out), true))
}

fn second_demo(prepared: &Prepared) -> Result<Tally> {
    match &prepared.swiftshader {
        Ok(_) => show(prepared, Choice::Swiftshader),
        Err(reason) => Ok(skipped(&format!("there is no SwiftShader here: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_left_out_by_name() {
        let options = |only: Option<&str>, skip: &[&str]| Options {
            only: only.map(str::to_string),
            skip: skip.iter().map(|word| (*word).to_string()).collect(),
        };
        assert_eq!(options(None, &[]).leaves_out("fmt"), None);
        assert_eq!(options(Some("demo"), &[]).leaves_out("fmt"), Some("--only"));
        assert_eq!(options(Some("demo"), &["second"]).leaves_out("demo"), None);
        assert_eq!(options(None, &["second"]).leaves_out("demo-second-driver"), Some("--skip"));
    }

    #[test]
    fn every_step_has_its_own_name() {
        let names: std::collections::BTreeSet<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
