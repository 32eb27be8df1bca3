//! Ctrl-C: the first asks the run to save and end, the second ends it at once.
//!
//! The handler only sets a flag; the loop looks at it between steps.

use crate::failure::{End, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a command that was interrupted twice, as shells count it.
const INTERRUPTED: i32 = 130;

/// Whether somebody wants the command to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on; a second signal ends the process without saving.
    pub fn listen() -> Result<Interrupt, Failure> {
        let interrupt = Interrupt::default();
        let asked = interrupt.asked.clone();
        ctrlc::set_handler(move || {
            if asked.swap(true, Ordering::SeqCst) {
                std::process::exit(INTERRUPTED);
            }
        })
        .map_err(|error| {
            let (cause, remedy) = (error.to_string(), "run it in an ordinary shell");
            Failure::new(End::Failed, "cannot listen for Ctrl-C", cause, remedy)
        })?;
        Ok(interrupt)
    }

    /// True once somebody asked.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}
