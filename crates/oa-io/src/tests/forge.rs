//! Files whose checksums are right and whose claims are not: each gets its own clear error.

use super::fixture::{self, load};
use crate::checksum::Digest;
use crate::layout::{self, CHECK_AT, HEADER_BYTES, ROW_BYTES, SECTION_ALIGN};
use crate::manifest::{Attribute, List, Manifest, Value};

/// A file with a spoilt manifest and digests that fit it.
fn forge_manifest(spoil: impl FnOnce(&mut Manifest), expected: &str) {
    let file = fixture::file_of(&fixture::rnn());
    let at = SECTION_ALIGN as usize;
    let length = layout::u64_at(&file, HEADER_BYTES + 16) as usize;
    let mut manifest = Manifest::decode(&file[at..at + length]).unwrap();
    spoil(&mut manifest);
    forge_bytes(manifest.encode().unwrap(), expected);
}

/// A file with other manifest bytes and digests that fit them.
fn forge_bytes(manifest: Vec<u8>, expected: &str) {
    let file = fixture::file_of(&fixture::rnn());
    let row = |index: usize| HEADER_BYTES + index * ROW_BYTES;
    let mut forged = file[..SECTION_ALIGN as usize].to_vec();
    let digest = Digest::of(&manifest);
    forged[24..56].copy_from_slice(&digest.0);
    forged[row(0) + 32..row(1)].copy_from_slice(&digest.0);
    let length = (manifest.len() as u64).to_le_bytes();
    forged[row(0) + 16..row(0) + 24].copy_from_slice(&length);
    forged.extend(manifest);
    for index in 1..3 {
        let (at, length) =
            (layout::u64_at(&file, row(index) + 8), layout::u64_at(&file, row(index) + 16));
        forged.resize(forged.len().next_multiple_of(SECTION_ALIGN as usize), 0);
        let offset = (forged.len() as u64).to_le_bytes();
        forged[row(index) + 8..row(index) + 16].copy_from_slice(&offset);
        forged.extend_from_slice(&file[at as usize..(at + length) as usize]);
    }
    let length = (forged.len() as u64).to_le_bytes();
    forged[16..24].copy_from_slice(&length);
    reseal(&mut forged);
    assert_eq!(load(&forged).unwrap_err(), expected);
}

/// A file with a spoilt header or table and a check that fits it.
fn forge_table(spoil: impl FnOnce(&mut Vec<u8>), expected: &str) {
    let mut file = fixture::file_of(&fixture::rnn());
    spoil(&mut file);
    reseal(&mut file);
    assert_eq!(load(&file).unwrap_err(), expected);
}

