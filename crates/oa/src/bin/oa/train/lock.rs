//! One run at a time in a folder.
//!
//! The system lets go of the lock when the process ends, however it ends, so a crash leaves none
//! behind. The lock is on the folder itself, and on a file in it where folders cannot be locked.

use crate::failure::{End, Failure};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// A folder that is this run's until it is dropped.
pub struct RunLock {
    _held: File,
}

impl RunLock {
    /// Takes a folder; refuses one that another run has.
    pub fn take(folder: &Path) -> Result<RunLock, Failure> {
        let file = lockable(folder).map_err(|error| Failure::file("lock", folder, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let sentence = format!("cannot train in {}", folder.display());
                let cause = "another run is writing to this folder";
                let remedy = "wait for its end, or choose another --out";
                return Err(Failure::new(End::Failed, sentence, cause, remedy));
            }
            Err(TryLockError::Error(error)) => tracing::warn!(
                "{} cannot be locked ({error}): start no second run in it",
                folder.display()
            ),
        }
        Ok(RunLock { _held: file })
    }
}

#[cfg(unix)]
fn lockable(folder: &Path) -> io::Result<File> {
    File::open(folder)
}

#[cfg(not(unix))]
fn lockable(folder: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).open(folder.join(".lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_of_one_run_until_it_ends() {
        let folder = std::env::temp_dir().join(format!("oa-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let first = RunLock::take(&folder).unwrap();
        let refused = RunLock::take(&folder).err().unwrap();
        assert_eq!(refused.code(), 1);
        assert!(refused.to_string().contains("another run is writing to this folder"), "{refused}");
        drop(first);
        RunLock::take(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
