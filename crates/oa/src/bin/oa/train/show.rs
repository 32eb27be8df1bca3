//! What a run shows: a bar where people watch, lines in a log, JSON for programs.

use crate::failure::Failure;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use oa::io::CheckpointFolder;
use oa::ml::train::{Ending, Moment};
use oa::ml::{Callback, Checkpoint, Evaluation, Flow, StepReport};
use serde_json::json;
use std::io::{self, IsTerminal};

/// The display of a run.
pub struct Show {
    json: bool,
    watched: bool,
    bar: ProgressBar,
    folder: CheckpointFolder,
}

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
        Show { json, watched, bar, folder }
    }

    /// Something worth a line.
    pub fn say(&self, line: &str) -> io::Result<()> {
        match (self.json, self.watched && !self.bar.is_finished()) {
            (true, _) => Ok(()),
            (_, true) => {
                self.bar.println(line);
                Ok(())
            }
            _ => output::text(&format!("{line}\n")),
        }
    }

    /// Something for programs.
    pub fn event(&self, event: &serde_json::Value) -> io::Result<()> {
        if self.json { output::json(event) } else { Ok(()) }
    }
}

impl Callback<Failure> for Show {
    fn on_step(&mut self, now: &Moment, report: &StepReport) -> Result<Flow, Failure> {
        self.event(&json!({
            "event": "step",
            "step": now.step,
            "loss": report.loss,
            "gradient_norm": report.gradient_norm,
            "learning_rate": report.learning_rate,
            "tokens_per_second": now.tokens_per_second,
        }))?;
        self.bar.set_position(now.step);
        self.bar.set_message(format!("loss {:.4}  {}", report.loss, now.speed()));
        if !self.watched && now.deserves_a_line() {
            self.say(&now.step_line(report))?;
        }
        Ok(Flow::Continue)
    }

    fn on_evaluation(&mut self, now: &Moment, measured: &Evaluation) -> Result<Flow, Failure> {
        self.event(&json!({
            "event": "evaluation",
            "step": now.step,
            "loss": measured.loss,
            "accuracy": measured.accuracy,
            "predictions": measured.predictions,
        }))?;
        self.say(&now.evaluation_line(measured))?;
        Ok(Flow::Continue)
    }

    fn on_checkpoint(&mut self, now: &Moment, _saved: &Checkpoint) -> Result<Flow, Failure> {
        let (step, file) = (now.step, self.folder.file_of(now.step));
        self.event(&json!({ "event": "checkpoint", "step": step, "file": file }))?;
        self.say(&format!("step {step}: saved {}", file.display()))?;
        Ok(Flow::Continue)
    }

    fn on_end(&mut self, _now: &Moment, _ending: Ending) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        Ok(())
    }
}
