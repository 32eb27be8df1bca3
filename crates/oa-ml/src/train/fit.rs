//! The loop of a run: step, measure, save, tell, until it is over or somebody ends it.
//!
//! `oa train` is this loop with a display. A program that needs another order of things writes its
//! own around [`ItTraining`].

use super::callback::{Callback, Ending, Flow, Moment};
use super::pace::Pace;
use super::resume::RunIdentity;
use super::session::ItTraining;
use crate::checkpoint::{Checkpoint, TrainingMetrics};
use crate::data::{Batch, BatchSource, TokenizerConfig};
use crate::error::{Error, Result};
use crate::evaluate::Evaluation;
use crate::model::Model;
use std::collections::BTreeMap;
use std::time::Instant;

/// Something that a run does every so many steps, and at its end.
pub struct Periodic<F> {
    /// Steps between two times; 0 for the end only.
    pub every: u64,
    /// What is done.
    pub run: F,
}

/// Measures a model; `None` when that was broken off.
type Measure<'r> = Box<dyn FnMut(&Model) -> Result<Option<Evaluation>> + 'r>;
/// Makes a checkpoint durable.
type Save<'r, E> = Box<dyn FnMut(&Checkpoint) -> Result<(), E> + 'r>;

/// A run: what is trained on what, and what else happens.
pub struct Fit<'r, E = Error> {
    /// The model whose loss is minimised.
    pub model: &'r Model,
    /// What it is trained on.
    pub data: &'r mut dyn BatchSource,
    /// How the text became tokens; checkpoints record it.
    pub tokenizer: TokenizerConfig,
    /// Measures the model on the validation text. It may be broken off, as by
    /// [`evaluate_until`](crate::evaluate_until): then nobody is told, and the run goes on to
    /// look whether it is asked to end.
    pub evaluation: Option<Periodic<Measure<'r>>>,
    /// Saves checkpoints. One is also saved after an evaluation with the lowest loss so far, and at
    /// the end.
    pub saving: Option<Periodic<Save<'r, E>>>,
    /// Who is told.
    pub callbacks: Vec<&'r mut dyn Callback<E>>,
    /// Looked at before each step: true ends the run.
    pub asked: Option<&'r dyn Fn() -> bool>,
    /// Metadata of checkpoints; of a resumed run those of its checkpoint, with the callbacks' notes.
    pub metadata: BTreeMap<String, String>,
    /// What a resumed run has measured before.
    pub before: TrainingMetrics,
}

/// A run that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// How it ended.
    pub ending: Ending,
    /// Where it stands.
    pub now: Moment,
    /// Loss of the last evaluation, in nats.
    pub validation_loss: Option<f32>,
    /// Lowest loss of any evaluation, in nats.
    pub best_validation_loss: Option<f32>,
}

