//! `Tensor`: the handle users hold. Op methods sit beside their `OpDef` in `ops/`.

use crate::attrs::Attrs;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueRef};
use crate::host::Spec;
use crate::ops::OpDef;
use crate::shape::Shape;
use oa_kernels::DType;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A lazy value: a handle to one output of a recorded node.
///
/// Cloning is cheap. Dropping the last handle before a segment is cut means that the value is never
/// kept on the device.
pub struct Tensor {
    pub(crate) value: ValueRef,
}

impl Tensor {
    pub(crate) fn of(node: Arc<Node>, output: u8) -> Tensor {
        node.handles[output as usize].fetch_add(1, Ordering::AcqRel);
        Tensor { value: ValueRef { node, output } }
    }

    pub(crate) fn of_ref(value: &ValueRef) -> Tensor {
        Tensor::of(value.node.clone(), value.output)
    }

    /// Shape and element type.
    pub fn spec(&self) -> Spec {
        self.value.spec()
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.spec().shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.spec().dtype
    }

    /// The graph it was recorded in.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.value.node.graph
    }

    /// Records an op with several outputs.
    #[track_caller]
    pub(crate) fn record(
        def: &'static OpDef,
        attrs: Attrs,
        inputs: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        Graph::record(def, attrs, inputs)
    }

    /// Records an op and returns its first output.
    #[track_caller]
    pub(crate) fn record1(def: &'static OpDef, attrs: Attrs, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(Graph::record(def, attrs, inputs)?.swap_remove(0))
    }
}

impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        Tensor::of_ref(&self.value)
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let ValueRef { node, output } = &self.value;
        node.handles[*output as usize].fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} #{}.{})", self.spec(), self.value.node.seq, self.value.output)
    }
}
