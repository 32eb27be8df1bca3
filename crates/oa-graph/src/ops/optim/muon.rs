//! Muon: momentum over the arena, then each matrix orthogonalised and applied on its own.
//!
//! The orthogonalisation is composed of products and weighted sums, so it runs on the kernels that
//! everything else runs on. It is five Newton-Schulz steps of degree five: singular values end near
//! one, not at it.

use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, Launch, Lower, OpCall, OpDef, launch as geometry};
use super::{EFFECT, SERVES, SIZES, block, clip, fits, launch, sample_inputs, settings_fit};
use crate::attrs::Attrs;
use crate::error::{Result, ShapeError};
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// The momentum of Muon over a flat arena; output: the directions `[n]`.
///
/// Inputs: m, grads `[n]`; blocks `[n / 64, 2]` (of a block with a negative first entry m is left
/// alone and the direction is zero); partials (sums of squares, at most 256); hyper `[8]`, of which
/// momentum and largest norm are read.
pub static MUON_MOMENTUM: OpDef = OpDef {
    name: "muon_momentum",
    doc: "`m = mu m + (1 - mu) g` in place over an arena, with clipping by the global norm, and \
          the direction `(1 - mu) g + mu m`; without change, and zero, when the norm is not finite.",
    infer: infer_momentum,
    lower: Lower::Kernel { family: |_| "muon_momentum", launch: launch_momentum },
    backward: Backward::None(EFFECT),
    reference: momentum_reference,
    samples: momentum_samples,
    mutates: &[0],
    in_place: None,
};

/// Matrices divided by their Frobenius norms. Inputs: x `[B, R, C]`, sums of squares `[B]`.
pub static MUON_UNIT: OpDef = OpDef {
    name: "muon_unit",
    doc: "`x / (sqrt(squares) + 1e-7)` for each matrix of a batch `[B, R, C]`.",
    infer: infer_unit,
    lower: Lower::Kernel { family: |_| "muon_unit", launch: launch_unit },
    backward: Backward::None(SERVES),
    reference: unit_reference,
    samples: unit_samples,
    mutates: &[],
    in_place: Some(0),
};

/// Muon's update of one parameter. Inputs: p (any shape), x of its shape, partials, hyper `[8]`, of
/// which the rate is read. Float attributes: rate factor, weight decay, stretch.
pub static MUON_APPLY: OpDef = OpDef {
    name: "muon_apply",
    doc: "`p = p (1 - lr factor decay) - lr factor stretch x` in place; skipped when the norm of \
          all gradients is not finite.",
    infer: infer_apply,
    lower: Lower::Kernel { family: |_| "muon_apply", launch: launch_apply },
    backward: Backward::None(EFFECT),
    reference: apply_reference,
    samples: apply_samples,
    mutates: &[0],
    in_place: None,
};

/// What [`momentum`] reads and changes. The first is a read of a state.
#[derive(Clone, Copy, Debug)]
pub struct MomentumInputs<'a> {
    /// Momentum `[n]`, n a multiple of 64: changed.
    pub m: &'a Tensor,
    /// Gradients `[n]`.
    pub grads: &'a Tensor,
    /// As in [`super::adamw::AdamWInputs`]; only the sign of the rate factor is read.
    pub blocks: &'a Tensor,
    /// [`Tensor::norm_partials`] of all gradients.
    pub partials: &'a Tensor,
    /// The words of [`super::Hyper`], `[8]`.
    pub hyper: &'a Tensor,
}

/// Moves the momentum of an arena and returns the directions to orthogonalise, `[n]`.
///
/// # Errors
///
/// When the shapes do not fit together, or m is not a current read of a state.
#[track_caller]
pub fn momentum(inputs: MomentumInputs) -> Result<Tensor> {
    let MomentumInputs { m, grads, blocks, partials, hyper } = inputs;
    Tensor::record1(&MUON_MOMENTUM, Attrs::NONE, &[m, grads, blocks, partials, hyper])
}

