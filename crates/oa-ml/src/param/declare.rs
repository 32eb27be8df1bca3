//! Declaring parameters: names, shapes, initial values, decay.
//!
//! Declaration and placement are two phases so that every parameter of a model ends up in one
//! arena, whatever order its modules are built in.

use super::buffer::{Buffer, DeclaredBuffer};
use super::layout::Layout;
use super::store::{Inner, Parameter, Parameters, Values};
use crate::error::{Error, Result};
use crate::init::Init;
use oa_graph::{Engine, Shape};
use std::sync::Arc;

/// Whether weight decay applies to a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Decay {
    /// To matrices (two dimensions or more), not to biases and gains.
    #[default]
    Matrices,
    /// To this parameter, whatever its shape.
    Always,
    /// Not to this parameter.
    Never,
}

/// Collects the declarations of a model.
pub struct ParameterStore {
    inner: Arc<Inner>,
    layout: Layout,
    init: Vec<Init>,
    buffers: Vec<DeclaredBuffer>,
    seed: u64,
}

impl ParameterStore {
    /// A store without parameters; `seed` decides their initial values.
    pub fn new(engine: &Engine, seed: u64) -> ParameterStore {
        let (layout, init, buffers) = Default::default();
        ParameterStore { inner: Inner::new(engine), layout, init, buffers, seed }
    }

    /// The scope without a prefix.
    pub fn root(&mut self) -> Scope<'_> {
        Scope { store: self, prefix: String::new(), edge: false }
    }

    /// The engine that will hold the parameters.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Places every declared parameter, draws the initial values and uploads them.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    ///
    /// # Panics
    ///
    /// When nothing was declared: a model has parameters.
    pub fn finalise(self) -> Result<Parameters> {
        assert!(self.layout.elems() > 0, "a model has parameters");
        let mut host = vec![0.0f32; self.layout.elems()];
        for (index, (slot, init)) in self.layout.slots().iter().zip(&self.init).enumerate() {
            let values = init.values(self.seed, index as u32, slot.shape.elems());
            host[slot.range()].copy_from_slice(&values);
        }
        let engine = &self.inner.engine;
        let arena = engine.arena("parameters", self.layout.elems())?;
        engine.write_state(&arena.whole(), bytemuck::cast_slice(&host))?;
        self.inner.place_buffers(&self.buffers)?;
        Parameters::finalised(self.inner, Values::new(self.layout, arena))
    }

    fn declare(
        &mut self,
        name: &str,
        shape: Shape,
        init: Init,
        (decay, edge): (Decay, bool),
    ) -> Result<Parameter> {
        self.check_free(name)?;
        let decays = match decay {
            Decay::Matrices => shape.rank() >= 2,
            Decay::Always => true,
            Decay::Never => false,
        };
        let hidden = decays && matches!(shape.rank(), 2 | 3) && !edge;
        self.layout.push(name, shape, decays, hidden)?;
        self.init.push(init);
        Ok(Parameter::new(self.inner.clone(), self.init.len() - 1))
    }

    fn declare_buffer(&mut self, name: &str, shape: Shape, fill: f32) -> Result<Buffer> {
        self.check_free(name)?;
        self.buffers.push(DeclaredBuffer { name: name.into(), shape, fill });
        Ok(Buffer::new(self.inner.clone(), self.buffers.len() - 1))
    }

    /// Refuses a name that a parameter or buffer has.
    fn check_free(&self, name: &str) -> Result<()> {
        let taken = self.buffers.iter().any(|buffer| &*buffer.name == name);
        match taken || self.layout.find(name).is_some() {
            true => Err(Error::DuplicateParameter { name: name.into() }),
            false => Ok(()),
        }
    }
}

/// A dotted prefix under which a module declares its parameters.
pub struct Scope<'a> {
    store: &'a mut ParameterStore,
    prefix: String,
    edge: bool,
}

impl Scope<'_> {
    /// The scope `prefix.name`.
    pub fn scope(&mut self, name: &str) -> Scope<'_> {
        let prefix = format!("{}{name}.", self.prefix);
        Scope { store: self.store, prefix, edge: self.edge }
    }

    /// The same scope for what lies at the edge of a model: embeddings and heads, whose matrices are
    /// not hidden ones.
    pub fn edge(&mut self) -> Scope<'_> {
        Scope { store: self.store, prefix: self.prefix.clone(), edge: true }
    }

    /// Declares a parameter; weight decay applies when it is a matrix.
    ///
    /// # Errors
    ///
    /// [`crate::Error::DuplicateParameter`] when the name is taken.
    pub fn declare(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
    ) -> Result<Parameter> {
        self.declare_with(name, shape, init, Decay::Matrices)
    }

    /// As [`Scope::declare`], with a choice about weight decay.
    ///
    /// # Errors
    ///
    /// As [`Scope::declare`].
    pub fn declare_with(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
        decay: Decay,
    ) -> Result<Parameter> {
        let full = format!("{}{name}", self.prefix);
        self.store.declare(&full, shape.into(), init, (decay, self.edge))
    }

    /// Declares a tensor that belongs to the model but is not trained, such as running statistics:
    /// it has no gradient, no moments and no decay, is saved and loaded with the parameters, and
    /// starts with `fill` in every element.
    ///
    /// # Errors
    ///
    /// As [`Scope::declare`].
    pub fn declare_buffer(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        fill: f32,
    ) -> Result<Buffer> {
        let full = format!("{}{name}", self.prefix);
        self.store.declare_buffer(&full, shape.into(), fill)
    }

    /// The engine that will hold the parameters.
    pub fn engine(&self) -> &Engine {
        self.store.engine()
    }
}
