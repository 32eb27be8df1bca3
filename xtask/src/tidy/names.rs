//! Names that say nothing.
//!
//! Exists because a file called by one of these collects whatever has no home. A refused name asks
//! for the noun the file is about.

use super::code;
use super::{File, Finding};

const BANNED: [&str; 6] = ["utils", "common", "helpers", "base", "types", "misc"];

/// No source file, folder or module carries a banned name.
pub fn check(file: &File) -> Vec<Finding> {
    if !(file.path.ends_with(".rs") || file.path.ends_with(".slang")) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for part in file.path.split('/') {
        let stem = part.split('.').next().unwrap_or(part);
        if BANNED.contains(&stem) {
            findings.push(Finding::new(&file.path, 0, format!("`{stem}` names no subject")));
        }
    }
    for (number, line) in code::only(&file.text).lines().enumerate() {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let module = words.by_ref().any(|word| word == "mod" || word == "module");
        if let Some(name) = words.next().filter(|name| module && BANNED.contains(name)) {
            findings.push(Finding::new(
                &file.path,
                number + 1,
                format!("`{name}` names no subject"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn banned_files_folders_and_modules_are_found() {
        let found = said(check(&file("crates/a/src/utils.rs", "//! X.\n")));
        assert_eq!(found, ["crates/a/src/utils.rs: `utils` names no subject"]);
        assert_eq!(check(&file("shaders/common/a.slang", "// X.\n")).len(), 1);
        let found = said(check(&file("a.rs", "//! X.\npub mod helpers {\n}\n")));
        assert_eq!(found, ["a.rs:2: `helpers` names no subject"]);
    }

    #[test]
    fn names_that_only_contain_one_pass() {
        assert!(check(&file("crates/a/src/database.rs", "//! X.\nmod base64 {}\n")).is_empty());
        assert!(check(&file("docs/misc.md", "")).is_empty());
    }
}
