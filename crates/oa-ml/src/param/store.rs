//! The finalised parameters of a model, and the handles to them.

use super::buffer::PlacedBuffer;
use super::freeze::Freezing;
use super::gradient::Gradients;
use super::layout::{Layout, Slot};
use crate::checkpoint::NamedTensor;
use crate::error::{Error, Result};
use oa_graph::state::{Arena, State};
use oa_graph::{Engine, Shape, Tensor};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

/// The parameter values of one model.
pub(super) struct Values {
    pub(super) layout: Layout,
    pub(super) arena: Arena,
    pub(super) states: Vec<State>,
}

impl Values {
    pub(super) fn new(layout: Layout, arena: Arena) -> Values {
        let window = |slot: &Slot| arena.state(&slot.name, slot.offset, slot.shape);
        let states = layout.slots().iter().map(window).collect();
        Values { layout, arena, states }
    }
}

/// What handles and modules share.
pub(super) struct Inner {
    pub(super) engine: Engine,
    values: OnceLock<Values>,
    gradients: OnceLock<Gradients>,
    buffers: OnceLock<Vec<PlacedBuffer>>,
    freezing: Mutex<Freezing>,
}

impl Inner {
    pub(super) fn new(engine: &Engine) -> Arc<Inner> {
        let (values, gradients, buffers, freezing) = Default::default();
        Arc::new(Inner { engine: engine.clone(), values, gradients, buffers, freezing })
    }

    fn values(&self) -> &Values {
        self.values.get().expect("a parameter is read after its store was finalised")
    }

    pub(super) fn buffers(&self) -> &[PlacedBuffer] {
        self.buffers.get().expect("a buffer is read after its store was finalised")
    }

    /// False when there are some already.
    pub(super) fn set_buffers(&self, buffers: Vec<PlacedBuffer>) -> bool {
        self.buffers.set(buffers).is_ok()
    }
}

/// The parameters of the models of one engine: how a tape finds what a loss may depend on.
#[derive(Default)]
pub(crate) struct Registry {
    live: Mutex<Vec<Weak<Inner>>>,
}

impl Registry {
    /// Every finalised store that somebody still holds, oldest first.
    pub(crate) fn live(&self) -> Vec<Parameters> {
        let mut live = self.live.lock().expect("no panic while the registry is held");
        live.retain(|store| store.strong_count() > 0);
        live.iter().filter_map(Weak::upgrade).map(|inner| Parameters { inner }).collect()
    }

    fn enter(&self, inner: &Arc<Inner>) {
        self.live.lock().expect("no panic while the registry is held").push(Arc::downgrade(inner));
    }
}

/// A handle to one parameter, kept by the module that declared it.
#[derive(Clone)]
pub struct Parameter {
    inner: Arc<Inner>,
    index: usize,
}

impl Parameter {
    pub(super) fn new(inner: Arc<Inner>, index: usize) -> Parameter {
        Parameter { inner, index }
    }

    /// The current contents as a lazy value. Read it anew in each forward pass: an update makes
    /// earlier reads stale.
    ///
    /// # Panics
    ///
    /// When the store was not finalised yet: modules are built before, run after.
    #[track_caller]
    pub fn value(&self) -> Tensor {
        self.inner.engine.read(&self.inner.values().states[self.index])
    }

    /// Dotted name.
    pub fn name(&self) -> &str {
        &self.slot().name
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.slot().shape
    }

    /// The engine that holds it.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn slot(&self) -> &Slot {
        &self.inner.values().layout.slots()[self.index]
    }
}

impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parameter(#{})", self.index)
    }
}

/// All parameters of a model. Clones share them.
#[derive(Clone)]
pub struct Parameters {
    inner: Arc<Inner>,
}

impl Parameters {
    pub(super) fn finalised(inner: Arc<Inner>, values: Values) -> Result<Parameters> {
        let placed = inner.values.set(values).is_ok();
        assert!(placed, "a store is finalised once: finalising consumes it");
        inner.engine.graph().extension::<Registry>().enter(&inner);
        Ok(Parameters { inner })
    }

    /// The engine that holds them.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Names, shapes and places, in declaration order.
    pub fn layout(&self) -> &Layout {
        &self.inner.values().layout
    }

    /// The arena of the values.
    pub fn arena(&self) -> &Arena {
        &self.inner.values().arena
    }

    /// The state of each parameter, in declaration order.
    pub fn states(&self) -> &[State] {
        &self.inner.values().states
    }

    /// A handle to the parameter of that name.
    pub fn get(&self, name: &str) -> Option<Parameter> {
        let index = self.layout().find(name)?;
        Some(Parameter::new(self.inner.clone(), index))
    }

