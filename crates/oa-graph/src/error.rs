//! What can go wrong between recording an op and reading its result.
//!
//! The caller's faults carry the caller's line; the device's faults carry numbers; our own bugs
//! panic with the invariant's name.

use crate::host::Spec;
use oa_kernels::DType;
use std::panic::Location;

/// Result of an oa-graph call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an op refuses its inputs. `expected` is a sentence fragment such as `[m, k] and [k, n]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeError {
    /// What the op needs, in words.
    pub expected: &'static str,
    /// What it was given.
    pub got: Vec<Spec>,
}

impl ShapeError {
    /// An error for an op that was given `got`.
    pub fn new(expected: &'static str, got: &[Spec]) -> ShapeError {
        ShapeError { expected, got: got.to_vec() }
    }
}

impl std::fmt::Display for ShapeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "needs {}, got ", self.expected)?;
        for (index, spec) in self.got.iter().enumerate() {
            if index > 0 {
                f.write_str(if index + 1 == self.got.len() { " and " } else { ", " })?;
            }
            write!(f, "{spec}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ShapeError {}

/// Any error of oa-graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op was given shapes or element types it does not take.
    #[error("{op} at {site}: {source}")]
    Shape {
        /// The op.
        op: &'static str,
        /// The caller's line.
        site: &'static Location<'static>,
        /// What was expected and given.
        #[source]
        source: Box<ShapeError>,
    },
    /// Values of two engines meet in one op.
    #[error("{op} at {site}: the inputs belong to different engines; keep a computation on one engine or copy the value through the host")]
    MixedEngines {
        /// The op.
        op: &'static str,
        /// The caller's line.
        site: &'static Location<'static>,
    },
    /// A gradient was asked through an op that has none.
    #[error("no gradient through {op} (recorded at {site}): {reason}")]
    NotDifferentiable {
        /// The op.
        op: &'static str,
        /// Where the op was recorded.
        site: &'static Location<'static>,
        /// Why it has no derivative.
        reason: &'static str,
    },
    /// A value of a state was used after the state changed.
    #[error("{op} at {site}: the value of state `{state}` was read before the state was updated; read it again after the update")]
    StaleState {
        /// The op.
        op: &'static str,
        /// The caller's line.
        site: &'static Location<'static>,
        /// Name of the state.
        state: Box<str>,
    },
    /// Host data does not have the length of its shape.
    #[error("at {site}: {spec} holds {expected} elements, but {got} were given")]
    Length {
        /// The caller's line.
        site: &'static Location<'static>,
        /// The declared value.
        spec: Spec,
        /// Elements that the shape holds.
        expected: usize,
        /// Elements given.
        got: usize,
    },
    /// A value was read as another element type.
    #[error("at {site}: the value holds {actual}, it cannot be read as {wanted}")]
    DType {
        /// The caller's line.
        site: &'static Location<'static>,
        /// What the value holds.
        actual: DType,
        /// What the caller asked for.
        wanted: DType,
    },
    /// The value was recorded inside `capture` and has no contents of its own.
    #[error("{op} recorded at {site} belongs to a captured plan; return it from the capture closure and read it from the plan's event")]
    Captured {
        /// The op.
        op: &'static str,
        /// Where it was recorded.
        site: &'static Location<'static>,
    },
    /// A graph that has no device was asked to execute.
    #[error("this graph has no device: it was made for the host reference; create values through an Engine to execute them")]
    NoEngine,
    /// The device runtime failed.
    #[error(transparent)]
    Device(#[from] oa_vk::Error),
    /// No kernel variant fits the device.
    #[error(transparent)]
    Kernel(#[from] oa_kernels::Error),
}
