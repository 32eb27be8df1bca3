//! The Mamba-3 of the teaching contract: embedding, one mixer, head with bias; no residual stream.

use super::mamba3_config::ContractMamba3Config;
use crate::error::Result;
use crate::init::Init;
use crate::nn::{Cache, Embedding, Linear, Mamba3, Pass, SsmCache};
use crate::param::Scope;
use oa_graph::{Engine, Tensor};

/// Parameters `embed`, `mix.w_in`, .., `head`, `head_b`.
#[derive(Clone)]
pub(super) struct ContractMamba3 {
    embed: Embedding,
    mixer: Mamba3,
    head: Linear,
    config: ContractMamba3Config,
}

impl ContractMamba3 {
    pub(super) fn new(
        scope: &mut Scope<'_>,
        config: &ContractMamba3Config,
    ) -> Result<ContractMamba3> {
        let ContractMamba3Config { vocab, width, .. } = *config;
        let embed = Embedding::new(scope, "embed", [vocab, width], Init::Normal { std: 1.0 })?;
        let mixer = Mamba3::new(&mut scope.scope("mix"), config.mixer())?;
        let mut edge = scope.edge();
        let head = Linear::new(&mut edge, "head", [vocab, width], Init::fan_in(width))?;
        let head = head.with_bias(&mut edge, "head_b", vocab, Init::Zeros)?;
        Ok(ContractMamba3 { embed, mixer, head, config: *config })
    }

    #[track_caller]
    pub(super) fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.mixer.forward(&self.embed.forward(tokens)?, pass, 0)
    }

    #[track_caller]
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let ssm = vec![SsmCache::new(engine, rows, &self.config.mixer())?];
        Ok(Cache { rows, ssm, ..Cache::default() })
    }
}
