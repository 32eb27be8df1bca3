//! Values, op table, engine and the compiled ExecutionPlan of OA.
#![forbid(unsafe_code)]

pub mod attrs;
pub mod engine;
pub mod error;
pub mod graph;
pub mod host;
pub mod ops;
pub mod shape;
pub mod state;
pub mod value;

pub use attrs::Attrs;
pub use error::{Error, Result, ShapeError};
pub use graph::Graph;
pub use host::{HostTensor, Spec};
pub use oa_kernels::DType;
pub use shape::Shape;
pub use state::State;
pub use value::Tensor;
