//! Replaces a file so that a crash at any moment leaves the old one or the new one.
//!
//! The new contents go to a temporary file in the same folder, which is forced to disk and renamed
//! over the target; then the folder is forced to disk. On an error the temporary file is removed.
//! A writer holds a lock on its temporary file, so the next one can tell litter of a killed process
//! from the work of a living one.

use crate::error::{Action, Broken, Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Replaces the file at `path` by what `write` writes.
pub(crate) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<T, Broken>,
) -> Result<T> {
    let fail = |broken: Broken| broken.writing(path);
    let temporary = Temporary::create(path).map_err(|error| fail(error.into()))?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, &temporary.file);
    let written = write(&mut out).map_err(fail)?;
    let flushed = out.flush();
    drop(out.into_parts());
    flushed
        .and_then(|()| temporary.file.sync_all())
        .and_then(|()| temporary.become_file(path))
        .map_err(|error| fail(error.into()))?;
    Ok(written)
}

/// A locked file that is removed when it is dropped, unless it took its place.
struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    fn create(target: &Path) -> io::Result<Temporary> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let prefix = format!(".{}.", name.to_string_lossy());
        let folder = folder_of(target);
        sweep(folder, &prefix);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{prefix}{}-{serial}.tmp", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let temporary = Temporary { file, path };
        // A file system without locks only loses the sweeping of litter.
        let _unlockable = temporary.file.try_lock();
        Ok(temporary)
    }

    fn become_file(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.path = PathBuf::new();
        sync_folder(folder_of(target))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // The error that brought us here is the one to report.
            let _unremovable = fs::remove_file(&self.path);
        }
    }
}

/// Removes temporary files of writers that are no more.
fn sweep(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(".tmp") {
            let dead = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
            if dead {
                // Litter that stays is only litter.
                let _unremovable = fs::remove_file(entry.path());
            }
        }
    }
}

/// The folder that a path lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Forces the names of a folder to disk, where the system knows how.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Makes a folder and those above it.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io(Action::CreateFolder, folder, error))
}
