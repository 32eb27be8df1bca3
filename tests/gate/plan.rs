//! Suite `plan`: every way to execute a graph gives the same bits, and the right ones.
//!
//! A graph is executed op by op (a segment each), lazily as one segment, again through the cached
//! plan, and captured and replayed with its transients poisoned in between. A plan that reads what
//! it did not write in the same replay, or that frees a buffer too early, differs.

use crate::context::{Context, Outcome, trial};
use crate::execute::bytes_of;
use crate::graphs::{GRAPHS, Maker, Record};
use anyhow::Result;
use libtest_mimic::Trial;
use oa_graph::engine::Engine;
use oa_graph::{Graph, HostTensor, Tensor, oracle};
use oa_tests::case::Checks;
use oa_tests::compare::Tolerance;
use std::cell::RefCell;
use std::sync::Arc;

/// Replays of a captured plan: more than it keeps in flight.
const REPLAYS: usize = 5;

/// A byte that makes every float a NaN and every index absurd.
const POISON: u8 = 0xFF;

/// Four trials a graph.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &(name, record) in GRAPHS {
        let add = |how: &str, body: fn(&Engine, &mut Checks, Record) -> Result<()>| {
            trial(context, format!("plan/{name}/{how}"), move |context, checks| {
                body(&context.engine()?, checks, record)?;
                Ok(Outcome::Checked)
            })
        };
        trials.extend([
            add("oracle", against_oracle),
            add("op_by_op", op_by_op),
            add("again", again),
            add("captured", captured),
        ]);
    }
    trials
}

/// Records a graph lazily on a device and executes it as one segment.
pub fn lazily(engine: &Engine, record: Record) -> Result<Vec<Vec<u8>>> {
    let input = |value: HostTensor| -> Result<Tensor> {
        Ok(engine.graph().host(value.spec, value.to_bytes().into())?)
    };
    let results = record(&Maker { input: &input, tick: &|| Ok(()) })?;
    engine.submit()?;
    results.iter().map(bytes_of).collect()
}

fn against_oracle(engine: &Engine, checks: &mut Checks, record: Record) -> Result<()> {
    let graph = Graph::detached();
    let input = |value: HostTensor| -> Result<Tensor> {
        Ok(graph.host(value.spec, value.to_bytes().into())?)
    };
    let results = record(&Maker { input: &input, tick: &|| Ok(()) })?;
    let wanted = oracle::evaluate(&results.iter().collect::<Vec<_>>());
    for (index, (got, want)) in lazily(engine, record)?.iter().zip(&wanted).enumerate() {
        let got: Vec<f32> = bytemuck::pod_collect_to_vec(got);
        let name = format!("result {index} {}", want.spec);
        checks.floats("outputs", name, (&got, &want.data), Tolerance::BLOCK);
    }
    Ok(())
}

fn op_by_op(engine: &Engine, checks: &mut Checks, record: Record) -> Result<()> {
    let wanted = lazily(engine, record)?;
    let input = |value: HostTensor| -> Result<Tensor> {
        Ok(engine.graph().host(value.spec, value.to_bytes().into())?)
    };
    let tick = || -> Result<()> {
        engine.submit()?;
        Ok(())
    };
    let results = record(&Maker { input: &input, tick: &tick })?;
    let found: Result<Vec<_>> = results.iter().map(bytes_of).collect();
    same(checks, "op by op", &found?, &wanted);
    Ok(())
}

fn again(engine: &Engine, checks: &mut Checks, record: Record) -> Result<()> {
    let wanted = lazily(engine, record)?;
    let compiled = engine.plans_compiled();
    for _ in 0..REPLAYS {
        same(checks, "again", &lazily(engine, record)?, &wanted);
    }
    let later = engine.plans_compiled();
    checks.exact("plans compiled", "after the first turn", &[later - compiled], &[0]);
    Ok(())
}

fn captured(engine: &Engine, checks: &mut Checks, record: Record) -> Result<()> {
    let wanted = lazily(engine, record)?;
    let inputs: RefCell<Vec<(String, Vec<u8>)>> = RefCell::default();
    let specs = RefCell::new(Vec::new());
    let plan = engine.capture(|| -> Result<Vec<Tensor>, Refused> {
        let input = |value: HostTensor| -> Result<Tensor> {
            let name = format!("input{}", inputs.borrow().len());
            let tensor = engine.input(&name, value.spec);
            inputs.borrow_mut().push((name, value.to_bytes()));
            Ok(tensor)
        };
        let results = record(&Maker { input: &input, tick: &|| Ok(()) })?;
        specs.borrow_mut().extend(results.iter().map(Tensor::spec));
        Ok(results)
    });
    let plan = plan.map_err(|Refused(error)| error)?;
    let inputs = inputs.into_inner();
    // An input that only a shape was taken from is no input of the plan.
    let bound = inputs.iter().filter_map(|(name, bytes)| Some((plan.input(name)?, &bytes[..])));
    let bound: Vec<_> = bound.collect();
    for _ in 0..REPLAYS {
        plan.poison(POISON)?;
        let event = plan.submit(&bound)?;
        let mut found = Vec::new();
        for (index, spec) in specs.borrow().iter().enumerate() {
            let mut values = vec![0.0f32; spec.shape.elems()];
            event.output_f32(index, &mut values)?;
            found.push(bytemuck::cast_slice(&values).to_vec());
        }
        same(checks, "captured", &found, &wanted);
    }
    Ok(())
}

fn same(checks: &mut Checks, how: &'static str, found: &[Vec<u8>], wanted: &[Vec<u8>]) {
    checks.exact(how, "number of results", &[found.len()], &[wanted.len()]);
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        checks.exact(how, format!("result {index}"), found, wanted);
    }
}

/// Lets a capture fail with what the recording of a graph fails with.
struct Refused(anyhow::Error);

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Refused {
        Refused(error)
    }
}

impl From<oa_graph::Error> for Refused {
    fn from(error: oa_graph::Error) -> Refused {
        Refused(anyhow::Error::new(error).context("capturing"))
    }
}
