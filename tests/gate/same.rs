//! Suite `same`: every kernel gives the same bits a hundred times.
//!
//! Races inside a workgroup and sums whose order depends on timing show only now and then, so one
//! repeat proves nothing. All kernel variants that the device can run are tried, each on the largest
//! small sample that reaches its family.

use crate::context::{Context, Outcome, trial};
use crate::execute::{family, force_of, on_device};
use anyhow::{Context as _, Result};
use libtest_mimic::Trial;
use oa_graph::ops::sample::Sample;
use oa_graph::ops::{OpDef, all};
use oa_kernels::select::misfit;
use oa_kernels::{Variant, registry};
use oa_tests::case::Checks;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often each kernel runs.
const TURNS: usize = 100;

/// One trial a kernel variant of every op.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for op in all() {
        for of_op in largest(op).into_keys() {
            for variant in registry().iter().filter(|variant| variant.family == of_op) {
                let name = format!("same/{}/{}", op.name, variant.name);
                trials.push(trial(context, name, move |context, checks| {
                    check(context, checks, op, variant)
                }));
            }
        }
    }
    trials
}

/// Of each kernel family that the small samples reach, the sample with most input elements.
fn largest(op: &OpDef) -> BTreeMap<&'static str, Sample> {
    let elems =
        |sample: &Sample| -> usize { sample.inputs.iter().map(|input| input.data.len()).sum() };
    let mut found: BTreeMap<&'static str, Sample> = BTreeMap::new();
    for sample in (op.samples)().into_iter().filter(|sample| !sample.large) {
        let Some(family) = family(op, &sample).unwrap_or(None) else { continue };
        if found.get(family).is_none_or(|other| elems(other) < elems(&sample)) {
            found.insert(family, sample);
        }
    }
    found
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
    let sample = largest(op).remove(variant.family).context("a small sample has the family")?;
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
