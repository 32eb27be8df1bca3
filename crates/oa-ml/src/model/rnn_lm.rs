//! The recurrent language model: embedding, Elman or gated layers, head with bias; no norms.

use super::config::RnnLmConfig;
use crate::error::Result;
use crate::init::Init;
use crate::nn::{Cache, Cell, Embedding, Linear, Pass, Rnn};
use crate::param::Scope;
use oa_graph::{Engine, Spec, Tensor};

/// Parameters `embed`, `rnn.l0.w_ih`, .., `head`, `head_b`.
#[derive(Clone)]
pub(super) struct RnnLm {
    embed: Embedding,
    rnn: Rnn,
    head: Linear,
    config: RnnLmConfig,
}

impl RnnLm {
    pub(super) fn new(scope: &mut Scope<'_>, cell: Cell, config: &RnnLmConfig) -> Result<RnnLm> {
        let RnnLmConfig { vocab, width, hidden, layers } = *config;
        let embed = Embedding::new(scope, "embed", [vocab, width], Init::Normal { std: 1.0 })?;
        let rnn = Rnn::new(&mut scope.scope("rnn"), cell, [width, hidden], layers)?;
        let head = Linear::new(&mut scope.edge(), "head", [vocab, hidden], Init::fan_in(hidden))?;
        let head = head.with_bias(scope, "head_b", vocab, Init::fan_in(hidden))?;
        Ok(RnnLm { embed, rnn, head, config: *config })
    }

    #[track_caller]
    pub(super) fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.rnn.forward(&self.embed.forward(tokens)?, pass)
    }

    #[track_caller]
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let spec = Spec::f32([rows, self.config.hidden]);
        let state = |_| Ok(engine.state("cache.hidden", spec)?);
        let hidden = (0..self.config.layers).map(state).collect::<Result<_>>()?;
        Ok(Cache { rows, hidden, ..Cache::default() })
    }
}
