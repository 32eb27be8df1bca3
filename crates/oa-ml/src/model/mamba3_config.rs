//! Configurations of Mamba-3: the contract's, and the language model.

use super::config::RopeStyle;
use super::config_limits::{MAX_HEADS, MAX_LAYERS, MAX_STATE, MAX_VOCAB, MAX_WIDTH, Size};
use crate::error::ConfigFault;
use crate::init::Init;
use crate::nn::Mamba3Config;
use oa_graph::ops::mamba3::{DecayRate, MAX_RANKS};
use serde::{Deserialize, Serialize};

/// Smallest rate of decay of every mixer.
const FLOOR: f32 = 1.0e-4;

/// Shortest and longest time step of a language model at the start: states fade over 10 to 1,000
/// tokens.
const TIME_STEPS: [f64; 2] = [1.0e-3, 0.1];

/// Those of the contract, whose sequences have 16 tokens and whose generations have 96: states fade
/// within a sequence, so that a longer one looks no different.
const TIME_STEPS_OF_SHORT_TEXTS: [f64; 2] = [0.1, 1.0];

/// How the rate of decay is made positive: it changes what weights mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecayStyle {
    /// `1 + x` above zero and `1 / (1 - x)` below.
    HeavyTail,
    /// `log(1 + e^x)`.
    Softplus,
}

impl DecayStyle {
    fn rate(self) -> DecayRate {
        match self {
            DecayStyle::HeavyTail => DecayRate::HeavyTail,
            DecayStyle::Softplus => DecayRate::Softplus,
        }
    }
}

/// The Mamba-3 of the teaching contract: embedding, one mixer, head with bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContractMamba3Config {
    /// Token ids.
    pub vocab: usize,
    /// Width of the embedding.
    pub width: usize,
    /// Heads.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Rows of a head's state.
    pub state: usize,
    /// Angles of the rotation; at most half the state.
    pub angles: usize,
    /// Added to the mean square in the norms.
    pub eps: f32,
}

impl ContractMamba3Config {
    /// The sizes of the teaching contract: width 32, 4 heads of 16, state 32, 8 angles.
    pub fn contract(vocab: usize) -> ContractMamba3Config {
        ContractMamba3Config {
            vocab,
            width: 32,
            heads: 4,
            head_dim: 16,
            state: 32,
            angles: 8,
            eps: 1.0e-5,
        }
    }

    /// The mixer: one group, one rank, norms of keys and queries without gains, an output norm.
    pub(super) fn mixer(&self) -> Mamba3Config {
        Mamba3Config {
            width: self.width,
            heads: self.heads,
            head_dim: self.head_dim,
            state: self.state,
            groups: 1,
            mimo: None,
            angles: self.angles,
            rope: RopeStyle::Pair,
            rate: DecayRate::HeavyTail,
            floor: FLOOR,
            eps: self.eps,
            gains: false,
            out_norm: true,
            time_steps: TIME_STEPS_OF_SHORT_TEXTS,
            init_out: Init::fan_in(self.heads * self.head_dim),
        }
    }

    pub(super) fn parameter_count(&self) -> usize {
        self.vocab * (2 * self.width + 1) + self.mixer().parameter_count()
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("heads", self.heads, MAX_HEADS),
            Size::new("head_dim", self.head_dim, MAX_STATE),
            Size::new("state", self.state, MAX_STATE),
            Size::new("angles", self.angles, MAX_STATE / 2),
        ]
    }

    pub(super) fn fault(&self) -> Option<ConfigFault> {
        mixer_fault(&self.mixer())
    }
}

/// The Mamba-3 language model: blocks of a mixer and a SwiGLU, each behind an RMSNorm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mamba3LmConfig {
    /// Token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of a mixer.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Rows of a head's state.
    pub state: usize,
    /// Groups of keys and queries; they divide the heads.
    pub groups: usize,
    /// Channels through which a head reads and writes its state; 1 unless `mimo`.
    pub rank: usize,
    /// Whether these channels have weights of their own.
    pub mimo: bool,
    /// Angles of the rotation; at most half the state.
    pub angles: usize,
    /// Which rows of the state a rotation pairs.
    pub rope: RopeStyle,
    /// How the rate of decay is made positive.
    pub decay: DecayStyle,
    /// Smallest rate of decay.
    pub floor: f32,
    /// Whether a head's values are normalised before the gate.
    pub out_norm: bool,
    /// Width of the feed-forward layer.
    pub ff: usize,
    /// Added to the mean square in the norms.
    pub eps: f32,
}

