//! `oa eval`: how well a model predicts a text.

use crate::failure::{Explain, Failure};
use crate::flags::{Common, EvalFlags, Part};
use crate::{open, output};
use indicatif::{ProgressBar, ProgressStyle};
use oa::ml::data::{Batch, DataCursor, TextDataset, TokenView, Tokenizer};
use oa::ml::{Evaluation, Model};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Seed of the windows that evaluations draw: the same in each, so that losses compare.
const WINDOWS_SEED: u64 = 0xE7A1;

/// Tokens of a sequence for a model that has no limit.
const FREE_CONTEXT: usize = 64;

/// Runs `oa eval`.
pub fn run(common: &Common, flags: &EvalFlags) -> Result<(), Failure> {
    let file = open::model_file(&flags.model)?;
    let text = open::text(flags.data.as_deref())?;
    let engine = open::engine(common)?;
    let (model, checkpoint) = open::model(&engine, &file)?;
    let data = open::dataset(&text, &checkpoint)?;
    let view = part(&data, flags);
    let context = flags.context.or(model.config().context()).unwrap_or(FREE_CONTEXT);
    let started = Instant::now();
    let measured = match flags.batches {
        Some(count) => windows(&model, &view, flags.batch, context, count, bar(count))?,
        None => pass(&model, &view, flags.batch, context)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let bytes = predicted_bytes(&view, flags, context, checkpoint.tokenizer.build().as_ref())?;
    tell(common, &file, &measured, bytes, seconds)
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
    batch: usize,
    context: usize,
    count: usize,
    bar: ProgressBar,
) -> Result<Evaluation, Failure> {
    let cursor = DataCursor::shuffled(WINDOWS_SEED);
    let batches = view.batches(batch, context, cursor).explain("cannot evaluate")?;
    let batches = std::iter::repeat_with({
        let mut batches = batches;
        move || batches.next_batch()
    });
    measure(model, batches.take(count), &bar)
}

fn pass(
    model: &Model,
    view: &TokenView,
    batch: usize,
    context: usize,
) -> Result<Evaluation, Failure> {
    let batches = view.pass(batch, context).explain("cannot evaluate")?;
    let count = (view.tokens().len() - 1).div_ceil(context).div_ceil(batch);
    measure(model, batches, &bar(count))
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
    let mut batches = view.batches(flags.batch, context, cursor).explain("cannot evaluate")?;
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
) -> Result<Evaluation, Failure> {
    let measured = oa::ml::evaluate(model, bar.wrap_iter(batches));
    bar.finish_and_clear();
    measured.explain("the evaluation stopped")
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
            "file": file,
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
