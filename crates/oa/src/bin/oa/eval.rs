//! `oa eval`: how well a model predicts a text.

use crate::failure::{Explain, Failure};
use crate::flags::{Common, EvalFlags, Part};
use crate::settings::{Routine, Streamed, must_stream};
use crate::train::{self, Text};
use crate::{open, output};
use indicatif::{ProgressBar, ProgressStyle};
use oa::ml::data::{Batch, DataCursor, PackedText, TextDataset, TokenView};
use oa::ml::{Evaluation, Model, evaluate_read};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Seed of the windows that evaluations draw: the same in each, so that losses compare.
const WINDOWS_SEED: u64 = 0xE7A1;

/// What an error of the loop could not do.
const STOPPED: &str = "the evaluation stopped";

/// Tokens of a sequence for a model that has no limit.
const FREE_CONTEXT: usize = 64;

/// Runs `oa eval`.
pub fn run(common: &Common, flags: &EvalFlags) -> Result<(), Failure> {
    let file = open::model_file(&flags.model)?;
    let metadata = oa::io::inspect(&file)?.metadata;
    let streamed = streamed(flags, train::routine(&metadata));
    let text = match (&flags.data, &streamed) {
        (Some(path), Some(streamed)) => Text::stream(path, streamed)?,
        (data, _) => Text::Whole(open::text(data.as_deref())?),
    };
    let engine = open::engine(common)?;
    let (model, checkpoint) = open::model(&engine, &file)?;
    let context = flags.context.or(model.config().context()).unwrap_or(FREE_CONTEXT);
    let started = Instant::now();
    let measured = match (&text, &streamed) {
        (Text::Streamed(found), Some(streamed)) => {
            let tokenizer = checkpoint.tokenizer.build().into();
            let whole = flags.part == Some(Part::Whole);
            let text = train::packed_text(found, tokenizer, streamed, whole)?;
            documents(&model, &text, flags, context).explain(STOPPED)?
        }
        (Text::Whole(text), _) => {
            let view = part(&open::dataset(text, &checkpoint)?, flags);
            match flags.batches {
                Some(count) => {
                    let (sizes, bar) = ([flags.batch, context, count], bar(count));
                    windows(&model, &view, sizes, &bar).explain("cannot evaluate")?
                }
                None => pass(&model, &view, flags.batch, context)?,
            }
        }
        (Text::Streamed(_), None) => unreachable!("documents are opened by how they are read"),
    };
    tell(common, &file, &measured, started.elapsed().as_secs_f64())
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

/// Measures documents, in their order.
fn documents(
    model: &Model,
    text: &PackedText,
    flags: &EvalFlags,
    context: usize,
) -> oa::ml::Result<Evaluation> {
    let most = flags.batches.unwrap_or(usize::MAX);
    match flags.part.unwrap_or_default() {
        Part::Validation => evaluate_read(model, text.validation(flags.batch, context)?.take(most)),
        Part::Train | Part::Whole => {
            evaluate_read(model, text.pass(flags.batch, context)?.take(most))
        }
    }
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
    let batches = view.pass(batch, context).explain("cannot evaluate")?;
    let count = (view.tokens().len() - 1).div_ceil(context).div_ceil(batch);
    measure(model, batches, &bar(count)).explain(STOPPED)
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

fn tell(common: &Common, file: &Path, measured: &Evaluation, seconds: f64) -> Result<(), Failure> {
    let Evaluation { loss, accuracy, predictions } = *measured;
    if common.json {
        output::json(&json!({
            "event": "evaluation",
            "file": file,
            "loss": loss,
            "bits": measured.bits(),
            "perplexity": measured.perplexity(),
            "accuracy": accuracy,
            "predictions": predictions,
            "seconds": seconds,
        }))?;
    } else {
        output::text(&format!(
            "loss        {loss:.4} nats ({:.4} bits, perplexity {:.2}) a token\n\
             accuracy    {:.2} %\n\
             predictions {} in {seconds:.1} s\n",
            measured.bits(),
            measured.perplexity(),
            100.0 * accuracy,
            output::count(predictions),
        ))?;
    }
    Ok(())
}
