//! `oa eval`: how well a model predicts a text.

use crate::failure::{End, Explain, Failure};
use crate::flags::{Common, EvalFlags, Part};
use crate::settings::limits::{check_batch, check_batches};
use crate::settings::{Routine, Streamed, must_stream};
use crate::train::{self, Text};
use crate::{open, output};
use indicatif::{ProgressBar, ProgressStyle};
use oa::ml::data::dataset::IGNORE;
use oa::ml::data::{Batch, DataCursor, PackedText, TextDataset, TokenView, Tokenizer};
use oa::ml::{Evaluation, Model, evaluate_read};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Seed of the windows that evaluations draw, in runs too: the same in each, so that losses compare.
pub const WINDOWS_SEED: u64 = 0xE7A1;

/// What an error of the loop could not do.
const STOPPED: &str = "the evaluation stopped";

/// What a wrong call could not do.
const FAILED: &str = "cannot evaluate";

/// Tokens of a sequence for a model that has no limit.
const FREE_CONTEXT: usize = 64;

/// Runs `oa eval`.
pub fn run(common: &Common, flags: &EvalFlags) -> Result<(), Failure> {
    let context = flags.context.unwrap_or(FREE_CONTEXT);
    check_batch(FAILED, flags.batch, context)?;
    check_batches(FAILED, flags.batches)?;
    let file = open::model_file(&flags.model)?;
    let metadata = oa::io::inspect(&file)?.metadata;
    let streamed = streamed(flags, train::routine(&metadata));
    let text = match (&flags.data, &streamed) {
        (Some(path), Some(streamed)) => Text::stream(path, streamed)?,
        (data, _) => Text::Whole(open::corpus(data.as_deref())?),
    };
    let engine = open::engine(common)?;
    let (model, checkpoint) = open::model(&engine, &file)?;
    let context = flags.context.or(model.config().context()).unwrap_or(FREE_CONTEXT);
    check_batch(FAILED, flags.batch, context)?;
    let started = Instant::now();
    let tokenizer = checkpoint.tokenizer.build();
    let (measured, bytes) = match (&text, &streamed) {
        (Text::Streamed(found), Some(streamed)) => {
            let whole = flags.part == Some(Part::Whole);
            let text = train::packed_text(found, tokenizer.into(), streamed, whole)?;
            documents(&model, &text, flags, context).explain(STOPPED)?
        }
        (Text::Whole(text), _) => {
            let view = part(&open::dataset(text, &checkpoint)?, flags);
            let measured = match flags.batches {
                Some(count) => {
                    let (sizes, bar) = ([flags.batch, context, count], bar(count));
                    told(windows(&model, &view, sizes, &bar))?
                }
                None => pass(&model, &view, flags.batch, context)?,
            };
            (measured, predicted_bytes(&view, flags, context, tokenizer.as_ref())?)
        }
        (Text::Streamed(_), None) => unreachable!("documents are opened by how they are read"),
    };
    tell(common, &file, &measured, bytes, started.elapsed().as_secs_f64())
}

/// How the text is read, if it is read document by document: as the run of the checkpoint did it.
fn streamed(flags: &EvalFlags, routine: Option<Routine>) -> Option<Streamed> {
    let of_run = routine.and_then(|routine| routine.streamed);
    let path = flags.data.as_deref()?;
    match of_run {
        Some(streamed) => Some(streamed),
        None => must_stream(path).then(Streamed::default),
    }
}

/// Measures documents, in their order; also the bytes that the predictions stand for.
fn documents(
    model: &Model,
    text: &PackedText,
    flags: &EvalFlags,
    context: usize,
) -> oa::ml::Result<(Evaluation, u64)> {
    let most = flags.batches.unwrap_or(usize::MAX);
    let batches: Box<dyn Iterator<Item = oa::ml::Result<Batch>>> = match flags.part {
        Some(Part::Train | Part::Whole) => Box::new(text.pass(flags.batch, context)?),
        Some(Part::Validation) | None => Box::new(text.validation(flags.batch, context)?),
    };
    let (mut bytes, tokenizer) = (0, text.tokenizer());
    let batches = batches.take(most).inspect(|batch| {
        let targets = batch.iter().flat_map(|batch| &batch.targets);
        let told = targets.filter(|&&id| id != IGNORE).map(|&id| tokenizer.token(id as u32));
        bytes += told.flatten().map(|token| token.len() as u64).sum::<u64>();
    });
    let measured = evaluate_read(model, batches)?;
    Ok((measured, bytes))
}

