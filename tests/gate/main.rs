//! The gate: what must hold on a device before anything built on it is believed.
//!
//! The list of trials is built from the tables (ops, kernel variants, samples), so a new op or
//! kernel is gated without an edit here. Prints a line a trial and closes with
//! `N passed, N failed, N skipped`; an absent device is its own exit code, never green.

mod checkpoint;
mod command;
mod context;
mod errors;
mod execute;
mod frozen;
mod graphs;
mod learn;
mod memory;
mod ops;
mod plan;
mod process;
mod same;
mod scan;
mod start;
mod sync;
mod train;

use clap::Parser;
use context::Context;
use libtest_mimic::{Arguments, Trial};
use oa_tests::device::{self, EXIT_FAILED, EXIT_PASSED, EXIT_USAGE, Lab};
use oa_tests::report::Report;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Counts allocations, so that `memory` can say that a replayed step makes none.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Conformance tests of OA on one device.
#[derive(Parser)]
#[command(name = "gate", max_term_width = 100)]
struct Options {
    /// Run only this suite; may be given several times. All but the long ones when left out.
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Index, part of the name, or UUID of the device; what OA_DEVICE says when left out.
    #[arg(long)]
    device: Option<String>,
    /// Where to write a JSON report.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Run one measurement in this process and print its numbers: how a suite looks at a process
    /// that did nothing else.
    #[arg(long, hide = true, value_name = "NAME")]
    probe: Option<String>,
    /// Everything that a test program of Rust takes.
    #[command(flatten)]
    test: Arguments,
}

/// Builds the trials of a suite.
type Build = fn(&Arc<Context>) -> Vec<Trial>;

/// A suite: its name, whether it takes minutes and runs only when it is named, and its trials.
const SUITES: &[(&str, bool, Build)] = &[
    ("start", false, start::trials),
    ("errors", false, errors::trials),
    ("ops", false, ops::trials),
    ("large", true, ops::large_trials),
    ("same", false, same::trials),
    ("scan", false, scan::trials),
    ("plan", false, plan::trials),
    ("sync", false, sync::trials),
    ("train", false, train::trials),
    ("checkpoint", false, checkpoint::trials),
    ("frozen", false, frozen::trials),
    ("memory", true, memory::trials),
];

fn main() -> ExitCode {
    let options = Options::parse();
    ExitCode::from(run(options))
}

fn run(mut options: Options) -> u8 {
    let names: Vec<&str> = SUITES.iter().map(|(name, ..)| *name).collect();
    if let Some(unknown) = options.suite.iter().find(|suite| !names.contains(&suite.as_str())) {
        eprintln!("error: there is no suite `{unknown}`; the suites are {}", names.join(", "));
        return EXIT_USAGE;
    }
    let context = Arc::new(Context::new(Lab { selector: options.device.clone() }));
    if let Some(probe) = &options.probe {
        return process::answer(probe, &context);
    }
    if !options.test.list
        && let Err(error) = context.engine()
    {
        eprintln!("error: {error}");
        return device::exit_code(&error);
    }
    let chosen = SUITES.iter().filter(|(name, long, _)| match options.suite.is_empty() {
        true => !long,
        false => options.suite.iter().any(|suite| suite == name),
    });
    let trials: Vec<Trial> = chosen.flat_map(|(_, _, build)| build(&context)).collect();
    // One device, one queue: trials that ran beside each other would measure each other.
    options.test.test_threads = Some(1);
    let list = options.test.list;
    let conclusion = libtest_mimic::run(&options.test, trials);
    if list {
        return EXIT_PASSED;
    }
    if conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored == 0 {
        eprintln!("error: no trial has that name");
        return EXIT_USAGE;
    }
    close(&context, options.report)
}

/// Writes the report and prints the last line.
fn close(context: &Context, path: Option<PathBuf>) -> u8 {
    let report = Report::new("gate", context.device_row(), context.take_rows());
    if let Some(path) = path
        && let Err(error) = report.write(&path)
    {
        eprintln!("error: {error:#}");
        return EXIT_FAILED;
    }
    println!("{}", report.tally);
    if report.tally.failed > 0 { EXIT_FAILED } else { EXIT_PASSED }
}
