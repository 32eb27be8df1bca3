//! Added tokens: texts that are found before any merging, as an end of text is.

use super::{AddedToken, BpeTable, Normalizer};
use aho_corasick::{AhoCorasick, MatchKind};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Bytes between added tokens.
    Text(&'a [u8]),
    /// An added token.
    Token(u32),
}

/// Added tokens that are looked for together; the longest of those that start first wins.
#[derive(Debug)]
pub(super) struct Added {
    tokens: Vec<AddedToken>,
    search: Option<AhoCorasick>,
}

impl Added {
    /// The added tokens of a table that are looked for before (`false`) or after (`true`)
    /// normalisation.
    pub(super) fn new(table: &BpeTable, normalized: bool) -> Added {
        let parts = table.parts();
        let wanted = |token: &&AddedToken| token.normalized == normalized;
        let tokens: Vec<AddedToken> = parts.added.iter().filter(wanted).copied().collect();
        let texts = tokens.iter().map(|token| {
            let text = &parts.tokens[token.id as usize];
            match (normalized, parts.normalizer) {
                (true, Normalizer::Nfc) => composed(text),
                _ => text.clone(),
            }
        });
        let search = (!tokens.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(texts)
                .expect("the texts of a table are within the limits of a search")
        });
        Added { tokens, search }
    }

    /// Cuts a text at the added tokens in it; parts of text are never empty.
    pub(super) fn parts<'a>(&self, text: &'a [u8]) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut done = 0;
        for found in self.search.iter().flat_map(|search| search.find_iter(text)) {
            let token = self.tokens[found.pattern()];
            let (mut start, mut end) = (found.start(), found.end());
            if start < done || (token.single_word && !stands_alone(text, start, end)) {
                continue;
            }
            if token.lstrip {
                start -= trailing_white(&text[done..start]);
            }
            if token.rstrip {
                end += leading_white(&text[end..]);
            }
            if start > done {
                parts.push(Part::Text(&text[done..start]));
            }
            parts.push(Part::Token(token.id));
            done = end;
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }
}

fn composed(text: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(text).expect("added tokens of a table are UTF-8");
    text.nfc().collect::<String>().into_bytes()
}

/// Whether no character of a word touches a place.
fn stands_alone(text: &[u8], start: usize, end: usize) -> bool {
    let touches = |character: Option<char>| character.is_some_and(is_word);
    !touches(last(&text[..start])) && !touches(first(&text[end..]))
}

/// Whether a character is part of a word: a letter, a mark, a digit, a joiner or an underscore.
fn is_word(character: char) -> bool {
    let category = character.general_category();
    character.is_alphabetic()
        || character.general_category_group() == GeneralCategoryGroup::Mark
        || category == GeneralCategory::DecimalNumber
        || category == GeneralCategory::ConnectorPunctuation
        || matches!(character, '\u{200c}' | '\u{200d}')
}

/// Bytes of white space at the end of a text.
fn trailing_white(text: &[u8]) -> usize {
    let mut start = text.len();
    while let Some(character) = last(&text[..start]).filter(|character| character.is_whitespace()) {
        start -= character.len_utf8();
    }
    text.len() - start
}

/// Bytes of white space at the start of a text.
fn leading_white(text: &[u8]) -> usize {
    let mut end = 0;
    while let Some(character) = first(&text[end..]).filter(|character| character.is_whitespace()) {
        end += character.len_utf8();
    }
    end
}

/// The character that some bytes start with.
fn first(text: &[u8]) -> Option<char> {
    text[..text.len().min(4)].utf8_chunks().next()?.valid().chars().next()
}

/// The character that some bytes end with.
fn last(text: &[u8]) -> Option<char> {
    let ending = |bytes: usize| text.len().checked_sub(bytes).map(|start| &text[start..]);
    let whole = |bytes| std::str::from_utf8(ending(bytes)?).ok()?.chars().next();
    (1..=4).find_map(whole)
}
