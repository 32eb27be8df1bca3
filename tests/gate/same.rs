//! Suite `same`: a kernel that sums over anything gives the same bits a hundred times.
//!
//! Races inside a workgroup and sums whose order depends on timing show only now and then, so one
//! repeat proves nothing. All kernel variants that the device can run are tried on the largest of
//! the op's small samples.

use crate::context::{Context, Outcome, trial};
use crate::execute::{family, force_of, on_device};
use anyhow::{Context as _, Result};
use libtest_mimic::Trial;
use oa_graph::ops::sample::Sample;
use oa_graph::ops::{OpDef, all};
use oa_kernels::select::misfit;
use oa_kernels::{Variant, registry};
use oa_tests::case::Checks;
use std::sync::Arc;

/// How often each kernel runs.
const TURNS: usize = 100;

/// Parts of the names of ops that combine several elements into one. An op without any of these
/// is elementwise or moves data.
const COMBINING: &[&str] = &[
    "matmul",
    "linear",
    "attention",
    "rnn",
    "gru",
    "mamba3",
    "sum",
    "mean",
    "norm",
    "entropy",
    "adamw",
    "embedding",
    "argmax",
    "sample",
    "partials",
    "inverse_count",
];

/// One trial a kernel variant of a combining op.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for op in all().filter(|op| COMBINING.iter().any(|part| op.name.contains(part))) {
        let Some((_, Some(of_op))) = largest(op) else { continue };
        for variant in registry().iter().filter(|variant| variant.family == of_op) {
            let name = format!("same/{}/{}", op.name, variant.name);
            trials.push(trial(context, name, move |context, checks| {
                check(context, checks, op, variant)
            }));
        }
    }
    trials
}

/// The small sample with most input elements, and its kernel family.
fn largest(op: &OpDef) -> Option<(Sample, Option<&'static str>)> {
    let elems =
        |sample: &Sample| -> usize { sample.inputs.iter().map(|input| input.data.len()).sum() };
    let small = (op.samples)().into_iter().filter(|sample| !sample.large);
    let sample = small.max_by_key(elems)?;
    let family = family(op, &sample).unwrap_or(None);
    Some((sample, family))
}

fn check(
    context: &Context,
    checks: &mut Checks,
    op: &'static OpDef,
    variant: &'static Variant,
) -> Result<Outcome> {
    let engine = context.engine()?;
    if let Some(reason) = misfit(variant, engine.capabilities()) {
        return Ok(Outcome::Skipped(reason.to_string()));
    }
    let engine = context.engine_with(&force_of(variant, engine.capabilities()))?;
    let (sample, _) = largest(op).context("the op has a small sample")?;
    let first = on_device(&engine, op, &sample)?;
    let mut unequal = vec![0usize; first.len()];
    for _ in 1..TURNS {
        let again = on_device(&engine, op, &sample)?;
        for ((first, again), unequal) in first.iter().zip(&again).zip(&mut unequal) {
            *unequal += usize::from(first.bytes != again.bytes);
        }
    }
    for (first, unequal) in first.iter().zip(unequal) {
        let name = format!("{} over {TURNS} turns", first.name);
        checks.exact("repeats", name, &[unequal], &[0]);
    }
    Ok(Outcome::Checked)
}
