//! Where a generated text ends: stop sequences in its bytes or in its tokens.
//!
//! A match may span tokens and end inside one. Of several matches the one that ends first counts,
//! and of those that end together the one that begins first.

use crate::data::dataset::check_tokens;
use crate::error::{Error, Result};

/// A sequence that ends a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// These bytes, wherever they lie in the tokens.
    Bytes(Vec<u8>),
    /// These tokens, one after the other.
    Tokens(Vec<u32>),
}

impl Stop {
    /// Refuses a stop that is empty or has a token that the vocabulary lacks.
    pub(super) fn check(&self, index: usize, vocab: usize) -> Result<()> {
        match self {
            Stop::Bytes(bytes) if bytes.is_empty() => Err(Error::EmptyStop { index }),
            Stop::Tokens(tokens) if tokens.is_empty() => Err(Error::EmptyStop { index }),
            Stop::Bytes(_) => Ok(()),
            Stop::Tokens(tokens) => check_tokens(tokens, vocab),
        }
    }
}

/// The text of one row on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct RowText {
    /// Generated tokens.
    pub(super) tokens: Vec<u32>,
    /// Bytes of the text after each of them.
    ends: Vec<usize>,
    /// Bytes of all of them.
    pub(super) text: Vec<u8>,
}

/// A stop that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Bytes of the text up to its end.
    end: usize,
    /// Bytes of the text before it.
    start: usize,
    /// Tokens before it, for a stop of tokens.
    tokens: Option<usize>,
    index: usize,
}

impl RowText {
    /// Takes a token with its bytes. A stop that is complete now ends the text: it is cut before
    /// the stop, or behind it with `keep`, and so are the tokens, to those that lie in what is left.
    /// Returns which stop it was.
    pub(super) fn push(
        &mut self,
        token: u32,
        bytes: &[u8],
        stops: &[Stop],
        keep: bool,
    ) -> Option<usize> {
        let before = self.text.len();
        self.text.extend_from_slice(bytes);
        self.tokens.push(token);
        self.ends.push(self.text.len());
        let found =
            stops.iter().enumerate().filter_map(|(index, stop)| self.find(stop, index, before));
        let first = found.min_by_key(|found| (found.end, found.start, found.index))?;
        let cut = if keep { first.end } else { first.start };
        let inside = self.ends.iter().take_while(|&&end| end <= cut).count();
        let tokens = first.tokens.filter(|_| !keep).unwrap_or(inside);
        self.text.truncate(cut);
        self.tokens.truncate(tokens);
        self.ends.truncate(tokens);
        Some(first.index)
    }

    /// The first match of a stop that ends behind the first `before` bytes, or with the last token.
    fn find(&self, stop: &Stop, index: usize, before: usize) -> Option<Found> {
        match stop {
            Stop::Bytes(bytes) => {
                let from = (before + 1).saturating_sub(bytes.len());
                let at = self.text[from..].windows(bytes.len()).position(|part| part == bytes)?;
                let start = from + at;
                Some(Found { end: start + bytes.len(), start, tokens: None, index })
            }
            Stop::Tokens(tokens) => {
                let first = self.tokens.len().checked_sub(tokens.len())?;
                let start = first.checked_sub(1).map_or(0, |last| self.ends[last]);
                let end = self.text.len();
                (self.tokens[first..] == *tokens).then_some(Found {
                    end,
                    start,
                    tokens: Some(first),
                    index,
                })
            }
        }
    }

