//! Generation: a prompt goes in, tokens come out one by one.
//!
//! The state of the sequence (key-value caches, hidden states) stays on the device, the next token
//! is sampled there, and one small read per token brings it back. Each kind of pass is captured
//! once as an execution plan and replayed.

mod generator;
mod passes;
mod sampling;
mod stop;
mod stream;
mod text;

pub use generator::{Generator, Prompt};
pub use sampling::Sampling;
pub use stop::Stop;
pub use stream::Utf8Stream;
pub use text::{Generated, Piece, TextEnd, TextRequest};
