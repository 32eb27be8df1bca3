//! `oa doctor`: is there a driver, which device is taken, are the layers there, does it compute?
//!
//! Each check is a line that says what was found and, when it is not well, what to do. The command
//! fails when a device cannot be used, not when an optional part is missing.

use crate::failure::{End, Explain, Failure};
use crate::flags::Common;
use crate::{devices, open, output};
use oa::{Engine, EngineOptions, Validation};
use serde_json::json;
use std::fmt::Write;
use std::time::Instant;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Well,
    Missing,
    Broken,
}

struct Check {
    name: &'static str,
    state: State,
    found: String,
    remedy: String,
}

impl Check {
    fn well(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, state: State::Well, found: found.into(), remedy: String::new() }
    }

    fn of(name: &'static str, state: State, failure: &Failure) -> Check {
        let told = failure.to_json();
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        Check { name, state, found: text("cause"), remedy: text("remedy") }
    }
}

/// Runs `oa doctor`.
pub fn run(common: &Common) -> Result<(), Failure> {
    let mut checks = Vec::new();
    let failed = examine(common, &mut checks);
    if common.json {
        let checks: Vec<_> = checks.iter().map(to_json).collect();
        output::json_document(&json!({ "checks": checks, "usable": failed.is_none() }))?;
    } else {
        output::text(&checks.iter().map(line).collect::<String>())?;
    }
    failed.map_or(Ok(()), Err)
}

fn to_json(check: &Check) -> serde_json::Value {
    let state = match check.state {
        State::Well => "well",
        State::Missing => "missing",
        State::Broken => "broken",
    };
    json!({ "check": check.name, "state": state, "found": check.found, "remedy": check.remedy })
}

fn line(check: &Check) -> String {
    let mark = match check.state {
        State::Well => "ok     ",
        State::Missing => "missing",
        State::Broken => "broken ",
    };
    let mut text = format!("{mark}  {:<12}{}\n", check.name, check.found.replace('\n', "\n    "));
    if !check.remedy.is_empty() {
        writeln!(text, "         {:<12}{}", "", check.remedy).expect("a string takes any text");
    }
    text
}

/// Goes from the loader to a computed value; returns what makes the device unusable.
fn examine(common: &Common, checks: &mut Vec<Check>) -> Option<Failure> {
    let request = open::request(common);
    let reports = match oa::devices(&request).explain("cannot list the Vulkan devices") {
        Ok(reports) => reports,
        Err(failure) => {
            let failure = failure.told_by_doctor();
            checks.push(Check::of("loader", State::Broken, &failure));
            return Some(failure);
        }
    };
    checks.push(Check::well("loader", "the Vulkan loader is there"));
    let usable = reports.iter().filter(|report| report.refused.is_empty()).count();
    checks.push(Check::well("devices", format!("{usable} of {} can be used", reports.len())));
    let started = Instant::now();
    let engine = match open::engine(common) {
        Ok(engine) => engine,
        Err(failure) => {
            let failure = failure.told_by_doctor();
            checks.push(Check::of("device", State::Broken, &failure));
            return Some(failure);
        }
    };
    let opened = started.elapsed().as_secs_f64() * 1e3;
    describe(&engine, opened, checks);
    let report = reports.iter().find(|report| report.info.uuid == engine.device().uuid);
    let quirks = report.map(|report| report.quirks.clone()).unwrap_or_default();
    checks.push(match quirks.as_slice() {
        [] => Check::well("quirks", "none is known for this driver"),
        _ => Check::well(
            "quirks",
            quirks
                .iter()
                .map(|q| format!("{} ({})", q.id, q.symptom))
                .collect::<Vec<_>>()
                .join(", "),
        ),
    });
    checks.push(layers(common));
    match compute(&engine) {
        Ok(check) => checks.push(check),
        Err(failure) => {
            let failure = failure.told_by_doctor();
            checks.push(Check::of("compute", State::Broken, &failure));
            return Some(failure);
        }
    }
    None
}

fn describe(engine: &Engine, opened: f64, checks: &mut Vec<Check>) {
    let info = engine.device();
    checks.push(Check::well(
        "device",
        format!("{} ({}), opened in {opened:.0} ms", info.name, info.kind),
    ));
    let driver = format!(
        "{} {}, Vulkan {}",
        info.driver_name,
        info.driver_info,
        devices::version(info.api_version)
    );
    checks.push(Check::well("driver", driver));
    let memory = engine.gpu().memory();
    let (used, budget) = (output::bytes(memory.used_bytes), output::bytes(memory.budget_bytes));
    checks.push(Check::well("memory", format!("{budget} may be used, {used} are in use")));
}

/// Whether the validation layer is there: opens the device with it.
fn layers(common: &Common) -> Check {
    let mut device = open::request(common);
    device.validation = Validation::On;
    let options = EngineOptions { device, ..EngineOptions::default() };
    match Engine::open(options).explain("cannot open the device with the validation layer") {
        Ok(_) => Check::well("validation", "the validation layer is there"),
        Err(failure) => Check::of("validation", State::Missing, &failure.told_by_doctor()),
    }
}

/// Computes something whose result is known.
fn compute(engine: &Engine) -> Result<Check, Failure> {
    let started = Instant::now();
    let numbers: Vec<f32> = (0..1000).map(|number| number as f32).collect();
    let sentence = "cannot compute on this device";
    let tensor = engine.tensor_f32([1000], &numbers).explain(sentence)?;
    let doubled = tensor.add(&tensor).and_then(|sum| sum.to_vec_f32()).explain(sentence)?;
    let elapsed = started.elapsed().as_secs_f64() * 1e3;
    if doubled.iter().zip(&numbers).all(|(&got, &number)| got == 2.0 * number) {
        return Ok(Check::well("compute", format!("a thousand sums are right ({elapsed:.0} ms)")));
    }
    let cause = "a thousand sums came out wrong";
    let remedy = "update the graphics driver, or choose another device with --device";
    Err(Failure::new(End::Failed, sentence, cause, remedy))
}
