//! From the file's words to a table: names become ids, the byte alphabet becomes bytes.

use super::cut;
use super::fault::{ImportFault, short};
use super::file::{Added, File, Merge, Model};
use crate::error::Fault;
use oa_ml::data::tokenizer::{AddedToken, BpeParts, BpeTable, TokenizerConfig};
use std::collections::HashMap;
use std::sync::Arc;

/// The tokenizer of a file.
pub(super) fn convert(file: File) -> Result<TokenizerConfig, Fault> {
    let File { added_tokens, normalizer, pre_tokenizer, model } = file;
    refuse_settings(&model)?;
    let normalizer = cut::normalizer(normalizer)?;
    let pre_tokenizer = cut::pre_tokenizer(pre_tokenizer)?;
    let ids = ids(&model)?;
    let (tokens, added) = tokens(&model, &ids, &added_tokens)?;
    let merges = merges(&model, &ids)?;
    let ignore_merges = model.ignore_merges;
    let parts = BpeParts { tokens, merges, added, normalizer, pre_tokenizer, ignore_merges };
    Ok(TokenizerConfig::Bpe(Arc::new(BpeTable::new(parts)?)))
}

/// Refuses settings of a model that would give other ids.
fn refuse_settings(model: &Model) -> Result<(), ImportFault> {
    let refuse = |part, name: &str| Err(ImportFault::Unsupported { part, name: short(name) });
    match model.kind.as_deref() {
        None | Some("BPE") => {}
        Some(kind) => return refuse("model", kind),
    }
    if let Some(dropout) = model.dropout.filter(|&dropout| dropout != 0.0) {
        return refuse("dropout of merges", &dropout.to_string());
    }
    let affixes = [
        ("prefix of continuing tokens", &model.continuing_subword_prefix),
        ("suffix of last tokens", &model.end_of_word_suffix),
    ];
    for (part, affix) in affixes {
        if let Some(affix) = affix.as_deref().filter(|affix| !affix.is_empty()) {
            return refuse(part, affix);
        }
    }
    Ok(())
}

/// The id of each token of the vocabulary, by its text in the file.
fn ids(model: &Model) -> Result<HashMap<&str, u32>, ImportFault> {
    let mut ids = HashMap::with_capacity(model.vocab.0.len());
    for (text, id) in &model.vocab.0 {
        if ids.insert(text.as_str(), *id).is_some() {
            return Err(ImportFault::TokenTwice { token: short(text) });
        }
    }
    Ok(ids)
}

/// Bytes of each token, by id, and what is known about added ones.
fn tokens(
    model: &Model,
    ids: &HashMap<&str, u32>,
    added: &[Added],
) -> Result<(Vec<Vec<u8>>, Vec<AddedToken>), ImportFault> {
    let alphabet = alphabet();
    let literal: HashMap<&str, &Added> =
        added.iter().map(|token| (token.content.as_str(), token)).collect();
    let fresh = literal.keys().filter(|text| !ids.contains_key(*text)).count();
    let mut slots: Vec<Option<&str>> = vec![None; model.vocab.0.len() + fresh];
    let mut tokens = vec![Vec::new(); slots.len()];
    let mut put = |text, id: u32, bytes: Vec<u8>| {
        let tokens_there = slots.len();
        let slot = slots.get_mut(id as usize);
        let hole = || ImportFault::IdHole { id, token: short(text), tokens: tokens_there };
        if let Some(first) = slot.ok_or_else(hole)?.replace(text) {
            return Err(ImportFault::IdTwice { id, first: short(first), second: short(text) });
        }
        tokens[id as usize] = bytes;
        Ok(())
    };
    for (text, id) in &model.vocab.0 {
        let bytes = match literal.contains_key(text.as_str()) {
            true => Some(text.clone().into_bytes()),
            false => text.chars().map(|character| alphabet.get(&character).copied()).collect(),
        };
        let bytes = bytes.ok_or_else(|| ImportFault::NotByteLevel { token: short(text) })?;
        put(text.as_str(), *id, bytes)?;
    }
    let mut known = Vec::with_capacity(added.len());
    for token in added {
        let text = token.content.as_str();
        match ids.get(text) {
            Some(&vocabulary) if vocabulary != token.id => {
                let (token, id) = (short(text), token.id);
                return Err(ImportFault::AddedElsewhere { token, id, vocabulary });
            }
            Some(_) => {}
            None => put(text, token.id, text.as_bytes().to_vec())?,
        }
        known.push(AddedToken {
            id: token.id,
            special: token.special,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
            normalized: token.normalized.unwrap_or(!token.special),
            // What the byte alphabet leaves as it is, merges may make too.
            merged: ids.contains_key(text) && text.bytes().all(|byte| byte.is_ascii_graphic()),
        });
    }
    Ok((tokens, known))
}

/// The merges as pairs of ids.
fn merges(model: &Model, ids: &HashMap<&str, u32>) -> Result<Vec<(u32, u32)>, ImportFault> {
    let merge = |(rank, merge): (usize, &Merge)| {
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Text(text) => {
                let pair = text.split_once(' ').filter(|(_, right)| !right.contains(' '));
                pair.ok_or_else(|| ImportFault::Merge { rank, text: short(text) })?
            }
        };
        let id = |token: &str| {
            let unknown = || ImportFault::MergeToken { rank, token: short(token) };
            ids.get(token).copied().ok_or_else(unknown)
        };
        Ok((id(left)?, id(right)?))
    };
    model.merges.iter().enumerate().map(merge).collect()
}

/// The byte of each character of byte-level tokenizers: printable bytes are themselves, the others
/// are the characters from U+0100 on, in order.
fn alphabet() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..=u8::MAX).filter(|byte| !printable(byte));
    let stands = others.zip('\u{100}'..).map(|(byte, character)| (character, byte));
    (0..=u8::MAX).filter(printable).map(|byte| (char::from(byte), byte)).chain(stands).collect()
}
