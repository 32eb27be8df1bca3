//! Suite `checkpoint`: a run that was saved, left and resumed gives the bits of one that was not.
//!
//! The way leads through the file format and another process: 40 steps are compared with 20 steps, a
//! save, and in a new process a load and 20 further steps.

use crate::context::{Context, Outcome, trial};
use crate::learn::{Mode, Trained, adamw, bits, train_with, workload};
use crate::process::{self, Numbers, Scratch};
use anyhow::{Context as _, Result, bail};
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
    let end = scratch.join("end.oam");
    let probe =
        format!("resume\n{}\n{mode:?}\n{}\n{}", workload.family, path.display(), end.display());
    let numbers = process::ask(context, &probe)?;
    compare(checks, &straight.checkpoint, &oa_io::load(&end)?)?;
    let half = STEPS as usize / 2;
    let tail: Vec<u32> = straight.losses.iter().skip(half).map(|x| x.to_bits()).collect();
    // A decimal number of 17 digits comes back as the same f32, though not always as the same f64.
    let found: Vec<u32> = numbers.into_values().map(|x| (x as f32).to_bits()).collect();
    checks.exact("trajectory", "losses", &found, &tail);
    Ok(Outcome::Checked)
}

/// Goes on with a saved run to its end, saves it, and gives the losses in order.
///
/// `words`: family, mode, the file to read, the file to write.
pub fn resume(context: &Context, words: &[&str]) -> Result<Numbers> {
    let &[family, mode, from, to] = words else {
        bail!("resume takes a family, a mode and two files, not {words:?}")
    };
    let mode = match mode {
        "Eager" => Mode::Eager,
        "Captured" => Mode::Captured,
        other => bail!("there is no mode {other}"),
    };
    let (engine, loaded) = (context.engine()?, oa_io::load(from)?);
    let workload = workload(family)?;
    let optimizer = loaded.training.as_ref().context("a checkpoint of a run")?.optimizer.config;
    let (run, from) = ((&workload, &optimizer), (Some(&loaded), STEPS));
    let resumed = train_with(&engine, run, mode, from, &mut |_| Ok(()))?;
    oa_io::save(to, &resumed.checkpoint)?;
    let named = |(step, loss): (usize, f32)| (format!("loss {step:04}"), f64::from(loss));
    Ok(resumed.losses.into_iter().enumerate().map(named).collect())
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
