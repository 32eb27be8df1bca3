//! Ends a run whose validation loss no longer falls.

use super::callback::{Callback, Flow, Moment};
use crate::error::{Error, Result};
use crate::evaluate::Evaluation;
use std::collections::BTreeMap;

/// The note that a resumed run goes on from: the lowest loss and the evaluations since.
const NOTE: &str = "oa.early_stop";

/// Stops a run after a number of evaluations without a lower validation loss. A resumed run goes on
/// counting.
#[derive(Clone, Debug)]
pub struct EarlyStop {
    patience: u32,
    min_delta: f64,
    best: Option<f64>,
    waited: u32,
}

impl EarlyStop {
    /// Stops at the `patience`-th evaluation in a row whose loss is not lower than the lowest by
    /// more than `min_delta` nats.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when `patience` is 0.
    pub fn new(patience: u32, min_delta: f64) -> Result<EarlyStop> {
        if patience == 0 {
            return Err(Error::Setting { name: "the patience", value: 0, least: 1 });
        }
        Ok(EarlyStop { patience, min_delta, best: None, waited: 0 })
    }

    /// The lowest validation loss so far, in nats.
    pub fn best(&self) -> Option<f64> {
        self.best
    }

    /// Takes note of a loss; one that is no number is not lower.
    fn see(&mut self, loss: f64) -> Flow {
        if loss.is_finite() && self.best.is_none_or(|best| loss < best - self.min_delta) {
            (self.best, self.waited) = (Some(loss), 0);
        } else {
            self.waited += 1;
        }
        if self.waited >= self.patience { Flow::Stop } else { Flow::Continue }
    }
}

impl<E> Callback<E> for EarlyStop {
    fn on_start(&mut self, _now: &Moment, notes: &BTreeMap<String, String>) -> Result<(), E> {
        let note = notes.get(NOTE).and_then(|note| note.split_once(' '));
        if let Some((best, waited)) = note {
            (self.best, self.waited) = (best.parse().ok(), waited.parse().unwrap_or(0));
        }
        Ok(())
    }

    fn on_evaluation(&mut self, _now: &Moment, measured: &Evaluation) -> Result<Flow, E> {
        Ok(self.see(measured.loss))
    }

    fn note(&self, notes: &mut BTreeMap<String, String>) {
        if let Some(best) = self.best {
            notes.insert(NOTE.into(), format!("{best} {}", self.waited));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stops_when_the_loss_stays() {
        let mut stop = EarlyStop::new(2, 0.1).unwrap();
        let mut see =
            |losses: &[f64]| losses.iter().map(|&loss| stop.see(loss)).collect::<Vec<_>>();
        let (go, end) = (Flow::Continue, Flow::Stop);
        assert_eq!(see(&[3.0, 2.95, 2.5, 2.45, 2.3]), [go; 5]);
        assert_eq!(see(&[f64::NAN, 2.25]), [go, end]);
        assert_eq!(see(&[2.0]), [go], "a lower loss would make it go on");
        assert!(EarlyStop::new(0, 0.0).unwrap_err().to_string().starts_with("the patience is 0"));
    }

    #[test]
    fn the_count_survives_a_resumption() {
        let mut first = EarlyStop::new(3, 0.0).unwrap();
        [2.125, 2.5, 2.25].iter().for_each(|&loss| assert_eq!(first.see(loss), Flow::Continue));
        let mut notes = BTreeMap::new();
        Callback::<Error>::note(&first, &mut notes);
        let mut second = EarlyStop::new(3, 0.0).unwrap();
        let now = Moment {
            step: 0,
            total_steps: 0,
            tokens_per_step: 0,
            tokens_per_second: 0.0,
            seconds_per_step: 0.0,
            elapsed_seconds: 0.0,
        };
        Callback::<Error>::on_start(&mut second, &now, &notes).unwrap();
        assert_eq!(second.best(), Some(2.125));
        assert_eq!(second.see(2.125), Flow::Stop);
    }
}