fn reseal(file: &mut [u8]) {
    let sections = layout::u32_at(file, 8) as usize;
    let end = (HEADER_BYTES + sections * ROW_BYTES).min(file.len());
    let check = layout::check(&file[..end]);
    file[CHECK_AT..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
}

fn put(file: &mut [u8], at: usize, value: u64) {
    file[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn a_header_that_lies_is_refused() {
    forge_table(|file| file[0] = b'P', "it does not begin with the bytes of an .oam file");
    let version = "of the format, this release reads version 3";
    forge_table(|file| file[4] = 4, &format!("it is version 4 {version}"));
    forge_table(|file| file[4] = 2, &format!("it is version 2 {version}"));
    forge_table(
        |file| file[8..12].copy_from_slice(&u32::MAX.to_le_bytes()),
        "4294967295 sections are more than the 16 that the format allows",
    );
    forge_table(|file| file[8] = 1, "it goes on after its 6761 bytes, up to 13780");
    forge_table(|file| file[8] = 0, "it goes on after its 64 bytes, up to 13780");
    forge_table(|file| file[15] = 1, "the reserved byte at 15 is not zero");
    forge_table(|file| file[24..56].fill(0xAB), &{
        let table = Digest::of(&fixture::file_of(&fixture::rnn())[4096..6761]);
        format!("the header names manifest {}, the section table {table}", "ab".repeat(32))
    });
}

#[test]
fn a_section_table_that_lies_is_refused() {
    let row = |index: usize| HEADER_BYTES + index * ROW_BYTES;
    let place = |found: u64, expected: &str| {
        forge_table(|file| put(file, row(1) + 8, found), expected);
    };
    place(4096, "section 1 begins at 4096 instead of 8192");
    place(12_288, "section 1 begins at 12288 instead of 8192");
    place(u64::MAX, "section 1 begins at 18446744073709551615 instead of 8192");
    forge_table(
        |file| put(file, row(1) + 16, u64::MAX),
        "section 1 of 18446744073709551615 bytes at 8192 reaches over the 13780 bytes there are",
    );
    forge_table(
        |file| put(file, row(2) + 16, 1 << 40),
        "section 2 of 1099511627776 bytes at 12288 reaches over the 13780 bytes there are",
    );
    let kind = |code: u8, expected: &str| {
        forge_table(
            |file| file[row(1)] = code,
            &format!("{expected}, which is unknown here, out of order or there twice"),
        );
    };
    kind(3, "section 2 has kind 3");
    kind(1, "section 1 has kind 1");
    kind(99, "section 1 has kind 99");
    forge_table(|file| file[row(1) + 4] = 1, "the reserved byte at 132 is not zero");
    forge_table(|file| file[row(2) + 31] = 1, "the reserved byte at 223 is not zero");
}

#[test]
fn tensors_that_lie_are_refused() {
    let first = |m: &Manifest| m.weights.0[0].name.clone();
    forge_manifest(|m| m.weights.0[1].name = first(m), "`embedding` is there twice");
    forge_manifest(
        |m| m.weights.0[0].shape.0 = vec![u64::MAX, 2],
        "the dimensions [18446744073709551615, 2] of tensor `embedding` are too many or too large",
    );
    forge_manifest(
        |m| m.weights.0[0].shape.0 = vec![1 << 61],
        "the dimensions [2305843009213693952] of tensor `embedding` are too many or too large",
    );
    forge_manifest(
        |m| m.weights.0[0].offset = 64,
        "tensor `embedding` begins at 64 of its section instead of 0",
    );
    forge_manifest(
        |m| m.weights.0[1].offset = 0,
        "tensor `rnn.l0.w_ih` begins at 0 of its section instead of 128",
    );
    forge_manifest(
        |m| drop(m.weights.0.pop()),
        "the tensors of the weights take 696 bytes of a section of 724",
    );
    forge_manifest(
        |m| m.weights.0[0].encoding = 2,
        "tensor `embedding` is stored as f16, which this release does not read",
    );
    forge_manifest(
        |m| drop(m.slots.0.pop()),
        "the tensors of the optimizer state take 724 bytes of a section of 1492",
    );
}

#[test]
fn fields_that_lie_are_refused() {
    forge_manifest(
        |m| m.architecture = "lstm".into(),
        "`lstm` is no architecture that this release knows",
    );
    let slots = "is no list of optimizer slots that this release knows";
    forge_manifest(|m| m.slots.0[1].name = "w".into(), &format!("`m w` {slots}"));
    forge_manifest(|m| m.training.0.clear(), &format!("`m v` {slots}"));
    forge_manifest(|m| drop(m.model.0.remove(0)), "the field `vocab` is missing");
    forge_manifest(
        |m| m.model.0.push(Attribute { key: "bias".into(), value: Value::Bool(true) }),
        "the field `bias` is unknown to this release",
    );
    forge_manifest(
        |m| m.model.0[0].value = Value::F32(1.0),
        "the field `vocab` does not hold a count that this machine can address",
    );
    forge_manifest(
        |m| m.tokenizer.0[0].value = Value::Text("words".into()),
        "`words` is no tokenizer that this release knows",
    );
    forge_manifest(
        |m| m.tokenizer.0[0].value = Value::Text("char".into()),
        "the field `alphabet` is missing",
    );
    let alphabet = |text: &str| {
        let key =
            |key: &str, text: &str| Attribute { key: key.into(), value: Value::Text(text.into()) };
        List(vec![key("kind", "char"), key("alphabet", text)])
    };
    forge_manifest(
        |m| m.tokenizer = alphabet("aba"),
        "its tokenizer is none: the character 'a' is in the alphabet twice",
    );
    forge_manifest(
        |m| m.tokenizer = alphabet(""),
        "its tokenizer is none: the alphabet has no character",
    );
    let counts = |tokens: u64| {
        let key = |key: &str, value| Attribute { key: key.into(), value };
        List(vec![
            key("kind", Value::Text("bpe".into())),
            key("tokens", Value::Count(tokens)),
            key("merges", Value::Count(0)),
            key("added", Value::Count(0)),
            key("normalizer", Value::Text("none".into())),
            key("pre_tokenizer", Value::Text("whole".into())),
            key("ignore_merges", Value::Bool(false)),
        ])
    };
    forge_manifest(|m| m.tokenizer = counts(256), "it has no tables of a tokenizer");
}

#[test]
fn manifests_that_are_none_are_refused() {
    let mut trailing = Manifest::default().encode().unwrap();
    trailing.push(0);
    forge_bytes(trailing, "1 bytes are left after its manifest");
    let mut giant = Manifest::default().encode().unwrap();
    giant[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    forge_bytes(giant, "its manifest does not decode: a length is above its cap");
    forge_bytes(Vec::new(), "its manifest does not decode: it ends too early");
    forge_bytes(vec![0xFF; 8], "its manifest does not decode: a length is above its cap");
    let text = Manifest { architecture: "rnn".into(), ..Manifest::default() };
    let mut text = text.encode().unwrap();
    text[8] = 0xFF;
    forge_bytes(text, "its manifest does not decode: a text is not UTF-8");
}
