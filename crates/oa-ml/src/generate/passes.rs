//! The captured passes of a generation: tokens in, one sampled token per row out.

use crate::error::Result;
use crate::model::Model;
use crate::nn::{Cache, CachePass, Pass};
use oa_graph::{ExecutionPlan, InputId, Spec, Tensor};

/// What a pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// One for all rows, or one for each.
    counters: Vec<InputId>,
}

impl TokenPass {
    /// Captures a pass over `cache.rows` sequences. With `apart` each row draws by a counter of its
    /// own, as if it were alone; otherwise all draw by one.
    pub(super) fn capture(
        model: &Model,
        cache: &Cache,
        kind: Kind,
        apart: bool,
    ) -> Result<TokenPass> {
        let engine = model.engine();
        let draws = if apart { cache.rows } else { 1 };
        let name = |draw: usize| format!("counter.{draw}");
        let plan = engine.capture(|| {
            let hidden = match kind {
                Kind::Decode => decode(model, cache)?,
                Kind::Prefill(tokens) => prefill(model, cache, tokens)?,
                Kind::Window(tokens) => window(model, cache.rows, tokens)?,
            };
            let (logits, controls) =
                (model.head(&hidden)?, engine.input("controls", Spec::f32([4])));
            let draw = |draw: usize| {
                let rows = if apart { logits.narrow(0, draw, 1)? } else { logits.clone() };
                rows.sample(&controls, &engine.input(&name(draw), Spec::u32([4])))
            };
            Ok::<_, crate::Error>((0..draws).map(draw).collect::<Result<Vec<_>, _>>()?)
        })?;
        let input =
            |name: &str| plan.input(name).expect("sampling and embedding read their inputs");
        let (tokens, controls) = (input("tokens"), input("controls"));
        let counters = (0..draws).map(|draw| input(&name(draw))).collect();
        Ok(TokenPass { place: plan.input("place"), plan, tokens, controls, counters })
    }

    /// Runs the pass and reads a token per row.
    pub(super) fn submit(
        &self,
        tokens: &[u32],
        places: &[u32],
        controls: &[f32; 4],
        counters: &[[u32; 4]],
        next: &mut [u32],
    ) -> Result<()> {
        let mut bindings = vec![
            (self.tokens, bytemuck::cast_slice(tokens)),
            (self.controls, bytemuck::cast_slice(controls)),
        ];
        let counters = self.counters.iter().zip(counters);
        bindings.extend(counters.map(|(id, counter)| (*id, bytemuck::cast_slice(counter))));
        bindings.extend(self.place.map(|id| (id, bytemuck::cast_slice(places))));
        let event = self.plan.submit(&bindings)?;
        let rows = next.len() / self.counters.len();
        for (output, tokens) in next.chunks_mut(rows).enumerate() {
            event.output_u32(output, tokens)?;
        }
        Ok(())
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
