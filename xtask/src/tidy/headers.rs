//! Every Rust file says what it is, every Slang file too.
//!
//! Exists because the first question of a reader is why a file exists. Checks that the words are
//! there, not that they are good.

use super::{File, Finding};

/// A `.rs` file starts with `//!`, a `.slang` file with a `//` comment.
pub fn check(file: &File) -> Vec<Finding> {
    let wanted = match file.path.rsplit_once('.') {
        Some((_, "rs")) => "//!",
        Some((_, "slang")) => "//",
        _ => return Vec::new(),
    };
    let first = file.text.lines().next().unwrap_or("");
    let said = first.strip_prefix(wanted).map(str::trim);
    if said.is_some_and(|text| !text.is_empty()) {
        return Vec::new();
    }
    let message = format!("line 1 is to say after `{wanted}` what this file is");
    vec![Finding::new(&file.path, 1, message)]
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        for text in ["", "use std::fs;\n", "// A plain comment.\n", "//!\n//! Late.\n"] {
            let found = said(check(&file("a/b.rs", text)));
            assert_eq!(found, ["a/b.rs:1: line 1 is to say after `//!` what this file is"]);
        }
        assert!(!check(&file("a.slang", "float f();\n")).is_empty());
    }

    #[test]
    fn headers_and_other_files_pass() {
        assert!(check(&file("a.rs", "//! What.\n")).is_empty());
        assert!(check(&file("a.slang", "// What.\n")).is_empty());
        assert!(check(&file("a.toml", "")).is_empty());
    }
}
