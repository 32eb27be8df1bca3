//! Blocks of several ops: the attention block with rotary positions, stacked recurrent layers.

use crate::runner::{Run, shape};
use anyhow::{Context, Result, bail};
use oa_graph::ops::index::{RopeLayout, rope_table};
use oa_graph::{Tensor, grad};
use oa_tests::Tolerance;
use oa_tests::fixture::widen;

const BLOCK: Tolerance = Tolerance::BLOCK;

/// Projections, optional per-head norms, rotary positions, causal grouped-query attention, output
/// projection.
pub fn attention(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let (heads, kv_heads) = (fixture.size("n_head")?, fixture.size("n_kv")?);
    let dim = fixture.size("d_head")?;
    let x = run.input("in.x")?;
    let &[batch, time, _] = x.shape().dims() else { bail!("in.x is not [B, T, D]") };
    let layout = match fixture.word("rope_layout") {
        Some("half") => RopeLayout::Half,
        Some("pair") => RopeLayout::Pair,
        other => bail!("the rotary layout {other:?} is unknown"),
    };
    let table = rope_table(time, dim / 2, dim, fixture.number("rope_base")?);
    let table = run.engine.tensor_f32([time, dim / 2, 2], &table)?;
    let positions: Vec<u32> = (0..time as u32).collect();
    let positions = run.engine.tensor_u32([time], &positions)?;
    let eps = fixture.number("eps")? as f32;
    let mut inputs = vec![(x.clone(), "in.x")];
    let mut project = |weight: &'static str, norm: &'static str, heads| -> Result<Tensor> {
        let w = run.input(weight)?;
        let mut y = x.linear(&w, None)?.reshape([batch, time, heads, dim])?;
        inputs.push((w, weight));
        if fixture.flag("qk_norm") && fixture.has(norm) {
            let gain = run.input(norm)?;
            y = y.rms_norm(&gain, eps)?;
            inputs.push((gain, norm));
        }
        Ok(y)
    };
    let q = project("p.w_q", "p.q_norm", heads)?.rope(&table, &positions, layout)?;
    let k = project("p.w_k", "p.k_norm", kv_heads)?.rope(&table, &positions, layout)?;
    let v = project("p.w_v", "", kv_heads)?;
    let offset = run.engine.tensor_u32([1], &[0])?;
    let o = q.attention(&k, &v, &offset, true)?.o.reshape([batch, time, heads * dim])?;
    let w_o = run.input("p.w_o")?;
    let y = o.linear(&w_o, None)?;
    inputs.push((w_o, "p.w_o"));
    run.output("out.y", &y, BLOCK)?;
    let inputs: Vec<_> = inputs.iter().map(|(value, name)| (value, *name)).collect();
    run.gradients(&[(&y, "up.y")], &inputs, BLOCK)
}

/// Stacked Elman layers.
pub fn elman(run: &mut Run) -> Result<()> {
    recurrent(run, |x, w_hh, b_hh, h0| Ok(x.rnn_tanh(w_hh, b_hh, h0)?))
}

/// Stacked gated recurrent units.
pub fn gru(run: &mut Run) -> Result<()> {
    recurrent(run, |x, w_hh, b_hh, h0| Ok(x.gru(w_hh, b_hh, h0)?))
}

/// The states of a layer from the projected input, W_hh, b_hh and the first state.
type Layer = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> Result<Tensor>;

/// Stacked layers with an initial state; the last states are outputs too.
fn recurrent(run: &mut Run, forward: Layer) -> Result<()> {
    let fixture = run.fixture;
    let x = run.input("in.x")?;
    let h0 = run.input("in.h0")?;
    let &[layers, batch, hidden] = h0.shape().dims() else { bail!("in.h0 is not [L, B, H]") };
    let time = x.shape().dims()[1];
    let last_up = fixture.f32("up.hn")?;
    let (mut y, mut last, mut seeds) = (x.clone(), Vec::new(), Vec::new());
    let mut inputs = vec![(x, "in.x".to_owned()), (h0.clone(), "in.h0".to_owned())];
    for layer in 0..layers {
        let mut parameter = |name: &str| -> Result<Tensor> {
            let name = format!("p.l{layer}.{name}");
            let value = run.input(&name)?;
            inputs.push((value.clone(), name));
            Ok(value)
        };
        let (w_ih, b_ih) = (parameter("w_ih")?, parameter("b_ih")?);
        let (w_hh, b_hh) = (parameter("w_hh")?, parameter("b_hh")?);
        let start = h0.narrow(0, layer, 1)?.reshape([batch, hidden])?;
        y = forward(&y.linear(&w_ih, Some(&b_ih))?, &w_hh, &b_hh, &start)?;
        last.push(y.narrow(1, time - 1, 1)?);
        let up = &last_up[layer * batch * hidden..][..batch * hidden];
        seeds.push(run.engine.tensor_f32([batch, 1, hidden], up)?);
    }
    run.output("out.y", &y, BLOCK)?;
    let mut states = Vec::new();
    for value in &last {
        states.extend(value.to_vec_f32()?);
    }
    let want = widen(fixture.f32("out.hn")?);
    run.checks.floats(crate::runner::OUTPUTS, "out.hn", (&states, &want), BLOCK);
    let up_y = run.engine.tensor_f32(shape(fixture.shape("up.y")?)?, fixture.f32("up.y")?)?;
    let mut outputs: Vec<(&Tensor, &Tensor)> = last.iter().zip(&seeds).collect();
    outputs.push((&y, &up_y));
    let wanted: Vec<&Tensor> = inputs.iter().map(|(value, _)| value).collect();
    let found = grad::gradients(&outputs, &wanted)?;
    for ((_, name), gradient) in inputs.iter().zip(found) {
        let gradient = gradient.with_context(|| format!("{name} got no gradient"))?;
        run.gradient(name, &gradient.to_vec_f32()?, BLOCK)?;
    }
    Ok(())
}
