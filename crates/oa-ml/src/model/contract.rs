//! The Transformer of the teaching contract: learned positions, one pre-LayerNorm block with
//! biases, GELU feed-forward, final LayerNorm, untied head with bias.

use super::config::ContractTransformerConfig;
use crate::error::Result;
use crate::init::Init;
use crate::nn::attention::{AttentionConfig, positions};
use crate::nn::{Cache, CausalSelfAttention, Embedding, GeluMlp, KvCache, LayerNorm, Linear, Pass};
use crate::param::Scope;
use oa_graph::{Engine, Tensor};

/// Parameters `token`, `position`, `norm1.g`, `attn.w_q`, `ffn.w1`, `norm3.b`, `head.w`, ..
#[derive(Clone)]
pub(super) struct ContractTransformer {
    token: Embedding,
    position: Embedding,
    norms: [LayerNorm; 3],
    attention: CausalSelfAttention,
    ffn: GeluMlp,
    head: Linear,
    config: ContractTransformerConfig,
}

impl ContractTransformer {
    pub(super) fn new(
        scope: &mut Scope<'_>,
        config: &ContractTransformerConfig,
    ) -> Result<ContractTransformer> {
        let ContractTransformerConfig { vocab, width, heads, ff, context, eps } = *config;
        let (table, layer) = (Init::Normal { std: 1.0 }, Init::fan_in(width));
        let token = Embedding::new(scope, "token", [vocab, width], table)?;
        // Of four seeds, all continue the corpus after 300 steps with 0.3, two with 0.02.
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
            init: layer,
            init_out: layer,
        };
        let attention = CausalSelfAttention::new(&mut scope.scope("attn"), attention)?;
        let norm2 = LayerNorm::new(scope, "norm2", width, eps)?;
        let ffn = GeluMlp::new(&mut scope.scope("ffn"), width, ff)?;
        let norm3 = LayerNorm::new(scope, "norm3", width, eps)?;
        let mut scope = scope.scope("head");
        let head = Linear::new(&mut scope.edge(), "w", [vocab, width], layer)?;
        let head = head.with_bias(&mut scope, "b", vocab, Init::Zeros)?;
        let (norms, config) = ([norm1, norm2, norm3], *config);
        Ok(ContractTransformer { token, position, norms, attention, ffn, head, config })
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
        let [norm1, norm2, norm3] = &self.norms;
        let x = self.token.forward(tokens)?.add_broadcast(&places)?;
        let x = x.add(&self.attention.forward(&norm1.forward(&x)?, pass, 0)?)?;
        let x = x.add(&self.ffn.forward(&norm2.forward(&x)?)?)?;
        norm3.forward(&x)
    }

    #[track_caller]
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let ContractTransformerConfig { width, heads, context, .. } = self.config;
        let kv = KvCache::new(engine, [rows, context, heads, width / heads])?;
        Ok(Cache { rows, kv: vec![kv], ..Cache::default() })
    }
}