/// Coefficients of a Newton-Schulz step.
const STEP: [f32; 3] = [3.4445, -4.7750, 2.0315];
/// Steps.
const STEPS: usize = 5;

/// Matrices `[R, C]` or batches of them `[B, R, C]` with singular values brought near one, f32.
///
/// # Errors
///
/// When the value is neither.
#[track_caller]
pub fn orthogonalise(u: &Tensor) -> Result<Tensor> {
    let shape = u.shape();
    let (batch, rows, cols) = match *shape.dims() {
        [rows, cols] => (1, rows, cols),
        [batch, rows, cols] => (batch, rows, cols),
        // The op's own rule words the refusal.
        _ => return Tensor::record1(&MUON_UNIT, Attrs::NONE, &[u, u]),
    };
    let matrices = u.reshape([batch, rows, cols])?;
    let squares = matrices.mul(&matrices)?.reshape([batch, rows * cols])?.sum_cols()?;
    let mut x = Tensor::record1(&MUON_UNIT, Attrs::NONE, &[&matrices, &squares])?;
    let [a, b, c] = STEP;
    // The smaller of the two Gram matrices: transposing x would give the same numbers.
    let tall = rows > cols;
    for _ in 0..STEPS {
        let gram = x.matmul(&x, tall, !tall)?;
        let blended = gram.blend(b, &gram.matmul(&gram, false, false)?, c)?;
        let product = match tall {
            true => x.matmul(&blended, false, false)?,
            false => blended.matmul(&x, false, false)?,
        };
        x = x.blend(a, &product, 1.0)?;
    }
    x.reshape(shape)
}

/// How far [`apply`] goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// Factor of the learning rate.
    pub factor: f32,
    /// Decoupled weight decay per unit of learning rate.
    pub decay: f32,
    /// Factor of the direction alone.
    pub stretch: f32,
}

/// Applies a direction to one parameter in place. `p` is a read of a state, `partials` are those of
/// all gradients, `hyper` the words of [`super::Hyper`].
///
/// # Errors
///
/// When the shapes do not fit together, or `p` is not a current read of a state.
#[track_caller]
pub fn apply(p: &Tensor, x: &Tensor, [partials, hyper]: [&Tensor; 2], reach: Reach) -> Result<()> {
    let attrs = Attrs::floats(&[reach.factor, reach.decay, reach.stretch]);
    Tensor::record(&MUON_APPLY, attrs, &[p, x, partials, hyper])?;
    Ok(())
}

fn infer_momentum(call: &OpCall) -> Inferred {
    match call.inputs {
        [m, grads, blocks, partials, hyper] if fits(&[m, grads], [blocks, partials, hyper]) => {
            Ok(vec![*m])
        }
        _ => refuse(
            call,
            "m and grads [n], blocks [n / 64, 2], at most 256 partials and hyper [8], all f32 and \
             n a multiple of 64",
        ),
    }
}

fn infer_unit(call: &OpCall) -> Result<Vec<Spec>, ShapeError> {
    match call.inputs {
        [x, squares]
            if x.dtype == DType::F32
                && x.shape.rank() == 3
                && *squares == Spec::f32([x.shape.dims()[0]]) =>
        {
            Ok(vec![*x])
        }
        _ => refuse(call, "matrices [B, R, C] and their sums of squares [B], all f32"),
    }
}

fn infer_apply(call: &OpCall) -> Inferred {
    match call.inputs {
        [p, x, partials, hyper]
            if p == x && p.dtype == DType::F32 && settings_fit(partials, hyper) =>
        {
            Ok(Vec::new())
        }
        _ => refuse(call, "p and x of one shape, at most 256 partials and hyper [8], all f32"),
    }
}

fn launch_momentum(call: &OpCall, variant: &Variant) -> Launch {
    launch(call.inputs[0].shape.elems(), &call.inputs[3], &[], variant)
}

