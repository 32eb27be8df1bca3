//! Suites `ops` and `large`: every op, every kernel variant that the device can run, every sample.
//!
//! Each variant is forced, not only the one that would be selected, so a fallback that is never
//! chosen on this device is still tested on it. A result is compared with the f64 reference, and
//! two repeats with the first run, bit for bit. `large` has the samples of many megabytes.

use crate::context::{Context, Force, Outcome, trial};
use crate::execute::{Found, family, force_of, on_device, on_host, specs};
use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use oa_graph::ops::sample::Sample;
use oa_graph::ops::{OpDef, all};
use oa_graph::{DType, HostTensor};
use oa_kernels::select::misfit;
use oa_kernels::{Variant, registry};
use oa_tests::case::Checks;
use oa_tests::compare::Tolerance;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How often a sample is run; all runs must agree in every bit.
const REPEATS: usize = 3;

/// Ops that go over time or hold a whole block: the specification gives them the wider bound.
const SCANS: &[&str] = &[
    "rnn_tanh",
    "rnn_tanh_grad",
    "rnn_tanh_backward",
    "gru",
    "gru_backward",
    "mamba3_recurrent",
    "mamba3_chunks",
    "mamba3_chunks_backward",
    "mamba3_carry",
    "mamba3_carry_backward",
    "mamba3_outputs",
    "mamba3_outputs_backward",
];

/// Trials on the small samples.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    list(context, "ops", false)
}

/// Trials on the large samples.
pub fn large_trials(context: &Arc<Context>) -> Vec<Trial> {
    list(context, "large", true)
}

fn list(context: &Arc<Context>, suite: &'static str, large: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for op in all() {
        for variant in variants(op, large) {
            let name = match variant {
                Some(variant) => format!("{suite}/{}/{}", op.name, variant.name),
                None => format!("{suite}/{}", op.name),
            };
            let body = move |context: &Context, checks: &mut Checks| {
                let outcome = check(context, checks, op, variant, large);
                if large {
                    // An engine keeps plans and buffers for the next turn: gigabytes by now.
                    context.close_engines();
                }
                outcome
            };
            trials.push(trial(context, name, body));
        }
    }
    trials
}

/// The kernel variants that the samples of an op can run by; one `None` for an op without kernels,
/// nothing for an op without samples of this size. A large sample is not made for that: `check`
/// holds its family to be one that a small sample has too.
fn variants(op: &OpDef, large: bool) -> Vec<Option<&'static Variant>> {
    let samples = (op.samples)();
    if !samples.iter().any(|sample| sample.large == large) {
        return Vec::new();
    }
    let mut variants = Vec::new();
    for family in families(op, &samples, large) {
        match family {
            None => variants.push(None),
            Some(family) => {
                let known = registry().iter().filter(|variant| variant.family == family);
                variants.extend(known.map(Some));
            }
        }
    }
    variants
}

/// The kernel families of an op's small samples; for large ones also the families of long rows,
/// which only large samples reach.
fn families(op: &OpDef, samples: &[Sample], large: bool) -> BTreeSet<Option<&'static str>> {
    let small = samples.iter().filter(|sample| !sample.large);
    // A sample that its own op refuses is found when the trial runs.
    let mut found: BTreeSet<_> = small.map(|sample| family(op, sample).unwrap_or(None)).collect();
    if large {
        let long: Vec<_> = found.iter().flatten().map(|name| format!("{name}_long")).collect();
        let known = registry().iter().map(|variant| variant.family);
        found.extend(known.filter(|name| long.iter().any(|long| long == name)).map(Some));
    }
    found
}

fn check(
    context: &Context,
    checks: &mut Checks,
    op: &'static OpDef,
    variant: Option<&'static Variant>,
    large: bool,
) -> Result<Outcome> {
    let mut force = Force::new();
    if let Some(variant) = variant {
        let engine = context.engine()?;
        if let Some(reason) = misfit(variant, engine.capabilities()) {
            return Ok(Outcome::Skipped(reason.to_string()));
        }
        force = force_of(variant, engine.capabilities());
    }
    let engine = context.engine_with(&force)?;
    let range = engine.capabilities().limits.storage_range_bytes;
    let mut too_large = None;
    let samples = (op.samples)();
    let known = families(op, &samples, large);
    for (index, sample) in samples.iter().enumerate() {
        // The size first: a sample is made when it is looked at.
        if sample.large != large {
            continue;
        }
        let of_sample = family(op, sample)?;
        ensure!(known.contains(&of_sample), "no small sample has the family of sample {index}");
        if of_sample != variant.map(|variant| variant.family) {
            continue;
        }
        let (inputs, outputs) = specs(op, sample)?;
        let longest = inputs.iter().chain(&outputs).map(|spec| spec.len_bytes()).max();
        if longest.is_some_and(|len_bytes| len_bytes > range) {
            too_large = longest;
            continue;
        }
        let first = on_device(&engine, op, sample)?;
        compare(checks, op, sample, index, &first)?;
        for _ in 1..REPEATS {
            let again = on_device(&engine, op, sample)?;
            for (first, again) in first.iter().zip(&again) {
                let name = format!("sample {index} {}", again.name);
                checks.exact("repeats", name, &again.bytes, &first.bytes);
            }
        }
    }
    match too_large {
        Some(len_bytes) if checks.list.is_empty() => Ok(Outcome::Skipped(format!(
            "every sample has a value of {len_bytes} bytes or more, above the device's \
             storage-buffer range of {range} bytes"
        ))),
        None if large && checks.list.is_empty() => {
            Ok(Outcome::Skipped("the family has no large sample".to_owned()))
        }
        _ => Ok(Outcome::Checked),
    }
}

fn compare(
    checks: &mut Checks,
    op: &OpDef,
    sample: &Sample,
    index: usize,
    found: &[Found],
) -> Result<()> {
    let wanted = on_host(op, sample);
    ensure!(
        wanted.len() == found.len(),
        "the reference of {} has {} results, the device {}",
        op.name,
        wanted.len(),
        found.len()
    );
    for (found, want) in found.iter().zip(&wanted) {
        ensure!(found.spec == want.spec, "{} is {}, not {}", found.name, found.spec, want.spec);
        let name = format!("sample {index} {}", found.name);
        against(checks, op, name, found, want).context("comparing")?;
    }
    Ok(())
}

/// Integers are exact; floats are within the bound of an op.
fn against(
    checks: &mut Checks,
    op: &OpDef,
    name: String,
    found: &Found,
    want: &HostTensor,
) -> Result<()> {
    match found.spec.dtype {
        DType::F32 => {
            let scan = SCANS.contains(&op.name);
            let tolerance = if scan { Tolerance::BLOCK } else { Tolerance::OP };
            let got: Vec<f32> = bytemuck::pod_collect_to_vec(&found.bytes);
            checks.floats("outputs", name, (&got, &want.data), tolerance);
        }
        DType::U32 | DType::I32 => {
            checks.exact("outputs", name, &found.bytes, &want.to_bytes());
        }
    }
    Ok(())
}
