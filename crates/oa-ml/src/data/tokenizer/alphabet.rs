//! One token per character of an alphabet.
//!
//! The alphabet is fixed or learned from a corpus. It has no token for "anything else": a text with
//! a character outside it is refused, because a model that was never shown it cannot say it.

use super::{TableFault, Tokenizer, TokenizerConfig};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Characters in the order of their ids; at least one, each once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Alphabet {
    characters: Vec<char>,
}

impl Alphabet {
    /// An alphabet of these characters: the first gets id 0.
    ///
    /// # Errors
    ///
    /// [`TableFault::EmptyAlphabet`], [`TableFault::DuplicateCharacter`].
    pub fn new(characters: &str) -> Result<Alphabet, TableFault> {
        let mut seen = BTreeSet::new();
        if let Some(character) = characters.chars().find(|&character| !seen.insert(character)) {
            return Err(TableFault::DuplicateCharacter { character });
        }
        if characters.is_empty() {
            return Err(TableFault::EmptyAlphabet);
        }
        Ok(Alphabet { characters: characters.chars().collect() })
    }

    /// The alphabet of the teaching contract: `a` to `z`, then the space; 27 characters.
    pub fn contract() -> Alphabet {
        Alphabet { characters: ('a'..='z').chain([' ']).collect() }
    }

    /// The characters of a text, sorted by code point.
    ///
    /// # Errors
    ///
    /// [`Error::NotUtf8`] with the first byte that belongs to no character;
    /// [`Error::EmptyCorpus`] without a character.
    pub fn learn(text: &[u8]) -> Result<Alphabet> {
        let characters: BTreeSet<char> = utf8(text)?.chars().collect();
        if characters.is_empty() {
            return Err(Error::EmptyCorpus);
        }
        Ok(Alphabet { characters: characters.into_iter().collect() })
    }

    /// The characters, in the order of their ids.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }
}

impl TryFrom<String> for Alphabet {
    type Error = TableFault;

    fn try_from(characters: String) -> Result<Alphabet, TableFault> {
        Alphabet::new(&characters)
    }
}

impl From<Alphabet> for String {
    fn from(alphabet: Alphabet) -> String {
        alphabet.characters.into_iter().collect()
    }
}

/// The text of some bytes.
fn utf8(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text).map_err(|error| {
        let offset = error.valid_up_to();
        Error::NotUtf8 { byte: text[offset], offset }
    })
}

/// One token per character.
#[derive(Clone, Debug)]
pub struct CharTokenizer {
    alphabet: Alphabet,
    /// Character and id, sorted by character.
    index: Vec<(char, u32)>,
}

impl CharTokenizer {
    /// The tokenizer of an alphabet.
    pub fn new(alphabet: Alphabet) -> CharTokenizer {
        let mut index: Vec<(char, u32)> = alphabet.characters.iter().copied().zip(0..).collect();
        index.sort_unstable();
        CharTokenizer { alphabet, index }
    }

    fn id(&self, character: char) -> Option<u32> {
        let place = self.index.binary_search_by_key(&character, |&(known, _)| known).ok()?;
        Some(self.index[place].1)
    }
}

impl Tokenizer for CharTokenizer {
    fn config(&self) -> TokenizerConfig {
        TokenizerConfig::Char(self.alphabet.clone())
    }

    fn vocab(&self) -> usize {
        self.alphabet.characters.len()
    }

    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let id = |(offset, character)| {
            let alphabet = self.vocab();
            self.id(character).ok_or(Error::UnknownCharacter { character, offset, alphabet })
        };
        utf8(text)?.char_indices().map(id).collect()
    }

    fn token(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        let character = self.alphabet.characters.get(id as usize)?;
        Some(Cow::Owned(character.to_string().into_bytes()))
    }
}