fn launch_unit(call: &OpCall, variant: &Variant) -> Launch {
    let shape = call.inputs[0].shape;
    let size: usize = shape.dims()[1..].iter().product();
    geometry::elements(shape.elems(), &[size as u32], variant)
}

fn launch_apply(call: &OpCall, variant: &Variant) -> Launch {
    let rest: Vec<u32> = call.attrs.float[..3].iter().map(|x| x.to_bits()).collect();
    launch(call.inputs[0].shape.elems(), &call.inputs[2], &rest, variant)
}

fn momentum_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [m, grads, blocks, partials, hyper] = inputs else {
        unreachable!("muon_momentum has five inputs")
    };
    let (mu, max_norm) = (hyper.data[4], hyper.data[7]);
    let (norm, scale) = clip(partials, max_norm);
    let (mut m, mut u) = (m.clone(), HostTensor::f32(m.shape(), vec![0.0; m.data.len()]));
    for (i, grad) in grads.data.iter().enumerate().filter(|_| norm.is_finite()) {
        if block(blocks, i).is_some() {
            let g = (1.0 - mu) * grad * scale;
            m.data[i] = mu * m.data[i] + g;
            u.data[i] = g + mu * m.data[i];
        }
    }
    vec![u, m]
}

fn unit_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [x, squares] = inputs else { unreachable!("muon_unit has two inputs") };
    let size: usize = x.shape().dims()[1..].iter().product();
    let data = x.data.iter().enumerate().map(|(i, x)| x / (squares.data[i / size].sqrt() + 1e-7));
    vec![HostTensor::f32(x.shape(), data.collect())]
}

fn apply_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [p, x, partials, hyper] = inputs else { unreachable!("muon_apply has four inputs") };
    let [factor, decay, stretch, _] = attrs.float.map(f64::from);
    let (norm, _) = clip(partials, 0.0);
    let rate = hyper.data[0] * factor;
    let mut p = p.clone();
    for (p, x) in p.data.iter_mut().zip(&x.data).filter(|_| norm.is_finite()) {
        *p = *p * (1.0 - rate * decay) - rate * stretch * x;
    }
    vec![p]
}

fn momentum_samples() -> Vec<Sample> {
    let sample = |(n, size, max_norm): (usize, f64, f64)| {
        let [grads, blocks, partials, hyper] = sample_inputs(n, size, max_norm);
        let inputs = vec![uniform([n], -0.1, 0.1, 23), grads, blocks, partials, hyper];
        Sample::new(inputs, Attrs::NONE)
    };
    let mut samples: Vec<Sample> = SIZES.into_iter().map(sample).collect();
    samples.push(sample((64 * 2049, 0.1, 1.0)).large());
    samples
}

fn unit_samples() -> Vec<Sample> {
    let sample = |shape: [usize; 3]| {
        let inputs = vec![signed(shape, 26), uniform([shape[0]], 0.1, 2.0, 27)];
        Sample::new(inputs, Attrs::NONE)
    };
    let nothing = vec![uniform([2, 3, 5], 0.0, 0.0, 0), uniform([2], 0.0, 0.0, 0)];
    vec![
        sample([1, 1, 1]),
        sample([3, 5, 7]),
        sample([5, 31, 129]),
        Sample::new(nothing, Attrs::NONE),
        sample([3, 1000, 257]).large(),
    ]
}

fn apply_samples() -> Vec<Sample> {
    let sample = |rows: usize, cols: usize, floats: [f32; 3]| {
        let [_, _, partials, hyper] = sample_inputs(64, 1.0, 0.0);
        let inputs = vec![signed([rows, cols], 28), signed([rows, cols], 29), partials, hyper];
        Sample::new(inputs, Attrs::floats(&floats))
    };
    vec![
        sample(1, 1, [1.0, 0.1, 1.0]),
        sample(129, 65, [0.5, 0.0, 1.4]),
        sample(7, 1000, [1.0, 0.25, 1.0]),
        sample(1025, 513, [1.0, 0.1, 1.5]).large(),
    ]
}
