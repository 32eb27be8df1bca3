//! Suite `frozen`: with any parameters frozen, the others train as if nothing had happened.
//!
//! For each family and 20 seeded subsets that train with AdamW: their gradients have the bits of the
//! full run, they move, the norm is theirs alone, and everything else keeps its bits - values and
//! moments. A few subsets do the same with each other optimizer. Two of each are also captured, and
//! give the bits of the eager step.

use crate::context::{Context, Outcome, trial};
use crate::learn::{adamw, bits, corpus, forward};
use anyhow::{Context as _, Result};
use libtest_mimic::Trial;
use oa_graph::engine::Engine;
use oa_graph::ops::sample::Source;
use oa_ml::checkpoint::{Checkpoint, NamedTensor, TrainingState};
use oa_ml::contract::{SEED, SEQUENCE, Workload, workloads};
use oa_ml::data::{Batch, DataCursor, TokenizerConfig};
use oa_ml::model::Model;
use oa_ml::train::{ItTraining, ItTrainingConfig, RunIdentity};
use oa_ml::{MuonConfig, OptimizerConfig, SgdConfig};
use oa_tests::Tolerance;
use oa_tests::case::Checks;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Subsets of a family.
const SUBSETS: usize = 20;
/// Subsets of a family with each other optimizer.
const OTHERS: usize = 4;
/// Of the subsets of an optimizer, how many are captured too.
const CAPTURED: usize = 2;
/// Sequences of a batch: few, for speed.
const ROWS: usize = 2;
/// Steps before, so that moments are no zeros.
const WARM_UP: u64 = 2;

/// A trial a family.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let one = |workload: Workload| {
        let case = format!("frozen/{}", workload.family);
        trial(context, case, move |context, checks| check(context, checks, &workload))
    };
    workloads().into_iter().map(one).collect()
}

/// What one step left behind.
struct Step {
    gradients: Vec<NamedTensor>,
    norm: f32,
    after: Checkpoint,
    reported: Vec<Box<str>>,
}

fn check(context: &Context, checks: &mut Checks, workload: &Workload) -> Result<Outcome> {
    let engine = context.engine()?;
    let model = workload.config.build(&engine, SEED)?;
    let batch = corpus()?.whole().batches(ROWS, SEQUENCE, DataCursor::CONTRACT)?.next_batch();
    let others =
        [OptimizerConfig::Sgd(SgdConfig::default()), OptimizerConfig::Muon(MuonConfig::default())];
    subsets(&engine, checks, (&model, adamw(workload)), (&batch, SUBSETS))?;
    for optimizer in others {
        subsets(&engine, checks, (&model, optimizer), (&batch, OTHERS))?;
    }
    Ok(Outcome::Checked)
}

/// Checks `count` subsets with one optimizer.
fn subsets(
    engine: &Engine,
    checks: &mut Checks,
    (model, optimizer): (&Model, OptimizerConfig),
    (batch, count): (&Batch, usize),
) -> Result<()> {
    model.parameters().set_frozen::<&str>(&[])?;
    let before = step(engine, (model, optimizer), batch, (None, WARM_UP), false)?.after;
    let run = |frozen: Vec<String>, captured: bool| {
        let mut from = before.clone();
        from.training.as_mut().context("a run")?.frozen = frozen;
        step(engine, (model, optimizer), batch, (Some(&from), 1), captured)
    };
    let full = run(Vec::new(), false)?;
    let names: Vec<String> = before.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    let mut source = Source::new(SEED);
    for subset in 0..count {
        let trains = draw(&mut source, names.len());
        let frozen = names.iter().zip(&trains).filter(|(_, trains)| !**trains);
        let frozen: Vec<String> = frozen.map(|(name, _)| name.clone()).collect();
        let part = run(frozen.clone(), false)?;
        let group = format!("{} subset {subset}", optimizer.name());
        gradients(checks, &group, &trains, [&part, &full]);
        // A step of AdamW is as long as its rate; others may be lost in rounding.
        let moves = matches!(optimizer, OptimizerConfig::AdamW(_));
        values(checks, &group, (&trains, moves), [&part.after, &before])?;
        checks.exact("report", &group, &part.reported, &boxed(&frozen));
        let kept = &part.after.training.as_ref().context("a run")?.frozen;
        checks.exact("checkpoint", &group, kept, &frozen);
        if subset < CAPTURED {
            let captured = run(frozen, true)?;
            checks.exact("captured", &group, &[&captured.after], &[&part.after]);
        }
    }
    Ok(())
}

