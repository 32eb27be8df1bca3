//! Architecture identity and configuration: what a file must record to rebuild a model.
//!
//! Plain data with a parameter count and a validity check; the layers are built elsewhere.

use super::config_limits::Size;
pub use super::config_limits::{
    MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_PARAMETERS, MAX_STATE, MAX_VOCAB, MAX_WIDTH,
};
pub use super::mamba3_config::{ContractMamba3Config, DecayStyle, Mamba3LmConfig};
pub use super::moe_config::{ContractMoeConfig, MoeLmConfig};
use crate::data::tokenizer::TokenizerConfig;
use crate::error::{ConfigFault, Error, Result};
use crate::nn::Cell;
use oa_graph::ops::attention::MAX_HEAD_DIM;
use oa_graph::ops::{gru, recurrent};
use serde::{Deserialize, Serialize};

/// Which pairs of channels a rotary embedding turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RopeStyle {
    /// Interleaved: pair i is channels `2i` and `2i + 1`.
    Pair,
    /// Split: pair i is channels `i` and `i + d/2`.
    Half,
}

/// A recurrent network as a language model: embedding, layers, head with bias; no norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RnnLmConfig {
    /// Token ids.
    pub vocab: usize,
    /// Width of the embedding.
    pub width: usize,
    /// Width of each hidden state.
    pub hidden: usize,
    /// Recurrent layers.
    pub layers: usize,
}

impl RnnLmConfig {
    /// The recurrent networks of the teaching contract: width 32, one layer of 64.
    pub fn contract(vocab: usize) -> RnnLmConfig {
        RnnLmConfig { vocab, width: 32, hidden: 64, layers: 1 }
    }

    fn sizes(&self, cell: Cell) -> Vec<Size> {
        let most = match cell {
            Cell::Elman => recurrent::MAX_HIDDEN,
            Cell::Gru => gru::MAX_HIDDEN,
        };
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("hidden", self.hidden, most),
            Size::new("layers", self.layers, MAX_LAYERS),
        ]
    }

    fn parameter_count(&self, cell: Cell) -> usize {
        let layer = |input| cell.rows() * self.hidden * (input + self.hidden + 2);
        let deeper = (1..self.layers).map(|_| layer(self.hidden)).sum::<usize>();
        self.vocab * self.width + layer(self.width) + deeper + self.vocab * (self.hidden + 1)
    }
}

/// The Transformer of the teaching contract: learned positions, one pre-LayerNorm block with
/// biases and a GELU feed-forward, final LayerNorm, untied head with bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContractTransformerConfig {
    /// Token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads; they share the width evenly.
    pub heads: usize,
    /// Width of the feed-forward layer.
    pub ff: usize,
    /// Learned positions: the longest sequence.
    pub context: usize,
    /// Added to the variance in the norms.
    pub eps: f32,
}

impl ContractTransformerConfig {
    /// The sizes of the teaching contract: width 32, one head, feed-forward 64, 16 positions.
    pub fn contract(vocab: usize) -> ContractTransformerConfig {
        ContractTransformerConfig { vocab, width: 32, heads: 1, ff: 64, context: 16, eps: 1.0e-5 }
    }

    fn sizes(&self) -> Vec<Size> {
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("heads", self.heads, MAX_HEADS),
            Size::new("ff", self.ff, MAX_WIDTH),
            Size::new("context", self.context, MAX_CONTEXT),
        ]
    }

    fn parameter_count(&self) -> usize {
        let d = self.width;
        let attention = 4 * (d * d + d);
        let feed_forward = 2 * self.ff * d + self.ff + d;
        let tables = (self.vocab + self.context) * d;
        tables + 3 * 2 * d + attention + feed_forward + self.vocab * (d + 1)
    }
}

