//! `vectors`: compares the engine with a folder of reference vectors.
//!
//! Runs each safetensors file by its family name on one device and prints a line a file. A family
//! without a runner is listed as skipped, so that a folder may hold more than this engine knows.

mod block;
mod contract;
mod language;
mod loss;
mod mamba3;
mod moe;
mod op;
mod optim;
mod random;
mod runner;
mod scan;

use anyhow::{Context, Result};
use clap::Parser;
use oa_tests::case::{Checks, describe};
use oa_tests::device::{self, EXIT_FAILED, EXIT_PASSED, EXIT_USAGE, Lab};
use oa_tests::expect::{KNOWN, judge};
use oa_tests::report::{CaseRow, Report, Tally};
use oa_tests::{Fixture, Verdict};
use runner::Run;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Compares the engine with reference vectors, file by file.
#[derive(Parser)]
#[command(name = "vectors", max_term_width = 100)]
struct Options {
    /// Folder of .safetensors files; the repository's copy when left out.
    folder: Option<PathBuf>,
    /// Index, part of the name, or UUID of the device; what OA_DEVICE says when left out.
    #[arg(long)]
    device: Option<String>,
    /// Where to write a JSON report.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// Computes one file's outputs and gradients and checks them.
type Runner = fn(&mut Run) -> Result<()>;

/// Which runner a family has. A family name may go on after the pattern: `op_attention_gqa_past` is
/// run as `op_attention`.
const RUNNERS: &[(&str, Runner)] = &[
    ("op_gelu", op::gelu),
    ("op_layernorm", op::layer_norm),
    ("op_rmsnorm", op::rms_norm),
    ("op_rope", op::rope),
    ("op_swiglu", op::swiglu),
    ("op_attention", op::attention),
    ("attn_block", block::attention),
    ("rnn_elman", block::elman),
    ("rnn_gru", block::gru),
    ("loss_cross_entropy", loss::cross_entropy),
    ("optim_adamw", optim::adamw),
    ("optim_muon", optim::muon),
    ("optim_clip_sched", optim::clip_and_schedules),
    ("rng_dropout", random::dropout),
    ("moe_top", moe::layer),
    ("mamba3_scan", scan::mamba3),
    ("lm_rnn", language::rnn),
    ("lm_gru", language::gru),
    ("lm_transformer", language::transformer),
    ("lm_moe", language::moe),
    ("mamba3_mixer", mamba3::mixer),
    ("lm_mamba3", language::mamba3),
    ("lm_contract_transformer", contract::transformer),
];

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn run(options: &Options) -> Result<u8> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/vectors");
    let files = files(options.folder.as_deref().unwrap_or(&own))?;
    let lab = Lab { selector: options.device.clone() };
    let engine = match lab.open() {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("error: {error}");
            return Ok(device::exit_code(&error));
        }
    };
    let device = device::describe(&engine);
    let driver = format!("{}, {}, {}", device.name, device.driver, device.driver_info);
    println!("device: {driver}");
    let mut rows = Vec::new();
    for file in &files {
        let start = Instant::now();
        let mut checks = Checks::default();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let verdict = judge(KNOWN, &driver, &name, compare(&engine, file, &mut checks));
        println!("{}", line(&name, &verdict, &checks));
        rows.push(CaseRow::new(&name, verdict, &checks, start.elapsed().as_secs_f64()));
    }
    let tally = Tally::of(&rows);
    if let Some(path) = &options.report {
        Report::new("vectors", Some(device), rows).write(path)?;
    }
    println!("{tally}");
    Ok(if tally.failed > 0 { EXIT_FAILED } else { EXIT_PASSED })
}

/// The vector files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()));
    let mut files = Vec::new();
    for entry in entries? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    anyhow::ensure!(!files.is_empty(), "{} holds no .safetensors file", folder.display());
    files.sort();
    Ok(files)
}

/// Runs one file. A panic is the file's failure, not the end of the run.
fn compare(engine: &oa_graph::engine::Engine, file: &Path, checks: &mut Checks) -> Verdict {
    let fixture = match Fixture::read(file) {
        Ok(fixture) => fixture,
        Err(error) => return Verdict::Failed(format!("{error:#}")),
    };
    let found = RUNNERS.iter().find(|(pattern, _)| fixture.family.starts_with(pattern));
    let Some((_, runner)) = found else {
        return Verdict::Skipped(format!("no runner for family {}", fixture.family));
    };
    let mut run = Run { engine, fixture: &fixture, checks };
    match std::panic::catch_unwind(AssertUnwindSafe(|| runner(&mut run))) {
        Ok(Ok(())) => checks.verdict(),
        Ok(Err(error)) => Verdict::Failed(format!("{error:#}")),
        Err(_) => Verdict::Failed("panicked; the message is above".to_owned()),
    }
}

/// The line of a file: verdict, name, and the worst check of each group with its bound.
fn line(name: &str, verdict: &Verdict, checks: &Checks) -> String {
    let (word, reason) = match verdict {
        Verdict::Passed => ("passed ", None),
        Verdict::Failed(reason) => ("FAILED ", Some(reason)),
        Verdict::Skipped(reason) => ("skipped", Some(reason)),
    };
    let mut text = format!("{word} {name:<30}");
    for group in checks.groups() {
        if let Some(worst) = checks.worst(Some(group)) {
            text.push_str(&format!("  {group} {} ({})", describe(worst), worst.tensor));
        }
    }
    if let Some(reason) = reason {
        text.push_str(&format!("  {reason}"));
    }
    text
}
