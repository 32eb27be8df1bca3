//! The pipeline cache on disk.
//!
//! Drivers do not survive cache data that was damaged or is another driver's, so the file has our
//! own header with the device, the driver and a checksum. A file that does not match is deleted and
//! said so, never handed to a driver; writing is atomic; a folder that cannot be used is no error.

use crate::choose::DeviceInfo;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io};

const MAGIC: [u8; 8] = *b"OAPIPES1";
const HEADER_BYTES: usize = 8 + 16 + 4 + 4 + 4 + 4 + 8 + 32;
/// A larger file is taken as damaged.
const MOST_BYTES: u64 = 256 << 20;

/// Why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadCache {
    #[error("it is not a pipeline cache of this version")]
    Magic,
    #[error("its length is not what its header says")]
    Length,
    #[error("it is of another device or driver")]
    Device,
    #[error("its checksum does not match")]
    Checksum,
}

/// The file of one device and driver.
pub(super) struct DiskCache {
    folder: Option<PathBuf>,
    key: [u8; 32],
    name: String,
}

impl DiskCache {
    /// The file for a device, in the requested folder or the user's.
    pub(super) fn new(info: &DeviceInfo, requested: Option<&Path>) -> DiskCache {
        let lookup = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let folder = requested.map(PathBuf::from).or_else(|| {
            let own = lookup("OA_CACHE_DIR").map(PathBuf::from);
            let shared = || lookup("XDG_CACHE_HOME").map(|home| PathBuf::from(home).join("oa"));
            let home = || lookup("HOME").map(|home| PathBuf::from(home).join(".cache/oa"));
            let windows = || lookup("LOCALAPPDATA").map(|home| PathBuf::from(home).join("oa"));
            own.or_else(shared).or_else(home).or_else(windows)
        });
        let mut key = [0; 32];
        key[..16].copy_from_slice(&info.uuid);
        // A software driver has one UUID for all of its vector widths; only the name tells them
        // apart, and code of one width is wrong on another.
        let words = blake3::hash(format!("{}\0{}", info.driver_info, info.name).as_bytes());
        let words = u32::from_le_bytes(words.as_bytes()[..4].try_into().expect("four bytes"));
        let numbers = [info.driver_version, info.vendor_id, info.device_id, words];
        for (target, number) in key[16..].chunks_exact_mut(4).zip(numbers) {
            target.copy_from_slice(&number.to_le_bytes());
        }
        let (uuid, version) = (info.uuid_text(), info.driver_version);
        let name = format!("pipelines-{uuid}-{version:08x}-{words:08x}.bin");
        DiskCache { folder, key, name }
    }

    /// Where the file is, if there is a folder for it.
    pub(super) fn path(&self) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(&self.name))
    }

    /// The driver's data of the file; empty when there is none that can be trusted.
    pub(super) fn load(&self) -> Vec<u8> {
        let Some(path) = self.path() else { return Vec::new() };
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::debug!("pipeline cache {}: {error}", path.display());
                }
                return Vec::new();
            }
        };
        match self.decode(&bytes) {
            Ok(data) => data.to_vec(),
            Err(reason) => {
                tracing::warn!("deleting the pipeline cache {}: {reason}", path.display());
                if let Err(error) = fs::remove_file(&path) {
                    tracing::warn!("cannot delete {}: {error}", path.display());
                }
                Vec::new()
            }
        }
    }

    /// Replaces the file; false when that failed.
    pub(super) fn store(&self, data: &[u8]) -> bool {
        let Some(path) = self.path() else { return false };
        let stored = replace(&path, &self.encode(data));
        if let Err(error) = &stored {
            tracing::debug!("pipelines are not cached in {}: {error}", path.display());
        }
        stored.is_ok()
    }

    fn encode(&self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + data.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&(data.len() as u64).to_le_bytes());
        bytes.extend_from_slice(blake3::hash(data).as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn decode<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], BadCache> {
        let (magic, rest) = bytes.split_at_checked(MAGIC.len()).ok_or(BadCache::Length)?;
        if magic != MAGIC {
            return Err(BadCache::Magic);
        }
        let (key, rest) = rest.split_at_checked(self.key.len()).ok_or(BadCache::Length)?;
        let (len, rest) = rest.split_first_chunk::<8>().ok_or(BadCache::Length)?;
        let (checksum, data) = rest.split_first_chunk::<32>().ok_or(BadCache::Length)?;
        if u64::from_le_bytes(*len) != data.len() as u64 {
            return Err(BadCache::Length);
        }
        if key != self.key {
            return Err(BadCache::Device);
        }
        if blake3::hash(data) != blake3::Hash::from_bytes(*checksum) {
            return Err(BadCache::Checksum);
        }
        Ok(data)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    // One byte too many makes the length wrong, and the file is deleted as damaged.
    Ok(bytes)
}

/// Writes beside the file and renames over it, so that no reader sees half a file.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _left = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests;