/// The dense decoder Transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransformerConfig {
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
    /// Width of the feed-forward layer.
    pub ff: usize,
    /// The longest sequence: rows of the rotary table and of the caches.
    pub context: usize,
    /// Which channels a rotary pair is made of.
    pub rope: RopeStyle,
    /// Base of the rotary angles.
    pub rope_base: f64,
    /// Added to the mean square in the norms.
    pub eps: f32,
    /// Whether queries and keys are normalised per head before the rotation.
    pub qk_norm: bool,
    /// Whether the head is the transposed embedding.
    pub tied: bool,
    /// Probability of dropping a residual branch's element while training; 0 for none.
    pub dropout: f32,
}

impl Default for TransformerConfig {
    /// The 857,216-parameter byte model: 4 blocks of width 128, 4 heads, feed-forward 344,
    /// context 64.
    fn default() -> TransformerConfig {
        TransformerConfig {
            vocab: 256,
            width: 128,
            layers: 4,
            heads: 4,
            kv_heads: 4,
            head_dim: 32,
            ff: 344,
            context: 64,
            rope: RopeStyle::Half,
            rope_base: 10_000.0,
            eps: 1.0e-5,
            qk_norm: false,
            tied: false,
            dropout: 0.0,
        }
    }
}

impl TransformerConfig {
    fn sizes(&self) -> Vec<Size> {
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("layers", self.layers, MAX_LAYERS),
            Size::new("heads", self.heads, MAX_HEADS),
            Size::new("kv_heads", self.kv_heads, MAX_HEADS),
            Size::new("head_dim", self.head_dim, MAX_HEAD_DIM),
            Size::new("ff", self.ff, MAX_WIDTH),
            Size::new("context", self.context, MAX_CONTEXT),
        ]
    }

    fn parameter_count(&self) -> usize {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let norms = 2 * self.width + if self.qk_norm { 2 * self.head_dim } else { 0 };
        let block = self.width * (2 * q + 2 * kv) + 3 * self.width * self.ff + norms;
        let tables = self.vocab * self.width * if self.tied { 1 } else { 2 };
        tables + self.layers * block + self.width
    }
}

/// A model by architecture identity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ModelConfig {
    /// An Elman language model; with [`RnnLmConfig::contract`] the contract's recurrent network.
    Rnn(RnnLmConfig),
    /// A language model of gated recurrent units; with [`RnnLmConfig::contract`] the contract's.
    Gru(RnnLmConfig),
    /// The contract's Transformer.
    ContractTransformer(ContractTransformerConfig),
    /// The dense decoder Transformer.
    Transformer(TransformerConfig),
    /// The contract's mixture of experts.
    ContractMoe(ContractMoeConfig),
    /// The mixture-of-experts Transformer.
    Moe(MoeLmConfig),
    /// The contract's Mamba-3.
    ContractMamba3(ContractMamba3Config),
    /// The Mamba-3 language model.
    Mamba3(Mamba3LmConfig),
}

