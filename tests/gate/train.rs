//! Suite `train`: the contract models learn the corpus, continue it, and survive a reload.
//!
//! Accuracy at step 300 is at least 0.90; greedy generation goes on with the corpus for 80 bytes;
//! a model loaded from a file into a fresh engine generates the same bytes; and eager and captured
//! steps give the same bits.

use crate::context::{Context, Outcome, trial};
use crate::learn::{Mode, SEQUENCE, STEPS, bits, corpus, measure, models, train};
use crate::process::Scratch;
use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use oa_ml::generate::{Generator, Sampling};
use oa_ml::model::{Model, ModelConfig};
use oa_tests::case::Checks;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Smallest share of right predictions over the whole corpus.
const ACCURACY: f64 = 0.90;
/// Bytes of the corpus that generation must go on with.
const CONTINUED: usize = 80;
/// Steps after which the two modes are compared.
const BOTH: u64 = 20;

/// Two trials a model.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, config) in models() {
        trials.push(trial(context, format!("train/{name}/modes"), move |context, checks| {
            modes(context, checks, &config)
        }));
        trials.push(trial(context, format!("train/{name}/learns"), move |context, checks| {
            learns(context, checks, &config)
        }));
    }
    trials
}

/// Eager and captured: losses and parameters, bit for bit.
fn modes(context: &Context, checks: &mut Checks, config: &ModelConfig) -> Result<Outcome> {
    let engine = context.engine()?;
    let eager = train(&engine, config, Mode::Eager, (None, BOTH), &mut |_| Ok(()))?;
    let captured = train(&engine, config, Mode::Captured, (None, BOTH), &mut |_| Ok(()))?;
    let words = |losses: &[f32]| losses.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    checks.exact("trajectory", "losses", &words(&captured.losses), &words(&eager.losses));
    let (found, wanted) = (bits(&captured.checkpoint.tensors), bits(&eager.checkpoint.tensors));
    for ((name, found), (_, wanted)) in found.iter().zip(&wanted) {
        checks.exact("parameters", name.as_str(), found, wanted);
    }
    Ok(Outcome::Checked)
}

fn learns(context: &Context, checks: &mut Checks, config: &ModelConfig) -> Result<Outcome> {
    let engine = context.engine()?;
    let trained = train(&engine, config, Mode::Captured, (None, STEPS), &mut |_| Ok(()))?;
    let finite = trained.losses.iter().all(|loss| loss.is_finite());
    ensure!(trained.losses.len() == STEPS as usize && finite, "{:?}", trained.losses);
    let evaluation = measure(&trained.model)?;
    println!(
        "    loss {:.4} -> {:.4}; over the corpus loss {:.4}, accuracy {:.4}",
        trained.losses[0],
        trained.losses[STEPS as usize - 1],
        evaluation.loss,
        evaluation.accuracy
    );
    ensure!(evaluation.accuracy >= ACCURACY, "accuracy is {:.4}", evaluation.accuracy);
    let tokens = corpus()?.whole().tokens().to_vec();
    let generated = greedy(&trained.model, &tokens[..SEQUENCE])?;
    checks.exact("generation", "corpus", &generated, &tokens[SEQUENCE..SEQUENCE + CONTINUED]);

    let scratch = Scratch::new("train")?;
    let path = scratch.join("model.oam");
    oa_io::save(&path, &trained.checkpoint)?;
    let loaded = oa_io::load(&path)?;
    let fresh = loaded.model.build(&context.lab.open()?, 1)?;
    fresh.load(&loaded)?;
    let reloaded = greedy(&fresh, &tokens[..SEQUENCE])?;
    checks.exact("generation", "after a reload", &reloaded, &generated);
    Ok(Outcome::Checked)
}

/// The greedy continuation of a prompt.
fn greedy(model: &Model, prompt: &[u32]) -> Result<Vec<u32>> {
    let mut generator = Generator::new(model)?;
    let go_on = |_| ControlFlow::Continue(());
    Ok(generator.generate(prompt, CONTINUED, &Sampling::default(), go_on)?)
}
