//! A run as lines of a log: a few for the steps, one for each evaluation.

use super::callback::{Callback, Flow, Moment};
use super::watch::StepReport;
use crate::evaluate::Evaluation;

/// Lines of a log that a whole run takes, evaluations not counted.
const LINES: u64 = 20;

/// Gives lines to whoever prints them.
pub struct ProgressLines<F> {
    print: F,
}

impl<F: FnMut(&str)> ProgressLines<F> {
    /// Lines for `print`, which gets them without an end of line.
    pub fn new(print: F) -> ProgressLines<F> {
        ProgressLines { print }
    }
}

impl<E, F: FnMut(&str)> Callback<E> for ProgressLines<F> {
    fn on_step(&mut self, now: &Moment, report: &StepReport) -> Result<Flow, E> {
        if now.deserves_a_line() {
            (self.print)(&now.step_line(report));
        }
        Ok(Flow::Continue)
    }

    fn on_evaluation(&mut self, now: &Moment, measured: &Evaluation) -> Result<Flow, E> {
        (self.print)(&now.evaluation_line(measured));
        Ok(Flow::Continue)
    }
}

impl Moment {
    /// Whether this step is one of the few that a log shows.
    pub fn deserves_a_line(&self) -> bool {
        let every = (self.total_steps / LINES).max(1);
        self.step == 1 || self.step == self.total_steps || self.step.is_multiple_of(every)
    }

    /// A step as a line.
    pub fn step_line(&self, report: &StepReport) -> String {
        let Moment { step, total_steps, .. } = *self;
        let left = total_steps.saturating_sub(step) as f64 * self.seconds_per_step;
        format!(
            "step {step}/{total_steps}  loss {:.4}  {}  {} left",
            report.loss,
            self.speed(),
            duration(left)
        )
    }

    /// The speed as words.
    pub fn speed(&self) -> String {
        format!("{} tokens/s", thousands(self.tokens_per_second as u64))
    }

    /// An evaluation as a line.
    pub fn evaluation_line(&self, measured: &Evaluation) -> String {
        format!(
            "step {}: validation loss {:.4} nats, accuracy {:.2} %",
            self.step,
            measured.loss,
            100.0 * measured.accuracy
        )
    }
}

/// Seconds as words: `42 s`, `3 min 20 s`, `2 h 5 min`.
fn duration(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A count with its thousands set apart: `857,216`.
fn thousands(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        _ => format!("{},{:03}", thousands(count / 1000), count % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_few_lines_that_read_well() {
        let now = |step| Moment {
            step,
            total_steps: 1_000,
            tokens_per_step: 768,
            tokens_per_second: 1_234_567.8,
            seconds_per_step: 0.25,
            elapsed_seconds: 1.0,
        };
        let report = StepReport { step: 199, loss: 2.5, gradient_norm: 1.0, learning_rate: 0.1 };
        let mut lines = Vec::new();
        let mut progress = ProgressLines::new(|line: &str| lines.push(line.to_owned()));
        for step in 1..=1_000 {
            let go = Callback::<crate::Error>::on_step(&mut progress, &now(step), &report);
            assert_eq!(go.unwrap(), Flow::Continue);
        }
        let measured = Evaluation { loss: 2.0, accuracy: 0.125, predictions: 9 };
        Callback::<crate::Error>::on_evaluation(&mut progress, &now(1_000), &measured).unwrap();
        assert_eq!(lines.len(), 22);
        assert_eq!(lines[4], "step 200/1000  loss 2.5000  1,234,567 tokens/s  3 min 20 s left");
        assert_eq!(lines[21], "step 1000: validation loss 2.0000 nats, accuracy 12.50 %");
        assert_eq!([duration(9.4), duration(7_500.0)], ["9 s", "2 h 5 min"]);
    }
}
