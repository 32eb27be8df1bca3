//! Words that mean a line is not finished, or a test does not count.
//!
//! Exists because such a line outlives its author's memory of it.

use super::code;
use super::{File, Finding};

/// What is searched in code, without comments and literals, and why it is refused.
const IN_CODE: [(&str, &str); 5] = [
    ("todo!", "unfinished code"),
    ("unimplemented!", "unfinished code"),
    ("#[ignore", "a test that does not run is no test"),
    ("#[should_panic", "check the message of the error instead"),
    ("#[allow(", "use `expect` with a reason"),
];

/// What is searched in the whole text; written in two halves so that this file passes.
const IN_TEXT: [(&str, &str); 2] =
    [(concat!("FIX", "ME"), "mend it or file it"), (concat!("XX", "X "), "mend it or file it")];

/// No unfinished or disabled lines in sources.
pub fn check(file: &File) -> Vec<Finding> {
    if !(file.path.ends_with(".rs") || file.path.ends_with(".slang")) {
        return Vec::new();
    }
    let search = |text: &str, words: &[(&str, &str)]| -> Vec<Finding> {
        let mut findings = Vec::new();
        for (number, line) in text.lines().enumerate() {
            for (word, why) in words.iter().filter(|(word, _)| line.contains(word)) {
                findings.push(Finding::new(&file.path, number + 1, format!("`{word}`: {why}")));
            }
        }
        findings
    };
    let mut findings = search(&code::only(&file.text), &IN_CODE);
    findings.extend(search(&file.text, &IN_TEXT));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn each_word_is_found_in_code() {
        for (word, why) in IN_CODE {
            let text = format!("//! X.\n{word}\n");
            assert_eq!(said(check(&file("a.rs", &text))), [format!("a.rs:2: `{word}`: {why}")]);
        }
        for (word, _) in IN_TEXT {
            assert_eq!(check(&file("a.rs", &format!("// {word}\n"))).len(), 1);
        }
    }

    #[test]
    fn prose_and_strings_pass() {
        assert!(check(&file("a.rs", "//! No `todo!` here.\nlet x = \"#[ignore\";\n")).is_empty());
    }
}
