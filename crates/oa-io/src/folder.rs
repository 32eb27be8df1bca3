//! A folder of checkpoints of one run: saves the next one, keeps the last few and the best, finds
//! them again.
//!
//! Files are called by their step, `step-00000200.oam`, so that names sort as steps do. The file
//! `best` names the one whose validation loss was lowest when it was saved, and that loss. It is
//! replaced after the checkpoint it names is durable and before any other is removed, so a crash
//! leaves at most a file too many.

use crate::error::{Action, Error, Result};
use crate::replace;
use oa_ml::{Checkpoint, CheckpointSink};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file that names the best checkpoint.
const BEST: &str = "best";

/// A folder of checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    folder: PathBuf,
    keep: usize,
}

impl CheckpointFolder {
    /// The checkpoints in a folder, which is made if it does not exist. After each save at least
    /// one and at most `keep` of the last ones stay, and the best one beside them.
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
        self.folder.join(name_of(step))
    }

    /// The file of the highest step in a folder.
    pub fn newest(folder: impl AsRef<Path>) -> Result<PathBuf> {
        let folder = folder.as_ref();
        let newest = checkpoints(folder)?.pop().map(|(_, path)| path);
        newest.ok_or_else(|| Error::NoCheckpoint { folder: folder.into() })
    }

    /// The newest checkpoint of a lower step beside one that cannot be used; those that cannot be
    /// opened are passed over.
    pub fn before(file: impl AsRef<Path>) -> Option<PathBuf> {
        let file = file.as_ref();
        let step = step_of(file.file_name()?.to_str()?)?;
        let mut older = checkpoints(replace::folder_of(file)).ok()?;
        older.retain(|(other, _)| *other < step);
        older.into_iter().rev().map(|(_, path)| path).find(|path| crate::inspect(path).is_ok())
    }

    /// The file whose validation loss was lowest when it was saved, and that loss in nats; `None`
    /// when no file of the folder was saved with one.
    pub fn best(folder: impl AsRef<Path>) -> Result<Option<(PathBuf, f32)>> {
        let folder = folder.as_ref();
        let best = read_best(folder)?;
        Ok(best.map(|(step, loss)| (folder.join(name_of(step)), loss)))
    }

    /// Saves a checkpoint under the step of its training run and forgets the oldest ones; returns
    /// its file. Nothing is forgotten before the new file is durable, and the best one never is.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let step = checkpoint.training.as_ref().map_or(0, |training| training.step);
        let path = self.file_of(step);
        crate::save(&path, checkpoint)?;
        let best = self.crown(step, checkpoint)?;
        let mut older = checkpoints(&self.folder)?;
        older.retain(|(other, _)| *other <= step);
        let surplus = older.len().saturating_sub(self.keep);
        for (_, path) in older.drain(..surplus).filter(|(step, _)| Some(*step) != best) {
            fs::remove_file(&path).map_err(|error| Error::io(Action::Remove, &path, error))?;
        }
        Ok(path)
    }

    /// Makes a durable checkpoint the best one, if it is; returns the step of the best one.
    fn crown(&self, step: u64, checkpoint: &Checkpoint) -> Result<Option<u64>> {
        let metrics = checkpoint.training.as_ref().map(|training| training.metrics);
        let best = read_best(&self.folder)?;
        // Steps from this one on belong to a run that was left for this one.
        let best = best.filter(|(other, _)| *other < step);
        let lower = |loss: &f32| loss.is_finite() && best.is_none_or(|(_, lowest)| *loss < lowest);
        match metrics.and_then(|metrics| metrics.validation_loss).filter(lower) {
            Some(loss) => {
                let text = format!("{} {loss}\n", name_of(step));
                replace::replace(&self.folder.join(BEST), |out| {
                    Ok(out.write_all(text.as_bytes())?)
                })?;
                Ok(Some(step))
            }
            None => Ok(best.map(|(step, _)| step)),
        }
    }
}

impl CheckpointSink for CheckpointFolder {
    type Error = Error;

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        CheckpointFolder::save(self, checkpoint).map(drop)
    }
}

/// The name of a step's file.
fn name_of(step: u64) -> String {
    format!("step-{step:08}.oam")
}

/// The step of a file's name.
fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.strip_suffix(".oam")?.parse().ok()
}

/// Step and loss of the best checkpoint, if it is named and still there.
fn read_best(folder: &Path) -> Result<Option<(u64, f32)>> {
    let path = folder.join(BEST);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(Action::Read, &path, error)),
    };
    let text = String::from_utf8_lossy(&text);
    let named = text.split_once(' ').and_then(|(name, loss)| {
        let (step, loss) = (step_of(name)?, loss.trim_end().parse::<f32>().ok()?);
        Some((step, loss))
    });
    Ok(named.filter(|(step, _)| folder.join(name_of(*step)).is_file()))
}

/// The checkpoints of a folder by step, lowest first.
fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let fail = |error| Error::io(Action::List, folder, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(step) = step_of(name) {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found)
}
