//! What a run measured, a line a step, as comma-separated values.
//!
//! A line is written as soon as its step is known, so a killed run keeps what it measured. A
//! resumed run drops the lines after its checkpoint, because it will write them again.

use super::callback::{Callback, Ending, Flow, Moment};
use super::watch::StepReport;
use crate::data::DataFault;
use crate::error::{Error, Result};
use crate::evaluate::Evaluation;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const HEADER: &str = "step,loss,gradient_norm,learning_rate,tokens,tokens_per_second,\
                      elapsed_seconds,validation_loss,validation_accuracy";

/// A line that was there when the file was opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CsvRow {
    /// Steps done.
    pub step: u64,
    /// Loss of the last of them, in nats.
    pub loss: f64,
    /// Loss of an evaluation after it, in nats.
    pub validation_loss: Option<f64>,
}

/// Writes the file.
#[derive(Debug)]
pub struct CsvLog {
    path: PathBuf,
    file: File,
    /// The line of the last step, until the next one or an evaluation completes it.
    open: Option<String>,
    earlier: Vec<CsvRow>,
}

impl CsvLog {
    /// Opens the file of a run that has done `done` steps, and keeps its whole lines up to there.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn open(path: impl Into<PathBuf>, done: u64) -> Result<CsvLog> {
        let path = path.into();
        let kept = kept(&path, done)?;
        let fail = |source| fault("write", &path, source);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let beside = path.with_file_name(name);
        let lines: String = kept.iter().flat_map(|(_, line)| [line.as_str(), "\n"]).collect();
        std::fs::write(&beside, format!("{HEADER}\n{lines}")).map_err(fail)?;
        std::fs::rename(&beside, &path).map_err(fail)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(fail)?;
        let earlier = kept.into_iter().map(|(row, _)| row).collect();
        Ok(CsvLog { path, file, open: None, earlier })
    }

    /// The lines that were kept.
    pub fn earlier(&self) -> &[CsvRow] {
        &self.earlier
    }

    fn step(&mut self, now: &Moment, report: &StepReport) -> Result<()> {
        self.close(",,")?;
        let Moment { step, tokens_per_second, elapsed_seconds, .. } = *now;
        let StepReport { loss, gradient_norm, learning_rate, .. } = *report;
        let tokens = step * now.tokens_per_step;
        self.open = Some(format!(
            "{step},{loss},{gradient_norm},{learning_rate},{tokens},{tokens_per_second:.1},\
             {elapsed_seconds:.3}"
        ));
        Ok(())
    }

    fn close(&mut self, rest: &str) -> Result<()> {
        if let Some(mut line) = self.open.take() {
            line.push_str(rest);
            line.push('\n');
            let written = self.file.write_all(line.as_bytes());
            written.map_err(|source| fault("write", &self.path, source))?;
        }
        Ok(())
    }
}

impl<E: From<Error>> Callback<E> for CsvLog {
    fn on_step(&mut self, now: &Moment, report: &StepReport) -> Result<Flow, E> {
        self.step(now, report)?;
        Ok(Flow::Continue)
    }

    fn on_evaluation(&mut self, _now: &Moment, measured: &Evaluation) -> Result<Flow, E> {
        self.close(&format!(",{},{}", measured.loss, measured.accuracy))?;
        Ok(Flow::Continue)
    }

    fn on_checkpoint(&mut self, _now: &Moment, _saved: &crate::Checkpoint) -> Result<Flow, E> {
        self.close(",,")?;
        Ok(Flow::Continue)
    }

    fn on_end(&mut self, _now: &Moment, _ending: Ending) -> Result<(), E> {
        Ok(self.close(",,")?)
    }
}

fn fault(verb: &'static str, path: &Path, source: io::Error) -> Error {
    DataFault::File { verb, path: path.to_owned(), source }.into()
}

/// The whole lines of the first `done` steps, each step once.
fn kept(path: &Path, done: u64) -> Result<Vec<(CsvRow, String)>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fault("read", path, error)),
    };
    let columns = HEADER.split(',').count();
    let whole = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let step = cells[0].parse().ok().filter(|&step: &u64| step <= done)?;
        let loss = cells.get(1)?.parse().ok()?;
        let validation_loss = cells.get(7)?.parse().ok();
        let row = CsvRow { step, loss, validation_loss };
        (cells.len() == columns).then_some((row, line.to_owned()))
    };
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let mut rows: Vec<(CsvRow, String)> = lines.filter_map(whole).collect();
    rows.dedup_by_key(|(row, _)| row.step);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(log: &mut CsvLog, steps: std::ops::Range<u64>) {
        for step in steps {
            let now = Moment {
                step: step + 1,
                total_steps: 9,
                tokens_per_step: 10,
                tokens_per_second: 100.0,
                seconds_per_step: 0.1,
                elapsed_seconds: 0.5,
            };
            let loss = 5.0 - step as f32;
            let report = StepReport { step, loss, gradient_norm: 0.5, learning_rate: 0.001 };
            Callback::<Error>::on_step(log, &now, &report).unwrap();
            if step == 1 {
                let measured = Evaluation { loss: 2.5, accuracy: 0.25, predictions: 8 };
                Callback::<Error>::on_evaluation(log, &now, &measured).unwrap();
            }
            if step == 2 {
                Callback::<Error>::on_end(log, &now, Ending::Finished).unwrap();
            }
        }
    }

    #[test]
    fn a_resumed_run_writes_on_after_its_checkpoint() {
        let folder = std::env::temp_dir().join(format!("oa-csv-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("metrics.csv");
        measure(&mut CsvLog::open(&path, 0).unwrap(), 0..3);
        let whole = std::fs::read_to_string(&path).unwrap();
        let rows = [
            "1,5,0.5,0.001,10,100.0,0.500,,",
            "2,4,0.5,0.001,20,100.0,0.500,2.5,0.25",
            "3,3,0.5,0.001,30,100.0,0.500,,",
        ];
        assert_eq!(whole, format!("{HEADER}\n{}\n", rows.join("\n")));
        std::fs::write(&path, format!("{whole}4,2,0.")).unwrap();
        let mut log = CsvLog::open(&path, 2).unwrap();
        let earlier = log.earlier().to_vec();
        assert_eq!(earlier[1], CsvRow { step: 2, loss: 4.0, validation_loss: Some(2.5) });
        assert_eq!(earlier.len(), 2);
        let cut = std::fs::read_to_string(&path).unwrap();
        assert_eq!(cut, format!("{HEADER}\n{}\n{}\n", rows[0], rows[1]));
        measure(&mut log, 2..3);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        let error = CsvLog::open(folder.join("no/metrics.csv"), 0).unwrap_err().to_string();
        assert!(error.starts_with("cannot write "), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
