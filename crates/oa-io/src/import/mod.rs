//! Import of `tokenizer.json`: byte-level BPE with the ids it has elsewhere.
//!
//! The file is read into the same table that a checkpoint keeps, so an imported tokenizer needs its
//! file no more. Templates that put tokens around a text are not read: a text has the ids of its own
//! bytes. What would give other ids than the program that wrote the file - another model, another
//! expression to cut by, a prefix - is refused by name.

mod convert;
mod cut;
mod fault;
mod file;

pub use fault::ImportFault;

use crate::error::{Action, Error, Fault, Result};
use crate::{index, limits};
use oa_ml::data::tokenizer::TokenizerConfig;
use std::path::Path;

/// Reads a `tokenizer.json` of a byte-level BPE of the GPT-2, Qwen2 or Llama 3 kind.
///
/// # Errors
///
/// [`Error::Io`] when the file cannot be read; [`Error::Format`] with the first thing that it
/// claims wrongly or that this release does not have.
pub fn load_tokenizer(path: impl AsRef<Path>) -> Result<TokenizerConfig> {
    let path = path.as_ref();
    let fail = |error| Error::io(Action::Open, path, error);
    let length = crate::regular_file(path)?;
    let broken = |fault| Error::Format { path: path.into(), fault: Box::new(fault) };
    index::within("bytes of a tokenizer file", length, limits::TOKENIZER_JSON_BYTES)
        .map_err(broken)?;
    tokenizer(&std::fs::read(path).map_err(fail)?).map_err(broken)
}

/// The tokenizer of a file's bytes.
pub(crate) fn tokenizer(bytes: &[u8]) -> Result<TokenizerConfig, Fault> {
    let file: file::File = serde_json::from_slice(bytes).map_err(ImportFault::Json)?;
    convert::convert(file)
}
