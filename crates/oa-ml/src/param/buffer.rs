//! Buffers: tensors of a model that no optimizer touches.
//!
//! They are named, saved and loaded beside the parameters, but lie outside of their arena, so that
//! gradients, norms, decay and moments know nothing of them. Each is a state of its own, so storing
//! one makes no read of another stale.

use super::store::{Inner, Parameters, TensorShape};
use crate::checkpoint::NamedTensor;
use crate::error::{Error, Result};
use oa_graph::state::State;
use oa_graph::{Shape, Spec, Tensor};
use std::sync::Arc;

/// What was asked for.
pub(super) struct DeclaredBuffer {
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    pub(super) fill: f32,
}

/// A buffer on the device.
pub(super) struct PlacedBuffer {
    name: Box<str>,
    state: State,
}

/// A handle to one buffer, kept by the module that declared it.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
    index: usize,
}

impl Buffer {
    pub(super) fn new(inner: Arc<Inner>, index: usize) -> Buffer {
        Buffer { inner, index }
    }

    fn placed(&self) -> &PlacedBuffer {
        &self.inner.buffers()[self.index]
    }

    /// The current contents as a lazy value. Read it anew in each pass: a store makes earlier reads
    /// stale.
    ///
    /// # Panics
    ///
    /// When the store was not finalised yet: modules are built before, run after.
    #[track_caller]
    pub fn value(&self) -> Tensor {
        self.inner.engine.read(&self.placed().state)
    }

    /// Records new contents, of the same shape.
    ///
    /// # Errors
    ///
    /// When the shape differs.
    ///
    /// # Panics
    ///
    /// As [`Buffer::value`].
    #[track_caller]
    pub fn store(&self, value: &Tensor) -> Result<()> {
        Ok(self.inner.engine.store(&self.placed().state, value)?)
    }

    /// Dotted name.
    pub fn name(&self) -> &str {
        &self.placed().name
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.placed().state.shape()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer(#{})", self.index)
    }
}

impl Inner {
    /// Makes the declared buffers, filled.
    pub(super) fn place_buffers(&self, declared: &[DeclaredBuffer]) -> Result<()> {
        let place = |buffer: &DeclaredBuffer| -> Result<PlacedBuffer> {
            let state = self.engine.state(&buffer.name, Spec::f32(buffer.shape))?;
            let host = vec![buffer.fill; buffer.shape.elems()];
            self.engine.write_state(&state, bytemuck::cast_slice(&host))?;
            Ok(PlacedBuffer { name: buffer.name.clone(), state })
        };
        let placed = declared.iter().map(place).collect::<Result<Vec<PlacedBuffer>>>()?;
        assert!(self.set_buffers(placed), "a store is finalised once: finalising consumes it");
        Ok(())
    }
}

impl Parameters {
    /// Names and shapes of the buffers, in declaration order.
    pub fn buffers(&self) -> Vec<(&str, Shape)> {
        let placed = self.placed_buffers().iter();
        placed.map(|buffer| (&*buffer.name, buffer.state.shape())).collect()
    }

    /// Reads every buffer back. Blocks.
    pub(super) fn buffers_to_host(&self) -> Result<Vec<NamedTensor>> {
        let read = |buffer: &PlacedBuffer| -> Result<NamedTensor> {
            let shape = buffer.state.shape();
            let mut data = vec![0.0f32; shape.elems()];
            self.engine().read_state(&buffer.state, bytemuck::cast_slice_mut(&mut data))?;
            Ok(NamedTensor { name: buffer.name.to_string(), shape: shape.dims().to_vec(), data })
        };
        self.placed_buffers().iter().map(read).collect()
    }

    /// The given tensor of each buffer, checked; nothing changes yet.
    pub(super) fn buffers_among<'a>(
        &self,
        tensors: &'a [NamedTensor],
    ) -> Result<Vec<&'a NamedTensor>> {
        let find = |buffer: &PlacedBuffer| -> Result<&'a NamedTensor> {
            let (name, shape) = (buffer.name.clone(), buffer.state.shape());
            let Some(tensor) = tensors.iter().find(|tensor| *tensor.name == *name) else {
                return Err(Error::MissingTensor { name });
            };
            if shape.dims() == tensor.shape && shape.elems() == tensor.data.len() {
                return Ok(tensor);
            }
            let (expected, got) = (shape.dims().to_vec(), tensor.shape.clone());
            let source = TensorShape { name, expected, got, elems: tensor.data.len() };
            Err(Error::TensorShape { source: Box::new(source) })
        };
        self.placed_buffers().iter().map(find).collect()
    }

    /// Overwrites every buffer with what [`Parameters::buffers_among`] found.
    pub(super) fn write_buffers(&self, found: &[&NamedTensor]) -> Result<()> {
        for (buffer, tensor) in self.placed_buffers().iter().zip(found) {
            self.engine().write_state(&buffer.state, bytemuck::cast_slice(&tensor.data))?;
        }
        Ok(())
    }
}
