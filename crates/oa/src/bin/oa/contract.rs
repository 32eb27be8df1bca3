//! `oa contract`: the teaching contract on the device at hand, as one table.
//!
//! Each workload trains, is measured, generates, is saved, is read back into a fresh model and must
//! then generate the same bytes. The report is data that belongs to one device, driver and commit.

use crate::failure::{Explain, Failure};
use crate::flags::{Common, ContractFlags};
use crate::{open, output, plan, process};
use oa::Engine;
use oa::ml::contract::{self, Coding, Trained, Workload};
use serde::Serialize;
use std::path::Path;

/// A finished workload.
#[derive(Serialize)]
struct Row {
    family: &'static str,
    tokenizer: &'static str,
    vocabulary: usize,
    parameters: usize,
    expected_parameters: usize,
    loss: f32,
    accuracy: f64,
    expected_accuracy: f64,
    milliseconds_per_step: f64,
    cpu_milliseconds_per_step: Option<f64>,
    first_step_milliseconds: f64,
    source_bytes_per_second: f64,
    dispatches: usize,
    barriers: usize,
    arena_bytes: u64,
    arena_lower_bound_bytes: u64,
    device_bytes: u64,
    /// Largest resident memory of the process so far, over the workloads before this one too.
    peak_resident_bytes: Option<u64>,
    plans: u64,
    submissions: u64,
    file_bytes: u64,
    continues_corpus: bool,
    reload_parity: bool,
    passed: bool,
}

/// What `--report` writes.
#[derive(Serialize)]
struct Report<'a> {
    program: &'static str,
    date: String,
    commit: &'a str,
    device: &'a str,
    driver: String,
    kernels_lock: &'a str,
    steps: u64,
    rows: &'a [Row],
}

/// Runs `oa contract`.
pub fn run(common: &Common, flags: &ContractFlags) -> Result<(), Failure> {
    let known = contract::all_workloads();
    let wanted = choose(&known, &flags.families, &flags.tokenizer)?;
    if let Some(path) = &flags.report {
        plan::check_target(path, None)?;
    }
    let engine = open::engine(common)?;
    let mut rows = Vec::new();
    if !common.json {
        output::text(&format!("device: {}\n{}\n", engine.device().name, header()))?;
    }
    for workload in wanted {
        let row = measure(&engine, workload)?;
        if !common.json {
            output::text(&format!("{}\n", line(&row)))?;
        }
        rows.push(row);
    }
    let report = describe(&engine, flags, &rows);
    if common.json {
        output::json_document(&report)?;
    }
    if let Some(path) = &flags.report {
        write(path, &report)?;
    }
    let failed = rows.iter().filter(|row| !row.passed).count();
    if !common.json {
        output::text(&format!("{} passed, {failed} failed, 0 skipped\n", rows.len() - failed))?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(
            crate::failure::End::Failed,
            format!("{failed} of {} workloads did not pass", rows.len()),
            "parameters, accuracy, generation or reload parity missed the contract",
            "look at the table above",
        )),
    }
}

/// The workloads of these families and tokenizers; without names, all.
pub fn choose<'a>(
    known: &'a [Workload],
    families: &[String],
    tokenizers: &[String],
) -> Result<Vec<&'a Workload>, Failure> {
    let mut there: Vec<&str> = known.iter().map(|one| one.family).collect();
    there.dedup();
    refuse_unknown("family", "families", families, &there)?;
    refuse_unknown("tokenizer", "tokenizers", tokenizers, &Coding::ALL.map(Coding::name))?;
    let among = |names: &[String], name: &str| {
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    };
    let wanted =
        |one: &&Workload| among(families, one.family) && among(tokenizers, one.coding.name());
    Ok(known.iter().filter(wanted).collect())
}

fn refuse_unknown(one: &str, many: &str, names: &[String], known: &[&str]) -> Result<(), Failure> {
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Failure::usage(
            format!("there is no {one} `{name}`"),
            format!("the {many} are {}", known.join(", ")),
            "name some of these, or none for all",
        )),
        None => Ok(()),
    }
}

