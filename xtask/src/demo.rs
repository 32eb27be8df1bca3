//! `cargo xtask demo`: the first thing a newcomer runs.
//!
//! Exists so that one command takes a bare machine to a model that learned real text on a Vulkan
//! device. Prepares the machine, then runs the example `first_light` twice: once to train, evaluate,
//! generate and save, and once as a fresh process that reloads the file and must generate the same
//! bytes.

use crate::setup;
use crate::shell;
use crate::test_run::{self, Choice, Place};
use crate::workspace;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Instant;

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Options {
    /// Which driver it runs on; the best device of the machine when left out.
    #[arg(long, value_enum)]
    driver: Option<Choice>,
    /// Run on this device: an index, a part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Folder for the model, the text and the loss picture.
    #[arg(long, value_name = "FOLDER", default_value = "target/demo")]
    out: PathBuf,
    /// Build without optimisation of the host code: builds faster, learns the same.
    #[arg(long)]
    debug: bool,
}

/// Runs `cargo xtask demo`.
pub fn run(options: &Options) -> Result<()> {
    let wanted = options.driver.unwrap_or(Choice::Machine);
    let prepared = setup::prepare(test_run::wants(wanted, false))?;
    let choice = match options.driver {
        Some(choice) => choice,
        None if options.device.is_some() || prepared.hardware => Choice::Machine,
        None => Choice::Lavapipe,
    };
    let mut place = test_run::place(&prepared, choice, false)?;
    place.device = options.device.clone();
    show(&place, &options.out, options.debug)
}

/// Builds the example and runs both halves at a place.
pub fn show(place: &Place, out: &std::path::Path, debug: bool) -> Result<()> {
    let out = workspace::root().join(out);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let profile: &[&str] = if debug { &[] } else { &["--release"] };
    let mut build = workspace::cargo();
    build.arg("build").args(profile).args(["--package", "oa", "--example", "first_light"]);
    shell::run(&mut build)?;
    println!("the demo runs on {}", place.name);
    let started = Instant::now();
    for half in ["train", "reload"] {
        let mut command = workspace::cargo();
        command.args(["run", "--quiet"]).args(profile);
        command.args(["--package", "oa", "--example", "first_light", "--", half]).arg(&out);
        test_run::at(&mut command, place);
        shell::run(&mut command)?;
    }
    println!("the demo passed in {:.0} s; see {}", started.elapsed().as_secs_f64(), out.display());
    Ok(())
}
