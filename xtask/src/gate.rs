//! `cargo xtask gate`: the conformance tests on one device.
//!
//! Exists so that a device is judged with one command, here or on a machine that was lent. The gate
//! itself is a program of the test crate; this prepares the machine, points the gate at a driver and
//! passes the rest on.

use crate::setup;
use crate::shell;
use crate::test_run::{self, Choice};
use crate::workspace;
use anyhow::Result;

/// Options of `cargo xtask gate`.
#[derive(clap::Args)]
pub struct Options {
    /// Which driver it runs on.
    #[arg(long, value_enum, default_value_t = Choice::Lavapipe)]
    driver: Choice,
    /// Run on a device of this machine instead: an index, a part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Run without the validation layer.
    #[arg(long)]
    no_validation: bool,
    /// Arguments of the gate, e.g. `-- --suite ops --report gate.json`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Runs `cargo xtask gate`.
pub fn run(options: &Options) -> Result<()> {
    let choice = if options.device.is_some() { Choice::Machine } else { options.driver };
    let validation = !options.no_validation;
    let prepared = setup::prepare(test_run::wants(choice, validation))?;
    let mut place = test_run::place(&prepared, choice, validation)?;
    place.device = options.device.clone();
    let mut command = workspace::cargo();
    command.args(test_run::GATE).arg("--").args(&options.rest);
    test_run::at(&mut command, &place);
    println!("the gate on {}", place.name);
    shell::run(&mut command)
}