fn measure(engine: &Engine, workload: &Workload) -> Result<Row, Failure> {
    let (plans, submissions) = (engine.plans_compiled(), engine.submissions());
    let failed = "a workload of the contract stopped";
    let trained = contract::train(engine, workload, &process::processor_time).explain(failed)?;
    let device_bytes = engine.gpu().memory().allocated_bytes;
    let text = contract::continuation(&trained.model, &workload.tokenizer).explain(failed)?;
    let plans = engine.plans_compiled() - plans;
    let submissions = engine.submissions() - submissions;
    let (again, file_bytes) = reload(engine, &trained)?;
    let expected = contract::expected_continuation(&workload.tokenizer).explain(failed)?;
    let (continues_corpus, reload_parity) = (text == expected, again == text);
    let parameters = trained.model.parameters().layout().count();
    let accuracy = trained.evaluation.accuracy;
    Ok(Row {
        family: workload.family,
        tokenizer: workload.coding.name(),
        vocabulary: workload.tokenizer.vocab(),
        parameters,
        expected_parameters: workload.parameters,
        loss: trained.losses.last().copied().unwrap_or(f32::NAN),
        accuracy,
        expected_accuracy: workload.accuracy(),
        milliseconds_per_step: trained.milliseconds,
        cpu_milliseconds_per_step: trained.cpu_milliseconds,
        first_step_milliseconds: trained.first_step_milliseconds,
        source_bytes_per_second: trained.source_bytes_per_second,
        dispatches: trained.report.dispatches(),
        barriers: trained.report.barriers(),
        arena_bytes: trained.report.arena_bytes,
        arena_lower_bound_bytes: trained.report.lower_bound_bytes,
        device_bytes,
        peak_resident_bytes: process::peak_resident_bytes(),
        plans,
        submissions,
        file_bytes,
        continues_corpus,
        reload_parity,
        passed: continues_corpus
            && reload_parity
            && accuracy >= workload.accuracy()
            && parameters == workload.parameters,
    })
}

/// Saves the run, reads it into a fresh model and generates; the file is removed again.
fn reload(engine: &Engine, trained: &Trained) -> Result<(Vec<u8>, u64), Failure> {
    let path = std::env::temp_dir().join(format!("oa-contract-{}.oam", std::process::id()));
    let failed = "a saved workload did not come back";
    let file_bytes = oa::io::save(&path, &trained.checkpoint)?;
    let checkpoint = oa::io::load(&path);
    // A file that stays in the temporary folder does no harm.
    let _left = std::fs::remove_file(&path);
    let checkpoint = checkpoint?;
    let fresh = checkpoint.model.build(engine, 0).explain(failed)?;
    fresh.load(&checkpoint).explain(failed)?;
    let text = contract::continuation(&fresh, &checkpoint.tokenizer).explain(failed)?;
    Ok((text, file_bytes))
}

fn header() -> String {
    format!(
        "{:<12} {:<5} {:>10} {:>7} {:>8} {:>8} {:>8} {:>10} {:>9} {:>8} {:>10} {:>8} {:>5} {:>7}  \
         verdict",
        "family",
        "coded",
        "parameters",
        "loss",
        "accuracy",
        "ms/step",
        "cpu ms",
        "first ms",
        "bytes/s",
        "dispatch",
        "device MiB",
        "peak MiB",
        "plans",
        "submits"
    )
}

fn line(row: &Row) -> String {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
    format!(
        "{:<12} {:<5} {:>10} {:>7.4} {:>8.4} {:>8.3} {:>8} {:>10.1} {:>9.0} {:>8} {:>10} {:>8} \
         {:>5} {:>7}  {}",
        row.family,
        row.tokenizer,
        row.parameters,
        row.loss,
        row.accuracy,
        row.milliseconds_per_step,
        known(row.cpu_milliseconds_per_step.map(|cpu| format!("{cpu:.3}"))),
        row.first_step_milliseconds,
        row.source_bytes_per_second,
        row.dispatches,
        mib(row.device_bytes),
        known(row.peak_resident_bytes.map(mib)),
        row.plans,
        row.submissions,
        verdict(row),
    )
}

fn verdict(row: &Row) -> &'static str {
    match row {
        Row { passed: true, .. } => "passed",
        Row { parameters, expected_parameters, .. } if parameters != expected_parameters => {
            "FAILED: the model has another number of parameters"
        }
        Row { continues_corpus: false, .. } => "FAILED: the text does not continue the corpus",
        Row { reload_parity: false, .. } => "FAILED: the reloaded model generates another text",
        _ => "FAILED: accuracy",
    }
}

fn describe<'a>(engine: &'a Engine, flags: &'a ContractFlags, rows: &'a [Row]) -> Report<'a> {
    let device = engine.device();
    Report {
        program: "oa contract",
        date: output::date(),
        commit: flags.commit.as_deref().unwrap_or("unknown"),
        device: &device.name,
        driver: format!("{} {}", device.driver_name, device.driver_info),
        kernels_lock: oa::kernels_lock(),
        steps: contract::STEPS,
        rows,
    }
}

fn write(path: &Path, report: &Report) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(report).expect("a report is plain data");
    text.push('\n');
    std::fs::write(path, text).map_err(|error| Failure::file("write", path, &error))
}
