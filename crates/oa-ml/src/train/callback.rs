//! What a run tells while it goes, and how it is told to stop.

use super::watch::StepReport;
use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::evaluate::Evaluation;
use std::collections::BTreeMap;

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It ends after this step, with a checkpoint if it saves any.
    Stop,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every step is done.
    Finished,
    /// A callback stopped it.
    Stopped,
    /// It was asked to end from outside.
    Asked,
    /// It ended with an error.
    Failed,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Steps done, over all resumptions.
    pub step: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Cells of a step's batches: the tokens that it reads.
    pub tokens_per_step: u64,
    /// Tokens a second of the steps of this process, without what happens between them; 0 before it
    /// is known.
    pub tokens_per_second: f64,
    /// Seconds a step; 0 before it is known.
    pub seconds_per_step: f64,
    /// Wall-clock seconds, over all resumptions.
    pub elapsed_seconds: f64,
}

/// Listens to a run. Every method has a default that does nothing.
///
/// `E` is the error of the program around the run.
pub trait Callback<E = Error> {
    /// The run begins, or goes on with the notes of its checkpoint.
    ///
    /// # Errors
    ///
    /// Whatever ends the run.
    fn on_start(&mut self, _now: &Moment, _notes: &BTreeMap<String, String>) -> Result<(), E> {
        Ok(())
    }

    /// The loss of a step is known. Losses are read late: by then up to two later steps have been
    /// submitted, and they are done even if this one stops the run.
    ///
    /// # Errors
    ///
    /// Whatever ends the run.
    fn on_step(&mut self, _now: &Moment, _report: &StepReport) -> Result<Flow, E> {
        Ok(Flow::Continue)
    }

    /// The model was measured on the validation text. Every step before is known.
    ///
    /// # Errors
    ///
    /// Whatever ends the run.
    fn on_evaluation(&mut self, _now: &Moment, _measured: &Evaluation) -> Result<Flow, E> {
        Ok(Flow::Continue)
    }

    /// A checkpoint is durable.
    ///
    /// # Errors
    ///
    /// Whatever ends the run.
    fn on_checkpoint(&mut self, _now: &Moment, _saved: &Checkpoint) -> Result<Flow, E> {
        Ok(Flow::Continue)
    }

    /// The run is over, with an error too.
    ///
    /// # Errors
    ///
    /// Reported unless the run already ended with one.
    fn on_end(&mut self, _now: &Moment, _ending: Ending) -> Result<(), E> {
        Ok(())
    }

    /// Adds what must survive a resumption to the notes of a checkpoint.
    fn note(&self, _notes: &mut BTreeMap<String, String>) {}
}
