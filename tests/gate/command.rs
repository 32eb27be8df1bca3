//! Errors that a user meets at the `oa` command: one sentence, the cause, and what to do.
//!
//! Part of the suite `errors`. The command runs as a process of its own, with the device that the
//! gate was given.

use crate::context::Context;
use libtest_mimic::Trial;
use std::sync::Arc;

/// One trial an error.
pub fn trials(_context: &Arc<Context>) -> Vec<Trial> {
    Vec::new()
}
