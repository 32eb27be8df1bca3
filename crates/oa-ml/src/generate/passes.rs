//! The captured passes of a generation: tokens in, one sampled token per row out.

use super::sampling::Sampling;
use crate::error::Result;
use crate::model::Model;
use crate::nn::{Cache, CachePass, Pass};
use oa_graph::{Event, ExecutionPlan, InputId, Spec, Tensor};

/// What a pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One token per row, after what the cache holds.
    Decode,
    /// The first tokens of a sequence, filled up to this many; they enter the cache.
    Prefill(usize),
    /// The last tokens of a sequence, this many, without a cache.
    Window(usize),
}

/// A captured pass.
pub(super) struct TokenPass {
    plan: ExecutionPlan,
    tokens: InputId,
    /// Where the pass stands: the position of a decoded token, or the row of hidden states that
    /// the head reads, per sequence.
    place: Option<InputId>,
    controls: InputId,
    counter: InputId,
}

impl TokenPass {
    /// Captures a pass over `cache.rows` sequences.
    pub(super) fn capture(model: &Model, cache: &Cache, kind: Kind) -> Result<TokenPass> {
        let engine = model.engine();
        let plan = engine.capture(|| {
            let hidden = match kind {
                Kind::Decode => decode(model, cache)?,
                Kind::Prefill(tokens) => prefill(model, cache, tokens)?,
                Kind::Window(tokens) => window(model, cache.rows, tokens)?,
            };
            let controls = engine.input("controls", Spec::f32([4]));
            let counter = engine.input("counter", Spec::u32([4]));
            Ok::<_, crate::Error>(vec![model.head(&hidden)?.sample(&controls, &counter)?])
        })?;
        let input = |name| plan.input(name).expect("sampling and embedding read their inputs");
        let (tokens, controls, counter) = (input("tokens"), input("controls"), input("counter"));
        Ok(TokenPass { place: plan.input("place"), plan, tokens, controls, counter })
    }

    /// Submits the pass; token number `index` of the generation comes out.
    pub(super) fn submit(
        &self,
        tokens: &[u32],
        place: &[u32],
        sampling: &Sampling,
        index: u32,
    ) -> Result<Event> {
        let (controls, counter) = (sampling.controls(), sampling.counter(index));
        let tokens = (self.tokens, bytemuck::cast_slice(tokens));
        let bindings = [
            tokens,
            (self.controls, bytemuck::cast_slice(&controls)),
            (self.counter, bytemuck::cast_slice(&counter)),
            self.place.map_or(tokens, |id| (id, bytemuck::cast_slice(place))),
        ];
        let count = if self.place.is_some() { 4 } else { 3 };
        Ok(self.plan.submit(&bindings[..count])?)
    }
}

/// Hidden states `[rows, width]` of one token per row.
fn decode(model: &Model, cache: &Cache) -> Result<Tensor> {
    let engine = model.engine();
    let tokens = engine.input("tokens", Spec::u32([cache.rows, 1]));
    let position = engine.input("place", Spec::u32([1]));
    let pass = Pass { cache: Some(CachePass { cache, position: &position }), ..Pass::default() };
    let hidden = model.hidden(&tokens, &pass)?;
    Ok(hidden.reshape([cache.rows, hidden.shape().last()])?)
}

/// Hidden states `[rows, width]` of the last real token of each row.
fn prefill(model: &Model, cache: &Cache, count: usize) -> Result<Tensor> {
    let engine = model.engine();
    let tokens = engine.input("tokens", Spec::u32([cache.rows, count]));
    let start = engine.constant_u32(&[0])?;
    let pass = Pass { cache: Some(CachePass { cache, position: &start }), ..Pass::default() };
    let hidden = model.hidden(&tokens, &pass)?;
    let table = hidden.reshape([cache.rows * count, hidden.shape().last()])?;
    Ok(table.embedding(&engine.input("place", Spec::u32([cache.rows])))?)
}

/// Hidden states `[rows, width]` of the last token of a full window.
fn window(model: &Model, rows: usize, count: usize) -> Result<Tensor> {
    let tokens = model.engine().input("tokens", Spec::u32([rows, count]));
    let hidden = model.hidden(&tokens, &Pass::default())?;
    let last = hidden.narrow(1, count - 1, 1)?;
    Ok(last.reshape([rows, hidden.shape().last()])?)
}
