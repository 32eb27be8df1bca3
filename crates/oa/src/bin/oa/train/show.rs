//! What a run shows: a bar where people watch, lines in a log, JSON for programs.
//!
//! A run is worth more than its output: when that cannot be written any more, the run is asked to
//! save and end, and nothing is shown from then on.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use oa::io::CheckpointFolder;
use oa::ml::train::{Ending, Moment};
use oa::ml::{Callback, Checkpoint, Evaluation, Flow, StepReport};
use serde_json::json;
use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::rc::Rc;

/// The display of a run.
pub struct Show {
    json: bool,
    watched: bool,
    bar: ProgressBar,
    folder: CheckpointFolder,
    lost: Lost,
}

/// Why the output could not be written, once it could not.
pub type Lost = Rc<RefCell<Option<io::Error>>>;

impl Show {
    /// A display of a run of `total` steps, of which `done` are done, that saves into a folder.
    pub fn new(json: bool, total: u64, done: u64, folder: CheckpointFolder) -> Show {
        let watched = !json && io::stderr().is_terminal();
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed} gone, {eta} left")
                .expect("the template is right");
        let bar = if watched { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let bar = bar.with_style(style).with_position(done);
        bar.reset_eta();
        Show { json, watched, bar, folder, lost: Lost::default() }
    }

    /// Whether the output is lost; it stays with the display.
    pub fn lost(&self) -> Lost {
        self.lost.clone()
    }

    /// Something worth a line.
    pub fn say(&self, line: &str) {
        match (self.json, self.watched && !self.bar.is_finished()) {
            (true, _) => {}
            (_, true) => self.bar.println(line),
            _ => self.write(|| output::text(&format!("{line}\n"))),
        }
    }

    /// Something for programs.
    pub fn event(&self, event: &serde_json::Value) {
        if self.json {
            self.write(|| output::json(event));
        }
    }

    /// Takes the error of the output, if it was lost.
    pub fn take_lost(&self) -> Option<io::Error> {
        self.lost.take()
    }

    fn write(&self, write: impl FnOnce() -> io::Result<()>) {
        let mut lost = self.lost.borrow_mut();
        if lost.is_none() {
            *lost = write().err();
        }
    }
}

impl<E> Callback<E> for Show {
    fn on_step(&mut self, now: &Moment, report: &StepReport) -> Result<Flow, E> {
        self.event(&json!({
            "event": "step",
            "step": now.step,
            "loss": report.loss,
            "gradient_norm": report.gradient_norm,
            "learning_rate": report.learning_rate,
            "tokens_per_second": now.tokens_per_second,
        }));
        self.bar.set_position(now.step);
        self.bar.set_message(format!("loss {:.4}  {}", report.loss, now.speed()));
        if !self.watched && now.deserves_a_line() {
            self.say(&now.step_line(report));
        }
        Ok(Flow::Continue)
    }

    fn on_evaluation(&mut self, now: &Moment, measured: &Evaluation) -> Result<Flow, E> {
        self.event(&json!({
            "event": "evaluation",
            "step": now.step,
            "loss": measured.loss,
            "accuracy": measured.accuracy,
            "predictions": measured.predictions,
        }));
        self.say(&now.evaluation_line(measured));
        Ok(Flow::Continue)
    }

    fn on_checkpoint(&mut self, now: &Moment, _saved: &Checkpoint) -> Result<Flow, E> {
        let (step, file) = (now.step, self.folder.file_of(now.step));
        self.event(&json!({ "event": "checkpoint", "step": step, "file": file }));
        self.say(&format!("step {step}: saved {}", file.display()));
        Ok(Flow::Continue)
    }

    fn on_end(&mut self, _now: &Moment, _ending: Ending) -> Result<(), E> {
        self.bar.finish_and_clear();
        Ok(())
    }
}
