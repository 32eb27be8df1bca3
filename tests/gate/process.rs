//! Other processes: fresh copies of the gate that measure themselves, and the `oa` command.
//!
//! A process that did nothing else is the only honest witness of what starting an engine costs or
//! of whether memory stays flat; a user meets errors at the command, so they are provoked there.

use crate::context::Context;
use anyhow::{Context as _, Result, bail, ensure};
use oa_tests::device::{EXIT_FAILED, EXIT_PASSED, EXIT_USAGE};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A measurement that a probe makes: names and numbers.
pub type Numbers = BTreeMap<String, f64>;

/// Runs a probe in this process and prints its numbers as JSON.
pub fn answer(probe: &str, context: &Context) -> u8 {
    let words: Vec<&str> = probe.lines().collect();
    let measured = match words.as_slice() {
        ["start"] => crate::start::measure(context),
        ["reopen"] => crate::start::reopen(context),
        ["memory"] => crate::memory::measure(context),
        ["resume", rest @ ..] => crate::checkpoint::resume(context, rest),
        _ => {
            eprintln!("error: there is no probe `{probe}`");
            return EXIT_USAGE;
        }
    };
    let printed = measured.and_then(|numbers| Ok(serde_json::to_string(&numbers)?));
    match printed {
        Ok(json) => {
            println!("{json}");
            EXIT_PASSED
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            EXIT_FAILED
        }
    }
}

/// Asks a fresh copy of this program for a measurement on the same device.
///
/// # Errors
///
/// When it cannot be started, fails, or prints something else than numbers.
pub fn ask(context: &Context, probe: &str) -> Result<Numbers> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--probe", probe]);
    if let Some(device) = &context.lab.selector {
        command.args(["--device", device]);
    }
    let output = command.output().context("starting a fresh gate")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the probe ended with {}: {errors}", output.status);
    let last = text.lines().last().context("the probe printed nothing")?;
    serde_json::from_str(last).with_context(|| format!("the probe printed {last}"))
}

/// The `oa` command of these sources: built where cargo is, else the one beside the gate.
///
/// # Errors
///
/// When it cannot be built or is not there.
pub fn oa() -> Result<PathBuf> {
    let gate = std::env::current_exe()?;
    let folder = gate.parent().context("the gate lies in a folder")?;
    let cargo = option_env!("CARGO").map(Path::new).filter(|cargo| cargo.exists());
    // target/<profile>/deps/gate-… and target/<profile>/oa
    let program = match (cargo, folder.file_name()) {
        (Some(cargo), Some(name)) if name == "deps" => {
            let profile = folder.parent().context("deps lies in a profile's folder")?;
            build(cargo, profile.ends_with("release"))?;
            profile.join("oa")
        }
        _ => folder.join("oa"),
    };
    ensure!(program.is_file(), "there is no {}: build the command oa first", program.display());
    Ok(program)
}

fn build(cargo: &Path, release: bool) -> Result<()> {
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "oa", "--bin", "oa"]);
    if release {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().context("running cargo")?;
    if !built.status.success() {
        bail!("oa does not build: {}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(())
}

/// What a finished command printed and how it ended.
pub struct Ended {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard error.
    pub errors: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A folder that is removed when it is dropped.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new empty folder; `name` keeps two of one process apart.
    ///
    /// # Errors
    ///
    /// When it cannot be created.
    pub fn new(name: &str) -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("oa-gate-{}-{name}", std::process::id()));
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Scratch { path })
    }

    /// A path inside the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed is left to the system's own cleaning.
        let _left = std::fs::remove_dir_all(&self.path);
    }
}
