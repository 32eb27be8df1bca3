//! What can go wrong between recording an op and reading its result.
//!
//! The caller's faults carry the caller's line; the device's faults carry numbers; our own bugs
//! panic with the invariant's name.

use crate::host::Spec;
use crate::ops::image::WindowFault;
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
    /// A plan was to be profiled before it had inputs.
    #[error(
        "there is nothing to time: submit the plan once, then profile it with at least one turn"
    )]
    NothingSubmitted,
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
    /// A kernel or window does not fit an image.
    #[error("{op} at {site}: {source}")]
    Window {
        /// The op.
        op: &'static str,
        /// The caller's line.
        site: &'static Location<'static>,
        /// What does not fit.
        #[source]
        source: Box<WindowFault>,
    },
    /// Values of two engines meet in one op.
    #[error(
        "{op} at {site}: the inputs belong to different engines; keep a computation on one engine or copy the value through the host"
    )]
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
    #[error(
        "{op} at {site}: the value of state `{state}` was read before the state was updated; read it again after the update"
    )]
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
    #[error(
        "{op} recorded at {site} belongs to a captured plan; return it from the capture closure and read it from the plan's event"
    )]
    Captured {
        /// The op.
        op: &'static str,
        /// Where it was recorded.
        site: &'static Location<'static>,
    },
    /// An op that changed a state ran, and nobody held its other result.
    #[error(
        "the result of {op} recorded at {site} was not kept: hold its handle until the segment is submitted, or read it before"
    )]
    NotKept {
        /// The op.
        op: &'static str,
        /// Where it was recorded.
        site: &'static Location<'static>,
    },
    /// A value needs a larger buffer window than the device binds.
    #[error(
        "{op} at {site}: a buffer of {len_bytes} bytes exceeds the device's storage-buffer range of {limit_bytes} bytes; use a smaller batch, sequence or layer"
    )]
    TooLarge {
        /// The op.
        op: &'static str,
        /// Where it was recorded.
        site: &'static Location<'static>,
        /// Bytes of the value.
        len_bytes: u64,
        /// The device's limit.
        limit_bytes: u64,
    },
    /// A replay was given other inputs than the plan was captured with.
    #[error("input `{name}` of the plan takes {expected} bytes, {got} were bound")]
    Binding {
        /// Name of the input.
        name: Box<str>,
        /// Bytes of the captured input.
        expected: u64,
        /// Bytes given; 0 when it was not bound.
        got: u64,
    },
    /// An output was read after its slot had been reused.
    #[error(
        "output {output} of replay {replay} is gone: a plan keeps the outputs of its last {kept} replays; read an event before that many further submits"
    )]
    Overwritten {
        /// Which output.
        output: usize,
        /// Which replay.
        replay: u64,
        /// How many replays are kept.
        kept: usize,
    },
    /// `capture` was called inside `capture`.
    #[error("capture at {site}: another capture is open on this engine; finish it first")]
    NestedCapture {
        /// The caller's line.
        site: &'static Location<'static>,
    },
    /// The forced kernel variant does not exist or does not fit the device.
    #[error("the forced kernel variant `{variant}` of family `{family}` cannot run here: {}",
        reason.as_ref().map_or_else(|| "the family has no such variant".into(), ToString::to_string))]
    Forced {
        /// The family.
        family: &'static str,
        /// The variant asked for.
        variant: Box<str>,
        /// Why the device cannot run it; `None` when the family has no such variant.
        reason: Option<oa_kernels::Reason>,
    },
    /// A graph that has no device was asked to execute.
    #[error(
        "this graph has no device: it was made for the host reference; create values through an Engine to execute them"
    )]
    NoEngine,
    /// The device runtime failed.
    #[error(transparent)]
    Device(#[from] oa_vk::Error),
    /// No kernel variant fits the device.
    #[error(transparent)]
    Kernel(#[from] oa_kernels::Error),
}

impl Error {
    /// The error of an op over images.
    pub(crate) fn window(
        op: &'static str,
        site: &'static Location<'static>,
        fault: WindowFault,
    ) -> Error {
        Error::Window { op, site, source: Box::new(fault) }
    }

    /// True when device memory is short: freeing some and trying again may help.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::Device(oa_vk::Error::OutOfMemory { .. }))
    }
}
