//! Suite `checkpoint`: a run that was saved, left and resumed gives the bits of one that was not.
//!
//! The way leads through the file format: 40 steps are compared with 20 steps, a save, a fresh
//! engine, model, optimizer and session, a load, and 20 further steps.

use crate::context::{Context, Outcome, trial};
use crate::learn::{Mode, Trained, adamw, bits, train_with};
use crate::process::Scratch;
use anyhow::{Context as _, Result};
use libtest_mimic::Trial;
use oa_ml::checkpoint::{Checkpoint, TrainingState};
use oa_ml::contract::{Workload, workloads};
use oa_ml::{MuonConfig, OptimizerConfig, SgdConfig};
use oa_tests::case::Checks;
use std::sync::Arc;

/// Steps of the straight run; the other one is left in the middle.
const STEPS: u64 = 40;

/// A trial a model and mode with AdamW, and one a model with each other optimizer.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for workload in workloads() {
        let adamw = adamw(&workload);
        let sgd = OptimizerConfig::Sgd(SgdConfig { nesterov: true, ..SgdConfig::default() });
        let muon = OptimizerConfig::Muon(MuonConfig::default());
        let runs = [
            (adamw, Mode::Eager),
            (adamw, Mode::Captured),
            (sgd, Mode::Captured),
            (muon, Mode::Eager),
            (muon, Mode::Captured),
        ];
        for (optimizer, mode) in runs {
            let workload = workload.clone();
            let kind = match optimizer {
                OptimizerConfig::AdamW(_) => String::new(),
                other => format!("/{}", other.name()),
            };
            let case = format!("checkpoint/{}/{mode:?}{kind}", workload.family).to_lowercase();
            trials.push(trial(context, case, move |context, checks| {
                check(context, checks, (&workload, &optimizer), mode)
            }));
        }
    }
    trials
}

fn check(
    context: &Context,
    checks: &mut Checks,
    (workload, optimizer): (&Workload, &OptimizerConfig),
    mode: Mode,
) -> Result<Outcome> {
    let engine = context.engine()?;
    let run = |from: Option<&Checkpoint>, until: u64| -> Result<Trained> {
        train_with(&engine, (workload, optimizer), mode, (from, until), &mut |_| Ok(()))
    };
    let straight = run(None, STEPS)?;
    let first = run(None, STEPS / 2)?;
    let scratch = Scratch::new("checkpoint")?;
    let path = scratch.join("half.oam");
    oa_io::save(&path, &first.checkpoint)?;
    let loaded = oa_io::load(&path)?;
    checks.exact("file", "checkpoint", &[&loaded], &[&first.checkpoint]);
    drop(first);
    // A fresh engine: nothing of the first half may live on in plans or pools.
    let fresh = context.lab.open()?;
    let resumed =
        train_with(&fresh, (workload, optimizer), mode, (Some(&loaded), STEPS), &mut |_| Ok(()))?;
    compare(checks, &straight.checkpoint, &resumed.checkpoint)?;
    let tail: Vec<u32> =
        straight.losses.iter().skip(STEPS as usize / 2).map(|x| x.to_bits()).collect();
    let found: Vec<u32> = resumed.losses.iter().map(|x| x.to_bits()).collect();
    checks.exact("trajectory", "losses", &found, &tail);
    Ok(Outcome::Checked)
}

/// Parameters and moments, bit for bit.
fn compare(checks: &mut Checks, straight: &Checkpoint, resumed: &Checkpoint) -> Result<()> {
    let state = |checkpoint: &Checkpoint| checkpoint.training.clone().context("a run");
    let (straight_run, resumed_run) = (state(straight)?, state(resumed)?);
    let slots = (resumed_run.optimizer.slots.iter()).zip(&straight_run.optimizer.slots);
    let moments = ["moment 1", "moment 2"].into_iter().zip(slots);
    let moments = moments.map(|(group, (found, wanted))| (group, &found.tensors, &wanted.tensors));
    let parameters = ("parameters", &resumed.tensors, &straight.tensors);
    for (group, found, wanted) in std::iter::once(parameters).chain(moments) {
        let wanted = bits(wanted);
        for (index, (name, found)) in bits(found).iter().enumerate() {
            let want = wanted.get(index).map(|(_, words)| words.as_slice()).unwrap_or_default();
            checks.exact(group, name.as_str(), found, want);
        }
        checks.exact(group, "number of tensors", &[found.len()], &[wanted.len()]);
    }
    let kept = |run: &TrainingState| run.optimizer.slots.len();
    checks.exact("counters", "moments", &[kept(&resumed_run)], &[kept(&straight_run)]);
    checks.exact("counters", "step", &[resumed_run.step], &[straight_run.step]);
    checks.exact("counters", "cursor", &[resumed_run.data], &[straight_run.data]);
    Ok(())
}
