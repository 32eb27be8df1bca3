//! Training: the session that a loop is written around.
//!
//! A step is begun, gradients are zeroed, losses are walked back, and the step is completed. The
//! session turns the schedule, clips, updates, watches for values that are no numbers, and reads
//! losses late so that it never waits inside a step. A step can also be captured once as an
//! execution plan and replayed; both ways give the same bits.

mod captured;
mod inputs;
mod resume;
mod session;
mod watch;

pub use inputs::StepInputs;
pub use resume::{RunIdentity, SaveError};
pub use session::{ItTraining, ItTrainingConfig};
pub use watch::StepReport;
