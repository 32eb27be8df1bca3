//! Optimizer updates, clipping by the global norm, and the learning-rate schedules.
//!
//! They run the updates that training uses. Clipping is part of it and leaves no tensor of
//! its own; with a first moment that remembers nothing (beta1 = 0) the moment *is* the clipped
//! gradient, so it is read there.

use crate::runner::{OUTPUTS, Run, TRAJECTORY, shape};
use anyhow::{Context, Result};
use oa_graph::engine::Engine;
use oa_graph::ops::optim::adamw::{AdamWInputs, adamw as update};
use oa_graph::ops::optim::muon::orthogonalise;
use oa_graph::ops::optim::{BLOCK, Hyper};
use oa_graph::{Spec, State};
use oa_ml::init::Init;
use oa_ml::optim::schedule::{DecayShape, Schedule};
use oa_ml::{
    GradientTape, ItTraining, ItTrainingConfig, Muon, MuonConfig, NamedTensor, Optimizer,
    ParameterStore,
};
use oa_tests::Tolerance;
use oa_tests::fixture::widen;

/// One arena of parameters, gradients and moments, padded to whole blocks.
struct Arena<'a> {
    engine: &'a Engine,
    elems: usize,
    params: State,
    grads: State,
    m: State,
    v: State,
    blocks: State,
}

impl<'a> Arena<'a> {
    fn new(engine: &'a Engine, params: &[f32], decay: f32) -> Result<Arena<'a>> {
        let padded = params.len().next_multiple_of(BLOCK);
        let state = |name: &str| engine.state(name, Spec::f32([padded]));
        let blocks = engine.state("blocks", Spec::f32([padded / BLOCK, 2]))?;
        let arena = Arena {
            engine,
            elems: params.len(),
            params: state("params")?,
            grads: state("grads")?,
            m: state("m")?,
            v: state("v")?,
            blocks,
        };
        arena.write(&arena.params, params)?;
        let table = [1.0, decay].repeat(padded / BLOCK);
        engine.write_state(&arena.blocks, bytemuck::cast_slice(&table))?;
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
            blocks: &read(&self.blocks),
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
        rate: setting("lr")?,
        beta1: setting("b1")?,
        beta2: setting("b2")?,
        eps: setting("eps")?,
        ..Hyper::default()
    };
    let arena = Arena::new(run.engine, fixture.f32("in.p0")?, setting("wd")? as f32)?;
    let (grads, want) = (fixture.f32("in.grads")?, fixture.f32("out.p")?);
    let updates = grads.chunks_exact(arena.elems).zip(want.chunks_exact(arena.elems));
    for (index, (grads, want)) in updates.enumerate() {
        arena.step(grads, hyper.words(index as u64 + 1))?;
        let (name, got) = (format!("out.p[{index}]"), arena.read(&arena.params)?);
        run.checks.floats(TRAJECTORY, name, (&got, &widen(want)), Tolerance::OP);
    }
    for (name, state) in [("out.m", &arena.m), ("out.v", &arena.v)] {
        let want = widen(fixture.f32(name)?);
        run.checks.floats(OUTPUTS, name, (&arena.read(state)?, &want), Tolerance::OP);
    }
    Ok(())
}

/// Several updates of a wide and a tall matrix by the optimizer itself: a model of one hidden
/// parameter, whose gradient comes from `sum(p * g)`.
pub fn muon(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let config = MuonConfig {
        lr: fixture.number("lr")?,
        momentum: fixture.number("momentum")?,
        weight_decay: fixture.number("wd")?,
        ..MuonConfig::default()
    };
    muon_steps(run, config, "wide")?;
    muon_steps(run, config, "tall")
}

fn muon_steps(run: &mut Run, config: MuonConfig, side: &str) -> Result<()> {
    let (fixture, engine) = (run.fixture, run.engine);
    let out = |what: &str| format!("out.{side}.{what}");
    let dims = fixture.shape(&format!("in.{side}.p0"))?.to_vec();
    let elems = dims.iter().product::<usize>();
    let grads = fixture.f32(&format!("in.{side}.grads"))?;
    let want = fixture.f32(&out("p"))?;
    let first = orthogonalise(&engine.tensor_f32(shape(&dims)?, &grads[..elems])?)?;
    run.output(&out("ns_first_grad"), &first, Tolerance::BLOCK)?;

    let mut store = ParameterStore::new(engine, 0);
    let parameter = store.root().declare("w", shape(&dims)?, Init::Zeros)?;
    let parameters = store.finalise()?;
    let data = fixture.f32(&format!("in.{side}.p0"))?.to_vec();
    parameters.load(&[NamedTensor { name: "w".into(), shape: dims.clone(), data }])?;
    let mut optimizer = Muon::with_config(parameters.clone(), config)?;
    let settings = ItTrainingConfig { max_norm: 0.0, ..ItTrainingConfig::default() };
    let mut session = ItTraining::new_eager(engine, &mut optimizer, settings)?;
    let steps = grads.chunks_exact(elems).zip(want.chunks_exact(elems));
    for (index, (grads, want)) in steps.enumerate() {
        session.begin_step()?;
        session.zero_grad();
        let loss = parameter.value().mul(&engine.tensor_f32(shape(&dims)?, grads)?)?.sum()?;
        GradientTape::new().backward(&loss)?;
        session.complete_step(&loss)?;
        let (tensor, got) = (out(&format!("p[{index}]")), &parameters.to_host()?[0].data);
        run.checks.floats(TRAJECTORY, tensor, (got, &widen(want)), Tolerance::OP);
    }
    drop(session);
    let state = optimizer.state()?;
    let m = &state.slot("m").context("Muon keeps a momentum")?[0].data;
    run.checks.floats(OUTPUTS, out("m"), (m, &widen(fixture.f32(&out("m"))?)), Tolerance::OP);
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
        let max_norm = bound.as_f64().context("a clip bound is no number")? as f32;
        let arena = Arena::new(run.engine, &vec![0.0; grads.len()], 0.0)?;
        let hyper = Hyper { eps: 1.0, max_norm, ..Hyper::default() };
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
