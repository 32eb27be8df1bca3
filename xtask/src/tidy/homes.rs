//! Where unsafe code may live.
//!
//! Exists so that a reader who audits memory safety has two places to read. The compiler's lint
//! denies it everywhere; this makes sure that no file opens the lint again outside the homes.

use super::code;
use super::{File, Finding};

/// The folder and the file that may hold unsafe code.
const HOMES: [&str; 2] = ["crates/oa-vk/src/raw/", "crates/oa-kernels/src/trusted.rs"];
/// Crates whose root forbids it for good.
const FORBIDDEN: [&str; 3] = ["crates/oa-graph", "crates/oa-ml", "crates/oa-io"];

/// No unsafe code, and no opening of the lint, outside the homes.
pub fn check(file: &File) -> Vec<Finding> {
    if !file.path.ends_with(".rs") || HOMES.iter().any(|home| file.path.starts_with(home)) {
        return Vec::new();
    }
    let code = code::only(&file.text);
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        if code::has_word(line, "unsafe") {
            findings.push(Finding::new(&file.path, number + 1, "unsafe code outside its homes"));
        }
        let opens = ["allow(", "expect(", "warn("].iter().any(|level| line.contains(level));
        if opens && code::has_word(line, "unsafe_code") {
            findings.push(Finding::new(
                &file.path,
                number + 1,
                "opens `unsafe_code` outside its homes",
            ));
        }
    }
    findings
}

/// The roots of the crates above the runtime forbid unsafe code.
pub fn check_crates(files: &[File]) -> Vec<Finding> {
    let missing = |folder: &&&str| {
        let root = format!("{folder}/src/lib.rs");
        let text = files.iter().find(|file| file.path == root).map_or("", |file| &file.text);
        !code::only(text).contains("#![forbid(unsafe_code)]")
    };
    let finding = |folder: &&str| {
        Finding::new(&format!("{folder}/src/lib.rs"), 0, "lacks `#![forbid(unsafe_code)]`")
    };
    FORBIDDEN.iter().filter(missing).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn unsafe_code_is_found_outside_its_homes_only() {
        let text = "//! X.\nfn f() {\n    unsafe { g() }\n}\n";
        let found = said(check(&file("crates/oa-vk/src/gpu.rs", text)));
        assert_eq!(found, ["crates/oa-vk/src/gpu.rs:3: unsafe code outside its homes"]);
        assert!(check(&file("crates/oa-vk/src/raw/device.rs", text)).is_empty());
        assert!(check(&file("crates/oa-kernels/src/trusted.rs", text)).is_empty());
    }

    #[test]
    fn prose_and_the_lints_own_name_are_no_unsafe_code() {
        let text = "//! unsafe\n#![forbid(unsafe_code)]\nconst X: &str = \"unsafe\"; // unsafe\n";
        assert!(check(&file("a.rs", text)).is_empty());
    }

    #[test]
    fn opening_the_lint_elsewhere_is_found() {
        let text = "//! X.\n#![expect(unsafe_code, reason = \"fast\")]\n";
        assert_eq!(
            said(check(&file("a.rs", text))),
            ["a.rs:2: opens `unsafe_code` outside its homes"]
        );
    }

    #[test]
    fn a_crate_that_does_not_forbid_it_is_found() {
        let root = |name: &str, text: &str| file(&format!("crates/{name}/src/lib.rs"), text);
        let forbids = "//! X.\n#![forbid(unsafe_code)]\n";
        let files = [root("oa-graph", forbids), root("oa-ml", "//! X.\n"), root("oa-io", forbids)];
        let found = said(check_crates(&files));
        assert_eq!(found, ["crates/oa-ml/src/lib.rs: lacks `#![forbid(unsafe_code)]`"]);
    }
}
