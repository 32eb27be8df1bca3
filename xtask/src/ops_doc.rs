//! `cargo xtask ops-doc`: docs/ops.md from the op table.
//!
//! Exists so that the page about ops cannot differ from the ops. The text is made by a program of the
//! test crate, which may see the table; `--check` compares instead of writing.

use crate::shell;
use crate::workspace;
use anyhow::Result;

/// Options of `cargo xtask ops-doc`.
#[derive(clap::Args)]
pub struct Options {
    /// Compare with the committed page instead of writing it.
    #[arg(long)]
    pub check: bool,
}

/// Runs `cargo xtask ops-doc`.
pub fn run(options: &Options) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", "oa-tests", "--bin", "ops_doc", "--"]);
    command.arg(workspace::root().join("docs").join("ops.md"));
    if options.check {
        command.arg("--check");
    }
    shell::run(&mut command)
}
