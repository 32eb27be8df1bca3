//! Whole small graphs with their gradients, recorded the same way on a device and on the host.
//!
//! They exist to exercise what single ops cannot: lifetimes that overlap, buffers that are reused,
//! values read after long gaps, and derivative rules that feed each other.

use anyhow::{Context, Result};
use oa_graph::ops::index::{RopeLayout, rope_table};
use oa_graph::ops::loss::CrossEntropy;
use oa_graph::ops::sample::{ids, signed, uniform};
use oa_graph::{HostTensor, Shape, Spec, Tensor, grad};

/// Makes the inputs of a graph and is told when an op was recorded.
pub struct Maker<'a> {
    /// A value with these contents.
    pub input: &'a dyn Fn(HostTensor) -> Result<Tensor>,
    /// Called between ops: a runner may cut a segment here.
    pub tick: &'a dyn Fn() -> Result<()>,
}

impl Maker<'_> {
    fn signed(&self, shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
        (self.input)(signed(shape, seed))
    }

    fn gain(&self, shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
        (self.input)(uniform(shape, 0.5, 1.5, seed))
    }

    fn words(&self, data: &[u32]) -> Result<Tensor> {
        let data: Vec<f64> = data.iter().map(|&word| f64::from(word)).collect();
        (self.input)(HostTensor::new(Spec::u32([data.len()]), data))
    }

    /// Passes a value on after the tick.
    fn then(&self, value: Tensor) -> Result<Tensor> {
        (self.tick)()?;
        Ok(value)
    }

    /// The gradients of `sum <output, random>` with respect to the inputs.
    fn gradients(&self, output: &Tensor, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let seed = self.signed(output.shape(), 77)?;
        let found = grad::gradients(&[(output, &seed)], inputs)?;
        (self.tick)()?;
        let found = found.into_iter().enumerate();
        found.map(|(i, g)| g.with_context(|| format!("input {i} got no gradient"))).collect()
    }
}

/// Records a graph: all results in a fixed order.
pub type Record = fn(&Maker) -> Result<Vec<Tensor>>;

/// The graphs by name.
pub const GRAPHS: &[(&str, Record)] = &[
    ("chain", chain),
    ("classifier", classifier),
    ("attention_block", attention_block),
    ("recurrent", recurrent),
];

/// Elementwise ops whose early values are read late: wrong reuse of a buffer shows here.
fn chain(make: &Maker) -> Result<Vec<Tensor>> {
    let (x, w) = (make.signed([9, 37], 1)?, make.signed([9, 37], 2)?);
    let mut values = vec![x.clone()];
    for step in 0..8 {
        let last = &values[step];
        let next = match step % 4 {
            0 => last.mul(&w)?.add(&x)?,
            1 => last.tanh()?,
            2 => last.add(&values[step / 2])?.scale(0.5)?,
            _ => last.silu()?.sub(&w)?,
        };
        values.push(make.then(next)?);
    }
    let sum = values[8].add(&values[3])?.mul(&values[1])?;
    let y = make.then(sum)?;
    let mut results = make.gradients(&y, &[&x, &w])?;
    results.push(y);
    Ok(results)
}

/// Linear, GELU, LayerNorm, head, cross-entropy, and the gradient of every parameter.
fn classifier(make: &Maker) -> Result<Vec<Tensor>> {
    let x = make.signed([21, 19], 3)?;
    let (w1, b1) = (make.signed([33, 19], 4)?, make.signed([33], 5)?);
    let (gain, bias) = (make.gain([33], 6)?, make.signed([33], 7)?);
    let (w2, b2) = (make.signed([11, 33], 8)?, make.signed([11], 9)?);
    let hidden = make.then(x.linear(&w1, Some(&b1))?)?;
    let hidden = make.then(hidden.gelu()?)?;
    let hidden = make.then(hidden.layer_norm(&gain, &bias, 1.0e-5)?)?;
    let logits = make.then(hidden.linear(&w2, Some(&b2))?)?;
    let mut targets = ids([21], 11, 10);
    targets.spec = Spec::i32([21]);
    targets.data[4] = -100.0;
    let targets = (make.input)(targets)?;
    let loss = logits
        .cross_entropy(&targets, CrossEntropy { smoothing: 0.1, z_coef: 1.0e-3, ignore: -100 })?;
    let loss = make.then(loss)?;
    let mut results = make.gradients(&loss, &[&x, &w1, &b1, &gain, &bias, &w2, &b2])?;
    results.extend([loss, logits]);
    Ok(results)
}

