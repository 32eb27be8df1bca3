//! The largest counts that settings may give.
//!
//! Whatever a count is multiplied with later, nothing overflows and nothing is allocated before it
//! has been looked at here.

use super::Settings;
use crate::failure::Failure;
use oa::ml::data::MAX_CELLS;
use oa::ml::model::config::{MAX_HEADS, MAX_LAYERS, MAX_STATE, MAX_WIDTH};
use std::num::{IntErrorKind, ParseIntError};

/// Most steps of a run, and most of whatever counts steps or evaluations.
const MAX_STEPS: u64 = 1 << 40;

/// Most batches of a step.
const MAX_ACCUMULATION: u64 = 1 << 12;

/// Most tokens of a step: all its batches lie in memory together.
const MAX_STEP_CELLS: u64 = 1 << 28;

/// What a setting counts, what was given, and the largest that is accepted.
type Count = (&'static str, Option<u64>, u64);

impl Settings {
    /// Refuses counts that no run could have.
    pub(super) fn check_counts(&self) -> Result<(), Failure> {
        let size = |x: Option<usize>| x.map(|x| x as u64);
        let counts: [Count; 22] = [
            ("batch", size(self.batch), MAX_CELLS as u64),
            ("context", size(self.context), MAX_CELLS as u64),
            ("width", size(self.width), MAX_WIDTH as u64),
            ("layers", size(self.layers), MAX_LAYERS as u64),
            ("hidden", size(self.hidden), MAX_WIDTH as u64),
            ("heads", size(self.heads), MAX_HEADS as u64),
            ("kv-heads", size(self.kv_heads), MAX_HEADS as u64),
            ("head-dim", size(self.head_dim), MAX_STATE as u64),
            ("ff", size(self.ff), MAX_WIDTH as u64),
            ("experts", size(self.experts), MAX_WIDTH as u64),
            ("top-k", size(self.top_k), MAX_WIDTH as u64),
            ("state", size(self.state), MAX_STATE as u64),
            ("groups", size(self.groups), MAX_HEADS as u64),
            ("rank", size(self.rank), MAX_STATE as u64),
            ("accumulation", self.accumulation.map(u64::from), MAX_ACCUMULATION),
            ("steps", self.steps, MAX_STEPS),
            ("warmup", self.warmup, MAX_STEPS),
            ("decay", self.decay, MAX_STEPS),
            ("checkpoint-every", self.checkpoint_every, MAX_STEPS),
            ("eval-every", self.eval_every, MAX_STEPS),
            ("eval-batches", size(self.eval_batches), MAX_STEPS),
            ("keep", size(self.keep), MAX_STEPS),
        ];
        let sentence = "cannot start this run";
        counts.into_iter().try_for_each(|(key, given, most)| match given {
            Some(count) => check_most(sentence, key, count, most),
            None => Ok(()),
        })
    }
}

/// Reads the number of batches of a step.
pub fn read_accumulation(text: &str) -> Result<u32, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("it must be at most {MAX_ACCUMULATION}"),
        _ => error.to_string(),
    })
}

/// Refuses a count that is 0.
pub fn check_least(sentence: &str, key: &str, count: u64) -> Result<(), Failure> {
    match count {
        0 => Err(Failure::usage(sentence, format!("--{key} is 0"), "it must be at least 1")),
        _ => Ok(()),
    }
}

/// Refuses a count above the largest that is accepted.
pub fn check_most(sentence: &str, key: &str, count: u64, most: u64) -> Result<(), Failure> {
    if count <= most {
        return Ok(());
    }
    let cause = format!("--{key} is {count}");
    Err(Failure::usage(sentence, cause, format!("it must be at most {most}")))
}

/// Refuses a batch of no tokens, or of more than there may be.
pub fn check_batch(sentence: &str, batch: usize, context: usize) -> Result<(), Failure> {
    for (key, count) in [("batch", batch), ("context", context)] {
        check_least(sentence, key, count as u64)?;
        check_most(sentence, key, count as u64, MAX_CELLS as u64)?;
    }
    // Neither is above 2^26, so the product fits.
    let cells = batch as u64 * context as u64;
    if cells <= MAX_CELLS as u64 {
        return Ok(());
    }
    let cause = format!("--batch {batch} of --context {context} are {cells} tokens");
    Err(Failure::usage(sentence, cause, format!("a batch has at most {MAX_CELLS}")))
}

/// Refuses a number of batches to look at that is 0 or endless.
pub fn check_batches(sentence: &str, batches: Option<usize>) -> Result<(), Failure> {
    let batches = batches.unwrap_or(1) as u64;
    check_least(sentence, "batches", batches)?;
    check_most(sentence, "batches", batches, MAX_STEPS)
}

/// Refuses a step of more tokens than there may be; the batch and its repetitions are fine alone.
pub fn check_step(batch: usize, context: usize, accumulation: u32) -> Result<(), Failure> {
    let sentence = "cannot start this run";
    check_batch(sentence, batch, context)?;
    let cells = batch as u64 * context as u64 * u64::from(accumulation);
    if cells <= MAX_STEP_CELLS {
        return Ok(());
    }
    let cause = format!(
        "--batch {batch} of --context {context} with --accumulation {accumulation} are {cells} \
         tokens"
    );
    Err(Failure::usage(sentence, cause, format!("a step has at most {MAX_STEP_CELLS}")))
}
