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
    /// Recorded changes; shared by all windows of one arena.
    pub(crate) version: Arc<AtomicU64>,
    /// The version that the device will have after everything submitted so far.
    pub(crate) executed: Arc<AtomicU64>,
}

/// A named window of a persistent device buffer.
#[derive(Clone)]
pub struct State {
    pub(crate) core: Arc<StateCore>,
}

impl State {
    pub(crate) fn new(name: &str, spec: Spec, slice: Slice) -> State {
        let (version, executed) = Default::default();
        State::window(name, spec, slice, &version, &executed)
    }

    fn window(
        name: &str,
        spec: Spec,
        slice: Slice,
        version: &Arc<AtomicU64>,
        executed: &Arc<AtomicU64>,
    ) -> State {
        let (version, executed) = (version.clone(), executed.clone());
        State { core: Arc::new(StateCore { name: name.into(), spec, slice, version, executed }) }
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

/// Elements that a window of an arena is aligned to: 256 bytes, the largest offset alignment seen.
pub const ARENA_ALIGN_ELEMS: usize = 64;

/// One persistent f32 buffer that holds many states, so that a whole-model update is one dispatch.
#[derive(Clone)]
pub struct Arena {
    whole: State,
}

impl Arena {
    pub(crate) fn new(whole: State) -> Arena {
        Arena { whole }
    }

    /// The whole arena as one flat state.
    pub fn whole(&self) -> State {
        self.whole.clone()
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.whole.shape().elems()
    }

    /// A window of the arena, `offset_elems` from its start. All windows of an arena share one
    /// version: a change of one makes earlier reads of every other stale.
    ///
    /// # Panics
    ///
    /// When the offset is not a multiple of [`ARENA_ALIGN_ELEMS`] or the window leaves the arena:
    /// the caller lays the arena out.
    pub fn state(&self, name: &str, offset_elems: usize, shape: impl Into<Shape>) -> State {
        let shape = shape.into();
        assert!(offset_elems.is_multiple_of(ARENA_ALIGN_ELEMS), "arena windows are aligned");
        assert!(offset_elems + shape.elems() <= self.elems(), "arena windows lie inside the arena");
        let spec = Spec::f32(shape);
        let slice = self.whole.core.slice.sub(offset_elems as u64 * 4, spec.len_bytes());
        State::window(name, spec, slice, &self.whole.core.version, &self.whole.core.executed)
    }
}
