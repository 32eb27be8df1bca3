//! Leaving a run and coming back to it, bit for bit.

use super::session::{ItTraining, Mode};
use crate::checkpoint::{
    Checkpoint, CheckpointSink, RngCounters, TrainingConfig, TrainingMetrics, TrainingState,
};
use crate::data::{DataCursor, TokenizerConfig};
use crate::error::{Error, Result};
use crate::model::Model;
use std::collections::BTreeMap;

/// What a session does not know about its run, but a checkpoint must hold.
#[derive(Clone, Copy, Debug)]
pub struct RunIdentity<'a> {
    /// The model being trained.
    pub model: &'a Model,
    /// How its text became tokens.
    pub tokenizer: &'a TokenizerConfig,
    /// Where the data order continues.
    pub cursor: DataCursor,
    /// Tokens that the run has sampled so far: the next one uses this counter.
    pub sampled: u64,
    /// Loss of the last evaluation, in nats.
    pub validation_loss: Option<f32>,
    /// Lowest loss of any evaluation, in nats.
    pub best_validation_loss: Option<f32>,
    /// Wall-clock seconds spent training, over all resumptions.
    pub elapsed_seconds: f64,
    /// Free metadata.
    pub metadata: &'a BTreeMap<String, String>,
}

/// Why a save failed.
#[derive(Debug, thiserror::Error)]
pub enum SaveError<E: std::error::Error + 'static> {
    /// The state of the run could not be gathered, or a step turned out to be bad.
    #[error(transparent)]
    Gather(#[from] Error),
    /// The checkpoint could not be made durable.
    #[error(transparent)]
    Sink(E),
}

impl ItTraining<'_> {
    /// Everything that decides the next bit of the run. Waits for every submitted step, so a
    /// checkpoint never holds a run that has already gone wrong.
    ///
    /// # Errors
    ///
    /// [`Error::NonFinite`] when a submitted step was bad; [`Error::StepOrder`] inside a step;
    /// [`Error::Vocabulary`] when model and tokenizer do not belong together.
    #[track_caller]
    pub fn checkpoint(&mut self, run: &RunIdentity<'_>) -> Result<Checkpoint> {
        run.model.config().check_tokenizer(run.tokenizer)?;
        self.finish()?;
        self.watch.check()?;
        let metrics = TrainingMetrics {
            tokens: self.tokens,
            loss: self.last_report().map(|report| report.loss),
            validation_loss: run.validation_loss,
            best_validation_loss: run.best_validation_loss,
            elapsed_seconds: run.elapsed_seconds,
        };
        let config = TrainingConfig {
            total_steps: self.config.total_steps,
            max_norm: self.config.max_norm,
            accumulation: self.config.accumulation,
        };
        let training = TrainingState {
            step: self.step,
            config,
            optimizer: self.optimizer.state()?,
            frozen: self.optimizer.parameters().frozen().into_iter().map(String::from).collect(),
            schedule: self.config.schedule,
            seed: self.config.seed,
            rng: RngCounters { dropout_step: self.step, sample_step: run.sampled },
            data: run.cursor,
            metrics,
        };
        Ok(Checkpoint {
            model: *run.model.config(),
            tokenizer: run.tokenizer.clone(),
            tensors: run.model.parameters().to_host()?,
            training: Some(training),
            metadata: run.metadata.clone(),
        })
    }

    /// Gathers a checkpoint and hands it to a sink.
    ///
    /// # Errors
    ///
    /// As [`ItTraining::checkpoint`], and what the sink reports.
    #[track_caller]
    pub fn save<S: CheckpointSink>(
        &mut self,
        run: &RunIdentity<'_>,
        sink: &mut S,
    ) -> std::result::Result<(), SaveError<S::Error>> {
        let checkpoint = self.checkpoint(run)?;
        sink.save(&checkpoint).map_err(SaveError::Sink)
    }

    /// Continues a run: optimizer, frozen parameters, step, schedule, clipping, accumulation and seed become those of
    /// the checkpoint; `total_steps` too. Load the weights with [`Model::load`], and start the
    /// data order at the checkpoint's cursor.
    ///
    /// # Errors
    ///
    /// When the optimizer is another one, or moments or names of frozen parameters do not fit the
    /// parameters. The session is as before then.
    pub fn resume(&mut self, state: &TrainingState) -> Result<()> {
        self.optimizer.parameters().check_frozen(&state.frozen)?;
        self.optimizer.load_state(&state.optimizer)?;
        self.optimizer.parameters().set_frozen(&state.frozen)?;
        self.config.total_steps = state.config.total_steps;
        self.config.max_norm = state.config.max_norm;
        self.config.accumulation = state.config.accumulation;
        self.config.schedule = state.schedule;
        self.config.seed = state.seed;
        self.step = state.step;
        self.tokens = state.metrics.tokens;
        if let Mode::Captured(captured) = &mut self.mode {
            *captured = None;
        }
        Ok(())
    }
}
