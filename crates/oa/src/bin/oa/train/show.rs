//! What a run shows: a bar where people watch, lines in a log, JSON for programs.

use crate::failure::Failure;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use oa::ml::{Evaluation, StepReport};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

/// Lines of a log that a whole run takes, evaluations not counted.
const LINES: u64 = 20;

/// How fast a run goes: tokens and time of its steps, without what happens between them.
pub struct Pace {
    mark: Instant,
    steps: u64,
    time: Duration,
    tokens_a_step: u64,
}

impl Pace {
    /// A run whose first step starts now.
    pub fn new(tokens_a_step: u64) -> Pace {
        Pace { mark: Instant::now(), steps: 0, time: Duration::ZERO, tokens_a_step }
    }

    /// A step was submitted. The first one also builds plans and pipelines, so it does not count.
    pub fn step(&mut self) {
        let now = Instant::now();
        if self.steps > 0 {
            self.time += now - self.mark;
        }
        self.steps += 1;
        self.mark = now;
    }

    /// Something else ended: the next step starts now.
    pub fn skip(&mut self) {
        self.mark = Instant::now();
    }

    /// Tokens a second; 0 before it is known.
    pub fn tokens_per_second(&self) -> f64 {
        match self.seconds_per_step() {
            0.0 => 0.0,
            seconds => self.tokens_a_step as f64 / seconds,
        }
    }

    /// Seconds a step; 0 before it is known.
    pub fn seconds_per_step(&self) -> f64 {
        match self.steps {
            0 | 1 => 0.0,
            steps => self.time.as_secs_f64() / (steps - 1) as f64,
        }
    }
}

/// The display of a run.
pub struct Show {
    json: bool,
    watched: bool,
    bar: ProgressBar,
    total: u64,
}

impl Show {
    /// A display of a run of `total` steps, of which `done` are done.
    pub fn new(json: bool, total: u64, done: u64) -> Show {
        let watched = !json && io::stderr().is_terminal();
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed} gone, {eta} left")
                .expect("the template is right");
        let bar = if watched { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let bar = bar.with_style(style).with_position(done);
        bar.reset_eta();
        Show { json, watched, bar, total }
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

    /// A finished step.
    pub fn step(&self, report: &StepReport, pace: &Pace) -> Result<(), Failure> {
        let (step, rate) = (report.step + 1, pace.tokens_per_second());
        self.event(&json!({
            "event": "step",
            "step": step,
            "loss": report.loss,
            "gradient_norm": report.gradient_norm,
            "learning_rate": report.learning_rate,
            "tokens_per_second": rate,
        }))?;
        let speed = format!("{} tokens/s", output::count(rate as u64));
        self.bar.set_position(step);
        self.bar.set_message(format!("loss {:.4}  {speed}", report.loss));
        let every = (self.total / LINES).max(1);
        if !self.watched && (step == 1 || step.is_multiple_of(every)) {
            let left = (self.total - step.min(self.total)) as f64 * pace.seconds_per_step();
            let left = indicatif::HumanDuration(Duration::from_secs_f64(left));
            let total = self.total;
            self.say(&format!(
                "step {step}/{total}  loss {:.4}  {speed}  {left} left",
                report.loss
            ))?;
        }
        Ok(())
    }

    /// A finished evaluation.
    pub fn evaluation(&self, step: u64, measured: &Evaluation) -> Result<(), Failure> {
        self.event(&json!({
            "event": "evaluation",
            "step": step,
            "loss": measured.loss,
            "accuracy": measured.accuracy,
            "predictions": measured.predictions,
        }))?;
        self.say(&format!(
            "step {step}: validation loss {:.4} nats, accuracy {:.2} %",
            measured.loss,
            100.0 * measured.accuracy
        ))?;
        Ok(())
    }

    /// A saved checkpoint.
    pub fn checkpoint(&self, step: u64, file: &Path) -> Result<(), Failure> {
        self.event(&json!({ "event": "checkpoint", "step": step, "file": file }))?;
        self.say(&format!("step {step}: saved {}", file.display()))?;
        Ok(())
    }

    /// Hides the bar while something else runs or the run ends.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
