//! Configurations of the models with experts.
//!
//! Plain data, like the others; the layers are built elsewhere.

use super::config::{RopeStyle, even_heads_fault, rope_fault};
use super::config_limits::{MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, Size};
use crate::error::ConfigFault;
use oa_graph::ops::attention::MAX_HEAD_DIM;
use oa_graph::ops::moe::{MAX_EXPERTS, MAX_TOP_K};
use serde::{Deserialize, Serialize};

/// The mixture of experts of the teaching contract: its Transformer with an RMSNorm, a router and
/// SwiGLU experts with biases instead of the GELU feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContractMoeConfig {
    /// Token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads; they share the width evenly.
    pub heads: usize,
    /// Experts.
    pub experts: usize,
    /// Experts that a token goes to.
    pub top_k: usize,
    /// Width of an expert.
    pub ff: usize,
    /// Learned positions: the longest sequence.
    pub context: usize,
    /// Added to the variance or mean square in the norms.
    pub eps: f32,
    /// Coefficient of the load-balance loss.
    pub aux_coef: f32,
    /// Coefficient of the z loss.
    pub z_coef: f32,
}

impl ContractMoeConfig {
    /// The sizes of the teaching contract: width 32, one head, four experts of width 16, two per
    /// token, 16 positions.
    pub fn contract(vocab: usize) -> ContractMoeConfig {
        ContractMoeConfig {
            vocab,
            width: 32,
            heads: 1,
            experts: 4,
            top_k: 2,
            ff: 16,
            context: 16,
            eps: 1.0e-5,
            aux_coef: 0.01,
            z_coef: 0.001,
        }
    }

    pub(super) fn parameter_count(&self) -> usize {
        let d = self.width;
        let attention = 4 * (d * d + d);
        let experts = self.experts * (3 * self.ff * d + 2 * self.ff + d);
        let router = self.experts * (d + 1);
        let tables = (self.vocab + self.context) * d;
        tables + 5 * d + attention + router + experts + self.vocab * (d + 1)
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("heads", self.heads, MAX_HEADS),
            Size::new("experts", self.experts, MAX_EXPERTS),
            Size::new("top_k", self.top_k, MAX_TOP_K),
            Size::new("ff", self.ff, MAX_WIDTH),
            Size::new("context", self.context, MAX_CONTEXT),
        ]
    }

    pub(super) fn fault(&self) -> Option<ConfigFault> {
        even_heads_fault(self.width, self.heads).or_else(|| routing_fault(self.experts, self.top_k))
    }
}

/// The mixture-of-experts Transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU
/// experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoeLmConfig {
    /// Token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; they divide `heads`.
    pub kv_heads: usize,
    /// Channels of a head; even, because rotary positions turn pairs.
    pub head_dim: usize,
    /// Experts of a block.
    pub experts: usize,
    /// Experts that a token goes to.
    pub top_k: usize,
    /// Width of an expert.
    pub ff: usize,
    /// Whether the weights of a token's experts sum to 1; else they are their probabilities.
    pub renormalise: bool,
    /// The longest sequence: rows of the rotary table and of the caches.
    pub context: usize,
    /// Which channels a rotary pair is made of.
    pub rope: RopeStyle,
    /// Base of the rotary angles.
    pub rope_base: f64,
    /// Added to the mean square in the norms.
    pub eps: f32,
    /// Coefficient of the load-balance loss, averaged over layers.
    pub aux_coef: f32,
    /// Coefficient of the z loss, averaged over layers.
    pub z_coef: f32,
}

impl Default for MoeLmConfig {
    /// The 846,976-parameter byte model: 4 blocks of width 128, 4 heads, 4 experts of width 84,
    /// two per token, context 64.
    fn default() -> MoeLmConfig {
        MoeLmConfig {
            vocab: 256,
            width: 128,
            layers: 4,
            heads: 4,
            kv_heads: 4,
            head_dim: 32,
            experts: 4,
            top_k: 2,
            ff: 84,
            renormalise: true,
            context: 64,
            rope: RopeStyle::Half,
            rope_base: 10_000.0,
            eps: 1.0e-5,
            aux_coef: 0.01,
            z_coef: 0.001,
        }
    }
}

impl MoeLmConfig {
    pub(super) fn parameter_count(&self) -> usize {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let experts = self.experts * self.width * (3 * self.ff + 1);
        let block = self.width * (2 * q + 2 * kv) + experts + 2 * self.width;
        2 * self.vocab * self.width + self.layers * block + self.width
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("layers", self.layers, MAX_LAYERS),
            Size::new("heads", self.heads, MAX_HEADS),
            Size::new("kv_heads", self.kv_heads, MAX_HEADS),
            Size::new("head_dim", self.head_dim, MAX_HEAD_DIM),
            Size::new("experts", self.experts, MAX_EXPERTS),
            Size::new("top_k", self.top_k, MAX_TOP_K),
            Size::new("ff", self.ff, MAX_WIDTH),
            Size::new("context", self.context, MAX_CONTEXT),
        ]
    }

    pub(super) fn fault(&self) -> Option<ConfigFault> {
        let MoeLmConfig { heads, kv_heads, head_dim, .. } = *self;
        if kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
            return Some(ConfigFault::HeadsOverKvHeads { heads, kv_heads });
        }
        if !head_dim.is_multiple_of(2) {
            return Some(ConfigFault::OddHeadDim { head_dim });
        }
        rope_fault(self.rope_base).or_else(|| routing_fault(self.experts, self.top_k))
    }
}

fn routing_fault(experts: usize, top_k: usize) -> Option<ConfigFault> {
    (top_k > experts).then_some(ConfigFault::TopKOverExperts { top_k, experts })
}

#[cfg(test)]
mod tests {
    use super::super::ModelConfig;
    use super::*;

    #[test]
    fn the_published_sizes_come_out() {
        let contract = |vocab| ContractMoeConfig::contract(vocab).parameter_count();
        assert_eq!([256, 320, 27].map(contract), [28_068, 32_228, 13_183]);
        assert_eq!(MoeLmConfig::default().parameter_count(), 846_976);
    }

    #[test]
    fn more_choices_than_experts_are_refused_with_both_numbers() {
        let config = MoeLmConfig { top_k: 5, ..Default::default() };
        let message = ModelConfig::Moe(config).validate().unwrap_err().to_string();
        assert_eq!(message, "moe: a token cannot go to 5 of 4 experts");
    }
}
