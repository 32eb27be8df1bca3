//! Where the parts of the kernel set lie below the root of the repository.
//!
//! One place says it, so that a test can point the same code at a copy.

use std::path::{Path, PathBuf};

/// A checkout (or a copy of its kernel parts) that holds shaders, blobs and registry.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into() }
    }

    /// Root of the repository.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of the Slang sources.
    pub fn shaders(&self) -> PathBuf {
        self.root.join("shaders")
    }

    /// The kernel table, `shaders/kernels.toml`.
    pub fn table(&self) -> PathBuf {
        self.root.join("shaders/kernels.toml")
    }

    /// The lock, `shaders/kernels.lock`.
    pub fn lock(&self) -> PathBuf {
        self.root.join("shaders/kernels.lock")
    }

    /// Folder of the committed blobs.
    pub fn spv(&self) -> PathBuf {
        self.root.join("crates/oa-kernels/spv")
    }

    /// Folder of the generated registry.
    pub fn generated(&self) -> PathBuf {
        self.root.join("crates/oa-kernels/src/generated")
    }

    /// Path of the blob of kernel `name`.
    pub fn blob(&self, name: &str) -> PathBuf {
        self.spv().join(format!("{name}.spv"))
    }
}

/// All files below `dir` whose name ends in `suffix`, as sorted `/`-separated relative paths.
///
/// A folder that does not exist is empty. Names that are no UTF-8 are given lossily, so that they
/// are reported as orphans instead of being overlooked.
pub fn files_below(dir: &Path, suffix: &str) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![(dir.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = open.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), format!("{name}/")));
            } else if name.ends_with(suffix) {
                found.push(name);
            }
        }
    }
    found.sort();
    Ok(found)
}
