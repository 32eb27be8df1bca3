//! The table of a byte-pair encoding: tokens, merges and how a text is cut before.
//!
//! [`BpeParts`] are plain data that anybody may claim; a [`BpeTable`] was checked, so that a
//! tokenizer built from it cannot fail. Nothing here encodes.

use super::{PreTokenizer, TableFault};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Most tokens of a table. The largest published vocabularies have 262,144.
pub const TOKENS: usize = 1 << 20;
/// Most merges of a table. The largest published ones have half a million.
pub const MERGES: usize = 1 << 21;
/// Most bytes of a token.
pub const TOKEN_BYTES: usize = 1 << 16;

/// What happens to a text before it is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Normalizer {
    /// Nothing: every byte string comes back from its ids.
    #[default]
    None,
    /// Canonical composition: what comes back is the composed text.
    Nfc,
}

/// A token that is found in a text before any merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedToken {
    /// Its id; the table holds its text.
    pub id: u32,
    /// Whether it steers rather than says something, as an end of text does.
    pub special: bool,
    /// Whether it takes the white space before it along.
    pub lstrip: bool,
    /// Whether it takes the white space after it along.
    pub rstrip: bool,
    /// Whether it counts only where no letter, digit or underscore touches it.
    pub single_word: bool,
    /// Whether it is looked for after normalisation, not before.
    pub normalized: bool,
    /// Whether merges may make it too: it is a token of the vocabulary as well.
    pub merged: bool,
}

/// What a table is made of, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpeParts {
    /// Bytes of each token, by id; added tokens among them.
    pub tokens: Vec<Vec<u8>>,
    /// Pairs of ids that merge, the most urgent first. The pair becomes the token of both texts.
    pub merges: Vec<(u32, u32)>,
    /// Tokens that are found before any merging.
    pub added: Vec<AddedToken>,
    /// What happens to a text first.
    pub normalizer: Normalizer,
    /// How a text is cut into pieces that merge apart.
    pub pre_tokenizer: PreTokenizer,
    /// Whether a piece that is a token as a whole becomes it without merging.
    pub ignore_merges: bool,
}

/// A checked table of tokens and merges: every byte has a token, every merge gives a token, no two
/// tokens of the vocabulary are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BpeParts", into = "BpeParts")]
pub struct BpeTable {
    parts: BpeParts,
}

impl BpeTable {
    /// Checks a table.
    ///
    /// # Errors
    ///
    /// The first [`TableFault`] found.
    pub fn new(parts: BpeParts) -> Result<BpeTable, TableFault> {
        check_sizes(&parts)?;
        let model = model_tokens(&parts)?;
        let index = index(&parts, &model)?;
        for byte in 0..=u8::MAX {
            if !index.contains_key([byte].as_slice()) {
                return Err(TableFault::MissingByte { byte });
            }
        }
        check_merges(&parts, &model, &index)?;
        Ok(BpeTable { parts })
    }

    /// What it is made of.
    pub fn parts(&self) -> &BpeParts {
        &self.parts
    }

    /// Bytes of each token, by id.
    pub fn tokens(&self) -> &[Vec<u8>] {
        &self.parts.tokens
    }

    /// The tokens that merges may make, by their bytes.
    pub(super) fn index(&self) -> HashMap<Box<[u8]>, u32> {
        let model = model_tokens(&self.parts).expect("a table was checked");
        let index = index(&self.parts, &model).expect("a table was checked");
        index.into_iter().map(|(bytes, id)| (bytes.into(), id)).collect()
    }
}

impl TryFrom<BpeParts> for BpeTable {
    type Error = TableFault;

    fn try_from(parts: BpeParts) -> Result<BpeTable, TableFault> {
        BpeTable::new(parts)
    }
}

impl From<BpeTable> for BpeParts {
    fn from(table: BpeTable) -> BpeParts {
        table.parts
    }
}

fn check_sizes(parts: &BpeParts) -> Result<(), TableFault> {
    let counts = [("tokens", parts.tokens.len(), TOKENS), ("merges", parts.merges.len(), MERGES)];
    for (what, found, limit) in counts {
        if found > limit {
            return Err(TableFault::TooMany { what, found, limit });
        }
    }
    for (id, token) in parts.tokens.iter().enumerate() {
        if token.is_empty() {
            return Err(TableFault::EmptyToken { id });
        }
        if token.len() > TOKEN_BYTES {
            let (bytes, limit) = (token.len(), TOKEN_BYTES);
            return Err(TableFault::LongToken { id, bytes, limit });
        }
    }
    Ok(())
}

/// Which ids are tokens of the vocabulary: all but those that are only added.
fn model_tokens(parts: &BpeParts) -> Result<Vec<bool>, TableFault> {
    let tokens = parts.tokens.len();
    let (mut model, mut added) = (vec![true; tokens], vec![false; tokens]);
    for &AddedToken { id, merged, .. } in &parts.added {
        let place = id as usize;
        if place >= tokens || added[place] {
            return Err(TableFault::AddedId { id, tokens });
        }
        if std::str::from_utf8(&parts.tokens[place]).is_err() {
            return Err(TableFault::AddedText { id });
        }
        (added[place], model[place]) = (true, merged);
    }
    Ok(model)
}

fn index<'a>(parts: &'a BpeParts, model: &[bool]) -> Result<HashMap<&'a [u8], u32>, TableFault> {
    let mut index = HashMap::with_capacity(parts.tokens.len());
    for (id, token) in parts.tokens.iter().enumerate().filter(|&(id, _)| model[id]) {
        match index.entry(token.as_slice()) {
            Entry::Vacant(entry) => drop(entry.insert(id as u32)),
            Entry::Occupied(entry) => {
                let first = *entry.get() as usize;
                return Err(TableFault::DuplicateToken { first, second: id });
            }
        }
    }
    Ok(index)
}

fn check_merges(
    parts: &BpeParts,
    model: &[bool],
    index: &HashMap<&[u8], u32>,
) -> Result<(), TableFault> {
    let mut seen = HashMap::with_capacity(parts.merges.len());
    let mut whole = Vec::new();
    for (rank, &(left, right)) in parts.merges.iter().enumerate() {
        let unknown = |&id: &u32| !model.get(id as usize).is_some_and(|&model| model);
        if let Some(id) = [left, right].into_iter().find(unknown) {
            return Err(TableFault::MergeToken { rank, id });
        }
        whole.clear();
        whole.extend_from_slice(&parts.tokens[left as usize]);
        whole.extend_from_slice(&parts.tokens[right as usize]);
        if !index.contains_key(whole.as_slice()) {
            return Err(TableFault::MergeResult { rank, left, right });
        }
        if let Some(first) = seen.insert((left, right), rank) {
            return Err(TableFault::DuplicateMerge { rank, first });
        }
    }
    Ok(())
}
