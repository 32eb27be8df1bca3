//! `metrics.csv` and `loss.svg`: what a run measured, a line a step.
//!
//! A line is written as soon as its step is known, so a killed run keeps what it measured. A
//! resumed run drops the lines after its checkpoint, because it will write them again.

use crate::failure::Failure;
use oa::ml::{Evaluation, StepReport};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

const HEADER: &str = "step,loss,gradient_norm,learning_rate,tokens,tokens_per_second,\
                      elapsed_seconds,validation_loss,validation_accuracy";

/// Where a run's measurements go.
pub struct Metrics {
    path: PathBuf,
    picture: PathBuf,
    file: File,
    /// The line of the last step, until the next one or an evaluation completes it.
    open: Option<String>,
    training: Vec<(f64, f64)>,
    validation: Vec<(f64, f64)>,
}

impl Metrics {
    /// The measurements of a run that has done `done` steps.
    pub fn open(folder: &Path, done: u64) -> Result<Metrics, Failure> {
        let path = folder.join("metrics.csv");
        let (mut lines, mut training, mut validation) = (String::new(), Vec::new(), Vec::new());
        for line in kept(&path, done)? {
            let cells: Vec<Option<f64>> = line.split(',').map(|cell| cell.parse().ok()).collect();
            let cell = |index: usize| cells.get(index).copied().flatten();
            if let (Some(step), Some(loss)) = (cell(0), cell(1)) {
                training.push((step, loss));
                validation.extend(cell(7).map(|loss| (step, loss)));
            }
            lines.push_str(&line);
            lines.push('\n');
        }
        let fail = |error| Failure::file("write", &path, &error);
        let beside = folder.join(".metrics.csv.tmp");
        std::fs::write(&beside, format!("{HEADER}\n{lines}")).map_err(fail)?;
        std::fs::rename(&beside, &path).map_err(fail)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(fail)?;
        let picture = folder.join("loss.svg");
        Ok(Metrics { path, picture, file, open: None, training, validation })
    }

    /// Takes note of a finished step.
    pub fn step(
        &mut self,
        report: &StepReport,
        tokens: u64,
        rate: f64,
        elapsed: f64,
    ) -> Result<(), Failure> {
        self.close(",,")?;
        let step = report.step + 1;
        let mut line = String::new();
        write!(
            line,
            "{step},{},{},{},{tokens},{rate:.1},{elapsed:.3}",
            report.loss, report.gradient_norm, report.learning_rate
        )
        .expect("writing to a string cannot fail");
        self.open = Some(line);
        self.training.push((step as f64, f64::from(report.loss)));
        Ok(())
    }

    /// Takes note of an evaluation after the last step.
    pub fn evaluation(&mut self, step: u64, measured: &Evaluation) -> Result<(), Failure> {
        self.validation.push((step as f64, measured.loss));
        self.close(&format!(",{},{}", measured.loss, measured.accuracy))
    }

    /// Writes the last line and draws the picture.
    pub fn flush(&mut self, title: &str) -> Result<(), Failure> {
        self.close(",,")?;
        match oa::picture::loss_svg(&self.picture, title, &self.training, &self.validation) {
            Ok(()) | Err(oa::picture::Error::Empty) => Ok(()),
            Err(oa::picture::Error::Write(error)) => {
                Err(Failure::file("write", &self.picture, &error))
            }
            Err(error) => {
                tracing::warn!("no loss picture: {error}");
                Ok(())
            }
        }
    }

    fn close(&mut self, rest: &str) -> Result<(), Failure> {
        if let Some(mut line) = self.open.take() {
            line.push_str(rest);
            line.push('\n');
            let written = self.file.write_all(line.as_bytes());
            written.map_err(|error| Failure::file("write", &self.path, &error))?;
        }
        Ok(())
    }
}

/// The whole lines of the first `done` steps.
fn kept(path: &Path, done: u64) -> Result<Vec<String>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::file("read", path, &error)),
    };
    let columns = HEADER.split(',').count();
    let whole = |line: &&str| {
        let step = line.split(',').next().and_then(|step| step.parse::<u64>().ok());
        line.split(',').count() == columns && step.is_some_and(|step| step <= done)
    };
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    Ok(lines.filter(whole).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(step: u64) -> StepReport {
        let loss = 5.0 - step as f32;
        StepReport { step, loss, gradient_norm: 0.5, learning_rate: 0.001 }
    }

    #[test]
    fn a_resumed_run_writes_on_after_its_checkpoint() {
        let folder = std::env::temp_dir().join(format!("oa-metrics-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut metrics = Metrics::open(&folder, 0).unwrap();
        for step in 0..3 {
            metrics.step(&report(step), 10 * (step + 1), 100.0, 0.5).unwrap();
            if step == 1 {
                let measured = Evaluation { loss: 2.5, accuracy: 0.25, predictions: 8 };
                metrics.evaluation(2, &measured).unwrap();
            }
        }
        metrics.flush("a run").unwrap();
        let path = folder.join("metrics.csv");
        let whole = std::fs::read_to_string(&path).unwrap();
        let rows = [
            "1,5,0.5,0.001,10,100.0,0.500,,",
            "2,4,0.5,0.001,20,100.0,0.500,2.5,0.25",
            "3,3,0.5,0.001,30,100.0,0.500,,",
        ];
        assert_eq!(whole, format!("{HEADER}\n{}\n", rows.join("\n")));
        assert!(folder.join("loss.svg").exists());
        std::fs::write(&path, format!("{whole}4,2,0.")).unwrap();
        let metrics = Metrics::open(&folder, 2).unwrap();
        assert_eq!((metrics.training.len(), metrics.validation.as_slice()), (2, &[(2.0, 2.5)][..]));
        let cut = std::fs::read_to_string(&path).unwrap();
        assert_eq!(cut, format!("{HEADER}\n{}\n{}\n", rows[0], rows[1]));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
