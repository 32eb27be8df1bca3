//! A folder of checkpoints of one run: saves the next one, keeps the last few, finds the newest.
//!
//! Files are called by their step, `step-00000200.oam`, so that names sort as steps do.

use crate::error::{Action, Error, Result};
use crate::replace;
use oa_ml::{Checkpoint, CheckpointSink};
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    folder: PathBuf,
    keep: usize,
}

impl CheckpointFolder {
    /// The checkpoints in a folder, which is made if it does not exist. At least one and at most
    /// `keep` of them stay after each save.
    pub fn create(folder: impl Into<PathBuf>, keep: usize) -> Result<CheckpointFolder> {
        let folder = folder.into();
        replace::create_folder(&folder)?;
        Ok(CheckpointFolder { folder, keep: keep.max(1) })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The file of a step.
    pub fn file_of(&self, step: u64) -> PathBuf {
        self.folder.join(format!("step-{step:08}.oam"))
    }

    /// The file of the highest step in a folder.
    pub fn newest(folder: impl AsRef<Path>) -> Result<PathBuf> {
        let folder = folder.as_ref();
        let newest = checkpoints(folder)?.pop().map(|(_, path)| path);
        newest.ok_or_else(|| Error::NoCheckpoint { folder: folder.into() })
    }

    /// Saves a checkpoint under the step of its training run and forgets the oldest ones; returns
    /// its file. Nothing is forgotten before the new file is durable.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let step = checkpoint.training.as_ref().map_or(0, |training| training.step);
        let path = self.file_of(step);
        crate::save(&path, checkpoint)?;
        let mut older = checkpoints(&self.folder)?;
        older.retain(|(other, _)| *other <= step);
        let surplus = older.len().saturating_sub(self.keep);
        for (_, path) in older.drain(..surplus) {
            fs::remove_file(&path).map_err(|error| Error::io(Action::Remove, &path, error))?;
        }
        Ok(path)
    }
}

impl CheckpointSink for CheckpointFolder {
    type Error = Error;

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        CheckpointFolder::save(self, checkpoint).map(drop)
    }
}

/// The checkpoints of a folder by step, lowest first.
fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let fail = |error| Error::io(Action::List, folder, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let step = name.strip_prefix("step-").and_then(|name| name.strip_suffix(".oam"));
        if let Some(step) = step.and_then(|step| step.parse().ok()) {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found)
}
