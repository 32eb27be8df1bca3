//! Suite `train`: the contract models learn the corpus, continue it, and survive a reload.
//!
//! The contract's own run is held to its numbers: accuracy at step 300, greedy generation that goes
//! on with the corpus for 80 bytes, and the same bytes from a file loaded into a fresh engine. Eager
//! and captured steps must give the same bits.

use crate::context::{Context, Outcome, trial};
use crate::learn::{Mode, bits, train};
use crate::process::Scratch;
use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use oa_ml::contract::{self, ACCURACY, STEPS, Workload};
use oa_tests::case::Checks;
use std::sync::Arc;

/// Steps after which the two modes are compared.
const BOTH: u64 = 20;

/// What is asked of a workload.
type Body = fn(&Context, &mut Checks, &Workload) -> Result<()>;

/// Two trials a model.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let parts: [(&str, Body); 2] = [("modes", modes), ("learns", learns)];
    for workload in contract::workloads() {
        for (part, body) in parts {
            let workload = workload.clone();
            let case = format!("train/{}/{part}", workload.family);
            trials.push(trial(context, case, move |context, checks| {
                body(context, checks, &workload)?;
                Ok(Outcome::Checked)
            }));
        }
    }
    trials
}

/// Eager and captured: losses and parameters, bit for bit.
fn modes(context: &Context, checks: &mut Checks, workload: &Workload) -> Result<()> {
    let engine = context.engine()?;
    let eager = train(&engine, workload, Mode::Eager, (None, BOTH), &mut |_| Ok(()))?;
    let captured = train(&engine, workload, Mode::Captured, (None, BOTH), &mut |_| Ok(()))?;
    let words = |losses: &[f32]| losses.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    checks.exact("trajectory", "losses", &words(&captured.losses), &words(&eager.losses));
    let (found, wanted) = (bits(&captured.checkpoint.tensors), bits(&eager.checkpoint.tensors));
    checks.exact("parameters", "number of tensors", &[found.len()], &[wanted.len()]);
    for ((name, found), (_, wanted)) in found.iter().zip(&wanted) {
        checks.exact("parameters", name.as_str(), found, wanted);
    }
    Ok(())
}

/// The contract's run, a save, and a reload into a fresh engine.
fn learns(context: &Context, checks: &mut Checks, workload: &Workload) -> Result<()> {
    let trained = contract::train(&context.engine()?, workload, &|| None)?;
    let finite = trained.losses.iter().all(|loss| loss.is_finite());
    ensure!(trained.losses.len() == STEPS as usize && finite, "{:?}", trained.losses);
    let evaluation = &trained.evaluation;
    println!(
        "    loss {:.4} -> {:.4}, accuracy {:.4}, {:.1} ms a step",
        trained.losses[0],
        trained.losses[STEPS as usize - 1],
        evaluation.accuracy,
        trained.milliseconds
    );
    let generated = contract::continuation(&trained.model, &workload.tokenizer)?;
    let wanted = contract::expected_continuation(&workload.tokenizer)?;
    if generated != wanted {
        println!("    generated {:?}", String::from_utf8_lossy(&generated));
    }
    checks.exact("generation", "corpus", &generated, &wanted);

    let scratch = Scratch::new("train")?;
    let path = scratch.join("model.oam");
    oa_io::save(&path, &trained.checkpoint)?;
    let loaded = oa_io::load(&path)?;
    let fresh = loaded.model.build(&context.lab.open()?, 1)?;
    fresh.load(&loaded)?;
    let reloaded = contract::continuation(&fresh, &loaded.tokenizer)?;
    checks.exact("generation", "after a reload", &reloaded, &generated);
    ensure!(evaluation.accuracy >= ACCURACY, "accuracy is {:.4}", evaluation.accuracy);
    Ok(())
}
