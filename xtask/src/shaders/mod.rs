//! `cargo xtask shaders`: keep SPIR-V, kernel registry and `kernels.lock` in step with the sources.
//!
//! Exists because no build of OA needs a shader compiler, so one command must fetch the pinned one
//! and start the program that links it. What that program does is its own affair
//! (`shaders/compiler`); this only brings the two together.

mod toolchain;

use anyhow::{Result, bail};
use std::path::Path;
use toolchain::Toolchain;

use crate::{shell, workspace};

/// Options of `cargo xtask shaders`.
#[derive(clap::Args)]
pub struct Options {
    /// Write everything, also when the lock was written by another version of the compiler.
    #[arg(long, conflicts_with = "check")]
    bless: bool,
    /// Write nothing: recompile every kernel and compare the bytes with the committed ones.
    #[arg(long)]
    check: bool,
}

/// Fetches the compiler where it is missing, then compiles what changed, or checks.
pub fn run(options: &Options) -> Result<()> {
    let mode = match (options.bless, options.check) {
        (true, _) => "bless",
        (_, true) => "check",
        _ => "write",
    };
    let tools = toolchain::prepare()?;
    let root = workspace::root();
    let build = root.join("target/shader-compiler");
    let program = compiler(&tools, &build)?;
    let mut command = std::process::Command::new(program);
    tools.environment(&mut command);
    command.arg(mode).arg(&root).arg(build.join("scratch")).arg(&tools.validator);
    let status = command.status()?;
    if !status.success() {
        match mode {
            "check" => bail!("the committed kernels are not what the sources give"),
            _ => bail!("not every kernel is in order; the rest was written"),
        }
    }
    Ok(())
}

/// Builds the compiler in a target folder of its own: it never waits for a build of the workspace.
fn compiler(tools: &Toolchain, build: &Path) -> Result<std::path::PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--package", "oa-shader-compiler"]);
    cargo.arg("--target-dir").arg(build);
    tools.environment(&mut cargo);
    shell::run(&mut cargo)?;
    Ok(build.join("debug/oa-shader-compiler"))
}
