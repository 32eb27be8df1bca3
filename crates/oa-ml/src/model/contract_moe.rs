//! The mixture of experts of the teaching contract: the contract's Transformer, whose feed-forward
//! is an RMSNorm, a router and SwiGLU experts, all with biases.

use super::moe_config::ContractMoeConfig;
use crate::error::Result;
use crate::init::Init;
use crate::nn::attention::{AttentionConfig, positions};
use crate::nn::{
    Cache, CausalSelfAttention, Embedding, KvCache, LayerNorm, Linear, Moe, MoeConfig, Pass,
    RmsNorm,
};
use crate::param::Scope;
use oa_graph::{Engine, Tensor};

/// Parameters `token`, `position`, `norm1.g`, `attn.w_q`, `norm2`, `ffn.w_router`, `norm3.b`, ..
#[derive(Clone)]
pub(super) struct ContractMoe {
    token: Embedding,
    position: Embedding,
    norm1: LayerNorm,
    attention: CausalSelfAttention,
    norm2: RmsNorm,
    ffn: Moe,
    norm3: LayerNorm,
    head: Linear,
    config: ContractMoeConfig,
}

impl ContractMoe {
    pub(super) fn new(scope: &mut Scope<'_>, config: &ContractMoeConfig) -> Result<ContractMoe> {
        let ContractMoeConfig { vocab, width, heads, context, eps, .. } = *config;
        let (table, init) = (Init::Normal { std: 0.5 }, Init::fan_in(width));
        // Of 24 seeds on an H200, 22 continue the corpus after 300 steps with 0.5, 19 with 1.0.
        let token = Embedding::new(scope, "token", [vocab, width], table)?;
        // As in the contract's Transformer.
        let position = Init::Normal { std: 0.3 };
        let position = Embedding::new(scope, "position", [context, width], position)?;
        let norm1 = LayerNorm::new(scope, "norm1", width, eps)?;
        let attention = AttentionConfig {
            width,
            heads,
            kv_heads: heads,
            head_dim: width / heads,
            biases: true,
            rotary: None,
            qk_norm: None,
            init,
            init_out: init,
        };
        let attention = CausalSelfAttention::new(&mut scope.scope("attn"), attention)?;
        let norm2 = RmsNorm::new(scope, "norm2", width, eps)?;
        let ffn = MoeConfig {
            width,
            experts: config.experts,
            top_k: config.top_k,
            ff: config.ff,
            renormalise: true,
            biases: true,
            init,
            init_out: Init::fan_in(config.ff),
        };
        let ffn = Moe::new(&mut scope.scope("ffn"), ffn)?;
        let norm3 = LayerNorm::new(scope, "norm3", width, eps)?;
        let mut scope = scope.scope("head");
        let head = Linear::new(&mut scope.edge(), "w", [vocab, width], init)?;
        let head = head.with_bias(&mut scope, "b", vocab, Init::Zeros)?;
        let config = *config;
        Ok(ContractMoe { token, position, norm1, attention, norm2, ffn, norm3, head, config })
    }

    #[track_caller]
    pub(super) fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let sequence = tokens.shape().last();
        let engine = self.position.table.engine();
        let places = if pass.cache.is_none() && sequence == self.config.context {
            self.position.table.value()
        } else {
            self.position.forward(&positions(engine, pass.cache, sequence)?)?
        };
        let x = self.token.forward(tokens)?.add_broadcast(&places)?;
        let x = x.add(&self.attention.forward(&self.norm1.forward(&x)?, pass, 0)?)?;
        let x = x.add(&self.ffn.forward(&self.norm2.forward(&x)?, pass)?)?;
        self.norm3.forward(&x)
    }

    #[track_caller]
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let ContractMoeConfig { width, heads, context, .. } = self.config;
        let kv = KvCache::new(engine, [rows, context, heads, width / heads])?;
        Ok(Cache { rows, kv: vec![kv], ..Cache::default() })
    }
}
