//! Learning-rate schedules: pure functions from a step number to a rate.
//!
//! A schedule holds no counter, so a resumed run asks for the rate of the step it is at and gets
//! the bits that the uninterrupted run got.

use serde::{Deserialize, Serialize};

/// Shape of the final decay of a warmup-stable-decay schedule; `x` runs from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecayShape {
    /// `1 - x`.
    Linear,
    /// `1 - sqrt(x)`.
    Sqrt,
}

/// How the learning rate moves during a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Schedule {
    /// The base rate, reached after `warmup` steps.
    Constant {
        /// Steps of linear warm-up; 0 for none.
        warmup: u64,
    },
    /// Linear warm-up, then a cosine down to `min_ratio` times the base rate.
    Cosine {
        /// Steps of linear warm-up.
        warmup: u64,
        /// Final rate over base rate, in `0..=1`.
        min_ratio: f64,
    },
    /// Warm-up, a constant plateau, and a decay over the last `decay` steps.
    WarmupStableDecay {
        /// Steps of linear warm-up.
        warmup: u64,
        /// Steps of the final decay.
        decay: u64,
        /// Final rate over base rate, in `0..=1`.
        min_ratio: f64,
        /// Shape of the decay.
        shape: DecayShape,
    },
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::Constant { warmup: 0 }
    }
}

impl Schedule {
    /// Linear warm-up, then a line down to `min_ratio` times the base rate at the end of a run of
    /// `total` steps: a plateau of no length.
    pub fn linear(warmup: u64, total: u64, min_ratio: f64) -> Schedule {
        let (decay, shape) = (total.saturating_sub(warmup), DecayShape::Linear);
        Schedule::WarmupStableDecay { warmup, decay, min_ratio, shape }
    }

    /// The learning rate of `step` (counted from 0) in a run of `total` steps. Steps past the end
    /// of the run keep the final rate.
    pub fn rate(&self, base: f64, step: u64, total: u64) -> f64 {
        let warmup = self.warmup();
        if step < warmup {
            return base * (step + 1) as f64 / warmup as f64;
        }
        match *self {
            Schedule::Constant { .. } => base,
            Schedule::Cosine { warmup, min_ratio } => {
                let x = progress(step, warmup, total);
                let half = (1.0 + (std::f64::consts::PI * x).cos()) / 2.0;
                base * (min_ratio + (1.0 - min_ratio) * half)
            }
            Schedule::WarmupStableDecay { decay, min_ratio, shape, .. } => {
                let start = total.saturating_sub(decay);
                if step < start {
                    return base;
                }
                let x = progress(step, start, start + decay);
                let left = match shape {
                    DecayShape::Linear => 1.0 - x,
                    DecayShape::Sqrt => 1.0 - x.sqrt(),
                };
                base * (min_ratio + (1.0 - min_ratio) * left)
            }
        }
    }

    /// Steps of linear warm-up.
    pub fn warmup(&self) -> u64 {
        match *self {
            Schedule::Constant { warmup }
            | Schedule::Cosine { warmup, .. }
            | Schedule::WarmupStableDecay { warmup, .. } => warmup,
        }
    }
}

/// How far `step` lies between `from` and `to`, held to `0..=1`; an empty range is finished.
fn progress(step: u64, from: u64, to: u64) -> f64 {
    if to <= from {
        return 1.0;
    }
    (step.saturating_sub(from) as f64 / (to - from) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::Vectors;

    fn check(vectors: &Vectors, output: &str, schedule: Schedule) {
        let steps = vectors.i32("in.step");
        for (&step, want) in steps.iter().zip(vectors.f32(output)) {
            let got = schedule.rate(3.0e-4, step as u64, 100) as f32;
            assert_eq!(got.to_bits(), want.to_bits(), "{output} at step {step}: {got} for {want}");
        }
    }

    #[test]
    fn rates_agree_with_the_vectors_to_the_last_bit() {
        let vectors = Vectors::open("optim_clip_sched");
        check(&vectors, "out.cosine", Schedule::Cosine { warmup: 10, min_ratio: 0.1 });
        let wsd = |min_ratio, shape| Schedule::WarmupStableDecay {
            warmup: 10,
            decay: 30,
            min_ratio,
            shape,
        };
        check(&vectors, "out.wsd_linear", wsd(0.0, DecayShape::Linear));
        check(&vectors, "out.wsd_sqrt", wsd(0.05, DecayShape::Sqrt));
    }

    #[test]
    fn a_linear_schedule_is_two_lines() {
        let rate = |step| Schedule::linear(4, 12, 0.5).rate(8.0, step, 12);
        assert_eq!([0, 1, 3, 4, 6, 8, 12, 20].map(rate), [2.0, 4.0, 8.0, 8.0, 7.0, 6.0, 4.0, 4.0]);
        assert_eq!(Schedule::linear(9, 4, 0.0).rate(1.0, 3, 4), 4.0 / 9.0);
    }

    #[test]
    fn degenerate_runs_have_a_rate() {
        assert_eq!(Schedule::default().rate(1.0, 0, 0), 1.0);
        assert_eq!(Schedule::Cosine { warmup: 0, min_ratio: 0.25 }.rate(1.0, 0, 0), 0.25);
        let wsd = Schedule::WarmupStableDecay {
            warmup: 0,
            decay: 10,
            min_ratio: 0.0,
            shape: DecayShape::Linear,
        };
        assert_eq!(wsd.rate(1.0, 5, 4), 0.5);
    }
}
