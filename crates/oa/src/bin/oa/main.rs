//! The `oa` command: look at devices, train, evaluate, generate, look into files.
//!
//! It reads flags and files, shows progress and turns errors into a sentence, a cause and a remedy;
//! what a user of the library would also want lives in the crates below.
#![forbid(unsafe_code)]

mod contract;
mod devices;
mod doctor;
mod eval;
mod failure;
mod flags;
mod generate;
mod inspect;
mod interrupt;
mod open;
mod output;
mod plan;
mod process;
mod settings;
mod tokenize;
mod train;

use clap::Parser;
use failure::{End, Failure};
use flags::{Arguments, Task};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    start_log();
    let (common, json) = (&arguments.common, arguments.common.json);
    let done = match &arguments.task {
        Task::Devices => devices::run(common),
        Task::Doctor => doctor::run(common),
        Task::Train(flags) => train::run(common, flags),
        Task::Eval(flags) => eval::run(common, flags),
        Task::Generate(flags) => generate::run(common, flags),
        Task::Inspect(flags) => inspect::run(common, flags),
        Task::Tokenize(flags) => tokenize::run(common, flags),
        Task::Plan(flags) => plan::run(common, flags),
        Task::Report(task) => plan::report(common, task),
        Task::Contract(flags) => contract::run(common, flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure, json),
    }
}

/// Ends a call that is none: with what is wrong, or with the help or version that it asks for.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        // Nobody may be listening any more; the exit code still tells.
        let _unheard = output::json(&Failure::call(&error.render().to_string()).to_json());
    }
    // As above.
    let _unheard = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(End::Usage as u8))
}

fn end(failure: &Failure, json: bool) -> ExitCode {
    if failure.is_silent() {
        return ExitCode::SUCCESS;
    }
    if json {
        // Nobody may be listening any more; the exit code still tells.
        let _unheard = output::json(&failure.to_json());
    }
    // The error stream may be closed too.
    let _unheard = write!(std::io::stderr(), "{failure}");
    ExitCode::from(failure.code())
}

/// Sends log lines to the error stream: warnings, or what `OA_LOG` asks for.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("OA_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}
