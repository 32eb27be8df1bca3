//! How fast a run goes: time of its steps, without what happens between them.

use std::time::{Duration, Instant};

/// A clock of steps.
pub(super) struct Pace {
    mark: Instant,
    steps: u64,
    time: Duration,
}

impl Pace {
    /// The first step starts now.
    pub(super) fn new() -> Pace {
        Pace { mark: Instant::now(), steps: 0, time: Duration::ZERO }
    }

    /// A step was submitted. The first one also builds plans and pipelines, so it does not count.
    pub(super) fn step(&mut self) {
        let now = Instant::now();
        if self.steps > 0 {
            self.time += now - self.mark;
        }
        self.steps += 1;
        self.mark = now;
    }

    /// Something else ended: the next step starts now.
    pub(super) fn skip(&mut self) {
        self.mark = Instant::now();
    }

    /// Seconds a step; 0 before it is known.
    pub(super) fn seconds_per_step(&self) -> f64 {
        match self.steps {
            0 | 1 => 0.0,
            steps => self.time.as_secs_f64() / (steps - 1) as f64,
        }
    }
}
