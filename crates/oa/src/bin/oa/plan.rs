//! `oa plan`: what a training step executes on the device at hand, and what it costs there.
//!
//! The step of a contract workload, or of a saved model, is captured, run and timed; the report goes
//! out as text, JSON or a page with pictures. Nothing is saved.

use crate::failure::{Explain, Failure};
use crate::flags::{Common, PlanFlags, ReportTask};
use crate::settings::limits::check_batch;
use crate::{contract, open, output};
use oa::ml::contract::{ROWS, SEED, SEQUENCE, workloads};
use oa::ml::data::Batch;
use oa::ml::{AdamW, ItTraining, ItTrainingConfig, ModelConfig};
use oa::{Engine, ExecutionReport};
use serde_json::json;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::path::Path;

/// Steps before the clock looks.
const WARM_UP: u64 = 3;

/// Runs `oa plan`.
pub fn run(common: &Common, flags: &PlanFlags) -> Result<(), Failure> {
    let (rows, sequence) = (flags.batch.unwrap_or(ROWS), flags.context.unwrap_or(SEQUENCE));
    check_batch("cannot plan this step", rows, sequence)?;
    for path in [&flags.html, &flags.report].into_iter().flatten() {
        check_target(path, flags.model.as_deref())?;
    }
    if let (Some(page), Some(report)) = (&flags.html, &flags.report) {
        check_target(page, Some(report))?;
    }
    let config = config(flags)?;
    let engine = open::engine(common)?;
    let report = step(&engine, &config, [rows, sequence], flags.profile)?;
    if let Some(path) = &flags.html {
        write(path, &report.to_html())?;
    }
    if let Some(path) = &flags.report {
        write(path, &file_text(&report))?;
    }
    match common.json {
        true => output::json_document(&report)?,
        false => output::text(&report.to_string())?,
    }
    Ok(())
}

/// Runs `oa report`.
pub fn report(common: &Common, task: &ReportTask) -> Result<(), Failure> {
    match task {
        ReportTask::Diff { before, after } => {
            let names = [before.display().to_string(), after.display().to_string()];
            let text = difference(&read(before)?, &read(after)?, &names);
            if !common.json {
                return Ok(output::text(&text)?);
            }
            let [before, after] = names;
            let lines: Vec<&str> = text.lines().collect();
            let whole = json!({ "before": before, "after": after, "lines": lines });
            Ok(output::json_document(&whole)?)
        }
        ReportTask::Show { file } => {
            let report = read(file)?;
            match common.json {
                true => Ok(output::json_document(&report)?),
                false => Ok(output::text(&report.to_string())?),
            }
        }
        ReportTask::Html { file, page } => {
            check_target(page, Some(file))?;
            write(page, &read(file)?.to_html())
        }
    }
}

/// Refuses to write what a command tells over a saved model, or over another file of the call.
pub fn check_target(path: &Path, other: Option<&Path>) -> Result<(), Failure> {
    let sentence = format!("cannot write {}", path.display());
    if path.extension().is_some_and(|end| end == "oam") {
        let cause = "its name ends in .oam, as that of a saved model";
        return Err(Failure::usage(sentence, cause, "give another name"));
    }
    let place = |path: &Path| {
        path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into())
    };
    match other {
        Some(other) if place(path) == place(other) => {
            let cause = "this call names that file twice";
            Err(Failure::usage(sentence, cause, "give each file its own name"))
        }
        _ => Ok(()),
    }
}

/// The steps that differ, then the GPU time of each op before and after.
fn difference(before: &ExecutionReport, after: &ExecutionReport, names: &[String; 2]) -> String {
    // Times differ from run to run; with them every line would.
    let untimed = |report: &ExecutionReport| {
        let mut report = report.clone();
        report.gpu_ns = None;
        report.steps.iter_mut().for_each(|step| step.gpu_ns = None);
        report.to_string()
    };
    let (old, new) = (untimed(before), untimed(after));
    let diff = TextDiff::from_lines(old.as_str(), new.as_str());
    let mut text = match old == new {
        true => "both plans have the same steps\n".to_owned(),
        false => diff.unified_diff().header(&names[0], &names[1]).to_string(),
    };
    let (Some(whole_before), Some(whole_after)) = (before.gpu_ns, after.gpu_ns) else {
        return text;
    };
    let mut times: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (column, report) in [before, after].into_iter().enumerate() {
        for step in &report.steps {
            times.entry(&step.op).or_default()[column] += step.gpu_ns.unwrap_or(0.0);
        }
    }
    let whole = ("all", [whole_before, whole_after]);
    for (op, [before, after]) in times.into_iter().chain([whole]) {
        let change = (after / before - 1.0) * 100.0;
        let change = if change.is_finite() { format!("{change:+.0} %") } else { "new".to_owned() };
        text += &format!("{op:<28} {:>12.1} us {:>12.1} us  {change}\n", before / 1e3, after / 1e3);
    }
    text
}

