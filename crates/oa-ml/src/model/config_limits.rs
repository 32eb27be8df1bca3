//! How large the sizes of a configuration may be.
//!
//! The limits keep every count of parameters far inside 64 bits, so that what lies beyond them is
//! refused by name before anything is computed or allocated.

use crate::error::ConfigFault;

/// Most token ids of a vocabulary.
pub const MAX_VOCAB: usize = 1 << 24;

/// Largest width of a residual stream, an embedding or a feed-forward layer.
pub const MAX_WIDTH: usize = 1 << 20;

/// Most blocks or recurrent layers.
pub const MAX_LAYERS: usize = 1 << 10;

/// Most heads of a block, and most groups of them.
pub const MAX_HEADS: usize = 1 << 12;

/// Most rows of a Mamba-3 state, and most channels of one of its heads.
pub const MAX_STATE: usize = 1 << 12;

/// Most positions of a model.
pub const MAX_CONTEXT: usize = 1 << 20;

/// Most parameters of a model.
pub const MAX_PARAMETERS: u64 = 1 << 33;

/// A size of a configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    name: &'static str,
    value: usize,
    most: usize,
}

impl Size {
    /// A size by its name in the configuration, with the largest that is supported.
    pub(super) fn new(name: &'static str, value: usize, most: usize) -> Size {
        Size { name, value, most }
    }

    /// What is wrong with it.
    pub(super) fn fault(self) -> Option<ConfigFault> {
        let Size { name, value, most } = self;
        match value {
            0 => Some(ConfigFault::ZeroSize { size: name }),
            _ if value > most => {
                Some(ConfigFault::TooLarge { size: name, value: value as u64, most: most as u64 })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelConfig;
    use super::super::config::{
        ContractMamba3Config, ContractMoeConfig, ContractTransformerConfig, Mamba3LmConfig,
        MoeLmConfig, RnnLmConfig, TransformerConfig,
    };
    use serde_json::Value;

    fn every() -> [ModelConfig; 8] {
        [
            ModelConfig::Rnn(RnnLmConfig::contract(256)),
            ModelConfig::Gru(RnnLmConfig::contract(256)),
            ModelConfig::ContractTransformer(ContractTransformerConfig::contract(256)),
            ModelConfig::Transformer(TransformerConfig::default()),
            ModelConfig::ContractMoe(ContractMoeConfig::contract(256)),
            ModelConfig::Moe(MoeLmConfig::default()),
            ModelConfig::ContractMamba3(ContractMamba3Config::contract(256)),
            ModelConfig::Mamba3(Mamba3LmConfig::default()),
        ]
    }

    /// The configuration with one of its counts changed, once for each of its counts.
    fn changed(config: ModelConfig, value: usize) -> Vec<(String, ModelConfig)> {
        let whole = serde_json::to_value(config).unwrap();
        let (kind, fields) = whole.as_object().unwrap().iter().next().unwrap();
        let counts = fields.as_object().unwrap().iter().filter(|(_, old)| old.is_u64());
        let change = |(name, _): (&String, &Value)| {
            let mut changed = whole.clone();
            changed[kind][name] = value.into();
            (name.clone(), serde_json::from_value(changed).unwrap())
        };
        counts.map(change).collect()
    }

    #[test]
    fn every_count_is_refused_by_name_when_it_is_0_or_huge() {
        for config in every() {
            config.validate().unwrap();
            for huge in [usize::MAX, 1 << 32, 1_000_000_000] {
                for (name, config) in changed(config, huge) {
                    let text = config.validate().expect_err("a huge size").to_string();
                    let cause = format!(": {name} is {huge}, at most ");
                    assert!(text.contains(&cause), "{text}");
                    assert_eq!(config.parameter_count(), usize::MAX, "{name}");
                }
            }
            for (name, config) in changed(config, 0) {
                let text = config.validate().expect_err("a size of 0").to_string();
                assert!(text.ends_with(&format!(": {name} is 0, it must be at least 1")), "{text}");
            }
        }
    }

    #[test]
    fn limits_of_the_kernels_are_told_before_a_model_is_built() {
        let refuse = |config: ModelConfig| config.validate().unwrap_err().to_string();
        let wide = RnnLmConfig { hidden: 1025, ..RnnLmConfig::contract(256) };
        let text = refuse(ModelConfig::Rnn(wide));
        assert_eq!(text, "rnn: hidden is 1025, at most 1024 is supported");
        let wide = RnnLmConfig { hidden: 513, ..wide };
        assert_eq!(refuse(ModelConfig::Gru(wide)), "gru: hidden is 513, at most 512 is supported");
        ModelConfig::Rnn(wide).validate().unwrap();
        let heads = TransformerConfig { head_dim: 130, ..Default::default() };
        let text = refuse(ModelConfig::Transformer(heads));
        assert_eq!(text, "transformer: head_dim is 130, at most 128 is supported");
        let contract = ContractTransformerConfig::contract(256);
        let contract = ContractTransformerConfig { width: 129, ..contract };
        let text = refuse(ModelConfig::ContractTransformer(contract));
        assert!(text.contains("width / heads is 129, at most 128 is supported"), "{text}");
        let config = TransformerConfig { width: 1 << 20, ff: 1 << 20, ..Default::default() };
        let text = refuse(ModelConfig::Transformer(config));
        assert!(text.contains("the number of parameters is 13"), "{text}");
        assert!(text.ends_with(", at most 8589934592 is supported"), "{text}");
        for rope_base in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let config = TransformerConfig { rope_base, ..Default::default() };
            let text = refuse(ModelConfig::Transformer(config));
            assert!(text.contains("it must be positive and finite"), "{text}");
            let config = MoeLmConfig { rope_base, ..Default::default() };
            let text = refuse(ModelConfig::Moe(config));
            assert!(text.contains("it must be positive and finite"), "{text}");
        }
    }
}
