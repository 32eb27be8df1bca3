//! The dense decoder Transformer: `x += Attn(RMSNorm1(x))`, `x += SwiGLU(RMSNorm2(x))`, a final
//! RMSNorm and a head without bias.

use super::config::TransformerConfig;
use crate::error::Result;
use crate::init::Init;
use crate::nn::{
    AttentionConfig, Cache, CausalSelfAttention, Dropout, Embedding, KvCache, Linear, Pass,
    RmsNorm, Rotary, SwiGlu,
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
    ffn: SwiGlu,
    drop: [Dropout; 2],
}

/// Parameters `embed`, `b0.norm1`, `b0.attn.w_q`, `b0.ffn.w_gate`, .., `norm_f`, `head`.
#[derive(Clone)]
pub(super) struct Transformer {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    /// `None` when the head is the transposed embedding.
    head: Option<Linear>,
    config: TransformerConfig,
}

impl Transformer {
    pub(super) fn new(scope: &mut Scope<'_>, config: &TransformerConfig) -> Result<Transformer> {
        let TransformerConfig { vocab, width, context, head_dim, eps, .. } = *config;
        let normal = Init::Normal { std: INIT_STD };
        let sizes = [context, head_dim];
        let rotary = Rotary::new(scope.engine(), config.rope, sizes, config.rope_base)?;
        let embed = Embedding::new(scope, "embed", [vocab, width], normal)?;
        let block = |index| {
            let scope = &mut scope.scope(&format!("b{index}"));
            Block::new(scope, config, &rotary, index as u16)
        };
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        let norm = RmsNorm::new(scope, "norm_f", width, eps)?;
        let head = match config.tied {
            true => None,
            false => Some(Linear::new(&mut scope.edge(), "head", [vocab, width], normal)?),
        };
        Ok(Transformer { embed, blocks, norm, head, config: *config })
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
        match &self.head {
            Some(head) => head.forward(hidden),
            None => Ok(hidden.linear(&self.embed.table.value(), None)?),
        }
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let TransformerConfig { context, kv_heads, head_dim, .. } = self.config;
        let layer = |_| KvCache::new(engine, [rows, context, kv_heads, head_dim]);
        let kv = (0..self.blocks.len()).map(layer).collect::<Result<_>>()?;
        Ok(Cache { rows, kv, ..Cache::default() })
    }
}

impl Block {
    fn new(
        scope: &mut Scope<'_>,
        config: &TransformerConfig,
        rotary: &Rotary,
        index: u16,
    ) -> Result<Block> {
        let TransformerConfig { width, heads, kv_heads, head_dim, ff, eps, .. } = *config;
        let normal = Init::Normal { std: INIT_STD };
        let out = Init::Normal { std: INIT_STD / (2.0 * config.layers as f64).sqrt() };
        let norm1 = RmsNorm::new(scope, "norm1", width, eps)?;
        let attention = AttentionConfig {
            width,
            heads,
            kv_heads,
            head_dim,
            biases: false,
            rotary: Some(rotary.clone()),
            qk_norm: config.qk_norm.then_some(eps),
            init: normal,
            init_out: out,
        };
        let attention = CausalSelfAttention::new(&mut scope.scope("attn"), attention)?;
        let norm2 = RmsNorm::new(scope, "norm2", width, eps)?;
        let ffn = SwiGlu::new(&mut scope.scope("ffn"), [width, ff], normal, out)?;
        let site = |branch| Dropout { p: config.dropout, site: 2 * index + branch };
        Ok(Block { norm1, attention, norm2, ffn, drop: [site(0), site(1)] })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, pass: &Pass<'_>, index: usize) -> Result<Tensor> {
        let branch = self.attention.forward(&self.norm1.forward(x)?, pass, index)?;
        let x = x.add(&self.drop[0].forward(branch, pass.dropout)?)?;
        let branch = self.ffn.forward(&self.norm2.forward(&x)?)?;
        Ok(x.add(&self.drop[1].forward(branch, pass.dropout)?)?)
    }
}
