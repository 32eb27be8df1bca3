//! The Mamba-3 scan: both forms, all outputs and all gradients.

use crate::runner::{OUTPUTS, Run};
use anyhow::{Context, Result, bail};
use oa_graph::ops::index::RopeLayout;
use oa_graph::ops::mamba3::{Mamba3Form, Mamba3Scan, Mamba3State};
use oa_graph::{Tensor, grad};
use oa_tests::Tolerance;
use oa_tests::fixture::widen;
use std::f32::consts::TAU;

const BLOCK: Tolerance = Tolerance::BLOCK;

/// Inputs of the scan in the files' words; the last four are the state before the first token.
const INPUTS: [&str; 11] = ["q", "k", "v", "a", "dt", "lam", "steps", "theta0", "h0", "k0", "v0"];

/// One file, token by token and in chunks.
pub fn mamba3(run: &mut Run) -> Result<()> {
    for form in [Mamba3Form::Recurrent, Mamba3Form::Chunked] {
        scan(run, form).with_context(|| format!("{form:?}"))?;
    }
    Ok(())
}

fn scan(run: &mut Run, form: Mamba3Form) -> Result<()> {
    let fixture = run.fixture;
    let size = |name| fixture.size(name);
    let (b, t, r) = (size("B")?, size("T")?, size("R")?);
    let (h, p, n, s) = (size("H")?, size("P")?, size("N")?, size("S")?);
    let layout = match fixture.word("layout") {
        Some("half") => RopeLayout::Half,
        Some("pair") => RopeLayout::Pair,
        other => bail!("the rotary layout {other:?} is unknown"),
    };
    let input = |name: &str, shape: &[usize]| -> Result<Tensor> {
        let shape = crate::runner::shape(shape)?;
        Ok(run.engine.tensor_f32(shape, fixture.f32(&format!("in.{name}"))?)?)
    };
    let rows = |width| [b, t, r * h, width];
    let (q, k, v) = (input("q", &rows(n))?, input("k", &rows(n))?, input("v", &rows(p))?);
    let per_head = [b, t, h];
    let (a, dt) = (input("a", &per_head)?, input("dt", &per_head)?);
    let (lambda, steps) = (input("lam", &per_head)?, input("steps", &[b, t, h * s])?);
    let state = Mamba3State {
        theta: input("theta0", &[b, h * s])?,
        h: input("h0", &[b, h, p * n])?,
        k: input("k0", &[b, r * h, n])?,
        v: input("v0", &[b, r * h, p])?,
    };
    let scan = Mamba3Scan {
        q: &q,
        k: &k,
        v: &v,
        a: &a,
        dt: &dt,
        lambda: &lambda,
        steps: &steps,
        heads: h,
        layout,
        starts: None,
        state: Some(&state),
    };
    let found = scan.record_as(form)?;
    run.output("out.y", &found.y, BLOCK)?;
    run.output("out.h", &found.h, BLOCK)?;
    run.output("out.k_last", &found.k_last, BLOCK)?;
    angles(run, &found.theta)?;
    let outputs = [
        (&found.y, "up.y"),
        (&found.theta, "up.theta"),
        (&found.h, "up.h"),
        (&found.k_last, "up.k_last"),
    ];
    let Mamba3State { theta: theta0, h: h0, k: k0, v: v0 } = &state;
    let inputs = [&q, &k, &v, &a, &dt, &lambda, &steps, theta0, h0, k0, v0];
    gradients(run, &outputs, &inputs)
}

/// The files do not keep angles within a turn.
fn angles(run: &mut Run, theta: &Tensor) -> Result<()> {
    let want = run.fixture.f32("out.theta")?;
    let near = |(got, want): (f32, &f32)| got + TAU * ((want - got) / TAU).round();
    let got: Vec<f32> = theta.to_vec_f32()?.into_iter().zip(want).map(near).collect();
    run.checks.floats(OUTPUTS, "out.theta", (&got, &widen(want)), BLOCK);
    Ok(())
}

/// Gradients of the contracted outputs, in the order of [`INPUTS`].
fn gradients(run: &mut Run, outputs: &[(&Tensor, &str)], inputs: &[&Tensor]) -> Result<()> {
    let seed = |(output, name): &(&Tensor, &str)| -> Result<Tensor> {
        Ok(run.engine.tensor_f32(output.shape(), run.fixture.f32(name)?)?)
    };
    let seeds: Result<Vec<Tensor>> = outputs.iter().map(seed).collect();
    let seeds = seeds?;
    let pairs: Vec<_> = outputs.iter().zip(&seeds).map(|(output, seed)| (output.0, seed)).collect();
    let found = grad::gradients(&pairs, inputs)?;
    for (name, gradient) in INPUTS.iter().zip(found) {
        let gradient = gradient.with_context(|| format!("{name} got no gradient"))?;
        run.gradient(&format!("in.{name}"), &gradient.to_vec_f32()?, BLOCK)?;
    }
    Ok(())
}
