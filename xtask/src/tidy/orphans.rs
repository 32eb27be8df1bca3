//! Rust files that no module names.
//!
//! Exists because such a file is neither compiled nor tested, and reads as if it were.

use super::code;
use super::{File, Finding};
use std::collections::BTreeMap;

/// Every `.rs` file is the root of a target or named by a `mod` of the file above it.
pub fn check(files: &[File]) -> Vec<Finding> {
    let sources: BTreeMap<&str, &File> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .map(|file| (file.path.as_str(), file))
        .collect();
    let named = |path: &str| {
        parents(path).iter().any(|parent| {
            let module = module(path);
            sources.get(parent.as_str()).is_some_and(|file| {
                code::only(&file.text).lines().any(|line| names_module(line, module))
            })
        })
    };
    sources
        .keys()
        .filter(|path| !is_root(path) && !named(path))
        .map(|path| Finding::new(path, 0, "no `mod` names this file: it is not compiled"))
        .collect()
}

/// Roots of targets: `lib.rs`, `main.rs`, `build.rs`, and single files of the target folders.
fn is_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (file, folder) = (parts.next().unwrap_or(path), parts.next().unwrap_or(""));
    matches!(file, "lib.rs" | "main.rs" | "build.rs")
        || matches!(folder, "bin" | "examples" | "benches" | "tests" | "fuzz_targets")
}

fn module(path: &str) -> &str {
    let path = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    path.rsplit('/').next().unwrap_or(path)
}

/// Files that may declare the module of this file.
fn parents(path: &str) -> Vec<String> {
    let own = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let Some((folder, _)) = own.rsplit_once('/') else { return Vec::new() };
    let inside = ["mod.rs", "lib.rs", "main.rs"].map(|name| format!("{folder}/{name}"));
    inside.into_iter().chain([format!("{folder}.rs")]).collect()
}

fn names_module(line: &str, module: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.any(|word| word == "mod") && words.next() == Some(module)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn a_file_that_nobody_names_is_found() {
        let files = [
            file("a/src/lib.rs", "//! X.\nmod one;\n// mod two;\n"),
            file("a/src/one.rs", ""),
            file("a/src/two.rs", ""),
        ];
        let found = said(check(&files));
        assert_eq!(found, ["a/src/two.rs: no `mod` names this file: it is not compiled"]);
    }

    #[test]
    fn folders_of_modules_and_roots_pass() {
        let files = [
            file("a/src/main.rs", "//! X.\npub mod deep;\n"),
            file("a/src/deep/mod.rs", "//! X.\nmod one;\n"),
            file("a/src/deep/one.rs", "//! X.\n#[cfg(test)]\nmod tests;\n"),
            file("a/src/deep/one/tests.rs", ""),
            file("a/tests/whole.rs", ""),
            file("a/src/bin/tool.rs", ""),
        ];
        assert!(check(&files).is_empty());
    }
}
