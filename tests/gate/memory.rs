//! Suite `memory`: a long run holds no more memory at its end than at its beginning.
//!
//! Device bytes, heap and resident memory are compared between step 50 and step 2,000, in a process
//! that does nothing else, and a replayed step must not allocate on the host at all.

use crate::context::{Context, Outcome, status_kib, trial};
use crate::learn::{Mode, corpus, forward, train, workload};
use crate::process::{self, Numbers};
use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use oa_ml::contract::{ROWS, SEED, SEQUENCE, workloads};
use oa_ml::data::{Batch, DataCursor};
use oa_ml::optim::adamw::AdamW;
use oa_ml::train::{ItTraining, ItTrainingConfig};
use oa_tests::case::Checks;
use oa_tests::compare::{Metric, Tolerance};
use stats_alloc::Region;
use std::sync::Arc;

/// The step that the later ones are compared with: everything has been built by then.
const EARLY: u64 = 50;
/// The last step.
const LATE: u64 = 2_000;
/// Growth that still counts as flat.
const GROWTH: f64 = 0.01;
/// What lavapipe itself adds once: it hands push constants out of buffers of 1 MiB, takes a new one
/// every 16,384 dispatches, and keeps up to three. Measured: resident memory rises by 1,028 KiB at
/// dispatches 16,384 and 32,768 and stays, in a heap of the driver's own thread.
const DRIVER_BYTES: f64 = 3.0 * 1024.0 * 1024.0;
/// Steps after which a captured session has built everything.
const WARM_UP: usize = 8;
/// Steps whose allocations are counted.
const COUNTED: usize = 50;

/// The trials: a long run in a fresh process, and allocations per model.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = vec![trial(context, "memory/flat", flat)];
    for workload in workloads() {
        let case = format!("memory/allocations/{}", workload.family);
        trials.push(trial(context, case, move |context, checks| {
            let engine = context.engine()?;
            let model = workload.config.build(&engine, SEED)?;
            let mut optimizer = AdamW::new(model.all_parameters()?, workload.rate)?;
            let total_steps = (WARM_UP + COUNTED) as u64;
            let settings = ItTrainingConfig { total_steps, ..Default::default() };
            let session = ItTraining::new_captured(&engine, &mut optimizer, settings)?;
            let counts = allocations(session, &mut forward(&model))?;
            checks.exact("allocations", format!("{COUNTED} replayed steps"), &counts, &[0; 2]);
            Ok(Outcome::Checked)
        }));
    }
    trials
}

type Forward<'a> = &'a mut dyn FnMut(&oa_ml::train::StepInputs) -> oa_ml::Result<oa_graph::Tensor>;

/// Allocations and reallocations of this process over the counted steps, batches included: they are
/// filled in place.
fn allocations(mut session: ItTraining<'_>, forward: Forward) -> Result<[usize; 2]> {
    let view = corpus()?.whole();
    let mut batches = view.batches(ROWS, SEQUENCE, DataCursor::CONTRACT)?;
    let mut batch = [Batch::zeroed(ROWS, SEQUENCE)];
    let mut region = None;
    for step in 0..WARM_UP + COUNTED {
        if step == WARM_UP {
            region = Some(Region::new(crate::ALLOCATOR));
        }
        batches.fill(&mut batch[0]);
        ensure!(session.begin_step()?, "the run is longer than the counted steps");
        session.step(&batch, forward)?;
    }
    let change = region.context("more steps than the warm-up")?.change();
    Ok([change.allocations, change.reallocations])
}

fn flat(context: &Context, checks: &mut Checks) -> Result<Outcome> {
    context.close_engines();
    let numbers = process::ask(context, "memory")?;
    let number = |name: &str| numbers.get(name).copied().with_context(|| format!("no {name}"));
    let software = number("software")? == 1.0;
    for name in ["device_bytes", "heap_bytes", "resident_bytes"] {
        let (early, late) = (number(&format!("{name}_early"))?, number(&format!("{name}_late"))?);
        println!("    {name}: {early:.0} at step {EARLY}, {late:.0} at step {LATE}");
        let driver = if software && name == "resident_bytes" { DRIVER_BYTES } else { 0.0 };
        let tolerance = Tolerance { metric: Metric::Absolute, limit: GROWTH };
        let growth = ((late - driver) / early - 1.0).max(0.0) as f32;
        checks.floats("growth", name, (&[growth], &[0.0]), tolerance);
    }
    Ok(Outcome::Checked)
}

/// Trains a contract model and says what the process holds early and late: on the device, on the
/// heap of this program (drivers have their own), and in physical memory.
pub fn measure(context: &Context) -> Result<Numbers> {
    let engine = context.engine()?;
    let mut numbers = Numbers::new();
    let software = engine.capabilities().software;
    numbers.insert("software".to_owned(), f64::from(u8::from(software)));
    train(&engine, &workload("rnn")?, Mode::Eager, (None, LATE), &mut |step| {
        let when = match step {
            EARLY => "early",
            LATE => "late",
            _ => return Ok(()),
        };
        let heap = crate::ALLOCATOR.stats();
        let measured = [
            ("device_bytes", engine.gpu().memory().allocated_bytes as f64),
            ("heap_bytes", (heap.bytes_allocated - heap.bytes_deallocated) as f64),
            ("resident_bytes", status_kib("VmRSS")? as f64 * 1024.0),
        ];
        numbers.extend(measured.map(|(name, value)| (format!("{name}_{when}"), value)));
        Ok(())
    })?;
    Ok(numbers)
}