impl<'r, E: From<Error>> Fit<'r, E> {
    /// A run that trains and does nothing else.
    pub fn new(
        model: &'r Model,
        data: &'r mut dyn BatchSource,
        tokenizer: TokenizerConfig,
    ) -> Fit<'r, E> {
        Fit {
            model,
            data,
            tokenizer,
            evaluation: None,
            saving: None,
            callbacks: Vec::new(),
            asked: None,
            metadata: BTreeMap::new(),
            before: TrainingMetrics::default(),
        }
    }

    /// Trains until every step of the session is done, a callback stops it or it is asked to end.
    /// Data and session stand where the run ended, so it can be run on.
    ///
    /// # Errors
    ///
    /// What the session, the data, the callbacks, the evaluation and the saving report. Callbacks
    /// are told of the end then too.
    pub fn run(&mut self, training: &mut ItTraining<'_>) -> Result<Fitted, E> {
        let mut state = State {
            pace: Pace::new(),
            began: Instant::now(),
            validation_loss: self.before.validation_loss,
            best: self.before.best_validation_loss,
            saved: None,
            stop: false,
        };
        let outcome = self.steps(training, &mut state);
        let ending = outcome.as_ref().copied().unwrap_or(Ending::Failed);
        let now = self.moment(training, &state, training.steps_done());
        let told = self.callbacks.iter_mut().try_for_each(|one| one.on_end(&now, ending));
        outcome?;
        told?;
        let (validation_loss, best_validation_loss) = (state.validation_loss, state.best);
        Ok(Fitted { ending, now, validation_loss, best_validation_loss })
    }

    fn steps(&mut self, training: &mut ItTraining<'_>, state: &mut State) -> Result<Ending, E> {
        let now = self.moment(training, state, training.steps_done());
        for callback in &mut self.callbacks {
            callback.on_start(&now, &self.metadata)?;
        }
        let parts = training.config().accumulation.max(1) as usize;
        let mut parts = vec![Batch::zeroed(0, 0); parts];
        let total = training.config().total_steps;
        state.pace.skip();
        let ending = loop {
            if self.asked.is_some_and(|asked| asked()) {
                break Ending::Asked;
            }
            if state.stop {
                break Ending::Stopped;
            }
            if !training.begin_step()? {
                break Ending::Finished;
            }
            parts.iter_mut().try_for_each(|part| self.data.read(part))?;
            let model = self.model;
            training.step(&parts, &mut |inputs| inputs.loss(model))?;
            state.pace.step();
            self.report(training, state)?;
            let step = training.steps_done();
            let due = |every: u64| step == total || (every > 0 && step.is_multiple_of(every));
            let evaluate = self.evaluation.as_ref().is_some_and(|one| due(one.every));
            let better = evaluate && self.evaluate(training, state)?;
            if better || self.saving.as_ref().is_some_and(|one| due(one.every)) {
                self.save(training, state)?;
            }
        };
        training.finish()?;
        self.report(training, state)?;
        if state.saved != Some(training.steps_done()) {
            self.save(training, state)?;
        }
        Ok(ending)
    }

    /// Passes on the steps whose loss is known by now.
    fn report(&mut self, training: &mut ItTraining<'_>, state: &mut State) -> Result<(), E> {
        while let Some(report) = training.take_report() {
            let now = self.moment(training, state, report.step + 1);
            for callback in &mut self.callbacks {
                state.heed(callback.on_step(&now, &report)?);
            }
        }
        Ok(())
    }

    /// Measures the model; true when its loss is the lowest so far.
    fn evaluate(&mut self, training: &mut ItTraining<'_>, state: &mut State) -> Result<bool, E> {
        training.finish()?;
        self.report(training, state)?;
        let Some(evaluation) = &mut self.evaluation else { return Ok(false) };
        let Some(measured) = (evaluation.run)(self.model)? else {
            state.pace.skip();
            return Ok(false);
        };
        let loss = measured.loss as f32;
        let better = loss.is_finite() && state.best.is_none_or(|best| loss < best);
        state.validation_loss = Some(loss);
        if better {
            state.best = Some(loss);
        }
        let now = self.moment(training, state, training.steps_done());
        for callback in &mut self.callbacks {
            state.heed(callback.on_evaluation(&now, &measured)?);
        }
        state.pace.skip();
        Ok(better)
    }

    fn save(&mut self, training: &mut ItTraining<'_>, state: &mut State) -> Result<(), E> {
        if self.saving.is_none() {
            return Ok(());
        }
        self.callbacks.iter().for_each(|callback| callback.note(&mut self.metadata));
        training.finish()?;
        self.report(training, state)?;
        let now = self.moment(training, state, training.steps_done());
        let checkpoint = training.checkpoint(&RunIdentity {
            model: self.model,
            tokenizer: &self.tokenizer,
            cursor: self.data.cursor(),
            sampled: 0,
            validation_loss: state.validation_loss,
            best_validation_loss: state.best,
            elapsed_seconds: now.elapsed_seconds,
            metadata: &self.metadata,
        })?;
        if let Some(saving) = &mut self.saving {
            (saving.run)(&checkpoint)?;
        }
        state.saved = Some(now.step);
        for callback in &mut self.callbacks {
            state.heed(callback.on_checkpoint(&now, &checkpoint)?);
        }
        state.pace.skip();
        Ok(())
    }

    fn moment(&self, training: &ItTraining<'_>, state: &State, step: u64) -> Moment {
        let cells = (self.data.rows() * self.data.sequence()) as u64;
        let tokens_per_step = cells * u64::from(training.config().accumulation.max(1));
        let seconds_per_step = state.pace.seconds_per_step();
        let tokens_per_second = match seconds_per_step {
            0.0 => 0.0,
            seconds => tokens_per_step as f64 / seconds,
        };
        Moment {
            step,
            total_steps: training.config().total_steps,
            tokens_per_step,
            tokens_per_second,
            seconds_per_step,
            elapsed_seconds: self.before.elapsed_seconds + state.began.elapsed().as_secs_f64(),
        }
    }
}

/// What changes while a run goes.
struct State {
    pace: Pace,
    began: Instant,
    validation_loss: Option<f32>,
    best: Option<f32>,
    /// The step of the last checkpoint.
    saved: Option<u64>,
    stop: bool,
}

impl State {
    fn heed(&mut self, flow: Flow) {
        self.stop |= flow == Flow::Stop;
    }
}
