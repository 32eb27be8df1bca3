//! Training: the session that a loop is written around.
//!
//! A step is begun, gradients are zeroed, losses are walked back, and the step is completed. The
//! session turns the schedule, clips, updates, watches for values that are no numbers, and reads
//! losses late so that it never waits inside a step. A step can also be captured once as an
//! execution plan and replayed; both ways give the same bits.

mod callback;
mod captured;
mod csv;
mod early_stop;
mod fit;
mod inputs;
mod pace;
mod progress;
mod resume;
mod session;
mod watch;

pub use callback::{Callback, Ending, Flow, Moment};
pub use csv::{CsvLog, CsvRow};
pub use early_stop::EarlyStop;
pub use fit::{Fit, Fitted, Periodic};
pub use inputs::StepInputs;
pub use progress::ProgressLines;
pub use resume::{RunIdentity, SaveError};
pub use session::{ItTraining, ItTrainingConfig};
pub use watch::StepReport;