impl ModelConfig {
    /// Name of the architecture in files and messages.
    pub fn architecture(&self) -> &'static str {
        match self {
            ModelConfig::Rnn(_) => "rnn",
            ModelConfig::Gru(_) => "gru",
            ModelConfig::ContractTransformer(_) => "contract_transformer",
            ModelConfig::Transformer(_) => "transformer",
            ModelConfig::ContractMoe(_) => "contract_moe",
            ModelConfig::Moe(_) => "moe",
            ModelConfig::ContractMamba3(_) => "contract_mamba3",
            ModelConfig::Mamba3(_) => "mamba3",
        }
    }

    /// Whether the model drops what it carries where a document starts, so that documents packed
    /// into one row do not see each other. Any other model reads a packed row as one text.
    pub fn resets_at_starts(&self) -> bool {
        match self {
            ModelConfig::Rnn(_)
            | ModelConfig::Gru(_)
            | ModelConfig::ContractTransformer(_)
            | ModelConfig::Transformer(_)
            | ModelConfig::ContractMoe(_)
            | ModelConfig::Moe(_) => false,
            ModelConfig::ContractMamba3(_) | ModelConfig::Mamba3(_) => true,
        }
    }

    /// Number of token ids.
    pub fn vocab(&self) -> usize {
        match self {
            ModelConfig::Rnn(config) | ModelConfig::Gru(config) => config.vocab,
            ModelConfig::ContractTransformer(config) => config.vocab,
            ModelConfig::Transformer(config) => config.vocab,
            ModelConfig::ContractMoe(config) => config.vocab,
            ModelConfig::Moe(config) => config.vocab,
            ModelConfig::ContractMamba3(config) => config.vocab,
            ModelConfig::Mamba3(config) => config.vocab,
        }
    }

    /// Refuses a tokenizer of another vocabulary.
    ///
    /// # Errors
    ///
    /// [`Error::Vocabulary`] with both numbers.
    pub fn check_tokenizer(&self, tokenizer: &TokenizerConfig) -> Result<()> {
        let (model, tokenizer) = (self.vocab(), tokenizer.vocab());
        if model == tokenizer { Ok(()) } else { Err(Error::Vocabulary { model, tokenizer }) }
    }

    /// The same model for another number of token ids.
    pub fn with_vocab(mut self, vocab: usize) -> ModelConfig {
        let place = match &mut self {
            ModelConfig::Rnn(config) | ModelConfig::Gru(config) => &mut config.vocab,
            ModelConfig::ContractTransformer(config) => &mut config.vocab,
            ModelConfig::Transformer(config) => &mut config.vocab,
            ModelConfig::ContractMoe(config) => &mut config.vocab,
            ModelConfig::Moe(config) => &mut config.vocab,
            ModelConfig::ContractMamba3(config) => &mut config.vocab,
            ModelConfig::Mamba3(config) => &mut config.vocab,
        };
        *place = vocab;
        self
    }

    /// Longest sequence the model has positions for; `None` when it has no such limit.
    pub fn context(&self) -> Option<usize> {
        match self {
            ModelConfig::Rnn(_) | ModelConfig::Gru(_) => None,
            ModelConfig::ContractTransformer(config) => Some(config.context),
            ModelConfig::Transformer(config) => Some(config.context),
            ModelConfig::ContractMoe(config) => Some(config.context),
            ModelConfig::Moe(config) => Some(config.context),
            ModelConfig::ContractMamba3(_) | ModelConfig::Mamba3(_) => None,
        }
    }

    /// Number of parameters, computed from the configuration alone; `usize::MAX` when a size is
    /// beyond its limit.
    pub fn parameter_count(&self) -> usize {
        let fault = self.sizes().into_iter().find_map(Size::fault);
        if let Some(ConfigFault::TooLarge { .. }) = fault {
            return usize::MAX;
        }
        match self {
            ModelConfig::Rnn(config) => config.parameter_count(Cell::Elman),
            ModelConfig::Gru(config) => config.parameter_count(Cell::Gru),
            ModelConfig::ContractTransformer(config) => config.parameter_count(),
            ModelConfig::Transformer(config) => config.parameter_count(),
            ModelConfig::ContractMoe(config) => config.parameter_count(),
            ModelConfig::Moe(config) => config.parameter_count(),
            ModelConfig::ContractMamba3(config) => config.parameter_count(),
            ModelConfig::Mamba3(config) => config.parameter_count(),
        }
    }

    fn sizes(&self) -> Vec<Size> {
        match self {
            ModelConfig::Rnn(config) => config.sizes(Cell::Elman),
            ModelConfig::Gru(config) => config.sizes(Cell::Gru),
            ModelConfig::ContractTransformer(config) => config.sizes(),
            ModelConfig::Transformer(config) => config.sizes(),
            ModelConfig::ContractMoe(config) => config.sizes(),
            ModelConfig::Moe(config) => config.sizes(),
            ModelConfig::ContractMamba3(config) => config.sizes(),
            ModelConfig::Mamba3(config) => config.sizes(),
        }
    }

    /// What is wrong with sizes that are fine one by one.
    fn fault(&self) -> Option<ConfigFault> {
        match self {
            ModelConfig::Rnn(_) | ModelConfig::Gru(_) => None,
            ModelConfig::ContractTransformer(config) => {
                even_heads_fault(config.width, config.heads)
            }
            ModelConfig::Transformer(config) => config.fault(),
            ModelConfig::ContractMoe(config) => config.fault(),
            ModelConfig::Moe(config) => config.fault(),
            ModelConfig::ContractMamba3(config) => config.fault(),
            ModelConfig::Mamba3(config) => config.fault(),
        }
    }

    fn parameters_fault(&self) -> Option<ConfigFault> {
        let (value, most) = (self.parameter_count() as u64, MAX_PARAMETERS);
        let size = "the number of parameters";
        (value > most).then_some(ConfigFault::TooLarge { size, value, most })
    }

    /// Refuses a configuration that describes no model, or one beyond what is supported.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the size and its numbers.
    pub fn validate(&self) -> Result<()> {
        let sizes = self.sizes().into_iter().find_map(Size::fault);
        let fault = sizes.or_else(|| self.fault()).or_else(|| self.parameters_fault());
        match fault {
            Some(fault) => Err(Error::Config { architecture: self.architecture(), fault }),
            None => Ok(()),
        }
    }
}

