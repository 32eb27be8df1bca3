//! Every truncation and every flipped bit is found, each with one typed error.

use super::fixture::{self, file_of, load};
use crate::layout::{CHECK_AT, HEADER_BYTES, ROW_BYTES};

#[test]
fn every_truncation_is_found() {
    let file = file_of(&fixture::rnn());
    for length in 0..file.len() {
        let error = load(&file[..length]).unwrap_err();
        let expected = match length {
            0..4 => "it does not begin with the bytes of an .oam file".into(),
            4..HEADER_BYTES => format!("it ends after {length} bytes of {HEADER_BYTES}"),
            _ => format!("it ends after {length} bytes of {}", file.len()),
        };
        assert_eq!(error, expected);
    }
    let mut longer = file.clone();
    longer.push(0);
    let (declared, actual) = (file.len(), longer.len());
    let expected = format!("it goes on after its {declared} bytes, up to {actual}");
    assert_eq!(load(&longer).unwrap_err(), expected);
}

#[test]
fn every_flipped_bit_is_found() {
    let file = file_of(&fixture::transformer());
    let table = HEADER_BYTES + 3 * ROW_BYTES;
    let summary = load(&file).map(|_| ()).and(Ok::<_, String>(()));
    assert_eq!(summary, Ok(()));
    let mut flipped = file.clone();
    for at in 0..file.len() {
        let bits = if at < table { 0..8 } else { (at % 8) as u32..(at % 8) as u32 + 1 };
        for bit in bits {
            flipped[at] ^= 1 << bit;
            let error = load(&flipped).expect_err("a flipped bit");
            check(at, table, &error);
            flipped[at] ^= 1 << bit;
        }
    }
    assert_eq!(flipped, file);
}

/// The kind of error that a flip at a place has to give.
fn check(at: usize, table: usize, error: &str) {
    let expected: &[&str] = match at {
        0..4 => &["does not begin with"],
        4..8 => &["of the format, this release reads version 3"],
        8..12 => &["sections are more than", "header and section table changed", "it ends after"],
        12..16 => &["the reserved byte at"],
        16..24 => &["it ends after", "it goes on after"],
        24..CHECK_AT => &["header and section table changed"],
        _ if at < table => &["header and section table changed"],
        _ => &["changed after it was written", "the reserved byte at"],
    };
    assert!(expected.iter().any(|text| error.contains(text)), "byte {at}: {error}");
}

#[test]
fn random_rubbish_is_refused() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let file = file_of(&fixture::rnn());
    for round in 0..2000 {
        let mut rubbish: Vec<u8> = (0..1 + round % 300).map(|_| byte()).collect();
        assert!(load(&rubbish).is_err());
        let kept = (round % rubbish.len()).min(file.len());
        rubbish[..kept].copy_from_slice(&file[..kept]);
        assert!(load(&rubbish).is_err());
    }
}