/// Norm, projections, rotary positions, causal grouped-query attention, residual, gated
/// feed-forward.
fn attention_block(make: &Maker) -> Result<Vec<Tensor>> {
    let (batch, time, width, heads, kv_heads, dim) = (2, 13, 24, 4, 2, 6);
    let x = make.signed([batch, time, width], 11)?;
    let gain = make.gain([width], 12)?;
    let (w_q, w_k) = (make.signed([width, width], 13)?, make.signed([kv_heads * dim, width], 14)?);
    let (w_v, w_o) = (make.signed([kv_heads * dim, width], 15)?, make.signed([width, width], 16)?);
    let (w_gate, w_up) = (make.signed([40, width], 17)?, make.signed([40, width], 18)?);
    let w_down = make.signed([width, 40], 19)?;
    let table = rope_table(time, dim / 2, dim, 10_000.0);
    let table: Vec<f64> = table.into_iter().map(f64::from).collect();
    let table = (make.input)(HostTensor::f32([time, dim / 2, 2], table))?;
    let positions = make.words(&(0..time as u32).collect::<Vec<_>>())?;
    let offset = make.words(&[0])?;
    let normed = make.then(x.rms_norm(&gain, 1.0e-5)?)?;
    let project = |w: &Tensor, heads: usize| -> Result<Tensor> {
        make.then(normed.linear(w, None)?.reshape([batch, time, heads, dim])?)
    };
    let q = project(&w_q, heads)?.rope(&table, &positions, RopeLayout::Half)?;
    let k = project(&w_k, kv_heads)?.rope(&table, &positions, RopeLayout::Half)?;
    let v = project(&w_v, kv_heads)?;
    let o = make.then(q.attention(&k, &v, &offset, true)?.o)?;
    let o = o.reshape([batch, time, heads * dim])?.linear(&w_o, None)?;
    let x1 = make.then(x.add(&o)?)?;
    let gate = make.then(x1.linear(&w_gate, None)?.swiglu_gate(&x1.linear(&w_up, None)?)?)?;
    let y = make.then(x1.add(&gate.linear(&w_down, None)?)?)?;
    let inputs = [&x, &gain, &w_q, &w_k, &w_v, &w_o, &w_gate, &w_up, &w_down];
    let mut results = make.gradients(&y, &inputs)?;
    results.push(y);
    Ok(results)
}

/// Embedding, two Elman layers, head on the last state.
fn recurrent(make: &Maker) -> Result<Vec<Tensor>> {
    let (batch, time, width, hidden) = (3, 9, 10, 17);
    let table = make.signed([29, width], 21)?;
    let tokens = (make.input)(ids([batch, time], 29, 22))?;
    let h0 = make.signed([batch, hidden], 23)?;
    let mut y = make.then(table.embedding(&tokens)?)?;
    let mut inputs = vec![table.clone(), h0.clone()];
    for layer in 0..2 {
        let seed = 24 + 4 * layer as u64;
        let width = y.shape().last();
        let (w_ih, b_ih) = (make.signed([hidden, width], seed)?, make.signed([hidden], seed + 1)?);
        let w_hh = make.signed([hidden, hidden], seed + 2)?.scale(0.3)?;
        let b_hh = make.signed([hidden], seed + 3)?;
        let projected = make.then(y.linear(&w_ih, Some(&b_ih))?)?;
        y = make.then(projected.rnn_tanh(&w_hh, &b_hh, &h0)?)?;
        inputs.extend([w_ih, b_ih, w_hh, b_hh]);
    }
    let last = y.narrow(1, time - 1, 1)?.reshape([batch, hidden])?;
    let head = make.signed([5, hidden], 40)?;
    let logits = make.then(last.linear(&head, None)?)?;
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let mut results = make.gradients(&logits, &inputs)?;
    results.extend([logits, y]);
    Ok(results)
}
