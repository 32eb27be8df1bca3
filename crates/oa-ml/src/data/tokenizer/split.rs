//! Pre-tokenizers: how a text is cut into pieces before anything merges.
//!
//! The published tokenizers cut with regular expressions that look ahead. They are written out here
//! as a scanner that reads each character a bounded number of times, so that a megabyte of spaces
//! costs what a megabyte of words costs. Only those expressions are known; a tokenizer file with
//! another one is refused by the crate that reads it.

use serde::{Deserialize, Serialize};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// How a text is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreTokenizer {
    /// It stays whole.
    #[default]
    Whole,
    /// As GPT-2: contractions in lower case, runs of letters, digits or other marks with one space
    /// before, white space.
    Gpt2,
    /// As Qwen2: contractions in any case, letters with one mark before, single digits, marks with
    /// the line ends after them, white space up to a line end.
    Qwen2,
    /// As Llama 3: like Qwen2, with up to three digits together.
    Llama3,
}

impl PreTokenizer {
    /// The pieces of a text, in order: together they are the text.
    pub fn pieces(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (piece, after) = rest.split_at(self.first(rest));
            rest = after;
            Some(piece)
        })
    }

    /// Bytes of the first piece of a text that is not empty.
    fn first(self, text: &str) -> usize {
        let found = match self {
            PreTokenizer::Whole => Some(text.len()),
            PreTokenizer::Gpt2 => contraction(text, false)
                .or_else(|| spaced(text, Class::Letter))
                .or_else(|| spaced(text, Class::Number))
                .or_else(|| spaced(text, Class::Mark)),
            PreTokenizer::Qwen2 | PreTokenizer::Llama3 => {
                let digits = if self == PreTokenizer::Qwen2 { 1 } else { 3 };
                contraction(text, true)
                    .or_else(|| word(text))
                    .or_else(|| number(text, digits))
                    .or_else(|| marks(text))
                    .or_else(|| line_end(text))
            }
        };
        found.unwrap_or_else(|| white(text))
    }
}

/// What the expressions tell apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    White,
    Letter,
    Number,
    Mark,
}

fn class(character: char) -> Class {
    if character.is_ascii_alphabetic() {
        return Class::Letter;
    }
    if character.is_whitespace() {
        return Class::White;
    }
    match character.general_category_group() {
        GeneralCategoryGroup::Letter => Class::Letter,
        GeneralCategoryGroup::Number => Class::Number,
        _ => Class::Mark,
    }
}

/// Bytes of the characters of a class at the start of a text.
fn run(text: &str, wanted: Class) -> usize {
    text.find(|character| class(character) != wanted).unwrap_or(text.len())
}

fn positive(bytes: usize) -> Option<usize> {
    (bytes > 0).then_some(bytes)
}

/// `'s|'t|'re|'ve|'m|'ll|'d`.
fn contraction(text: &str, any_case: bool) -> Option<usize> {
    let after = text.strip_prefix('\'')?;
    for ending in ["s", "t", "re", "ve", "m", "ll", "d"] {
        let bytes = if any_case { folded_prefix(after, ending) } else { prefix(after, ending) };
        if let Some(bytes) = bytes {
            return Some(1 + bytes);
        }
    }
    None
}

fn prefix(text: &str, ending: &str) -> Option<usize> {
    text.starts_with(ending).then_some(ending.len())
}

/// Bytes of a start of the text that is `ending` in any case. The long s folds to `s`.
fn folded_prefix(text: &str, ending: &str) -> Option<usize> {
    let mut characters = text.chars();
    let mut bytes = 0;
    for wanted in ending.chars() {
        let character = characters.next()?;
        let folded = if character == '\u{17f}' { 's' } else { character.to_ascii_lowercase() };
        if folded != wanted {
            return None;
        }
        bytes += character.len_utf8();
    }
    Some(bytes)
}

/// ` ?X+` for a class X.
fn spaced(text: &str, wanted: Class) -> Option<usize> {
    let space = usize::from(text.starts_with(' '));
    positive(run(&text[space..], wanted)).map(|bytes| space + bytes)
}

/// `[^\r\n\p{L}\p{N}]?\p{L}+`.
fn word(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    let before = match class(first) {
        Class::Letter => 0,
        Class::Number => return None,
        _ if first == '\r' || first == '\n' => return None,
        _ => first.len_utf8(),
    };
    positive(run(&text[before..], Class::Letter)).map(|bytes| before + bytes)
}

/// `\p{N}{1,most}`.
fn number(text: &str, most: usize) -> Option<usize> {
    let digits = text.chars().take(most).take_while(|&digit| class(digit) == Class::Number);
    positive(digits.map(char::len_utf8).sum())
}

/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`.
fn marks(text: &str) -> Option<usize> {
    let end = spaced(text, Class::Mark)?;
    let after = &text[end..];
    let line_ends = after.find(|c| c != '\r' && c != '\n').unwrap_or(after.len());
    Some(end + line_ends)
}

/// `\s*[\r\n]+`: white space up to its last line end.
fn line_end(text: &str) -> Option<usize> {
    text[..run(text, Class::White)].rfind(['\r', '\n']).map(|last| last + 1)
}

/// `\s+(?!\S)|\s+`: white space, the last character of it left to what follows.
fn white(text: &str) -> usize {
    let end = run(text, Class::White);
    debug_assert!(end > 0, "the expressions before take everything else");
    let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
    if end < text.len() && end > last { end - last } else { end }
}
