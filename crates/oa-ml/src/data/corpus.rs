//! The built-in corpus of the teaching contract.
//!
//! A demonstration and a test need a text that is always there. It is one lower-case passage,
//! repeated so that a batch never sees the same seam at the same place.

/// The passage: 192 letters and spaces.
const PASSAGE: &str = "my uncle built a kite from plum wood and grey silk so every gusty evening \
he would jog up a hill with it and watch the odd paper hawk fly far beyond both foxes and lazy \
cows in quiet blue fog ";

/// The built-in corpus: the passage three times, 576 bytes of lower-case letters and spaces.
pub fn contract_corpus() -> Vec<u8> {
    PASSAGE.repeat(3).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_what_the_contract_says() {
        assert_eq!(PASSAGE.len(), 192);
        assert_eq!(contract_corpus().len(), 576);
        assert!(PASSAGE.bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()));
        assert!(!PASSAGE.contains("  "), "no double spaces");
    }
}
