//! Paths of one machine in files that everybody reads.
//!
//! Exists because such a path works for its author only, and tells of a place that is nobody else's
//! business.

use super::{File, Finding};
use std::path::Path;

/// Folders in which people keep their own things; written in two halves so that this file passes.
const PRIVATE: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Folders that hold other people's machines too.
const SHARED: [&str; 5] = ["/tmp/", "/var/tmp/", "/opt/", "/srv/", "/usr/"];

/// The folders that mean this machine: where the repository lies, and the user's own.
pub fn of_this_machine(root: &Path) -> Vec<String> {
    let home = std::env::var_os("HOME").map(Into::into);
    let folders = [Some(root.to_path_buf()), root.parent().map(Path::to_path_buf), home];
    let text = |folder: std::path::PathBuf| format!("{}/", folder.display());
    let mut needles: Vec<String> = folders.into_iter().flatten().map(text).collect();
    needles.retain(|needle| needle.len() > 2 && !SHARED.contains(&needle.as_str()));
    needles.extend(PRIVATE.map(str::to_string));
    needles.sort();
    needles.dedup();
    needles
}

/// No file holds a path below one of the folders.
pub fn check(files: &[File], needles: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(needle) = needles.iter().find(|needle| starts_a_path(line, needle)) {
                let message = format!("a path of one machine: `{needle}`");
                findings.push(Finding::new(&file.path, number + 1, message));
            }
        }
    }
    findings
}

/// True when the needle stands in the line and is not the middle of a longer path.
fn starts_a_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn a_path_of_a_machine_is_found_with_its_line() {
        let needles = ["/place/of/one/".to_string()];
        let found = said(check(&[file("docs/a.md", "x\nsee /place/of/one/b\n")], &needles));
        assert_eq!(found, ["docs/a.md:2: a path of one machine: `/place/of/one/`"]);
    }

    #[test]
    fn relative_paths_and_lock_files_pass() {
        let needles = ["/place/".to_string()];
        let text = "net/place/x and $ROOT/place/y and ./place/z\n";
        assert!(check(&[file("a.md", text)], &needles).is_empty());
        assert!(check(&[file("Cargo.lock", "/place/x\n")], &needles).is_empty());
    }

    #[test]
    fn shared_folders_are_no_machine() {
        let needles = of_this_machine(Path::new("/tmp/clone"));
        assert!(needles.contains(&"/tmp/clone/".to_string()));
        assert!(!needles.contains(&"/tmp/".to_string()));
    }
}