    /// Whether two handles are to the same parameters.
    pub fn same(&self, other: &Parameters) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Which of them are frozen.
    pub(super) fn freezing(&self) -> MutexGuard<'_, Freezing> {
        self.inner.freezing.lock().expect("no panic while the freezing is held")
    }

    /// The gradients, whose arena is made the first time somebody asks.
    pub(crate) fn gradients(&self) -> Result<&Gradients> {
        if self.inner.gradients.get().is_none() {
            let fresh = Gradients::new(self)?;
            // Another thread may have been faster; then its arena is the one, and this one goes.
            let _raced = self.inner.gradients.set(fresh);
        }
        Ok(self.inner.gradients.get().expect("just set"))
    }

    pub(super) fn placed_buffers(&self) -> &[PlacedBuffer] {
        self.inner.buffers()
    }

    /// Reads every parameter back, in declaration order, and then every buffer. Blocks.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn to_host(&self) -> Result<Vec<NamedTensor>> {
        let mut tensors = self.read_arena(self.arena())?;
        tensors.extend(self.buffers_to_host()?);
        Ok(tensors)
    }

    /// Reads every gradient back, in declaration order. Blocks.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn gradients_to_host(&self) -> Result<Vec<NamedTensor>> {
        self.read_arena(self.gradients()?.arena())
    }

    /// Overwrites every parameter and buffer. Nothing changes unless every tensor fits.
    ///
    /// # Errors
    ///
    /// When a name is missing, unknown or has another shape.
    pub fn load(&self, tensors: &[NamedTensor]) -> Result<()> {
        let buffers = self.buffers_among(tensors)?;
        if buffers.is_empty() {
            return self.write_arena(self.arena(), tensors);
        }
        let is_buffer = |tensor: &&NamedTensor| buffers.iter().any(|own| own.name == tensor.name);
        let trained = tensors.iter().filter(|tensor| !is_buffer(tensor)).cloned();
        self.write_arena(self.arena(), &trained.collect::<Vec<NamedTensor>>())?;
        self.write_buffers(&buffers)
    }

    /// Reads an arena of this layout as named tensors.
    pub(crate) fn read_arena(&self, arena: &Arena) -> Result<Vec<NamedTensor>> {
        let mut host = vec![0.0f32; arena.elems()];
        self.engine().read_state(&arena.whole(), bytemuck::cast_slice_mut(&mut host))?;
        let named = |slot: &Slot| NamedTensor {
            name: slot.name.to_string(),
            shape: slot.shape.dims().to_vec(),
            data: host[slot.range()].to_vec(),
        };
        Ok(self.layout().slots().iter().map(named).collect())
    }

    /// Overwrites an arena of this layout; padding stays zero.
    pub(crate) fn write_arena(&self, arena: &Arena, tensors: &[NamedTensor]) -> Result<()> {
        let host = self.gather(tensors, arena.elems())?;
        self.engine().write_state(&arena.whole(), bytemuck::cast_slice(&host))?;
        Ok(())
    }

    /// Named tensors as the contents of an arena of this layout.
    pub(crate) fn gather(&self, tensors: &[NamedTensor], elems: usize) -> Result<Vec<f32>> {
        let mut host = vec![0.0f32; elems];
        let mut filled = vec![false; self.layout().slots().len()];
        for tensor in tensors {
            let index = self.layout().find(&tensor.name);
            let index =
                index.ok_or_else(|| Error::UnknownTensor { name: tensor.name.as_str().into() })?;
            let slot = &self.layout().slots()[index];
            let fits = slot.shape.dims() == tensor.shape && slot.range().len() == tensor.data.len();
            if !fits {
                let (name, expected) = (slot.name.clone(), slot.shape.dims().to_vec());
                let (got, elems) = (tensor.shape.clone(), tensor.data.len());
                let source = Box::new(TensorShape { name, expected, got, elems });
                return Err(Error::TensorShape { source });
            }
            host[slot.range()].copy_from_slice(&tensor.data);
            filled[index] = true;
        }
        match filled.iter().position(|&filled| !filled) {
            Some(missing) => {
                Err(Error::MissingTensor { name: self.layout().slots()[missing].name.clone() })
            }
            None => Ok(host),
        }
    }
}

/// A named tensor that does not fit the parameter of its name.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "tensor `{name}` has shape {got:?} and {elems} elements, the model's has shape {expected:?}"
)]
pub struct TensorShape {
    /// Dotted name.
    pub name: Box<str>,
    /// Dimensions of the parameter.
    pub expected: Vec<usize>,
    /// Dimensions of the tensor.
    pub got: Vec<usize>,
    /// Elements of the tensor.
    pub elems: usize,
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layout = self.layout();
        write!(f, "Parameters({} in {} tensors)", layout.count(), layout.slots().len())
    }
}