fn config(flags: &PlanFlags) -> Result<ModelConfig, Failure> {
    match (&flags.model, &flags.family) {
        (Some(file), _) => Ok(open::load(&open::model_file(file)?)?.model),
        (None, Some(family)) => {
            let known = workloads();
            let wanted = contract::choose(&known, std::slice::from_ref(family), &[])?;
            Ok(wanted[0].config)
        }
        (None, None) => Err(Failure::usage(
            "there is nothing to plan",
            "neither a family nor a model was named",
            "name a family, such as `oa plan gru`, or a file with --model",
        )),
    }
}

/// Captures a training step, runs it and times it.
fn step(
    engine: &Engine,
    config: &ModelConfig,
    [rows, sequence]: [usize; 2],
    profile: u32,
) -> Result<ExecutionReport, Failure> {
    let failed = "cannot run a training step of this model";
    let model = config.build(engine, SEED).explain(failed)?;
    let parameters = model.all_parameters().explain(failed)?;
    let mut optimizer = AdamW::new(parameters, 1e-3).explain(failed)?;
    let settings = ItTrainingConfig { total_steps: WARM_UP, ..Default::default() };
    let mut session = ItTraining::new_captured(engine, &mut optimizer, settings).explain(failed)?;
    let mut batch = Batch::zeroed(rows, sequence);
    let vocab = config.vocab() as u32;
    // Spread over the vocabulary, so that routers and embeddings see many tokens.
    let spread = |cell: usize| (cell as u32).wrapping_mul(2_654_435_761) % vocab.max(1);
    for cell in 0..rows * sequence {
        batch.tokens[cell] = spread(cell);
        batch.targets[cell] = spread(cell + 1) as i32;
    }
    let batch = [batch];
    while session.begin_step().explain(failed)? {
        session.step(&batch, &mut |inputs| inputs.loss(&model)).explain(failed)?;
    }
    let plan = session.plan().expect("a captured session that ran has its plan");
    if profile == 0 {
        return Ok(plan.report());
    }
    plan.profile(profile).map_err(oa::ml::Error::from).explain("cannot time the step")
}

fn file_text(report: &ExecutionReport) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report is plain data");
    text.push('\n');
    text
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::file("write", path, &error))
}

fn read(path: &Path) -> Result<ExecutionReport, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::file("read", path, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(
            format!("{} is no execution report", path.display()),
            error.to_string(),
            "give a file that `oa plan --report` of this version wrote",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> ExecutionReport {
        let start = r#"{"version": 2, "device": "d", "driver": "r", "kernels_lock": "0",
            "arena_bytes": 1, "lower_bound_bytes": 1, "inputs_bytes": 1, "turns": 1,
            "values": [], "places": [], "gpu_ns": 2000.0, "steps": ["#;
        serde_json::from_str(&format!("{start}{json}]}}")).unwrap()
    }

    fn step(op: &str, ns: f64) -> String {
        format!(
            r#"{{"node": 0, "op": "{op}", "site": "a:1", "variant": "v", "spirv": "0", "refused": [],
            "groups": [1, 1, 1], "read_bytes": 1, "written_bytes": 1, "bound": [], "barrier": null,
            "gpu_ns": {ns:?}}}"#
        )
    }

    #[test]
    fn times_are_no_difference_of_steps() {
        let names = ["a".to_owned(), "b".to_owned()];
        let (one, two) = (report(&step("add", 1000.0)), report(&step("add", 1500.0)));
        let text = difference(&one, &two, &names);
        assert!(text.starts_with("both plans have the same steps\n"), "{text}");
        assert!(text.contains("1.0 us          1.5 us  +50 %"), "{text}");
        let text = difference(&one, &report(&step("mul", 1000.0)), &names);
        assert!(text.contains("\n-    0 add") && text.contains("\n+    0 mul"), "{text}");
        assert!(text.contains("new"), "{text}");
    }
}
