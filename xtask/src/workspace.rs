//! Where the repository lies and which files it holds.
//!
//! Exists so that every task works from any folder inside the repository. Reads file names from git
//! where there is a checkout, and walks the folders where there is none (an unpacked archive).

use crate::shell;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root folder of the repository.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = manifest.parent().expect("xtask lies one folder below the root");
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(now) => Path::new(&now).parent().unwrap_or(built).to_path_buf(),
        None => built.to_path_buf(),
    }
}

/// Cargo, started in the root folder.
pub fn cargo() -> Command {
    let mut command = shell::cargo();
    command.current_dir(root());
    command
}

/// One text file of the repository.
pub struct File {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// Contents.
    pub text: String,
}

/// Every text file that is tracked or would be (untracked and not ignored), sorted by path.
pub fn files(root: &Path) -> Result<Vec<File>> {
    let mut names = match listed(root) {
        Some(names) => names,
        None => {
            let mut names = Vec::new();
            walk(root, root, &mut names)?;
            names
        }
    };
    names.sort();
    names.dedup();
    let mut files = Vec::new();
    for path in names {
        let full = root.join(&path);
        if !full.is_file() {
            continue; // removed in the working tree
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path, text });
        }
    }
    Ok(files)
}

fn listed(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let text = shell::capture(&mut git).ok()?;
    Some(text.split('\0').filter(|name| !name.is_empty()).map(str::to_string).collect())
}

fn walk(root: &Path, folder: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if matches!(name.as_deref(), Some("target" | ".git" | ".cache")) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, names)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            names.push(relative.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_and_its_files_are_found() {
        let root = root();
        let files = files(&root).unwrap();
        assert!(files.iter().any(|file| file.path == "Cargo.toml"));
        assert!(files.iter().any(|file| file.path == "xtask/src/workspace.rs"));
        assert!(files.iter().all(|file| !file.path.starts_with("target/")));
    }

    #[test]
    fn a_folder_without_git_is_walked() {
        let mut names = Vec::new();
        walk(&root(), &root().join("xtask"), &mut names).unwrap();
        assert!(names.contains(&"xtask/src/main.rs".to_string()));
    }
}