fn part(data: &TextDataset, flags: &EvalFlags) -> TokenView {
    let built_in = flags.data.is_none();
    match flags.part.unwrap_or(if built_in { Part::Whole } else { Part::Validation }) {
        Part::Train => data.train(),
        Part::Validation => data.validation(),
        Part::Whole => data.whole(),
    }
}

/// Measures a number of batches of random windows, the same windows each time; the bar shows how
/// far it is.
pub fn windows(
    model: &Model,
    view: &TokenView,
    [rows, sequence, count]: [usize; 3],
    bar: &ProgressBar,
) -> oa::ml::Result<Evaluation> {
    let mut batches = view.batches(rows, sequence, DataCursor::shuffled(WINDOWS_SEED))?;
    let batches = std::iter::repeat_with(move || batches.next_batch());
    measure(model, batches.take(count), bar)
}

fn pass(
    model: &Model,
    view: &TokenView,
    batch: usize,
    context: usize,
) -> Result<Evaluation, Failure> {
    let batches = told(view.pass(batch, context))?;
    let count = (view.tokens().len() - 1).div_ceil(context).div_ceil(batch);
    measure(model, batches, &bar(count)).explain(STOPPED)
}

/// Says what to do about a text that is too short to be measured.
fn told<T>(result: oa::ml::Result<T>) -> Result<T, Failure> {
    let error = match result {
        Err(error @ oa::ml::Error::CorpusTooShort { .. }) => error,
        other => return other.explain(FAILED),
    };
    let remedy = "give a longer text with --data, a smaller --context, or --part whole";
    Err(Failure::new(End::Failed, FAILED, error.to_string(), remedy))
}

/// Bytes of the text that the measured predictions stand for: tokens of different vocabularies say
/// differently much, bytes do not.
fn predicted_bytes(
    view: &TokenView,
    flags: &EvalFlags,
    context: usize,
    tokenizer: &dyn Tokenizer,
) -> Result<u64, Failure> {
    let bytes = |id: u32| tokenizer.token(id).map_or(0, |token| token.len() as u64);
    let Some(count) = flags.batches else {
        return Ok(view.tokens().iter().skip(1).map(|&id| bytes(id)).sum());
    };
    let cursor = DataCursor::shuffled(WINDOWS_SEED);
    let mut batches = view.batches(flags.batch, context, cursor).explain(FAILED)?;
    let batch = |_| batches.next_batch().targets.iter().map(|&id| bytes(id as u32)).sum::<u64>();
    Ok((0..count).map(batch).sum())
}

/// A bar of that many batches.
fn bar(count: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("evaluating {bar:30} {pos}/{len} batches, {eta}")
        .expect("the template is right");
    ProgressBar::new(count as u64).with_style(style)
}

fn measure(
    model: &Model,
    batches: impl Iterator<Item = Batch>,
    bar: &ProgressBar,
) -> oa::ml::Result<Evaluation> {
    let measured = oa::ml::evaluate(model, bar.wrap_iter(batches));
    bar.finish_and_clear();
    measured
}

fn tell(
    common: &Common,
    file: &Path,
    measured: &Evaluation,
    bytes: u64,
    seconds: f64,
) -> Result<(), Failure> {
    let Evaluation { loss, accuracy, predictions } = *measured;
    let bits_per_byte = measured.bits() * predictions as f64 / bytes as f64;
    if common.json {
        output::json(&json!({
            "event": "evaluation",
            "file": file.display().to_string(),
            "loss": loss,
            "bits": measured.bits(),
            "perplexity": measured.perplexity(),
            "accuracy": accuracy,
            "predictions": predictions,
            "bytes": bytes,
            "bits_per_byte": bits_per_byte,
            "seconds": seconds,
        }))?;
    } else {
        output::text(&format!(
            "loss        {loss:.4} nats ({:.4} bits, perplexity {:.2}) a token\n\
             per byte    {bits_per_byte:.4} bits over {} of text\n\
             accuracy    {:.2} %\n\
             predictions {} in {seconds:.1} s\n",
            measured.bits(),
            measured.perplexity(),
            output::bytes(bytes),
            100.0 * accuracy,
            output::count(predictions),
        ))?;
    }
    Ok(())
}
