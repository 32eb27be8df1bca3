//! Measuring a model without touching its training state.

use crate::data::Batch;
use crate::error::Result;
use crate::loss;
use crate::model::Model;
use crate::nn::Pass;

/// What an evaluation measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// Share of the targets that got the largest logit.
    pub accuracy: f64,
    /// Predictions that counted.
    pub predictions: u64,
}

impl Evaluation {
    /// `e^loss`.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }

    /// The loss in bits.
    pub fn bits(&self) -> f64 {
        self.loss / std::f64::consts::LN_2
    }
}

/// Runs a model over batches: no dropout, no gradients, no change of weights, moments or counters.
/// Blocks once per batch.
///
/// # Errors
///
/// As [`Model::forward`].
#[track_caller]
pub fn evaluate(model: &Model, batches: impl IntoIterator<Item = Batch>) -> Result<Evaluation> {
    evaluate_read(model, batches.into_iter().map(Ok))
}

/// As [`evaluate`], over batches that are read from files.
///
/// # Errors
///
/// As [`evaluate`], and when a batch could not be read.
#[track_caller]
pub fn evaluate_read(
    model: &Model,
    batches: impl IntoIterator<Item = Result<Batch>>,
) -> Result<Evaluation> {
    let mut sums = Sums::default();
    for batch in batches {
        sums.add(model, &batch?)?;
    }
    Ok(sums.evaluation())
}

/// As [`evaluate_read`], but looks before each batch whether it shall `stop`; `None` when it was
/// broken off.
///
/// # Errors
///
/// As [`evaluate_read`].
#[track_caller]
pub fn evaluate_until(
    model: &Model,
    batches: impl IntoIterator<Item = Result<Batch>>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Evaluation>> {
    let mut sums = Sums::default();
    for batch in batches {
        if stop() {
            return Ok(None);
        }
        sums.add(model, &batch?)?;
    }
    Ok(Some(sums.evaluation()))
}

/// What the batches so far add up to.
#[derive(Default)]
struct Sums {
    nats: f64,
    correct: f64,
    predictions: u64,
}

impl Sums {
    #[track_caller]
    fn add(&mut self, model: &Model, batch: &Batch) -> Result<()> {
        let count = batch.predictions() as u64;
        let targets = batch.targets_on(model.engine())?;
        let starts = batch.starts_on(model.engine())?;
        let starts = starts.as_ref().filter(|_| model.config().resets_at_starts());
        let tokens = batch.tokens_on(model.engine())?;
        let logits = model.head(&model.hidden(&tokens, &Pass { starts, ..Pass::default() })?)?;
        let loss = loss::cross_entropy(&logits, &targets)?;
        let right = logits.correct_rows(&targets)?.sum()?;
        drop(logits);
        self.nats += f64::from(loss.item()?) * count as f64;
        self.correct += f64::from(right.item()?);
        self.predictions += count;
        Ok(())
    }

    fn evaluation(&self) -> Evaluation {
        let (count, predictions) = (self.predictions.max(1) as f64, self.predictions);
        Evaluation { loss: self.nats / count, accuracy: self.correct / count, predictions }
    }
}
