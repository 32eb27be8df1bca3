//! Tokenizers as attributes and, where they have tables, as a section of their own.
//!
//! A vocabulary of a large model has 150,000 tokens and 300,000 merges: too much for a list of
//! attributes, so the attributes say how many there are and the section holds them. What the
//! section claims is held against its length first and against the rules of a table then.

use crate::error::{Fault, Part};
use crate::fields::Fields;
use crate::{index, limits};
use oa_ml::data::tokenizer::{
    AddedToken, Alphabet, BpeParts, BpeTable, Normalizer, PreTokenizer, TokenizerConfig,
};
use std::sync::Arc;

/// What the attributes say about a tokenizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sketch {
    kind: Kind,
    /// Characters of an alphabet.
    alphabet: String,
    tokens: u64,
    merges: u64,
    added: u64,
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    ignore_merges: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Byte,
    Char,
    Bpe,
}

impl Sketch {
    /// What the attributes of a tokenizer say.
    pub(crate) fn of(tokenizer: &TokenizerConfig) -> Sketch {
        match tokenizer {
            TokenizerConfig::Byte => Sketch::default(),
            TokenizerConfig::Char(alphabet) => {
                let alphabet = alphabet.characters().iter().collect();
                Sketch { kind: Kind::Char, alphabet, ..Sketch::default() }
            }
            TokenizerConfig::Bpe(table) => {
                let parts = table.parts();
                Sketch {
                    kind: Kind::Bpe,
                    alphabet: String::new(),
                    tokens: parts.tokens.len() as u64,
                    merges: parts.merges.len() as u64,
                    added: parts.added.len() as u64,
                    normalizer: parts.normalizer,
                    pre_tokenizer: parts.pre_tokenizer,
                    ignore_merges: parts.ignore_merges,
                }
            }
        }
    }

    /// Visits the attributes.
    pub(crate) fn fields(&mut self, io: &mut impl Fields) -> Result<(), Fault> {
        let kinds = [("byte", Kind::Byte), ("char", Kind::Char), ("bpe", Kind::Bpe)];
        io.choice("kind", "tokenizer", &mut self.kind, &kinds)?;
        match self.kind {
            Kind::Byte => Ok(()),
            Kind::Char => io.field("alphabet", &mut self.alphabet),
            Kind::Bpe => self.table_fields(io),
        }
    }

    fn table_fields(&mut self, io: &mut impl Fields) -> Result<(), Fault> {
        io.field("tokens", &mut self.tokens)?;
        io.field("merges", &mut self.merges)?;
        io.field("added", &mut self.added)?;
        let normalizers = [("none", Normalizer::None), ("nfc", Normalizer::Nfc)];
        io.choice("normalizer", "normalizer", &mut self.normalizer, &normalizers)?;
        let cuts = [
            ("whole", PreTokenizer::Whole),
            ("gpt2", PreTokenizer::Gpt2),
            ("qwen2", PreTokenizer::Qwen2),
            ("llama3", PreTokenizer::Llama3),
        ];
        io.choice("pre_tokenizer", "pre-tokenizer", &mut self.pre_tokenizer, &cuts)?;
        io.field("ignore_merges", &mut self.ignore_merges)
    }

    /// The tokenizer, with the bytes of its section where the file has one.
    pub(crate) fn tokenizer(self, section: Option<&[u8]>) -> Result<TokenizerConfig, Fault> {
        match (self.kind, section) {
            (Kind::Bpe, Some(bytes)) => self.table(bytes),
            (Kind::Bpe, None) => Err(Fault::Missing { part: Part::Tokenizer }),
            (_, Some(_)) => Err(Fault::Unused { part: Part::Tokenizer }),
            (Kind::Byte, None) => Ok(TokenizerConfig::Byte),
            (Kind::Char, None) => Ok(TokenizerConfig::Char(Alphabet::new(&self.alphabet)?)),
        }
    }

    fn table(self, section: &[u8]) -> Result<TokenizerConfig, Fault> {
        index::within("tokens", self.tokens, limits::TOKENS)?;
        index::within("merges", self.merges, limits::MERGES)?;
        index::within("added tokens", self.added, limits::TOKENS)?;
        let found = section.len() as u64;
        let expected = 4 * (self.tokens + 2 * self.merges + 2 * self.added);
        if expected > found {
            return Err(Fault::TokenizerLength { found, expected });
        }
        let (fixed, mut texts) = section.split_at(expected as usize);
        let mut words = fixed.chunks_exact(4);
        let mut word = || {
            let word = words.next().expect("the section was split at a multiple of four");
            u32::from_le_bytes(word.try_into().expect("chunks of four bytes"))
        };
        let lengths: Vec<usize> = (0..self.tokens).map(|_| word() as usize).collect();
        let merges = (0..self.merges).map(|_| (word(), word())).collect();
        let added = (0..self.added).map(|_| added_token(word(), word()));
        let added = added.collect::<Result<_, Fault>>()?;
        let total = lengths.iter().map(|&length| length as u64).sum::<u64>();
        if total != texts.len() as u64 {
            let expected = fixed.len() as u64 + total;
            return Err(Fault::TokenizerLength { found, expected });
        }
        let mut token = |length: usize| {
            let (token, rest) = texts.split_at(length);
            texts = rest;
            token.to_vec()
        };
        let tokens = lengths.into_iter().map(&mut token).collect();
        let Sketch { normalizer, pre_tokenizer, ignore_merges, .. } = self;
        let parts = BpeParts { tokens, merges, added, normalizer, pre_tokenizer, ignore_merges };
        Ok(TokenizerConfig::Bpe(Arc::new(BpeTable::new(parts)?)))
    }
}

/// The bytes of a tokenizer's section; `None` for those that need none.
pub(crate) fn section(tokenizer: &TokenizerConfig) -> Option<Vec<u8>> {
    let TokenizerConfig::Bpe(table) = tokenizer else { return None };
    let BpeParts { tokens, merges, added, normalizer: _, pre_tokenizer: _, ignore_merges: _ } =
        table.parts();
    let mut bytes = Vec::new();
    bytes.extend(tokens.iter().flat_map(|token| (token.len() as u32).to_le_bytes()));
    let pairs = merges.iter().copied().chain(added.iter().map(|token| (token.id, flags(token))));
    bytes.extend(pairs.flat_map(|(one, other)| [one, other]).flat_map(u32::to_le_bytes));
    tokens.iter().for_each(|token| bytes.extend_from_slice(token));
    Some(bytes)
}

/// The flags of an added token, by bit.
fn flags(token: &AddedToken) -> u32 {
    let AddedToken { id: _, special, lstrip, rstrip, single_word, normalized, merged } = *token;
    let bits = [special, lstrip, rstrip, single_word, normalized, merged];
    (0..).zip(bits).map(|(at, bit)| u32::from(bit) << at).sum()
}

fn added_token(id: u32, flags: u32) -> Result<AddedToken, Fault> {
    if flags >= 1 << 6 {
        return Err(Fault::TokenFlags { id, flags });
    }
    let bit = |at: u32| flags & (1 << at) != 0;
    Ok(AddedToken {
        id,
        special: bit(0),
        lstrip: bit(1),
        rstrip: bit(2),
        single_word: bit(3),
        normalized: bit(4),
        merged: bit(5),
    })
}
