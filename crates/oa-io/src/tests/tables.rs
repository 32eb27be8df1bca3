//! The section of a tokenizer: large vocabularies fit, lies are refused, damage is found.

use super::fixture::{self, file_of, load};
use crate::checksum::Digest;
use crate::layout::{self, CHECK_AT, HEADER_BYTES, ROW_BYTES};
use oa_ml::data::tokenizer::{BpeParts, BpeTable, TokenizerConfig};
use std::sync::Arc;

/// Row of the tokenizer's section in the table of a file without a run.
const ROW: usize = HEADER_BYTES + 2 * ROW_BYTES;

/// Spoils the tokenizer's section of a file and makes every digest fit again.
fn forge(spoil: impl FnOnce(&mut Vec<u8>), expected: &str) {
    let mut file = file_of(&fixture::bpe());
    let at = layout::u64_at(&file, ROW + 8) as usize;
    let mut section = file.split_off(at);
    spoil(&mut section);
    file[ROW + 16..ROW + 24].copy_from_slice(&(section.len() as u64).to_le_bytes());
    file[ROW + 32..ROW + 64].copy_from_slice(&Digest::of(&section).0);
    file.extend(section);
    let length = file.len() as u64;
    file[16..24].copy_from_slice(&length.to_le_bytes());
    let check = layout::check(&file[..ROW + ROW_BYTES]);
    file[CHECK_AT..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    assert_eq!(load(&file).unwrap_err(), expected);
}

fn put(section: &mut [u8], word: usize, value: u32) {
    section[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn tables_that_lie_are_refused() {
    let TokenizerConfig::Bpe(table) = fixture::bpe().tokenizer else { panic!("a table") };
    let tokens = table.tokens().len();
    let merges = table.parts().merges.len();
    let bytes: usize = table.tokens().iter().map(Vec::len).sum();
    let whole = 4 * tokens + 8 * merges + 8 + bytes;
    let length = |expected: usize, found: usize| {
        format!("the tables of the tokenizer take {expected} bytes of a section of {found}")
    };
    forge(|section| section.push(0), &length(whole, whole + 1));
    forge(|section| section.truncate(whole - 1), &length(whole, whole - 1));
    let fixed = 4 * tokens + 8 * merges + 8;
    forge(|section| section.truncate(8), &length(fixed, 8));
    forge(|section| section.clear(), &length(fixed, 0));
    let giant = whole - 1 + u32::MAX as usize;
    forge(|section| put(section, 0, u32::MAX), &length(giant, whole));
    forge(|section| put(section, 0, 2), &length(whole + 1, whole));
    forge(
        |section| {
            put(section, 0, 0);
            put(section, 1, 2);
        },
        "its tokenizer is none: token 0 is empty",
    );
    forge(
        |section| put(section, tokens, 7_000),
        "its tokenizer is none: merge 0 names token 7000, which the vocabulary does not have",
    );
    let added = tokens + 2 * merges;
    forge(
        |section| put(section, added, 7_000),
        &format!(
            "its tokenizer is none: added token 7000 is there twice or not below the {tokens} \
             tokens there are"
        ),
    );
    let last = tokens - 1;
    forge(
        |section| put(section, added + 1, 64),
        &format!("the added token {last} has the flags 0x40, of which some are unknown"),
    );
    forge(|section| section[fixed] = 1, "its tokenizer is none: tokens 0 and 1 are the same");
}

#[test]
fn a_section_belongs_to_a_table_and_a_table_to_a_section() {
    let file = file_of(&fixture::bpe());
    for at in layout::u64_at(&file, ROW + 8) as usize..file.len() {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        let error = load(&flipped).unwrap_err();
        let expected =
            "the tables of a tokenizer changed after it was written: its checksum does not match";
        assert_eq!(error, expected);
    }
}

#[test]
fn a_vocabulary_of_a_large_model_fits() {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut merges = Vec::new();
    // Every pair of bytes, then triples until there are 150,000 tokens and two ways to many.
    for left in 0..256u32 {
        for right in 0..256u32 {
            merges.push((left, right));
            tokens.push(vec![left as u8, right as u8]);
        }
    }
    let pair = |left: u32, right: u32| 256 + 256 * left + right;
    for index in 0..150_000 - tokens.len() as u32 {
        let (a, b, c) = (index >> 16, index >> 8 & 255, index & 255);
        merges.push((pair(a, b), c));
        merges.push((a, pair(b, c)));
        tokens.push(vec![a as u8, b as u8, c as u8]);
    }
    assert!(tokens.len() == 150_000 && merges.len() > 230_000);
    let table = BpeTable::new(BpeParts { tokens, merges, ..BpeParts::default() }).unwrap();
    let tokenizer = TokenizerConfig::Bpe(Arc::new(table));
    let checkpoint = oa_ml::Checkpoint { tokenizer, ..fixture::bare() };
    let file = file_of(&checkpoint);
    assert!(file.len() < 8 << 20, "{}", file.len());
    assert_eq!(load(&file).unwrap().tokenizer, checkpoint.tokenizer);
}
