//! Which tokenizer a run has: by name, learned from its text, or from a file.

use crate::failure::{Explain, Failure};
use crate::open;
use oa::ml::Error;
use oa::ml::data::tokenizer::PreTokenizer;
use oa::ml::data::{Alphabet, BpeTrainer, TokenizerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tokens that `bpe` alone learns.
const VOCAB: usize = 1024;

/// What --tokenizer asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Bytes.
    #[default]
    Byte,
    /// The characters of the text.
    Char,
    /// That many tokens, learned from what trains.
    Bpe(usize),
    /// A tokenizer.json, or the tokenizer of a model.
    File(PathBuf),
}

impl Choice {
    /// Reads the flag.
    pub fn parse(text: &str) -> Result<Choice, Failure> {
        let bpe = text.strip_prefix("bpe:");
        match (text, bpe.map(str::parse)) {
            ("byte", _) => Ok(Choice::Byte),
            ("char", _) => Ok(Choice::Char),
            ("bpe", _) => Ok(Choice::Bpe(VOCAB)),
            (_, Some(Ok(vocab))) => Ok(Choice::Bpe(vocab)),
            (_, Some(Err(_))) => Err(Failure::usage(
                "cannot start this run",
                format!("--tokenizer is {text}"),
                "give a number of tokens after `bpe:`, such as bpe:4096",
            )),
            _ if Path::new(text).extension().is_none() && !Path::new(text).exists() => {
                Err(Failure::usage(
                    "cannot start this run",
                    format!("there is no tokenizer `{text}`"),
                    "give byte, char, bpe, bpe:N, a tokenizer.json or an .oam file",
                ))
            }
            _ => Ok(Choice::File(text.into())),
        }
    }

    /// The tokenizer; `whole` says whether all of the text trains, not nine tenths of it.
    pub fn build(&self, text: &[u8], whole: bool) -> Result<TokenizerConfig, Failure> {
        let failed = "cannot learn the tokenizer";
        match self {
            Choice::Byte => Ok(TokenizerConfig::Byte),
            Choice::Char => Ok(TokenizerConfig::Char(Alphabet::learn(text).explain(failed)?)),
            Choice::Bpe(vocab) => {
                let trained = if whole { text.len() } else { text.len() / 10 * 9 };
                let trainer = BpeTrainer {
                    vocab: *vocab,
                    pre_tokenizer: PreTokenizer::Llama3,
                    special: Vec::new(),
                };
                let table = trainer.train(&text[..trained]).map_err(Error::from).explain(failed)?;
                Ok(TokenizerConfig::Bpe(Arc::new(table)))
            }
            Choice::File(path) => open::tokenizer(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_read() {
        let read = |text: &str| Choice::parse(text).unwrap();
        assert_eq!(read("byte"), Choice::Byte);
        assert_eq!(read("char"), Choice::Char);
        assert_eq!(read("bpe"), Choice::Bpe(1024));
        assert_eq!(read("bpe:300"), Choice::Bpe(300));
        assert_eq!(read("a/tokenizer.json"), Choice::File("a/tokenizer.json".into()));
        let refuse = |text: &str| Choice::parse(text).unwrap_err();
        assert!(refuse("bpe:many").to_string().contains("such as bpe:4096"));
        assert!(refuse("words").to_string().contains("there is no tokenizer `words`"));
        assert_eq!(refuse("words").code(), 2);
    }

    #[test]
    fn tokenizers_are_learned_from_the_text() {
        let text = "to be or not to be, that is the question. ".repeat(8);
        let built = |choice: Choice| choice.build(text.as_bytes(), true).unwrap();
        assert_eq!(
            built(Choice::Char).vocab(),
            text.chars().collect::<std::collections::BTreeSet<_>>().len()
        );
        let bpe = built(Choice::Bpe(270));
        assert_eq!((bpe.vocab(), bpe.kind()), (270, "bpe"));
        let small = Choice::Bpe(255).build(text.as_bytes(), true).unwrap_err();
        assert!(small.to_string().contains("255 tokens has no room for 256 bytes"), "{small}");
    }
}