impl Default for Mamba3LmConfig {
    /// The 845,504-parameter byte model: 4 blocks of width 128, 8 heads of 32, state 64, 16 angles,
    /// feed-forward 192.
    fn default() -> Mamba3LmConfig {
        Mamba3LmConfig {
            vocab: 256,
            width: 128,
            layers: 4,
            heads: 8,
            head_dim: 32,
            state: 64,
            groups: 1,
            rank: 1,
            mimo: false,
            angles: 16,
            rope: RopeStyle::Pair,
            decay: DecayStyle::HeavyTail,
            floor: FLOOR,
            out_norm: false,
            ff: 192,
            eps: 1.0e-5,
        }
    }
}

impl Mamba3LmConfig {
    /// Angles that turn half of the state's rows.
    pub fn half_of(state: usize) -> usize {
        state / 4
    }

    /// The mixer of a block.
    pub(super) fn mixer(&self) -> Mamba3Config {
        let inner = (self.heads * self.head_dim) as f64;
        Mamba3Config {
            width: self.width,
            heads: self.heads,
            head_dim: self.head_dim,
            state: self.state,
            groups: self.groups,
            mimo: self.mimo.then_some(self.rank),
            angles: self.angles,
            rope: self.rope,
            rate: self.decay.rate(),
            floor: self.floor,
            eps: self.eps,
            gains: true,
            out_norm: self.out_norm,
            time_steps: TIME_STEPS,
            init_out: Init::Uniform { bound: 1.0 / (inner * 2.0 * self.layers as f64).sqrt() },
        }
    }

    pub(super) fn parameter_count(&self) -> usize {
        let ffn = 3 * self.width * self.ff;
        let block = 2 * self.width + self.mixer().parameter_count() + ffn;
        2 * self.vocab * self.width + self.layers * block + self.width
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        vec![
            Size::new("vocab", self.vocab, MAX_VOCAB),
            Size::new("width", self.width, MAX_WIDTH),
            Size::new("layers", self.layers, MAX_LAYERS),
            Size::new("heads", self.heads, MAX_HEADS),
            Size::new("head_dim", self.head_dim, MAX_STATE),
            Size::new("state", self.state, MAX_STATE),
            Size::new("groups", self.groups, MAX_HEADS),
            Size::new("rank", self.rank, MAX_RANKS),
            Size::new("angles", self.angles, MAX_STATE / 2),
            Size::new("ff", self.ff, MAX_WIDTH),
        ]
    }

    pub(super) fn fault(&self) -> Option<ConfigFault> {
        if self.rank > 1 && !self.mimo {
            return Some(ConfigFault::RankWithoutMimo { rank: self.rank });
        }
        mixer_fault(&self.mixer())
    }
}

fn mixer_fault(config: &Mamba3Config) -> Option<ConfigFault> {
    let Mamba3Config { heads, groups, angles, state, .. } = *config;
    if groups > 0 && !heads.is_multiple_of(groups) {
        return Some(ConfigFault::HeadsOverGroups { heads, groups });
    }
    if !state.is_multiple_of(2) {
        return Some(ConfigFault::OddState { state });
    }
    (2 * angles > state).then_some(ConfigFault::AnglesOverState { angles, state })
}

#[cfg(test)]
mod tests {
    use super::super::ModelConfig;
    use super::*;

    #[test]
    fn the_published_sizes_come_out() {
        let contract = |vocab| ContractMamba3Config::contract(vocab).parameter_count();
        assert_eq!([256, 320, 27].map(contract), [25_800, 29_960, 10_915]);
        assert_eq!(Mamba3LmConfig::default().parameter_count(), 845_504);
    }

    #[test]
    fn mixers_that_cannot_be_are_refused_with_their_numbers() {
        let refuse = |config| ModelConfig::Mamba3(config).validate().unwrap_err().to_string();
        let config = Mamba3LmConfig::default();
        let message = refuse(Mamba3LmConfig { groups: 3, ..config });
        assert_eq!(message, "mamba3: 8 heads cannot share 3 groups of keys and queries evenly");
        let message = refuse(Mamba3LmConfig { rank: 2, ..config });
        assert_eq!(message, "mamba3: a rank of 2 needs MIMO: without it a head has one channel");
        let message = refuse(Mamba3LmConfig { rank: 33, mimo: true, ..config });
        assert_eq!(message, "mamba3: rank is 33, at most 32 is supported");
        let message = refuse(Mamba3LmConfig { state: 65, ..config });
        assert_eq!(message, "mamba3: a state of 65 rows is odd; the angles turn pairs of rows");
        let message = refuse(Mamba3LmConfig { angles: 33, ..config });
        assert_eq!(message, "mamba3: 33 angles cannot turn pairs of a state of 64 rows");
        let message = refuse(Mamba3LmConfig { rank: 0, mimo: true, ..config });
        assert_eq!(message, "mamba3: rank is 0, it must be at least 1");
    }
}
