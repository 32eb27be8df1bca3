//! Values, op table, engine and the compiled ExecutionPlan of OA.
#![forbid(unsafe_code)]

pub mod attrs;
pub mod engine;
pub mod error;
pub mod event;
mod exec;
mod extension;
pub mod grad;
pub mod graph;
pub mod host;
pub mod ops;
pub mod oracle;
pub mod plan;
mod segment;
pub mod shape;
pub mod state;
pub mod value;

pub use attrs::Attrs;
pub use engine::{Engine, EngineOptions};
pub use error::{Error, Result, ShapeError};
pub use event::Event;
pub use graph::Graph;
pub use host::{HostTensor, Spec};
pub use oa_kernels::DType;
pub use oa_vk::{Capabilities, DeviceInfo, DeviceRequest, Validation};
pub use plan::report::ExecutionReport;
pub use plan::{ExecutionPlan, InputId};
pub use shape::Shape;
pub use state::{Arena, State};
pub use value::Tensor;
