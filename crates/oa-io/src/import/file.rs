//! The shape of a `tokenizer.json`, as far as it decides ids.
//!
//! Lists stay lists: a token that stands twice must not vanish before it was noticed.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// The whole file.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) added_tokens: Vec<Added>,
    #[serde(default)]
    pub(super) normalizer: Option<Step>,
    #[serde(default)]
    pub(super) pre_tokenizer: Option<Step>,
    pub(super) model: Model,
}

/// A token that is found before any merging.
#[derive(Deserialize)]
pub(super) struct Added {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    pub(super) normalized: Option<bool>,
    #[serde(default)]
    pub(super) special: bool,
}

/// A step of normalisation or of cutting, with the settings of all kinds.
#[derive(Deserialize)]
pub(super) struct Step {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) normalizers: Option<Vec<Step>>,
    pub(super) pretokenizers: Option<Vec<Step>>,
    pub(super) pattern: Option<Pattern>,
    pub(super) behavior: Option<String>,
    #[serde(default)]
    pub(super) invert: bool,
    #[serde(default)]
    pub(super) add_prefix_space: bool,
    pub(super) use_regex: Option<bool>,
}

/// What a step cuts by.
#[derive(Deserialize)]
pub(super) enum Pattern {
    /// A text.
    String(String),
    /// A regular expression.
    Regex(String),
}

/// Vocabulary and merges.
#[derive(Deserialize)]
pub(super) struct Model {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) dropout: Option<f64>,
    pub(super) continuing_subword_prefix: Option<String>,
    pub(super) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    pub(super) vocab: Vocabulary,
    pub(super) merges: Vec<Merge>,
}

/// A merge in either form.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Merge {
    /// Two tokens with a space between.
    Text(String),
    /// Two tokens.
    Pair(String, String),
}

/// Tokens and ids in the order of the file.
pub(super) struct Vocabulary(pub(super) Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Vocabulary, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tokens and ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Vocabulary(entries))
    }
}
