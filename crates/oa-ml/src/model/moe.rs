//! The mixture-of-experts Transformer: the dense decoder with experts instead of its feed-forward.

use super::moe_config::MoeLmConfig;
use crate::error::Result;
use crate::init::Init;
use crate::nn::{
    AttentionConfig, Cache, CausalSelfAttention, Embedding, KvCache, Linear, Moe, MoeConfig, Pass,
    RmsNorm, Rotary,
};
use crate::param::Scope;
use oa_graph::{Engine, Tensor};

/// Standard deviation of every weight at the start, the output projections excepted.
const INIT_STD: f64 = 0.02;

/// One block.
#[derive(Clone)]
struct Block {
    norm1: RmsNorm,
    attention: CausalSelfAttention,
    norm2: RmsNorm,
    ffn: Moe,
}

/// Parameters `embed`, `b0.norm1`, `b0.attn.w_q`, `b0.ffn.w_router`, .., `norm_f`, `head`.
#[derive(Clone)]
pub(super) struct MoeLm {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
    config: MoeLmConfig,
}

impl MoeLm {
    pub(super) fn new(scope: &mut Scope<'_>, config: &MoeLmConfig) -> Result<MoeLm> {
        let MoeLmConfig { vocab, width, context, head_dim, eps, .. } = *config;
        let normal = Init::Normal { std: INIT_STD };
        let sizes = [context, head_dim];
        let rotary = Rotary::new(scope.engine(), config.rope, sizes, config.rope_base)?;
        let embed = Embedding::new(scope, "embed", [vocab, width], normal)?;
        let block = |index| Block::new(&mut scope.scope(&format!("b{index}")), config, &rotary);
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        let norm = RmsNorm::new(scope, "norm_f", width, eps)?;
        let head = Linear::new(&mut scope.edge(), "head", [vocab, width], normal)?;
        Ok(MoeLm { embed, blocks, norm, head, config: *config })
    }

    #[track_caller]
    pub(super) fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let mut x = self.embed.forward(tokens)?;
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, pass, index)?;
        }
        self.norm.forward(&x)
    }

    #[track_caller]
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let MoeLmConfig { context, kv_heads, head_dim, .. } = self.config;
        let layer = |_| KvCache::new(engine, [rows, context, kv_heads, head_dim]);
        let kv = (0..self.blocks.len()).map(layer).collect::<Result<_>>()?;
        Ok(Cache { rows, kv, ..Cache::default() })
    }
}

impl Block {
    fn new(scope: &mut Scope<'_>, config: &MoeLmConfig, rotary: &Rotary) -> Result<Block> {
        let MoeLmConfig { width, heads, kv_heads, head_dim, eps, .. } = *config;
        let init = Init::Normal { std: INIT_STD };
        let init_out = Init::Normal { std: INIT_STD / (2.0 * config.layers as f64).sqrt() };
        let norm1 = RmsNorm::new(scope, "norm1", width, eps)?;
        let attention = AttentionConfig {
            width,
            heads,
            kv_heads,
            head_dim,
            biases: false,
            rotary: Some(rotary.clone()),
            qk_norm: None,
            init,
            init_out,
        };
        let attention = CausalSelfAttention::new(&mut scope.scope("attn"), attention)?;
        let norm2 = RmsNorm::new(scope, "norm2", width, eps)?;
        let ffn = MoeConfig {
            width,
            experts: config.experts,
            top_k: config.top_k,
            ff: config.ff,
            renormalise: config.renormalise,
            biases: false,
            init,
            init_out,
        };
        let ffn = Moe::new(&mut scope.scope("ffn"), ffn)?;
        Ok(Block { norm1, attention, norm2, ffn })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, pass: &Pass<'_>, index: usize) -> Result<Tensor> {
        let x = x.add(&self.attention.forward(&self.norm1.forward(x)?, pass, index)?)?;
        Ok(x.add(&self.ffn.forward(&self.norm2.forward(&x)?, pass)?)?)
    }
}
