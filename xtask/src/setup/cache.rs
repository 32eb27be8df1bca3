//! The folder that keeps what set-up unpacked, so that each thing is fetched once per machine.
//!
//! Exists so that a fresh clone on a prepared machine starts at once. An entry appears whole or not
//! at all: it is built in a folder of its own and renamed into place.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The cache folder: `OA_CACHE_DIR`, else `oa` in the user's cache folder, else one below `target`.
pub fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("OA_CACHE_DIR") {
        return absolute(PathBuf::from(folder));
    }
    if let Some(folder) = set("XDG_CACHE_HOME") {
        return absolute(Path::new(&folder).join("oa"));
    }
    match set("HOME") {
        Some(home) => absolute(Path::new(&home).join(".cache").join("oa")),
        None => crate::workspace::root().join("target").join("cache"),
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The folder of an entry: `fill` builds it in an empty folder the first time. Names of entries carry
/// a version; a changed recipe takes a new name.
pub fn entry(
    cache: &Path,
    name: &str,
    fill: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let place = cache.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    let work = cache.join(format!("{name}.{}.part", std::process::id()));
    let (scratch, built) = (work.join("scratch"), work.join("built"));
    let fresh = || -> Result<()> {
        std::fs::create_dir_all(&scratch)?;
        std::fs::create_dir_all(&built)?;
        Ok(())
    };
    fresh().with_context(|| format!("the cache folder {} cannot be written", cache.display()))?;
    let filled = fill(&scratch, &built);
    let placed = filled.and_then(|()| match std::fs::rename(&built, &place) {
        Err(_) if place.is_dir() => Ok(()), // another process was faster
        other => other.with_context(|| format!("cannot place {}", place.display())),
    });
    let removed = std::fs::remove_dir_all(&work);
    placed?;
    removed.with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(place)
}

/// The first file called `name` below `folder`, in sorted order.
pub fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if path.is_dir() && !path.is_symlink() {
            return find(&path, name);
        }
        (path.file_name().is_some_and(|file| file == name)).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let place =
                std::env::temp_dir().join(format!("xtask-cache-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&place).unwrap();
            Scratch(place)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_entry_is_built_once_and_found_again() {
        let cache = Scratch::new("once");
        let build = |_: &Path, built: &Path| Ok(std::fs::write(built.join("a"), "x")?);
        let place = entry(&cache.0, "thing-1", build).unwrap();
        assert_eq!(std::fs::read_to_string(place.join("a")).unwrap(), "x");
        let again = entry(&cache.0, "thing-1", |_, _| anyhow::bail!("built twice")).unwrap();
        assert_eq!(again, place);
        assert_eq!(std::fs::read_dir(&cache.0).unwrap().count(), 1, "no part is left behind");
    }

    #[test]
    fn a_failed_entry_leaves_nothing() {
        let cache = Scratch::new("failed");
        let error = entry(&cache.0, "thing-1", |_, built| {
            std::fs::write(built.join("half"), "x")?;
            anyhow::bail!("no such package")
        });
        assert_eq!(error.unwrap_err().to_string(), "no such package");
        assert_eq!(std::fs::read_dir(&cache.0).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_found_at_any_depth() {
        let cache = Scratch::new("find");
        std::fs::create_dir_all(cache.0.join("usr/lib/x")).unwrap();
        std::fs::write(cache.0.join("usr/lib/x/libthing.so"), "").unwrap();
        let found = find(&cache.0, "libthing.so").unwrap();
        assert!(found.ends_with("usr/lib/x/libthing.so"));
        assert_eq!(find(&cache.0, "libother.so"), None);
    }
}
