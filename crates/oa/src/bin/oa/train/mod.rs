//! `oa train`: a run from its settings, or on from a checkpoint.
//!
//! Everything that decides a bit comes from the settings of a fresh run or from the checkpoint of a
//! resumed one; nothing is taken from the folder but its newest file.

mod drawing;
mod halt;
mod lock;
mod run;
mod show;
mod start;
mod texts;
mod tokenizer;

pub use start::routine;
pub use texts::{Text, packed_text};

use crate::failure::Failure;
use crate::flags::{Common, TrainFlags};

/// Runs `oa train`.
pub fn run(common: &Common, flags: &TrainFlags) -> Result<(), Failure> {
    flags.settings.check_numbers()?;
    let start = match &flags.resume {
        Some(place) => start::resume(flags, place.as_deref())?,
        None => start::fresh(flags)?,
    };
    run::run(common, start)
}
