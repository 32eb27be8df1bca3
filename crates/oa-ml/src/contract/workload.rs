//! The table of workloads: families times tokenizers.
//!
//! A family is one row here; its three workloads, their sizes and what is asked of them follow.

use crate::data::contract_corpus;
use crate::data::tokenizer::{Alphabet, BpeTrainer, TokenizerConfig};
use crate::model::{ContractMoeConfig, ContractTransformerConfig, ModelConfig, RnnLmConfig};
use std::sync::Arc;

/// How the corpus becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// 256 bytes.
    Byte,
    /// `a` to `z` and the space: 27 characters.
    Char,
    /// 256 bytes and 64 merges that the corpus teaches.
    Bpe,
}

impl Coding {
    /// All of them, in the order of the table.
    pub const ALL: [Coding; 3] = [Coding::Byte, Coding::Char, Coding::Bpe];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Byte => "byte",
            Coding::Char => "char",
            Coding::Bpe => "bpe",
        }
    }

    /// The tokenizer.
    pub fn tokenizer(self) -> TokenizerConfig {
        match self {
            Coding::Byte => TokenizerConfig::Byte,
            Coding::Char => TokenizerConfig::Char(Alphabet::contract()),
            Coding::Bpe => {
                let table = BpeTrainer::contract().train(&contract_corpus());
                TokenizerConfig::Bpe(Arc::new(table.expect("the contract's settings are right")))
            }
        }
    }
}

/// A family: everything that its workloads share.
struct Family {
    name: &'static str,
    config: fn(usize) -> ModelConfig,
    rate: f64,
    /// Parameters with bytes, characters and pieces of words, as the contract has them.
    parameters: [usize; 3],
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "rnn",
        config: |vocab| ModelConfig::Rnn(RnnLmConfig::contract(vocab)),
        rate: 0.01,
        parameters: [31_104, 8_891, 37_312],
    },
    Family {
        name: "gru",
        config: |vocab| ModelConfig::Gru(RnnLmConfig::contract(vocab)),
        rate: 0.01,
        parameters: [43_648, 21_435, 49_856],
    },
    Family {
        name: "transformer",
        config: |vocab| {
            ModelConfig::ContractTransformer(ContractTransformerConfig::contract(vocab))
        },
        rate: 0.01,
        parameters: [25_760, 10_875, 29_920],
    },
    Family {
        name: "moe",
        config: |vocab| ModelConfig::ContractMoe(ContractMoeConfig::contract(vocab)),
        rate: 0.01,
        parameters: [28_068, 13_183, 32_228],
    },
];

/// One family with one tokenizer.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of the family.
    pub family: &'static str,
    /// How the corpus becomes tokens.
    pub coding: Coding,
    /// The tokenizer of that coding.
    pub tokenizer: TokenizerConfig,
    /// The model.
    pub config: ModelConfig,
    /// Learning rate.
    pub rate: f64,
    /// Parameters that the contract gives the model.
    pub parameters: usize,
}

impl Workload {
    /// Share of the corpus that the trained model must predict.
    pub fn accuracy(&self) -> f64 {
        match self.coding {
            Coding::Byte | Coding::Char => super::ACCURACY,
            Coding::Bpe => super::BPE_ACCURACY,
        }
    }
}

/// The byte workloads of the families that there are.
pub fn workloads() -> Vec<Workload> {
    all_workloads().into_iter().filter(|workload| workload.coding == Coding::Byte).collect()
}

/// Every family with every tokenizer, family by family.
pub fn all_workloads() -> Vec<Workload> {
    let tokenizers = Coding::ALL.map(|coding| (coding, coding.tokenizer()));
    let of_family = |family: &Family| {
        let of_coding =
            |((coding, tokenizer), parameters): (&(Coding, TokenizerConfig), _)| Workload {
                family: family.name,
                coding: *coding,
                tokenizer: tokenizer.clone(),
                config: (family.config)(tokenizer.vocab()),
                rate: family.rate,
                parameters,
            };
        tokenizers.iter().zip(family.parameters).map(of_coding).collect::<Vec<Workload>>()
    };
    FAMILIES.iter().flat_map(of_family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_the_parameters_of_the_contract() {
        for workload in all_workloads() {
            let name = (workload.family, workload.coding.name());
            assert_eq!(workload.config.parameter_count(), workload.parameters, "{name:?}");
            assert_eq!(workload.config.vocab(), workload.tokenizer.vocab(), "{name:?}");
        }
        let vocab = Coding::ALL.map(|coding| coding.tokenizer().vocab());
        assert_eq!(vocab, [256, 27, 320]);
    }

    #[test]
    fn every_coding_says_the_corpus() {
        let corpus = contract_corpus();
        for coding in Coding::ALL {
            let tokenizer = coding.tokenizer().build();
            let ids = tokenizer.encode(&corpus).unwrap();
            assert_eq!(tokenizer.decode(&ids), Some(corpus.clone()), "{coding:?}");
        }
    }
}
