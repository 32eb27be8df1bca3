//! What a run reads: its batches, and what it is measured on.
//!
//! A text of one file lies in memory as tokens, and windows are drawn from it; a folder, JSONL and
//! whatever is asked to be streamed is read document by document.

use super::start::Start;
use crate::eval::WINDOWS_SEED;
use crate::failure::{End, Explain, Failure};
use crate::output;
use crate::settings::Streamed;
use oa::io::Digest;
use oa::ml::data::{
    BatchSource, DataCursor, DataFault, Documents, PackedConfig, PackedText, Prefetch,
    SourceConfig, Split, TextDataset, TokenView, Tokenizer,
};
use oa::ml::{Error, Evaluation, Model, evaluate_until};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Batches that are prepared while the device computes.
const AHEAD: usize = 4;

/// A text as it was found.
pub enum Text {
    /// The bytes of one file.
    Whole(Vec<u8>),
    /// Documents, where they are.
    Streamed(Arc<Documents>),
}

impl Text {
    /// Finds the documents of a path.
    pub fn stream(path: &Path, streamed: &Streamed) -> Result<Text, Failure> {
        let config = SourceConfig {
            extensions: streamed.extensions.clone(),
            field: streamed.field.clone(),
            skip_bad_lines: streamed.skip_bad_lines,
            ..SourceConfig::default()
        };
        let sentence = "cannot use this text";
        let documents = match Documents::open(path, &config) {
            Err(Error::Data(fault)) if matches!(*fault, DataFault::OnlyBadLines { .. }) => {
                let remedy = "name the --field, or give another text with --data";
                return Err(Failure::new(End::Failed, sentence, fault.to_string(), remedy));
            }
            found => found.explain(sentence)?,
        };
        Ok(Text::Streamed(Arc::new(documents)))
    }

    /// What tells this text from another.
    pub fn identity(&self) -> String {
        match self {
            Text::Whole(text) => Digest::of(text).to_string(),
            Text::Streamed(documents) => format!("{:016x}", documents.fingerprint()),
        }
    }
}

/// The batches of a run.
pub struct Texts {
    /// What is trained on.
    pub batches: Prefetch,
    /// What is measured on.
    pub held: Held,
    /// What there is to train on and to validate on, for people.
    pub sizes: String,
    /// The same for programs.
    pub counts: Value,
}

/// What a run is measured on.
pub enum Held {
    /// A part of a text in memory.
    View(TokenView),
    /// Documents.
    Documents(PackedText),
}

impl Texts {
    /// Judges the text before a device is opened.
    pub fn of(start: &Start) -> Result<Texts, Failure> {
        match (&start.text, &start.plan.routine.streamed) {
            (Text::Streamed(documents), Some(streamed)) => packed(start, documents, streamed),
            (Text::Whole(text), _) => windows(start, text),
            (Text::Streamed(_), None) => {
                unreachable!("a text is streamed by a routine that says so")
            }
        }
    }
}

impl Held {
    /// Measures a model on `count` batches at most, the same each time; `None` when it was asked to
    /// stop between two of them.
    pub fn measure(
        &self,
        model: &Model,
        [rows, sequence, count]: [usize; 3],
        stop: &dyn Fn() -> bool,
    ) -> oa::ml::Result<Option<Evaluation>> {
        match self {
            Held::View(view) => {
                let cursor = DataCursor::shuffled(WINDOWS_SEED);
                let mut batches = view.batches(rows, sequence, cursor)?;
                let batches = std::iter::repeat_with(move || Ok(batches.next_batch()));
                evaluate_until(model, batches.take(count), stop)
            }
            Held::Documents(text) => {
                evaluate_until(model, text.validation(rows, sequence)?.take(count), stop)
            }
        }
    }
}

fn windows(start: &Start, text: &[u8]) -> Result<Texts, Failure> {
    let routine = &start.plan.routine;
    let data = TextDataset::from_bytes(text, start.tokenizer.build().as_ref());
    let data = data.explain("cannot use this text")?;
    let (train, held) = match routine.whole {
        true => (data.whole(), data.whole()),
        false => (data.train(), data.validation()),
    };
    let batches = train.batches(routine.batch, routine.context, start.plan.cursor);
    let batches = batches.explain("cannot train on this text")?;
    held.batches(1, routine.context, DataCursor::shuffled(0))
        .explain("cannot validate on the last tenth of this text")?;
    let [trained, measured] = [&train, &held].map(|view| view.tokens().len() as u64);
    Ok(Texts {
        batches: ahead(batches)?,
        held: Held::View(held),
        sizes: format!(
            "{} tokens to train on, {} to validate on",
            output::count(trained),
            output::count(measured)
        ),
        counts: json!({ "tokens": { "train": trained, "validation": measured } }),
    })
}

/// Documents as tokens, with those that validate set apart unless all are wanted.
pub fn packed_text(
    documents: &Arc<Documents>,
    tokenizer: Arc<dyn Tokenizer>,
    streamed: &Streamed,
    whole: bool,
) -> Result<PackedText, Failure> {
    let config = PackedConfig {
        separator: streamed.separator,
        across: streamed.across,
        split: if whole { Split::None } else { Split::Every(streamed.validate_one_in) },
        ..PackedConfig::default()
    };
    PackedText::new(documents.clone(), tokenizer, config).explain("cannot use this text")
}

fn packed(
    start: &Start,
    documents: &Arc<Documents>,
    streamed: &Streamed,
) -> Result<Texts, Failure> {
    let routine = &start.plan.routine;
    let text = packed_text(documents, start.tokenizer.build().into(), streamed, false)?;
    let batches = text.batches(routine.batch, routine.context, start.plan.cursor);
    let batches = batches.explain("cannot train on this text")?;
    let (trained, held, skipped) = (text.trained(), text.held(), documents.skipped_lines());
    let mut sizes = format!(
        "{} documents to train on, {} to validate on, {} in {} files",
        output::count(trained),
        output::count(held),
        output::bytes(documents.bytes()),
        output::count(documents.files() as u64),
    );
    if skipped > 0 {
        sizes += &format!("; {} bad lines are left out", output::count(skipped));
    }
    Ok(Texts {
        batches: ahead(batches)?,
        held: Held::Documents(text),
        sizes,
        counts: json!({
            "documents": { "train": trained, "validation": held },
            "bytes": documents.bytes(),
            "files": documents.files(),
            "skipped_lines": skipped,
        }),
    })
}

fn ahead(source: impl BatchSource + 'static) -> Result<Prefetch, Failure> {
    Prefetch::new(Box::new(source), AHEAD).explain("cannot prepare the training")
}
