//! What every task opens: a device, a model file, a text.

use crate::failure::{End, Explain, Failure};
use crate::flags::Common;
use oa::ml::data::{TextDataset, TokenizerConfig, contract_corpus};
use oa::ml::{Checkpoint, Model};
use oa::{DeviceRequest, Engine, EngineOptions};
use std::path::{Path, PathBuf};

/// The wish for a device: the environment's, with the flag over it.
pub fn request(common: &Common) -> DeviceRequest {
    let mut request = DeviceRequest::from_env();
    if common.device.is_some() {
        request.selector = common.device.clone();
    }
    request
}

/// Opens the device.
pub fn engine(common: &Common) -> Result<Engine, Failure> {
    let options = EngineOptions { device: request(common), ..EngineOptions::default() };
    Engine::open(options).explain("cannot open a Vulkan device")
}

/// The file that a path means: itself, or the newest checkpoint of a run's folder.
pub fn model_file(path: &Path) -> Result<PathBuf, Failure> {
    if path.is_dir() {
        return Ok(oa::io::CheckpointFolder::newest(path)?);
    }
    Ok(path.to_owned())
}

/// Loads a file; if it cannot be read, says which checkpoint before it can.
pub fn load(file: &Path) -> Result<Checkpoint, Failure> {
    oa::io::load(file).map_err(|error| match oa::io::CheckpointFolder::before(file) {
        Some(older) => {
            let remedy =
                format!("{}; {} is the checkpoint before it", error.advice(), older.display());
            Failure::new(End::Failed, error.subject(), error.cause(), remedy)
        }
        None => error.into(),
    })
}

/// Loads a file and builds its model on a device.
pub fn model(engine: &Engine, file: &Path) -> Result<(Model, Checkpoint), Failure> {
    let checkpoint = load(file)?;
    Ok((build(engine, file, &checkpoint)?, checkpoint))
}

/// Builds the model of a checkpoint that was loaded from a file.
pub fn build(engine: &Engine, file: &Path, checkpoint: &Checkpoint) -> Result<Model, Failure> {
    let sentence = format!("cannot build the model of {}", file.display());
    let model = checkpoint.model.build(engine, 0).explain(&sentence)?;
    model.load(checkpoint).explain(&sentence)?;
    Ok(model)
}

/// The bytes of a text to learn from or to measure on, which must be a file: a device has no end
/// and a pipe cannot be read again.
pub fn corpus(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    if let Some(path) = file
        && std::fs::metadata(path).is_ok_and(|kind| !kind.is_file() && !kind.is_dir())
    {
        let sentence = format!("cannot read the text {}", path.display());
        let cause = "it is a device, a pipe or a socket, not a file";
        let remedy = "give a file or a folder with --data";
        return Err(Failure::new(End::Failed, sentence, cause, remedy));
    }
    text(file)
}

/// The bytes of a text; without a file, the built-in corpus.
pub fn text(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    match file {
        Some(path) => {
            std::fs::read(path).map_err(|error| Failure::file("read the text", path, &error))
        }
        None => Ok(contract_corpus()),
    }
}

/// The tokenizer of a checkpoint, of a run's folder or of a `tokenizer.json`.
pub fn tokenizer(path: &Path) -> Result<TokenizerConfig, Failure> {
    let file = model_file(path)?;
    match file.extension().is_some_and(|ending| ending == "oam") {
        true => Ok(oa::io::load(&file)?.tokenizer),
        false => Ok(oa::io::load_tokenizer(&file)?),
    }
}

/// A text as tokens of a checkpoint's tokenizer.
pub fn dataset(text: &[u8], checkpoint: &Checkpoint) -> Result<TextDataset, Failure> {
    let tokenizer = checkpoint.tokenizer.build();
    TextDataset::from_bytes(text, tokenizer.as_ref()).explain("cannot use this text")
}
