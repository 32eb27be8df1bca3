//! `loss.svg`: the losses of a run as a picture, drawn again whenever there is something new to see.

use super::halt::Halt;
use crate::failure::Failure;
use oa::ml::train::{CsvRow, Ending, Moment};
use oa::ml::{Callback, Checkpoint, Evaluation, Flow, StepReport};
use std::path::{Path, PathBuf};

/// The picture of a run.
pub struct Drawing {
    path: PathBuf,
    title: String,
    training: Vec<(f64, f64)>,
    validation: Vec<(f64, f64)>,
}

impl Drawing {
    /// The picture of a run that measured `earlier` before.
    pub fn new(folder: &Path, title: String, earlier: &[CsvRow]) -> Drawing {
        let training = earlier.iter().map(|row| (row.step as f64, row.loss)).collect();
        let validation =
            earlier.iter().filter_map(|row| Some((row.step as f64, row.validation_loss?)));
        Drawing { path: folder.join("loss.svg"), title, training, validation: validation.collect() }
    }

    fn draw(&self) -> Result<(), Failure> {
        match oa::picture::loss_svg(&self.path, &self.title, &self.training, &self.validation) {
            Ok(()) | Err(oa::picture::Error::Empty) => Ok(()),
            Err(oa::picture::Error::Write(error)) => {
                Err(Failure::file("write", &self.path, &error))
            }
            Err(error) => {
                tracing::warn!("no loss picture: {error}");
                Ok(())
            }
        }
    }
}

impl Callback<Halt> for Drawing {
    fn on_step(&mut self, now: &Moment, report: &StepReport) -> Result<Flow, Halt> {
        self.training.push((now.step as f64, f64::from(report.loss)));
        Ok(Flow::Continue)
    }

    fn on_evaluation(&mut self, now: &Moment, measured: &Evaluation) -> Result<Flow, Halt> {
        self.validation.push((now.step as f64, measured.loss));
        self.draw()?;
        Ok(Flow::Continue)
    }

    fn on_checkpoint(&mut self, _now: &Moment, _saved: &Checkpoint) -> Result<Flow, Halt> {
        self.draw()?;
        Ok(Flow::Continue)
    }

    fn on_end(&mut self, _now: &Moment, _ending: Ending) -> Result<(), Halt> {
        Ok(self.draw()?)
    }
}