/// Refuses heads that do not share a width evenly, or whose share no kernel takes.
pub(super) fn even_heads_fault(width: usize, heads: usize) -> Option<ConfigFault> {
    if heads > 0 && !width.is_multiple_of(heads) {
        return Some(ConfigFault::WidthOverHeads { width, heads });
    }
    Size::new("width / heads", width / heads.max(1), MAX_HEAD_DIM).fault()
}

/// Refuses a base that gives no rotary angles.
pub(super) fn rope_fault(base: f64) -> Option<ConfigFault> {
    let usable = base > 0.0 && base.is_finite();
    (!usable).then_some(ConfigFault::RopeBase { base })
}

impl TransformerConfig {
    fn fault(&self) -> Option<ConfigFault> {
        if self.kv_heads > 0 && !self.heads.is_multiple_of(self.kv_heads) {
            return Some(ConfigFault::HeadsOverKvHeads {
                heads: self.heads,
                kv_heads: self.kv_heads,
            });
        }
        if !self.head_dim.is_multiple_of(2) {
            return Some(ConfigFault::OddHeadDim { head_dim: self.head_dim });
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Some(ConfigFault::Dropout { p: self.dropout });
        }
        rope_fault(self.rope_base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sizes_come_out() {
        let count = |config: ModelConfig| config.parameter_count();
        assert_eq!(count(ModelConfig::Rnn(RnnLmConfig::contract(256))), 31_104);
        assert_eq!(count(ModelConfig::Gru(RnnLmConfig::contract(256))), 43_648);
        let contract = ContractTransformerConfig::contract(256);
        assert_eq!(count(ModelConfig::ContractTransformer(contract)), 25_760);
        assert_eq!(count(ModelConfig::Transformer(TransformerConfig::default())), 857_216);
    }

    #[test]
    fn impossible_configurations_are_refused_with_their_numbers() {
        let refuse = |config: ModelConfig| {
            config.validate().expect_err("an impossible configuration").to_string()
        };
        let transformer = TransformerConfig { kv_heads: 3, ..Default::default() };
        let message = refuse(ModelConfig::Transformer(transformer));
        assert_eq!(message, "transformer: 4 heads cannot share 3 key-value heads evenly");
        let transformer = TransformerConfig { layers: 0, ..Default::default() };
        let message = refuse(ModelConfig::Transformer(transformer));
        assert_eq!(message, "transformer: layers is 0, it must be at least 1");
        let contract =
            ContractTransformerConfig { heads: 3, ..ContractTransformerConfig::contract(256) };
        let message = refuse(ModelConfig::ContractTransformer(contract));
        assert_eq!(message, "contract_transformer: a width of 32 cannot be shared by 3 heads");
    }
}
