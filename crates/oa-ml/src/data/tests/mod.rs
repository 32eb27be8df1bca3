//! Texts that are read from files: found, packed, split, continued, prepared ahead. No device.

mod documents;
mod packed;
mod prefetch;

use super::{Documents, SourceConfig};
use crate::Result;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Folder {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("oa-ml-data-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file, and the folders above it; returns its path.
    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The documents of the folder, or of a file in it.
    pub(super) fn open(&self, name: &str, config: &SourceConfig) -> Result<Documents> {
        Documents::open(&self.0.join(name), config)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _litter = std::fs::remove_dir_all(&self.0);
    }
}
