//! Parameters: declared by name, stored side by side.
//!
//! Modules declare what they need in a [`ParameterStore`]; finalising it lays every parameter out
//! in one arena (and gradients and moments in arenas of the same layout), so that an update,
//! clipping and zeroing are one dispatch each. A module keeps [`Parameter`] handles and reads them
//! anew in each forward pass. Optimizer moments belong to the optimizer.

mod buffer;
mod declare;
mod freeze;
mod gradient;
mod layout;
mod pattern;
mod store;

pub use buffer::Buffer;
pub use declare::{Decay, ParameterStore, Scope};
pub use gradient::GradientReport;
pub use layout::{Layout, Slot};
pub use pattern::matches;
pub use store::{Parameter, Parameters, TensorShape};

pub(crate) use store::Registry;