    /// Bytes of the text that no later token can take away: all but what may turn out to be the
    /// beginning of a stop.
    pub(super) fn settled(&self, stops: &[Stop], keep: bool) -> usize {
        if keep {
            return self.text.len();
        }
        let settled = |stop: &Stop| match stop {
            Stop::Bytes(bytes) => {
                let held = (1..bytes.len()).rev().find(|&held| self.text.ends_with(&bytes[..held]));
                self.text.len() - held.unwrap_or(0)
            }
            Stop::Tokens(tokens) => {
                let held =
                    (1..tokens.len()).rev().find(|&held| self.tokens.ends_with(&tokens[..held]));
                match self.tokens.len() - held.unwrap_or(0) {
                    0 => 0,
                    whole => self.ends[whole - 1],
                }
            }
        };
        stops.iter().map(settled).min().unwrap_or(self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, its tokens and the stop after tokens of the given bytes, token i being byte piece
    /// i; what is settled after each token must be a part of what comes out.
    fn run(pieces: &[&str], stops: &[Stop], keep: bool) -> (String, Vec<u32>, Option<usize>) {
        let (mut row, mut settled) = (RowText::default(), Vec::new());
        let mut found = None;
        for (token, piece) in pieces.iter().enumerate() {
            found = row.push(token as u32, piece.as_bytes(), stops, keep);
            if found.is_some() {
                break;
            }
            settled.push(row.text[..row.settled(stops, keep)].to_vec());
        }
        assert!(settled.iter().all(|part| row.text.starts_with(part)), "{settled:?}");
        (String::from_utf8(row.text).unwrap(), row.tokens, found)
    }

    fn bytes(text: &str) -> Stop {
        Stop::Bytes(text.into())
    }

    #[test]
    fn a_stop_may_span_tokens_and_end_inside_one() {
        let pieces = ["to be", "\n", "\nor ", "not"];
        let stops = [bytes("\n\n")];
        assert_eq!(run(&pieces, &stops, false), ("to be".into(), vec![0], Some(0)));
        assert_eq!(run(&pieces, &stops, true), ("to be\n\n".into(), vec![0, 1], Some(0)));
        assert_eq!(run(&pieces, &[bytes("be\n\nor n")], false), ("to ".into(), vec![], Some(0)));
        assert_eq!(run(&pieces, &[bytes("t")], false), (String::new(), vec![], Some(0)));
        let all = "to be\n\nor not".to_owned();
        assert_eq!(run(&pieces, &[bytes("nota")], false), (all.clone(), vec![0, 1, 2, 3], None));
        assert_eq!(run(&pieces, &[], false), (all, vec![0, 1, 2, 3], None));
    }

    #[test]
    fn the_earliest_match_counts() {
        let stops = [bytes("d"), bytes("bc"), bytes("c"), bytes("abc")];
        assert_eq!(run(&["xab", "cd"], &stops, false), ("x".into(), vec![], Some(3)));
        assert_eq!(run(&["xab", "cd"], &stops[..3], false), ("xa".into(), vec![], Some(1)));
        assert_eq!(run(&["aab", "ab"], &[bytes("ab")], false), ("a".into(), vec![], Some(0)));
    }

    #[test]
    fn tokens_stop_too() {
        let pieces = ["a", "b", "", "c", "d"];
        let stop = [Stop::Tokens(vec![1, 2, 3])];
        assert_eq!(run(&pieces, &stop, false), ("a".into(), vec![0], Some(0)));
        assert_eq!(run(&pieces, &stop, true), ("abc".into(), vec![0, 1, 2, 3], Some(0)));
        let special = [Stop::Tokens(vec![2]), bytes("d")];
        assert_eq!(run(&pieces, &special, false), ("ab".into(), vec![0, 1], Some(0)));
        assert_eq!(run(&pieces, &[Stop::Tokens(vec![0])], false), (String::new(), vec![], Some(0)));
    }

    #[test]
    fn what_may_begin_a_stop_is_held_back() {
        let mut row = RowText::default();
        let stops = [bytes("aab"), Stop::Tokens(vec![7, 8])];
        let mut settled = |token, piece: &str| {
            row.push(token, piece.as_bytes(), &stops, false);
            row.settled(&stops, false)
        };
        assert_eq!(settled(1, "xa"), 1);
        assert_eq!(settled(1, "a"), 1);
        assert_eq!(settled(1, "a"), 2);
        assert_eq!(settled(1, "c"), 5);
        assert_eq!(settled(7, "yy"), 5);
        assert_eq!(settled(7, "zz"), 7);
        assert_eq!(settled(9, "q"), 10);
    }

    #[test]
    fn an_empty_stop_is_refused() {
        let message = Stop::Bytes(Vec::new()).check(2, 256).unwrap_err().to_string();
        assert_eq!(message, "stop sequence 2 is empty: it would end every text before it begins");
        assert!(Stop::Tokens(Vec::new()).check(0, 256).is_err());
        let unknown = Stop::Tokens(vec![3, 256]).check(0, 256).unwrap_err();
        assert!(matches!(unknown, Error::TokenOutOfRange { token: 256, position: 1, .. }));
    }
}
