//! The shader compiler of OA: Slang in, validated and reflected SPIR-V, registry and lock out.
//!
//! It is a program of its own because it links the Slang compiler, which no build of OA needs.
//! `cargo xtask shaders` fetches that compiler and starts this program; it is not meant to be
//! started by hand.
//!
//! Usage: `oa-shader-compiler <write|bless|check> <repository root> <scratch folder> <spirv-val>`.
#![forbid(unsafe_code)]

mod bless;
mod check;
mod compile;
mod validate;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use oa_shader_catalog::{Refusal, Tree, drift};

use compile::Compiler;
use validate::Validator;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, root, scratch, validator] = arguments.as_slice() else {
        bail!("usage: oa-shader-compiler <write|bless|check> <root> <scratch> <spirv-val>");
    };
    let tree = Tree::new(root);
    let scratch = PathBuf::from(scratch);
    std::fs::create_dir_all(&scratch).context("no scratch folder")?;
    let lock = std::fs::File::create(scratch.join("lock"))?;
    lock.lock().context("cannot wait for another run")?;
    let compiler = Compiler::start().context("the Slang compiler does not start")?;
    let validator = Validator::new(validator.into());
    drift::same_compiler(&tree, &compiler.line(), mode == "bless")?;
    let refusals = match mode.as_str() {
        "check" => check::check(&tree, &compiler, &validator, &scratch),
        "write" | "bless" => {
            let summary = bless::bless(&tree, &compiler, &validator, &scratch)?;
            println!(
                "{} kernels compiled, {} up to date, {} files changed",
                summary.compiled, summary.fresh, summary.changed
            );
            summary.refusals
        }
        other => bail!("unknown mode {other}"),
    };
    Ok(verdict(&refusals))
}

fn verdict(refusals: &[Refusal]) -> ExitCode {
    for refusal in refusals {
        eprintln!("refused: {refusal}");
    }
    if refusals.is_empty() {
        println!("shaders: sources, blobs, registry and lock belong together");
        return ExitCode::SUCCESS;
    }
    eprintln!("shaders: {} to repair", refusals.len());
    ExitCode::FAILURE
}
