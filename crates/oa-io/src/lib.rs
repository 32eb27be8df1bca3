//! Files of OA: `.oam` v3, and `tokenizer.json` from elsewhere, read without trust.
//!
//! ```text
//! 0        64              4096        next 4096     next 4096         next 4096
//! +--------+---------------+-----------+-------------+-----------------+-----------+
//! | header | section table | manifest  | weights     | optimizer state | tokenizer |
//! +--------+---------------+-----------+-------------+-----------------+-----------+
//!  magic     kind, place,    bincode 2   tensors at multiples of 64      tokens and
//!  version   BLAKE3 of each                                              merges
//!  length    section
//! ```
//!
//! A checkpoint of `oa-ml` becomes a file that a crash cannot half-replace, and a file becomes a
//! checkpoint only after every byte was checked. The format is told byte by byte in
//! `docs/oam-v3.md`. This crate knows no device: a file is judged with the processor alone.
#![forbid(unsafe_code)]

mod checksum;
mod dtype;
mod error;
mod fields;
mod folder;
mod header;
mod import;
mod index;
mod layout;
pub mod limits;
mod manifest;
mod reader;
mod replace;
mod state;
mod summary;
#[cfg(test)]
mod tests;
mod tokenizer;
mod writer;

pub use checksum::Digest;
pub use dtype::Encoding;
pub use error::{Action, Error, Fault, Part, Result};
pub use folder::CheckpointFolder;
pub use import::{ImportFault, load_tokenizer};
pub use layout::{Kind, Section, VERSION};
pub use summary::{Field, FieldValue, Summary, TensorSummary};

use oa_ml::Checkpoint;
use std::fs::File;
use std::io;
use std::path::Path;

/// Saves a checkpoint and returns the bytes of the file. When this returns, a crash loses nothing
/// of it; when it fails, a file that was at `path` is as it was.
pub fn save(path: impl AsRef<Path>, checkpoint: &Checkpoint) -> Result<u64> {
    replace::replace(path.as_ref(), |out| writer::write(out, checkpoint))
}

/// Loads a checkpoint; every byte of the file was checked when it returns.
pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint> {
    let path = path.as_ref();
    open(path)?.checkpoint().map_err(|broken| broken.reading(path))
}

/// Loads a checkpoint of the named architecture and refuses any other before it reads tensors.
pub fn load_expecting(path: impl AsRef<Path>, architecture: &str) -> Result<Checkpoint> {
    let path = path.as_ref();
    let mut reader = open(path)?;
    let found = &reader.manifest.architecture.0;
    if found != architecture {
        let (expected, found) = (architecture.into(), found.as_str().into());
        return Err(Error::Architecture { path: path.into(), expected, found });
    }
    reader.checkpoint().map_err(|broken| broken.reading(path))
}

/// Reads what a file says about itself. Header, table and manifest are checked, tensor data is not
/// read.
pub fn inspect(path: impl AsRef<Path>) -> Result<Summary> {
    let path = path.as_ref();
    Summary::of(&open(path)?).map_err(|fault| error::Broken::from(fault).reading(path))
}

/// Like [`inspect`], and checks every byte of the file.
pub fn verify(path: impl AsRef<Path>) -> Result<Summary> {
    let path = path.as_ref();
    let mut reader = open(path)?;
    reader.verify().map_err(|broken| broken.reading(path))?;
    Summary::of(&reader).map_err(|fault| error::Broken::from(fault).reading(path))
}

fn open(path: &Path) -> Result<reader::Reader<File>> {
    regular_file(path)?;
    let file = File::open(path).map_err(|error| Error::io(Action::Open, path, error))?;
    reader::Reader::open(file).map_err(|broken| broken.reading(path))
}

/// The bytes of a file; refuses what is no file.
fn regular_file(path: &Path) -> Result<u64> {
    let fail = |error| Error::io(Action::Open, path, error);
    let kind = std::fs::metadata(path).map_err(fail)?;
    if kind.is_dir() {
        return Err(fail(io::ErrorKind::IsADirectory.into()));
    }
    if !kind.is_file() {
        return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, NOT_A_FILE)));
    }
    Ok(kind.len())
}

/// Opening a pipe would wait for a writer.
const NOT_A_FILE: &str = "it is a device, a pipe or a socket, not a file";
