//! `cargo xtask`: everything that is done to this repository rather than by it.
//!
//! Exists so that set-up, the demo, the tests and the checks are one command each, the same on a
//! laptop and on a build machine, and need nothing but Rust to start. Knows no tensor and no
//! device: what touches the engine runs as a child process.
#![forbid(unsafe_code)]

mod ci;
mod contract;
mod demo;
mod gate;
mod ops_doc;
mod setup;
mod shaders;
mod shell;
mod tally;
mod test_run;
mod tidy;
mod vectors;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Automation of OA.
#[derive(Parser)]
#[command(name = "cargo xtask", version, about = "Automation of OA", max_term_width = 100)]
struct Arguments {
    /// What to do.
    #[command(subcommand)]
    task: Task,
}

/// The tasks.
#[derive(Subcommand)]
enum Task {
    /// Prepare the machine, then train, evaluate, generate, save and reload a small Transformer.
    Demo(demo::Options),
    /// Prepare the machine, then run every test.
    Test(test_run::Options),
    /// Judge one device with the conformance tests.
    Gate(gate::Options),
    /// Train and judge the workloads of the teaching contract.
    Contract(contract::Options),
    /// Run every check that a change must pass.
    Ci(ci::Options),
    /// Install and unpack what building and testing need; says what and why.
    Setup(setup::Options),
    /// Check the structure of the sources: layers, sizes, headers, names, homes of unsafe code.
    Tidy,
    /// Compare the engine with the reference vectors of a folder.
    Vectors(vectors::Options),
    /// Compile the kernels with the pinned compiler; write blobs, registry and lock.
    Shaders(shaders::Options),
    /// Write docs/ops.md from the op table.
    OpsDoc(ops_doc::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Test(options) => test_run::run(&options),
        Task::Gate(options) => gate::run(&options),
        Task::Contract(options) => contract::run(&options),
        Task::Ci(options) => ci::run(&options),
        Task::Setup(options) => setup::run(&options),
        Task::Tidy => tidy::run(),
        Task::Vectors(options) => vectors::run(&options),
        Task::Shaders(options) => shaders::run(&options),
        Task::OpsDoc(options) => ops_doc::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(shell::exit_code(&error))
        }
    }
}
