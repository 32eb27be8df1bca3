//! Single ops: activations, norms, rotary embedding, gated feed-forward, attention.
//!
//! Attention files keep `[B, H, T, d]`; the engine's layout is `[B, T, H, d]`, so inputs, outputs
//! and gradients are permuted on the host and stay bit-equal otherwise.

use crate::runner::{GRADIENTS, OUTPUTS, Run, shape};
use anyhow::{Context, Result};
use oa_graph::ops::index::{RopeLayout, rope_table};
use oa_graph::{Tensor, grad};
use oa_tests::Tolerance;
use oa_tests::fixture::{swap_middle, widen};

const OP: Tolerance = Tolerance::OP;

/// Exact and tanh GELU and SiLU of one input; the gradient is that of the three contracted sums.
pub fn gelu(run: &mut Run) -> Result<()> {
    let x = run.input("in.x")?;
    let (erf, tanh, silu) = (x.gelu()?, x.gelu_tanh()?, x.silu()?);
    run.output("out.erf", &erf, OP)?;
    run.output("out.tanh", &tanh, OP)?;
    run.output("out.silu", &silu, OP)?;
    let outputs = [(&erf, "up.erf"), (&tanh, "up.tanh"), (&silu, "up.silu")];
    run.gradients(&outputs, &[(&x, "in.x")], OP)
}

/// LayerNorm over the last axis.
pub fn layer_norm(run: &mut Run) -> Result<()> {
    let (x, gain, bias) = (run.input("in.x")?, run.input("p.g")?, run.input("p.b")?);
    let y = x.layer_norm(&gain, &bias, run.fixture.number("eps")? as f32)?;
    run.output("out.y", &y, OP)?;
    run.gradients(&[(&y, "up.y")], &[(&x, "in.x"), (&gain, "p.g"), (&bias, "p.b")], OP)
}

/// RMSNorm over the last axis.
pub fn rms_norm(run: &mut Run) -> Result<()> {
    let (x, gain) = (run.input("in.x")?, run.input("p.g")?);
    let y = x.rms_norm(&gain, run.fixture.number("eps")? as f32)?;
    run.output("out.y", &y, OP)?;
    run.gradients(&[(&y, "up.y")], &[(&x, "in.x"), (&gain, "p.g")], OP)
}

/// A SwiGLU feed-forward without biases.
pub fn swiglu(run: &mut Run) -> Result<()> {
    let x = run.input("in.x")?;
    let (gate, up, down) = (run.input("p.w_gate")?, run.input("p.w_up")?, run.input("p.w_down")?);
    let hidden = x.linear(&gate, None)?.swiglu_gate(&x.linear(&up, None)?)?;
    let y = hidden.linear(&down, None)?;
    run.output("out.y", &y, OP)?;
    let inputs = [(&x, "in.x"), (&gate, "p.w_gate"), (&up, "p.w_up"), (&down, "p.w_down")];
    run.gradients(&[(&y, "up.y")], &inputs, OP)
}

/// Rotary embedding in both layouts; the gradient is that of both contracted sums.
pub fn rope(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let (dim, base) = (fixture.size("dim")?, fixture.number("base")?);
    let positions = fixture.ids("positions")?;
    let longest = *positions.iter().max().context("the file has no position")? as usize;
    let table = rope_table(longest + 1, dim / 2, dim, base);
    let table = run.engine.tensor_f32([longest + 1, dim / 2, 2], &table)?;
    let positions = run.engine.tensor_u32([positions.len()], &positions)?;
    let x = permuted(run, "in.x")?;
    let pair = x.rope(&table, &positions, RopeLayout::Pair)?;
    let half = x.rope(&table, &positions, RopeLayout::Half)?;
    permuted_output(run, "out.pair", &pair)?;
    permuted_output(run, "out.half", &half)?;
    permuted_gradients(run, &[(&pair, "up.pair"), (&half, "up.half")], &[(&x, "in.x")])
}

/// Grouped-query attention, with or without a past.
pub fn attention(run: &mut Run) -> Result<()> {
    let (q, k, v) = (permuted(run, "in.q")?, permuted(run, "in.k")?, permuted(run, "in.v")?);
    let (tq, tk) = (q.shape().dims()[1], k.shape().dims()[1]);
    let past = u32::try_from(tk - tq).context("a past of at most 2^32 positions")?;
    let offset = run.engine.tensor_u32([1], &[past])?;
    let out = q.attention(&k, &v, &offset, run.fixture.flag("causal"))?;
    permuted_output(run, "out.o", &out.o)?;
    run.output("out.lse", &out.lse, OP)?;
    let lse = (&out.lse, run.input("up.lse")?);
    let o = (&out.o, permuted(run, "up.o")?);
    let found = grad::gradients(&[(o.0, &o.1), (lse.0, &lse.1)], &[&q, &k, &v])?;
    for (name, gradient) in ["in.q", "in.k", "in.v"].into_iter().zip(found) {
        permuted_gradient(run, name, gradient)?;
    }
    Ok(())
}

/// A `[B, H, T, d]` tensor of the file as a `[B, T, H, d]` value.
fn permuted(run: &Run, name: &str) -> Result<Tensor> {
    let (data, dims) = swap_middle(run.fixture.f32(name)?, run.fixture.shape(name)?);
    Ok(run.engine.tensor_f32(shape(&dims)?, &data)?)
}

fn permuted_output(run: &mut Run, name: &str, value: &Tensor) -> Result<()> {
    let (want, _) = swap_middle(run.fixture.f32(name)?, run.fixture.shape(name)?);
    run.checks.floats(OUTPUTS, name, (&value.to_vec_f32()?, &widen(&want)), OP);
    Ok(())
}

fn permuted_gradients(
    run: &mut Run,
    outputs: &[(&Tensor, &str)],
    inputs: &[(&Tensor, &str)],
) -> Result<()> {
    let seeds: Result<Vec<Tensor>> = outputs.iter().map(|(_, up)| permuted(run, up)).collect();
    let seeds = seeds?;
    let pairs: Vec<_> = outputs.iter().zip(&seeds).map(|(output, up)| (output.0, up)).collect();
    let wanted: Vec<&Tensor> = inputs.iter().map(|(value, _)| *value).collect();
    for ((_, name), gradient) in inputs.iter().zip(grad::gradients(&pairs, &wanted)?) {
        permuted_gradient(run, name, gradient)?;
    }
    Ok(())
}

fn permuted_gradient(run: &mut Run, name: &str, gradient: Option<Tensor>) -> Result<()> {
    let gradient = gradient.with_context(|| format!("{name} got no gradient"))?;
    let full = crate::runner::gradient_name(run.fixture, name)?;
    let (want, _) = swap_middle(run.fixture.f32(&full)?, run.fixture.shape(&full)?);
    run.checks.floats(GRADIENTS, full, (&gradient.to_vec_f32()?, &widen(&want)), OP);
    Ok(())
}