fn boxed(names: &[String]) -> Vec<Box<str>> {
    names.iter().map(|name| name.as_str().into()).collect()
}

/// Which parameters train: some, and not all.
fn draw(source: &mut Source, count: usize) -> Vec<bool> {
    loop {
        let trains: Vec<bool> = (0..count).map(|_| source.bits() >> 63 == 1).collect();
        if trains.contains(&true) && trains.contains(&false) {
            return trains;
        }
    }
}

/// Trains some steps on one batch, from fresh weights or from a checkpoint, frozen parameters
/// included.
fn step(
    engine: &Engine,
    (model, optimizer): (&Model, OptimizerConfig),
    batch: &Batch,
    (from, steps): (Option<&Checkpoint>, u64),
    captured: bool,
) -> Result<Step> {
    let mut optimizer = optimizer.build(model.all_parameters()?)?;
    let settings = ItTrainingConfig { total_steps: WARM_UP + 1, ..Default::default() };
    let new = if captured { ItTraining::new_captured } else { ItTraining::new_eager };
    let mut session = new(engine, &mut *optimizer, settings)?;
    if let Some(checkpoint) = from {
        model.load(checkpoint)?;
        session.resume(checkpoint.training.as_ref().context("a checkpoint of a run")?)?;
    }
    let mut forward = forward(model);
    for _ in 0..steps {
        session.begin_step()?;
        session.step(std::slice::from_ref(batch), &mut forward)?;
    }
    let metadata = BTreeMap::new();
    let after = session.checkpoint(&RunIdentity {
        model,
        tokenizer: &TokenizerConfig::Byte,
        cursor: DataCursor::CONTRACT,
        validation_loss: None,
        best_validation_loss: None,
        elapsed_seconds: 0.0,
        sampled: 0,
        metadata: &metadata,
    })?;
    let report = session.gradient_report().context("a session that ran has a report")?;
    let norm = session.last_report().context("a step was read")?.gradient_norm;
    let (gradients, reported) = (model.parameters().gradients_to_host()?, report.frozen.clone());
    Ok(Step { gradients, norm, after, reported })
}

/// Gradients of what trains have the bits of the full run, the others are zero, and the norm is
/// that of what trains.
fn gradients(checks: &mut Checks, group: &str, trains: &[bool], [part, full]: [&Step; 2]) {
    let mut squares = 0.0f64;
    let pairs = bits(&part.gradients).into_iter().zip(bits(&full.gradients)).zip(trains);
    for (((name, found), (_, wanted)), &trains) in pairs {
        let tensor = format!("{group} {name}");
        if trains {
            checks.exact("gradients", tensor, &found, &wanted);
            let square = |word: &u32| f64::from(f32::from_bits(*word)).powi(2);
            squares += wanted.iter().map(square).sum::<f64>();
        } else {
            checks.exact("frozen gradients", tensor, &found, &vec![0; wanted.len()]);
        }
    }
    let norm = (&[part.norm][..], &[squares.sqrt()][..]);
    checks.floats("norm", group, norm, Tolerance::OP);
}

/// What trains has moved, where every step `moves`; what is frozen has the bits of before, its moments too.
fn values(
    checks: &mut Checks,
    group: &str,
    (trains, moves): (&[bool], bool),
    [after, before]: [&Checkpoint; 2],
) -> Result<()> {
    let lists = |checkpoint: &Checkpoint| -> Result<Vec<Vec<NamedTensor>>> {
        let TrainingState { optimizer, .. } = checkpoint.training.as_ref().context("a run")?;
        let moments = optimizer.slots.iter().map(|slot| slot.tensors.clone());
        Ok(std::iter::once(checkpoint.tensors.clone()).chain(moments).collect())
    };
    let kinds = ["values", "moments", "second moments"];
    for ((kind, after), before) in kinds.into_iter().zip(lists(after)?).zip(lists(before)?) {
        for ((found, wanted), &trains) in after.iter().zip(&before).zip(trains) {
            let tensor = format!("{group} {kind} of {}", found.name);
            if trains && !moves {
                continue;
            }
            let same = bits(std::slice::from_ref(found)) == bits(std::slice::from_ref(wanted));
            let group = if trains { "trained" } else { "frozen" };
            checks.exact(group, tensor, &[same], &[!trains]);
        }
    }
    Ok(())
}
