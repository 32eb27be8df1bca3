//! `cargo xtask contract`: the workloads of the teaching contract, as a test.
//!
//! Exists so that a driver is judged by what it learns with one command. The workloads are the
//! command's own, `oa contract`; this prepares the machine, points it at a driver and counts.

use crate::setup;
use crate::shell;
use crate::test_run::{self, Choice};
use crate::workspace;
use anyhow::{Result, bail};

/// Options of `cargo xtask contract`.
#[derive(clap::Args)]
pub struct Options {
    /// Which driver they run on.
    #[arg(long, value_enum, default_value_t = Choice::Lavapipe)]
    driver: Choice,
    /// Run on a device of this machine instead: an index, a part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Arguments of `oa contract`, e.g. `-- gru moe --tokenizer byte,bpe --report contract.json`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Runs `cargo xtask contract`.
pub fn run(options: &Options) -> Result<()> {
    let choice = if options.device.is_some() { Choice::Machine } else { options.driver };
    let prepared = setup::prepare(test_run::wants(choice, false))?;
    let mut place = test_run::place(&prepared, choice, false)?;
    place.device = options.device.clone();
    if options.rest.iter().any(|argument| argument == "--json") {
        // A program reads it, and judges by the exit code.
        let mut command = workspace::cargo();
        test_run::at(command.args(test_run::CONTRACT).args(&options.rest), &place);
        return shell::run(&mut command);
    }
    let tally = test_run::contract(&place, &options.rest)?;
    println!("{tally}");
    if tally.failed > 0 { bail!("the contract was missed on {}", place.name) } else { Ok(()) }
}
