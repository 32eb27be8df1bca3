//! `cargo xtask vectors`: the engine against the reference vectors of a folder.
//!
//! Exists so that vectors from elsewhere can be dropped in and judged with one command. The
//! comparison itself is a program of the test crate; this prepares the machine and passes it on.

use crate::setup;
use crate::shell;
use crate::test_run::{self, Choice};
use crate::workspace;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Options of `cargo xtask vectors`.
#[derive(clap::Args)]
pub struct Options {
    /// Folder with `.safetensors` vectors; the repository's own copy when left out.
    folder: Option<PathBuf>,
    /// Which driver they run on.
    #[arg(long, value_enum, default_value_t = Choice::Lavapipe)]
    driver: Choice,
    /// Run on a device of this machine instead: an index, a part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

/// Runs `cargo xtask vectors`.
pub fn run(options: &Options) -> Result<()> {
    let choice = if options.device.is_some() { Choice::Machine } else { options.driver };
    let prepared = setup::prepare(test_run::wants(choice, false))?;
    let mut place = test_run::place(&prepared, choice, false)?;
    place.device = options.device.clone();
    let mut command = workspace::cargo();
    command.args(test_run::VECTORS).arg("--");
    if let Some(folder) = &options.folder {
        // Cargo starts in the root folder, the caller may stand elsewhere.
        let folder = std::path::absolute(folder)
            .with_context(|| format!("{} is no path", folder.display()))?;
        command.arg(folder);
    }
    test_run::at(&mut command, &place);
    println!("vectors on {}", place.name);
    shell::run(&mut command)
}
