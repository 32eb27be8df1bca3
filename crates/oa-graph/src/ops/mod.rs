//! The op table: one static row per op, from which everything else is derived.
//!
//! A row holds the shape rule, the lowering, the derivative rule, the f64 host reference and sample
//! inputs. Shape errors, tape steps, gradient checks, oracle tests, gate cases and the generated
//! documentation come from it; nothing else lists ops.

pub mod activation;
pub mod attention;
pub mod attention_gradient;
pub mod gru;
pub mod image;
pub mod index;
mod launch;
pub mod layout;
pub mod loss;
pub mod mamba3;
pub mod matmul;
pub mod moe;
pub mod norm;
pub mod optim;
pub mod pointwise;
pub mod recurrent;
pub mod reduce;
pub mod rng;
pub mod rule;
pub mod sample;
pub mod sampling;
mod turns;
pub mod update;

use crate::attrs::Attrs;
use crate::error::{Result, ShapeError};
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::Variant;
use sample::Sample;

/// One application of an op, as its rules see it.
pub struct OpCall<'a> {
    /// Shapes and types of the inputs.
    pub inputs: &'a [Spec],
    /// Shapes and types of the outputs; empty inside `infer`.
    pub outputs: &'a [Spec],
    /// Attributes.
    pub attrs: &'a Attrs,
}

/// What one dispatch needs besides its buffers.
///
/// The runtime puts two words before `push`: the number of workgroups, and how many of them lie
/// along x (grids above 65,535 groups are folded into y). A kernel's workgroup number is
/// `SV_GroupID.y * grid_x + SV_GroupID.x`, and a number at or above `groups` has nothing to do.
pub struct Launch {
    /// Number of workgroups.
    pub groups: u64,
    /// Push-constant words after the launch header.
    pub push: Vec<u32>,
    /// Specialisation constants: (id, value).
    pub spec: Vec<(u32, u32)>,
}

/// How an op becomes work.
pub enum Lower {
    /// One dispatch of a kernel family. Its buffers are the op's inputs, then its outputs; an input
    /// that the op mutates is bound once, at its input position.
    Kernel {
        /// Which family; a function because it may depend on the shapes.
        family: fn(&OpCall) -> &'static str,
        /// Geometry and scalars for one variant of the family.
        launch: fn(&OpCall, &Variant) -> Launch,
    },
    /// The output is the first input's bytes under another shape: no work.
    View,
    /// The second input's bytes are copied over the first input, which is a state.
    Store,
}

/// What a derivative rule sees. A rule emits ops, so it is checked on the host without a GPU.
pub struct GradCall<'a> {
    /// The op's inputs.
    pub inputs: &'a [Tensor],
    /// The op's outputs.
    pub outputs: &'a [Tensor],
    /// Gradient of each output; `None` when nothing depends on it.
    pub douts: &'a [Option<Tensor>],
    /// Attributes.
    pub attrs: &'a Attrs,
    /// Which inputs need a gradient; a rule may skip the work for the others.
    pub wanted: &'a [bool],
}

impl GradCall<'_> {
    /// The gradient of the only output (or of the first).
    pub fn dout(&self) -> &Tensor {
        self.douts[0]
            .as_ref()
            .expect("the tape calls a rule only with a gradient for output 0 or by checking douts")
    }
}

/// The derivative of an op: there is no third state.
pub enum Backward {
    /// Emits one gradient per input; `None` for an input that has none (ids, or not wanted).
    Rule(fn(&GradCall) -> Result<Vec<Option<Tensor>>>),
    /// The op has no derivative, and this is why.
    None(&'static str),
}

/// One op.
pub struct OpDef {
    /// Name in plans, messages and documentation.
    pub name: &'static str,
    /// One sentence with the formula.
    pub doc: &'static str,
    /// Shape rule: output specs from input specs and attributes.
    pub infer: fn(&OpCall) -> std::result::Result<Vec<Spec>, ShapeError>,
    /// How it becomes work.
    pub lower: Lower,
    /// Its derivative.
    pub backward: Backward,
    /// The f64 reference: outputs from inputs. A mutated input is returned as an extra output after
    /// the declared ones, in the order of `mutates`.
    pub reference: fn(&[HostTensor], &Attrs) -> Vec<HostTensor>,
    /// Sample inputs for gradient checks and device tests.
    pub samples: fn() -> Vec<Sample>,
    /// Inputs that are states and are changed in place.
    pub mutates: &'static [usize],
    /// Input whose buffer the first output may reuse (elementwise ops that read an element before
    /// they write it, at the same index).
    pub in_place: Option<usize>,
}

/// Every op, family by family.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    let families: Vec<&'static [&'static OpDef]> = vec![
        pointwise::OPS,
        activation::OPS,
        reduce::OPS,
        norm::OPS,
        layout::OPS,
        index::OPS,
        rng::OPS,
        loss::OPS,
        matmul::OPS,
        attention::OPS,
        attention_gradient::OPS,
        recurrent::OPS,
        moe::OPS,
        gru::OPS,
        mamba3::OPS,
        image::OPS,
        update::OPS,
        optim::OPS,
        sampling::OPS,
    ];
    families.into_iter().flat_map(|family| family.iter().copied())
}
