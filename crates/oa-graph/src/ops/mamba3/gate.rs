//! From what the scan of a mixer gives to what its output projection reads.
//!
//! Integer attributes of all three ops: heads, head dim, rank, flags, tokens of a part; float: eps
//! of the norm. The outputs of the backward that only the gradients of parameters read are an
//! inverse root mean square per row and a sum per head.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use super::gate_reference::{backward_reference, gate_reference, parameters_reference};
use super::{chunk, parameter};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Inputs: y and v `[B, T, R H, P]`, z `[B, T, H P]`, d_skip `[H]`, o_norm `[H P]`, mimo_z and
/// mimo_o `[H, R, P]`; o_norm and the last two are not read unless the flags name them. Output:
/// `[B, T, H P]`.
pub static MAMBA3_GATE: OpDef = OpDef {
    name: "mamba3_gate",
    doc: "The output side of a Mamba-3 mixer: the sum over ranks of `w silu(z mimo_z) mimo_o` with \
          `w = y + d_skip v`, or its RMSNorm per head times `o_norm`.",
    infer: infer_gate,
    lower: Lower::Kernel { family: gate_family, launch: launch_rows },
    backward: Backward::Rule(gradients),
    reference: gate_reference,
    samples: gate_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAMBA3_GATE`] with respect to y, v and z. Inputs: those of the gate and the
/// gradient of its output. Outputs: dy, dv, dz, the inverse root mean squares `[B, T, R H]` (1
/// without the norm), and the sums of dy v for d_skip `[B, T, H]`.
pub static MAMBA3_GATE_BACKWARD: OpDef = OpDef {
    name: "mamba3_gate_backward",
    doc: "The gradients of y, v and z of the gate of a Mamba-3 mixer; also the inverse root mean \
          squares of its norm, and `sum dy v` per head.",
    infer: infer_backward,
    lower: Lower::Kernel { family: backward_family, launch: launch_rows },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivatives of [`MAMBA3_GATE`] with respect to its parameters, in parts. Inputs: those of the
/// backward and its last two outputs. Outputs `[parts, ..]`: d_skip, o_norm, mimo_z, mimo_o; one
/// zero stands for those that the flags do not name.
pub static MAMBA3_GATE_PARAMETERS: OpDef = OpDef {
    name: "mamba3_gate_parameters",
    doc: "Sums over the tokens of part `p`: the gradients of d_skip, o_norm, mimo_z and mimo_o.",
    infer: infer_parameters,
    lower: Lower::Kernel { family: |_| "mamba3_gate_parameters", launch: launch_columns },
    backward: Backward::None(FIRST_ORDER),
    reference: parameters_reference,
    samples: parameters_samples,
    mutates: &[],
    in_place: None,
};

/// What [`Tensor::mamba3_gate`] takes besides what the scan gives.
#[derive(Clone, Copy)]
pub struct Mamba3Gate<'a> {
    /// Values that the scan read, `[B, T, R H, P]`.
    pub v: &'a Tensor,
    /// Input of the gate, `[B, T, H P]`.
    pub z: &'a Tensor,
    /// Share of the values that skips the scan, `[H]`.
    pub d_skip: &'a Tensor,
    /// Gain of the norm per head, `[H P]`, and what is added to its mean square; `None` for no norm.
    pub norm: Option<(&'a Tensor, f32)>,
    /// Weights of z and of the gated values for each rank, `[H, R, P]` each; `None` for a single
    /// rank without weights.
    pub mimo: Option<[&'a Tensor; 2]>,
}

/// The values are normalised per head before the gate.
pub(super) const NORM: u32 = 1;
/// Ranks have weights.
pub(super) const MIMO: u32 = 2;

impl Tensor {
    /// Gates what the scan of a Mamba-3 mixer gives, `[B, T, R H, P]` without the skip, and sums over
    /// ranks: `[B, T, H P]`.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together, or there are several ranks without weights.
    #[track_caller]
    pub fn mamba3_gate(&self, with: Mamba3Gate<'_>) -> Result<Tensor> {
        let heads = with.d_skip.shape().elems().max(1);
        let (rows, dim) = match *self.shape().dims() {
            [_, _, rows, dim] => (rows, dim),
            _ => (0, 0),
        };
        let flags = with.norm.map_or(0, |_| NORM) | with.mimo.map_or(0, |_| MIMO);
        let sizes = [heads, dim, rows / heads];
        let mut ints = sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX)).to_vec();
        ints.extend([flags, chunk(rows)]);
        // What is not read stands where something would.
        let (gain, eps) = with.norm.unwrap_or((with.d_skip, 0.0));
        let [mimo_z, mimo_o] = with.mimo.unwrap_or([with.d_skip; 2]);
        let inputs = [self, with.v, with.z, with.d_skip, gain, mimo_z, mimo_o];
        Tensor::record1(&MAMBA3_GATE, Attrs::ints(&ints).with_floats(&[eps]), &inputs)
    }
}

/// The attributes by name.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub heads: usize,
    pub dim: usize,
    pub rank: usize,
    pub flags: u32,
    pub chunk: usize,
}

impl Sizes {
    pub fn of(attrs: &Attrs) -> Sizes {
        let [heads, dim, rank, flags, chunk, ..] = attrs.int;
        let [heads, dim, rank, chunk] = [heads, dim, rank, chunk].map(|size| size as usize);
        Sizes { heads, dim, rank, flags, chunk }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Batch and time, when the inputs of a gate fit.
    fn sequence(&self, inputs: &[Spec]) -> Option<[usize; 2]> {
        let [y, v, z, d_skip, gain, mimo_z, mimo_o] = inputs else { return None };
        let &[b, t, rows, dim] = y.shape.dims() else { return None };
        let (inner, wide) = (self.heads * dim, Spec::f32([self.heads, self.rank, dim]));
        let fits = self.heads > 0
            && self.rank > 0
            && self.chunk > 0
            && y.dtype == DType::F32
            && y == v
            && [rows, dim] == [self.rank * self.heads, self.dim]
            && *z == Spec::f32([b, t, inner])
            && *d_skip == Spec::f32([self.heads])
            && (!self.has(NORM) || *gain == Spec::f32([inner]))
            && (!self.has(MIMO) || [*mimo_z, *mimo_o] == [wide; 2])
            && (self.rank == 1 || self.has(MIMO));
        fits.then_some([b, t])
    }

    /// True when a cpu kernel, whose lane has four rows, stays far from the turns after which older
    /// lavapipe ends its loops.
    fn short(&self) -> bool {
        self.rank * self.dim <= 2048
    }
}

fn infer_gate(call: &OpCall) -> Inferred {
    let expected = "y and v [B, T, RH, P], z [B, T, HP], d_skip [H], o_norm [HP], mimo_z and \
                    mimo_o [H, R, P], R 1 without those two";
    match Sizes::of(call.attrs).sequence(call.inputs) {
        Some(_) => Ok(vec![call.inputs[2]]),
        None => refuse(call, expected),
    }
}

/// What the backward gives after dy, dv and dz.
fn rests(sizes: &Sizes, [b, t]: [usize; 2]) -> [Spec; 2] {
    [Spec::f32([b, t, sizes.rank * sizes.heads]), Spec::f32([b, t, sizes.heads])]
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "the inputs of mamba3_gate and the gradient of its output";
    let Some((dout, inputs)) = call.inputs.split_last() else { return refuse(call, expected) };
    let sizes = Sizes::of(call.attrs);
    match sizes.sequence(inputs) {
        Some(sequence) if *dout == inputs[2] => {
            let mut outputs = vec![inputs[0], inputs[1], inputs[2]];
            outputs.extend(rests(&sizes, sequence));
            Ok(outputs)
        }
        _ => refuse(call, expected),
    }
}

fn infer_parameters(call: &OpCall) -> Inferred {
    let expected = "the inputs of mamba3_gate, the gradient of its output, and the last two \
                    outputs of mamba3_gate_backward";
    let sizes = Sizes::of(call.attrs);
    let [inputs @ .., dout, inverses, skips] = call.inputs else { return refuse(call, expected) };
    let Some(sequence) = sizes.sequence(inputs) else { return refuse(call, expected) };
    if *dout != inputs[2] || [*inverses, *skips] != rests(&sizes, sequence) {
        return refuse(call, expected);
    }
    let parts = sequence.iter().product::<usize>().div_ceil(sizes.chunk);
    let or_one = |flag, count: usize| match sizes.has(flag) {
        true => Spec::f32([parts, count]),
        false => Spec::f32([1]),
    };
    let mimo = or_one(MIMO, sizes.heads * sizes.rank * sizes.dim);
    let norm = or_one(NORM, sizes.heads * sizes.dim);
    Ok(vec![Spec::f32([parts, sizes.heads]), norm, mimo, mimo])
}

fn gate_family(call: &OpCall) -> &'static str {
    if Sizes::of(call.attrs).short() { "mamba3_gate" } else { "mamba3_gate_long" }
}

fn backward_family(call: &OpCall) -> &'static str {
    if Sizes::of(call.attrs).short() { "mamba3_gate_backward" } else { "mamba3_gate_backward_long" }
}

/// Tokens of a call.
fn tokens(call: &OpCall) -> usize {
    call.inputs[2].shape.rows()
}

fn launch_rows(call: &OpCall, variant: &Variant) -> Launch {
    let sizes = Sizes::of(call.attrs);
    let mut rest = call.attrs.int[..4].to_vec();
    rest.push(call.attrs.float[0].to_bits());
    launch::rows(tokens(call) * sizes.heads, sizes.dim, &rest, variant)
}

fn launch_columns(call: &OpCall, variant: &Variant) -> Launch {
    let (sizes, columns) = (Sizes::of(call.attrs), variant.tile[0] as usize);
    let inner = sizes.heads * sizes.dim;
    let norm = if sizes.has(NORM) { inner } else { 0 };
    let mimo = if sizes.has(MIMO) { inner * sizes.rank } else { 0 };
    let tiles: usize =
        [sizes.heads, norm, mimo].into_iter().map(|count| count.div_ceil(columns)).sum();
    let mut push = vec![tokens(call) as u32, sizes.chunk as u32];
    push.extend(&call.attrs.int[..4]);
    Launch { groups: (tiles * tokens(call).div_ceil(sizes.chunk)) as u64, push, spec: Vec::new() }
}

fn gradients(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let mut inputs: Vec<&Tensor> = g.inputs.iter().collect();
    inputs.push(g.dout());
    let found = Tensor::record(&MAMBA3_GATE_BACKWARD, *g.attrs, &inputs)?;
    let mut all: Vec<Option<Tensor>> = found[..3].iter().cloned().map(Some).collect();
    if !g.wanted[3..].contains(&true) {
        all.resize(7, None);
        return Ok(all);
    }
    inputs.extend(&found[3..]);
    let parts = Tensor::record(&MAMBA3_GATE_PARAMETERS, *g.attrs, &inputs)?;
    let flags = g.attrs.int[3];
    for (index, flag) in [u32::MAX, NORM, MIMO, MIMO].into_iter().enumerate() {
        let wanted = g.wanted[index + 3] && (flag == u32::MAX || flags & flag != 0);
        all.push(wanted.then(|| parameter(&parts[index], &g.inputs[index + 3])).transpose()?);
    }
    Ok(all)
}

/// Batch, time; heads, head dim, rank, flags, tokens of a part.
type Case = ([usize; 2], [u32; 5]);

const SMALL: [Case; 7] = [
    ([1, 1], [1, 1, 1, 0, 1024]),
    ([2, 3], [2, 3, 1, NORM, 4]),
    ([1, 5], [4, 2, 1, 0, 2]),
    ([2, 2], [3, 3, 2, MIMO | NORM, 1024]),
    ([1, 3], [2, 5, 3, MIMO, 1]),
    ([3, 1], [1, 4, 4, MIMO | NORM, 2]),
    ([1, 2], [1, 9, 1, MIMO | NORM, 1024]),
];

const LARGE: [Case; 5] = [
    ([64, 16], [4, 16, 1, NORM, 1024]),
    ([5, 41], [8, 33, 1, 0, 64]),
    ([9, 130], [6, 20, 3, MIMO | NORM, 1024]),
    ([2, 3], [2, 1031, 4, MIMO | NORM, 1024]),
    ([1, 1031], [4, 8, 1, NORM, 100]),
];

/// The inputs of a gate; what is not read is as small as can be.
fn inputs([b, t]: [usize; 2], sizes: &Sizes) -> Vec<HostTensor> {
    let Sizes { heads, dim, rank, .. } = *sizes;
    let or_one = |flag, shape: Shape, seed| match sizes.has(flag) {
        true => uniform(shape, 0.5, 1.5, seed),
        false => uniform([1], 0.5, 1.5, seed),
    };
    let (rows, wide) = ([b, t, rank * heads, dim], Shape::from([heads, rank, dim]));
    vec![
        signed(rows, 931),
        signed(rows, 932),
        uniform([b, t, heads * dim], -2.0, 2.0, 933),
        uniform([heads], 0.5, 1.5, 934),
        or_one(NORM, [heads * dim].into(), 935),
        or_one(MIMO, wide, 936),
        or_one(MIMO, wide, 937),
    ]
}

fn attrs_of(ints: [u32; 5]) -> Attrs {
    Attrs::ints(&ints).with_floats(&[1.0e-5])
}

fn gate_sample((sequence, ints): Case) -> Sample {
    let attrs = attrs_of(ints);
    Sample::new(inputs(sequence, &Sizes::of(&attrs)), attrs)
}

fn backward_sample((sequence, ints): Case) -> Sample {
    let attrs = attrs_of(ints);
    let mut inputs = inputs(sequence, &Sizes::of(&attrs));
    inputs.push(signed(inputs[2].shape(), 938));
    Sample::new(inputs, attrs)
}

fn parameters_sample((sequence, ints): Case) -> Sample {
    let attrs = attrs_of(ints);
    let sizes = Sizes::of(&attrs);
    let mut inputs = inputs(sequence, &sizes);
    inputs.push(uniform(inputs[2].shape(), 0.0, 1.0, 939));
    let [inverses, skips] = rests(&sizes, sequence);
    inputs.extend([uniform(inverses.shape, 0.5, 1.5, 940), uniform(skips.shape, 0.0, 1.0, 941)]);
    Sample::new(inputs, attrs)
}

fn samples(of: fn(Case) -> Sample) -> Vec<Sample> {
    let large = LARGE.into_iter().map(|case| Sample::later(move || of(case)));
    SMALL.into_iter().map(of).chain(large).collect()
}

fn gate_samples() -> Vec<Sample> {
    samples(gate_sample)
}

fn backward_samples() -> Vec<Sample> {
    samples(backward_sample)
}

fn parameters_samples() -> Vec<Sample> {
    samples(parameters_sample)
}
