//! A Mamba-3 mixer: the whole sequence, the same sequence token by token, and all gradients.

use crate::language::parameters;
use crate::runner::{OUTPUTS, Run};
use anyhow::{Context, Result, bail};
use oa_graph::ops::mamba3::{DecayRate, Mamba3Scanned};
use oa_graph::{Tensor, grad};
use oa_ml::init::Init;
use oa_ml::model::RopeStyle;
use oa_ml::nn::{Mamba3, Mamba3Config};
use oa_ml::param::ParameterStore;
use oa_ml::tape::GradientTape;
use oa_tests::Tolerance;
use oa_tests::fixture::{Fixture, widen};
use std::f64::consts::TAU;

const BLOCK: Tolerance = Tolerance::BLOCK;

fn config(fixture: &Fixture) -> Result<Mamba3Config> {
    let size = |key: &str| fixture.size(key);
    Ok(Mamba3Config {
        width: size("d_model")?,
        heads: size("H")?,
        head_dim: size("P")?,
        state: size("N")?,
        groups: size("G")?,
        mimo: fixture.flag("mimo").then(|| size("R")).transpose()?,
        angles: size("S")?,
        rope: match fixture.word("layout") {
            Some("half") => RopeStyle::Half,
            Some("pair") => RopeStyle::Pair,
            other => bail!("the rotary layout {other:?} is unknown"),
        },
        rate: match fixture.word("a_act") {
            Some("heavy_tail") => DecayRate::HeavyTail,
            Some("softplus") => DecayRate::Softplus,
            other => bail!("the rate of decay {other:?} is unknown"),
        },
        floor: fixture.number("a_floor")? as f32,
        eps: fixture.number("eps")? as f32,
        gains: true,
        out_norm: fixture.flag("out_norm"),
        time_steps: [1.0e-3, 0.1],
        init_out: Init::Zeros,
    })
}

/// The layer that models use, with the file's parameters.
pub fn mixer(run: &mut Run) -> Result<()> {
    let config = config(run.fixture)?;
    let mut store = ParameterStore::new(run.engine, 0);
    let mixer = Mamba3::new(&mut store.root(), config)?;
    let declared = store.finalise()?;
    declared.load(&parameters(run.fixture)?)?;
    let u = run.input("in.u")?;
    let (y, scanned) = mixer.mix(&u, None, None)?;
    let Mamba3Scanned { h, k_last, v_last, .. } = &scanned;
    let outputs = [("y", &y), ("h", h), ("k_last", k_last), ("v_last", v_last)];
    let (mut total, mut pairs): (Option<Tensor>, Vec<_>) = (None, Vec::new());
    for (name, value) in outputs {
        run.output(&format!("out.{name}"), value, BLOCK)?;
        let up = run.input(&format!("up.{name}"))?.reshape(value.shape())?;
        let term = value.mul(&up)?.sum()?;
        total = Some(match total {
            Some(total) => total.add(&term)?,
            None => term,
        });
        pairs.push((value, up));
    }
    let pairs: Vec<(&Tensor, &Tensor)> = pairs.iter().map(|(value, up)| (*value, up)).collect();
    let found = grad::gradients(&pairs, &[&u])?;
    let gradient = found[0].as_ref().context("in.u got no gradient")?;
    run.gradient("in.u", &gradient.to_vec_f32()?, BLOCK)?;
    GradientTape::new().backward(&total.context("a mixer has outputs")?)?;
    for gradient in declared.gradients_to_host()? {
        run.gradient(&format!("p.{}", gradient.name), &gradient.data, BLOCK)?;
    }
    stepwise(run, &mixer, &u)
}

/// Token by token: each output, state and angle.
fn stepwise(run: &mut Run, mixer: &Mamba3, u: &Tensor) -> Result<()> {
    let &[batch, time, _] = u.shape().dims() else { bail!("in.u is not [B, T, D]") };
    let (mut state, mut found) = (None, [Vec::new(), Vec::new(), Vec::new()]);
    for step in 0..time {
        let (y, scanned) = mixer.mix(&u.narrow(1, step, 1)?, None, state.as_ref())?;
        let next = scanned.state()?;
        for (all, value) in found.iter_mut().zip([&y, &next.h, &next.theta]) {
            all.push(value.to_vec_f32()?);
        }
        state = Some(next);
    }
    for (name, steps) in ["out.step_y", "out.step_h", "out.step_theta"].into_iter().zip(found) {
        let mut got = Vec::new();
        for row in 0..batch {
            for step in &steps {
                let width = step.len() / batch;
                got.extend(&step[row * width..][..width]);
            }
        }
        let want = widen(run.fixture.f32(name)?);
        if name == "out.step_theta" {
            turn(&mut got, &want);
        }
        run.checks.floats(OUTPUTS, name, (&got, &want), BLOCK);
    }
    Ok(())
}

/// Angles are kept within half a turn, those of the file grow: adds the turns between them.
fn turn(got: &mut [f32], want: &[f64]) {
    for (got, want) in got.iter_mut().zip(want) {
        let turns = ((want - f64::from(*got)) / TAU).round();
        *got = (f64::from(*got) + turns * TAU) as f32;
    }
}
