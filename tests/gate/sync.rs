//! Suite `sync`: everything under the validation layer with synchronization validation.
//!
//! A missing or too narrow barrier gives right numbers on most drivers and wrong ones on the next,
//! so the layer's word counts here, not the numbers: its sink must be empty afterwards.

use crate::context::{Context, Outcome, trial};
use crate::execute::on_device;
use crate::graphs::GRAPHS;
use crate::learn::{Mode, train};
use crate::plan::lazily;
use anyhow::Result;
use libtest_mimic::Trial;
use oa_graph::engine::Engine;
use oa_graph::ops::all;
use oa_ml::contract::workloads;
use oa_tests::case::Checks;
use std::sync::Arc;

/// Training steps of each model: as many as a captured plan keeps in flight, twice.
const STEPS: u64 = 6;

/// One trial for all ops, one a graph, one a model and mode.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = vec![trial(context, "sync/ops", |context, checks| {
        watched(context, checks, |engine| {
            for op in all() {
                for sample in (op.samples)().iter().filter(|sample| !sample.large) {
                    on_device(engine, op, sample)?;
                }
            }
            Ok(())
        })
    })];
    for &(name, record) in GRAPHS {
        trials.push(trial(context, format!("sync/{name}"), move |context, checks| {
            watched(context, checks, |engine| lazily(engine, record).map(|_| ()))
        }));
    }
    for workload in workloads() {
        for mode in [Mode::Eager, Mode::Captured] {
            let workload = workload.clone();
            let case = format!("sync/{}/{mode:?}", workload.family).to_lowercase();
            trials.push(trial(context, case, move |context, checks| {
                watched(context, checks, |engine| {
                    train(engine, &workload, mode, (None, STEPS), &mut |_| Ok(())).map(|_| ())
                })
            }));
        }
    }
    trials
}

/// Runs `body` on an engine of its own under validation; no message may be left.
fn watched(
    context: &Context,
    checks: &mut Checks,
    body: impl FnOnce(&Engine) -> Result<()>,
) -> Result<Outcome> {
    let engine = match context.lab.open_validated() {
        Err(oa_graph::Error::Device(oa_vk::Error::NoValidationLayer)) => {
            let reason = "the validation layer is not installed: NOTHING WAS VALIDATED";
            eprintln!("    WARNING: {reason}");
            return Ok(Outcome::Skipped(reason.to_owned()));
        }
        engine => engine?,
    };
    body(&engine)?;
    let messages = engine.gpu().validation_messages();
    for message in &messages {
        eprintln!("    {message}");
    }
    checks.exact("validation", "messages", &[messages.len()], &[0]);
    Ok(Outcome::Checked)
}
