//! The optimizer update, clipping by the global norm, and the learning-rate schedules.
//!
//! Both run the arena update that training uses. Clipping is part of it and leaves no tensor of
//! its own; with a first moment that remembers nothing (beta1 = 0) the moment *is* the clipped
//! gradient, so it is read there.

use crate::runner::{OUTPUTS, Run, TRAJECTORY};
use anyhow::{Context, Result};
use oa_graph::engine::Engine;
use oa_graph::ops::update::{AdamWInputs, adamw as update};
use oa_graph::{Spec, State};
use oa_ml::optim::schedule::{DecayShape, Schedule};
use oa_tests::Tolerance;
use oa_tests::fixture::widen;

/// Elements that the update's decay factors cover each.
const BLOCK_ELEMS: usize = 64;

/// Settings of one update, as the op takes them.
#[derive(Clone, Copy)]
struct Hyper {
    lr: f64,
    b1: f64,
    b2: f64,
    eps: f64,
    weight_decay: f64,
    max_norm: f64,
}

impl Hyper {
    /// The words of update `t`, counted from 1; the bias corrections are computed in double.
    fn words(&self, t: i32) -> [f32; 8] {
        let correction = |b: f64| 1.0 - b.powi(t);
        let Hyper { lr, b1, b2, eps, weight_decay, max_norm } = *self;
        [lr, b1, b2, eps, weight_decay, correction(b1), correction(b2), max_norm].map(|x| x as f32)
    }
}

/// One arena of parameters, gradients and moments, padded to whole blocks.
struct Arena<'a> {
    engine: &'a Engine,
    elems: usize,
    params: State,
    grads: State,
    m: State,
    v: State,
    decay: State,
}

impl<'a> Arena<'a> {
    fn new(engine: &'a Engine, params: &[f32]) -> Result<Arena<'a>> {
        let padded = params.len().next_multiple_of(BLOCK_ELEMS);
        let state = |name: &str| engine.state(name, Spec::f32([padded]));
        let decay = engine.state("decay", Spec::f32([padded / BLOCK_ELEMS]))?;
        let arena = Arena {
            engine,
            elems: params.len(),
            params: state("params")?,
            grads: state("grads")?,
            m: state("m")?,
            v: state("v")?,
            decay,
        };
        arena.write(&arena.params, params)?;
        let ones = vec![1.0f32; padded / BLOCK_ELEMS];
        engine.write_state(&arena.decay, bytemuck::cast_slice(&ones))?;
        Ok(arena)
    }

    fn write(&self, state: &State, values: &[f32]) -> Result<()> {
        let mut padded = values.to_vec();
        padded.resize(state.shape().elems(), 0.0);
        Ok(self.engine.write_state(state, bytemuck::cast_slice(&padded))?)
    }

    fn read(&self, state: &State) -> Result<Vec<f32>> {
        let mut values = vec![0.0f32; state.shape().elems()];
        self.engine.read_state(state, bytemuck::cast_slice_mut(&mut values))?;
        values.truncate(self.elems);
        Ok(values)
    }

    /// One update; returns the norm of the gradients before clipping.
    fn step(&self, grads: &[f32], hyper: [f32; 8]) -> Result<f32> {
        self.write(&self.grads, grads)?;
        let read = |state: &State| self.engine.read(state);
        let grads = read(&self.grads);
        let norm = update(AdamWInputs {
            params: &read(&self.params),
            grads: &grads,
            m: &read(&self.m),
            v: &read(&self.v),
            decay: &read(&self.decay),
            partials: &grads.norm_partials()?,
            hyper: &self.engine.tensor_f32([8], &hyper)?,
        })?;
        Ok(norm.item()?)
    }
}

/// Several updates of one matrix; every parameter after each, both moments at the end.
pub fn adamw(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let setting = |key: &str| fixture.number(key);
    let hyper = Hyper {
        lr: setting("lr")?,
        b1: setting("b1")?,
        b2: setting("b2")?,
        eps: setting("eps")?,
        weight_decay: setting("wd")?,
        max_norm: 0.0,
    };
    let arena = Arena::new(run.engine, fixture.f32("in.p0")?)?;
    let (grads, want) = (fixture.f32("in.grads")?, fixture.f32("out.p")?);
    let updates = grads.chunks_exact(arena.elems).zip(want.chunks_exact(arena.elems));
    for (index, (grads, want)) in updates.enumerate() {
        arena.step(grads, hyper.words(index as i32 + 1))?;
        let (name, got) = (format!("out.p[{index}]"), arena.read(&arena.params)?);
        run.checks.floats(TRAJECTORY, name, (&got, &widen(want)), Tolerance::OP);
    }
    for (name, state) in [("out.m", &arena.m), ("out.v", &arena.v)] {
        let want = widen(fixture.f32(name)?);
        run.checks.floats(OUTPUTS, name, (&arena.read(state)?, &want), Tolerance::OP);
    }
    Ok(())
}

/// Clipping at each bound of the file, the norm, and three schedules.
pub fn clip_and_schedules(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let bounds = fixture.setting("clip").and_then(|bounds| bounds.as_array());
    let bounds = bounds.context("the config has no clip bounds")?;
    let (g0, g1) = (fixture.f32("in.g0")?, fixture.f32("in.g1")?);
    let grads = [g0, g1].concat();
    for (bound, prefix) in bounds.iter().zip(["out.c", "out.noop"]) {
        let max_norm = bound.as_f64().context("a clip bound is no number")?;
        let arena = Arena::new(run.engine, &vec![0.0; grads.len()])?;
        let hyper = Hyper { lr: 0.0, b1: 0.0, b2: 0.0, eps: 1.0, weight_decay: 0.0, max_norm };
        let norm = arena.step(&grads, hyper.words(1))?;
        let want = widen(fixture.f32("out.norm")?);
        run.checks.floats(OUTPUTS, "out.norm", (&[norm], &want), Tolerance::OP);
        let clipped = arena.read(&arena.m)?;
        for (index, got) in [&clipped[..g0.len()], &clipped[g0.len()..]].into_iter().enumerate() {
            let name = format!("{prefix}{index}");
            let want = widen(fixture.f32(&name)?);
            run.checks.floats(OUTPUTS, name, (got, &want), Tolerance::OP);
        }
    }
    schedules(run)
}

/// The rates are computed in double and rounded once. The bound is that of a single op: another
/// machine's cosine may differ in its last bit.
fn schedules(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let (base, total) = (fixture.number("base")?, fixture.size("total")? as u64);
    let (warmup, decay) = (fixture.size("warmup")? as u64, fixture.size("decay")? as u64);
    let stable = |min_ratio, shape| Schedule::WarmupStableDecay { warmup, decay, min_ratio, shape };
    let schedules = [
        ("cosine", Schedule::Cosine { warmup, min_ratio: fixture.number("cosine_min")? }),
        ("wsd_linear", stable(fixture.number("wsd_linear_min")?, DecayShape::Linear)),
        ("wsd_sqrt", stable(fixture.number("wsd_sqrt_min")?, DecayShape::Sqrt)),
    ];
    let steps = fixture.ids("in.step")?;
    for (name, schedule) in schedules {
        let rate = |&step: &u32| schedule.rate(base, u64::from(step), total) as f32;
        let got: Vec<f32> = steps.iter().map(rate).collect();
        let name = format!("out.{name}");
        let want = widen(fixture.f32(&name)?);
        run.checks.floats(TRAJECTORY, name, (&got, &want), Tolerance::OP);
    }
    Ok(())
}
