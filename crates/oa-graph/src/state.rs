//! State: contents that outlive a segment - parameters, gradients, moments, caches, tokens.
//!
//! A state is a window of a persistent device buffer. Reading it records a node; ops that change
//! it bump its version, so a value read before an update cannot be used after it by mistake.

use crate::host::Spec;
use crate::shape::Shape;
use oa_vk::Slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct StateCore {
    pub(crate) name: Box<str>,
    pub(crate) spec: Spec,
    pub(crate) slice: Slice,
    pub(crate) version: AtomicU64,
}

/// A named window of a persistent device buffer.
#[derive(Clone)]
pub struct State {
    pub(crate) core: Arc<StateCore>,
}

impl State {
    pub(crate) fn new(name: &str, spec: Spec, slice: Slice) -> State {
        let version = AtomicU64::new(0);
        State { core: Arc::new(StateCore { name: name.into(), spec, slice, version }) }
    }

    /// The name it was created with.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Shape and element type.
    pub fn spec(&self) -> Spec {
        self.core.spec
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.core.spec.shape
    }

    /// How often it was changed.
    pub fn version(&self) -> u64 {
        self.core.version.load(Ordering::Acquire)
    }
}
