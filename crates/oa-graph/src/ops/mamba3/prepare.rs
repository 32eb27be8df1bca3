//! From the input projection of a mixer to what its scan reads.
//!
//! The projection has one reader: the gate's input `z` is copied, so that the gradient of the
//! projection is written once. Integer attributes of all three ops: heads, head dim, state, groups,
//! rank, angles, flags, tokens of a part; floats: the floor of the decay rate, eps of the norms.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use super::prepare_reference::{backward_reference, parameters_reference, prepare_reference};
use super::{chunk, or_zeros, parameter};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// Inputs: the projection `[B, T, width]`, dt_bias `[H]`, gains of B and C `[N]`, biases of B and C
/// `[H, R, N]`, mimo_x `[H, R, P]`; gains and mimo_x are not read unless the flags name them.
/// Outputs: z `[B, T, H P]`, q and k `[B, T, R H, N]`, v `[B, T, R H, P]`, a, dt and lambda
/// `[B, T, H]`, steps `[B, T, H S]`.
pub static MAMBA3_PREPARE: OpDef = OpDef {
    name: "mamba3_prepare",
    doc: "From the input projection of a Mamba-3 mixer: `k = RMSNorm(B) gain + bias`, `q` from C, \
          `v = x mimo_x`, `dt = softplus(.. + dt_bias)`, `a = -max(rate(..), floor) dt`, \
          `lambda = sigmoid(..)`, `steps = dt pi tanh(..)`, and `z`.",
    infer: infer_prepare,
    lower: Lower::Kernel { family: prepare_family, launch: launch_tokens },
    backward: Backward::Rule(gradients),
    reference: prepare_reference,
    samples: prepare_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAMBA3_PREPARE`] with respect to the projection. Inputs: projection, dt_bias,
/// both gains, mimo_x, then the gradients of all outputs. Outputs: the gradient, and the inverse
/// root mean squares of B and C `[B, T, 2, R G]`.
pub static MAMBA3_PREPARE_BACKWARD: OpDef = OpDef {
    name: "mamba3_prepare_backward",
    doc: "The gradient of the input projection of a Mamba-3 mixer from the gradients of what was \
          made of it; also the inverse root mean squares of B and C.",
    infer: infer_backward,
    lower: Lower::Kernel { family: backward_family, launch: launch_tokens },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivatives of [`MAMBA3_PREPARE`] with respect to its parameters, in parts. Inputs: projection,
/// its gradient, the inverse root mean squares, dq, dk, dv. Outputs `[parts, ..]`: dt_bias, both
/// gains, both biases, mimo_x; one zero stands for those that the flags do not name.
pub static MAMBA3_PREPARE_PARAMETERS: OpDef = OpDef {
    name: "mamba3_prepare_parameters",
    doc: "Sums over the tokens of part `p`: the gradients of dt_bias, of the gains and biases of B \
          and C, and of mimo_x.",
    infer: infer_parameters,
    lower: Lower::Kernel { family: |_| "mamba3_prepare_parameters", launch: launch_columns },
    backward: Backward::None(FIRST_ORDER),
    reference: parameters_reference,
    samples: parameters_samples,
    mutates: &[],
    in_place: None,
};

/// How the rate of decay is made positive, before the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayRate {
    /// `1 + x` above zero and `1 / (1 - x)` below.
    HeavyTail,
    /// `log(1 + e^x)`.
    Softplus,
}

/// What [`Tensor::mamba3_prepare`] takes besides the projection.
#[derive(Clone, Copy)]
pub struct Mamba3Prepare<'a> {
    /// Added to the raw time steps, `[H]`.
    pub dt_bias: &'a Tensor,
    /// Gains of the norms of B and of C, `[N]` each; `None` for norms without gains.
    pub gains: Option<[&'a Tensor; 2]>,
    /// Biases of keys and of queries, `[H, R, N]` each.
    pub biases: [&'a Tensor; 2],
    /// Weights of x for each rank, `[H, R, P]`; `None` for a single rank without weights.
    pub mimo_x: Option<&'a Tensor>,
    /// Channels of a head.
    pub head_dim: usize,
    /// Groups of B and C; they divide the heads.
    pub groups: usize,
    /// Angles.
    pub angles: usize,
    /// How the rate of decay is made positive.
    pub rate: DecayRate,
    /// Smallest rate of decay.
    pub floor: f32,
    /// Added to the mean squares in the norms.
    pub eps: f32,
}

/// What [`Tensor::mamba3_prepare`] gives.
pub struct Mamba3Prepared {
    /// Input of the gate, `[B, T, H P]`.
    pub z: Tensor,
    /// Queries before the rotation, `[B, T, R H, N]`; row `r H + h`.
    pub q: Tensor,
    /// Keys before the rotation, as the queries.
    pub k: Tensor,
    /// Values, `[B, T, R H, P]`.
    pub v: Tensor,
    /// Logarithm of the decay, `[B, T, H]`.
    pub a: Tensor,
    /// Time steps, `[B, T, H]`.
    pub dt: Tensor,
    /// Weights of the present against the past, `[B, T, H]`.
    pub lambda: Tensor,
    /// How far each angle turns, `[B, T, H S]`.
    pub steps: Tensor,
}

/// The rate is a softplus.
pub(super) const SOFTPLUS: u32 = 1;
/// x is weighted for each rank.
pub(super) const MIMO: u32 = 2;
/// The norms have gains.
pub(super) const GAINS: u32 = 4;

impl Tensor {
    /// Makes what the scan of a Mamba-3 mixer reads from its input projection `[B, T, D]` with D the
    /// sum of `2 H P`, `2 N G R`, `3 H` and S: it holds z, x, B, C, the raw time steps, decays and
    /// mixing weights, and the raw rates of the angles.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together, the groups do not divide the heads, there are no angles
    /// or more than half the state, or there are several ranks without mimo_x.
    #[track_caller]
    pub fn mamba3_prepare(&self, with: Mamba3Prepare<'_>) -> Result<Mamba3Prepared> {
        let bias = with.biases[0];
        let [heads, rank, state] = match *bias.shape().dims() {
            [heads, rank, state] => [heads, rank, state],
            _ => [0; 3],
        };
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let flags = flag(with.rate == DecayRate::Softplus, SOFTPLUS)
            | flag(with.mimo_x.is_some(), MIMO)
            | flag(with.gains.is_some(), GAINS);
        let sizes = [heads, with.head_dim, state, with.groups, rank, with.angles];
        let mut ints = sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX)).to_vec();
        ints.extend([flags, chunk(heads * rank)]);
        let attrs = Attrs::ints(&ints).with_floats(&[with.floor, with.eps]);
        // What is not read stands where something would.
        let [b_gain, c_gain] = with.gains.unwrap_or([bias; 2]);
        let mimo_x = with.mimo_x.unwrap_or(bias);
        let inputs = [self, with.dt_bias, b_gain, c_gain, bias, with.biases[1], mimo_x];
        let mut found = Tensor::record(&MAMBA3_PREPARE, attrs, &inputs)?.into_iter();
        let mut next = || found.next().expect("mamba3_prepare has eight outputs");
        Ok(Mamba3Prepared {
            z: next(),
            q: next(),
            k: next(),
            v: next(),
            a: next(),
            dt: next(),
            lambda: next(),
            steps: next(),
        })
    }
}

/// The attributes by name.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub heads: usize,
    pub dim: usize,
    pub state: usize,
    pub groups: usize,
    pub rank: usize,
    pub angles: usize,
    pub flags: u32,
    pub chunk: usize,
}

impl Sizes {
    pub fn of(attrs: &Attrs) -> Sizes {
        let [heads, dim, state, groups, rank, angles, flags, chunk] = attrs.int;
        let [heads, dim, state] = [heads, dim, state].map(|size| size as usize);
        let [groups, rank, angles, chunk] = [groups, rank, angles, chunk].map(|size| size as usize);
        Sizes { heads, dim, state, groups, rank, angles, flags, chunk }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn inner(&self) -> usize {
        self.heads * self.dim
    }

    /// Where B, C, the time steps, decays, mixing weights and angles begin, and the width.
    pub fn places(&self) -> [usize; 7] {
        let keys = self.rank * self.groups * self.state;
        let b = 2 * self.inner();
        let step = b + 2 * keys;
        let [decay, mix, angle] = [1, 2, 3].map(|index| step + index * self.heads);
        [b, b + keys, step, decay, mix, angle, angle + self.angles]
    }

    fn width(&self) -> usize {
        self.places()[6]
    }

    /// True when these are the sizes of a mixer.
    fn sound(&self) -> bool {
        let positive = [self.heads, self.dim, self.state, self.groups, self.rank, self.angles];
        let bounded = |size: &usize| (1..1 << 16).contains(size);
        positive.iter().all(bounded)
            && self.chunk > 0
            && self.heads.is_multiple_of(self.groups)
            && 2 * self.angles <= self.state
            && (self.rank == 1 || self.has(MIMO))
    }

    /// Batch and time of a projection of this width.
    fn sequence(&self, p: &Spec) -> Option<[usize; 2]> {
        match *p.shape.dims() {
            [batch, time, width] if p.dtype == DType::F32 && width == self.width() => {
                Some([batch, time])
            }
            _ => None,
        }
    }

    /// Specs of the outputs.
    fn outputs(&self, [b, t]: [usize; 2]) -> [Spec; 8] {
        let rows = self.rank * self.heads;
        let keys = Spec::f32([b, t, rows, self.state]);
        let scalar = Spec::f32([b, t, self.heads]);
        [
            Spec::f32([b, t, self.inner()]),
            keys,
            keys,
            Spec::f32([b, t, rows, self.dim]),
            scalar,
            scalar,
            scalar,
            Spec::f32([b, t, self.heads * self.angles]),
        ]
    }

    fn inverses(&self, [b, t]: [usize; 2]) -> Spec {
        Spec::f32([b, t, 2, self.rank * self.groups])
    }

    /// True when a cpu kernel, whose lane has four tokens, stays far from the turns after which
    /// older lavapipe ends its loops.
    fn short(&self) -> bool {
        let heads = self.rank * self.heads * (2 * self.state + self.dim);
        let keys = 2 * self.rank * self.groups * self.state;
        heads + keys + self.inner() + 2 * self.heads * (self.angles + 2) <= 8192
    }
}

/// True when gains and mimo_x fit where the flags name them.
fn weights_fit(sizes: &Sizes, gains: &[Spec], mimo_x: &Spec) -> bool {
    let gain = Spec::f32([sizes.state]);
    let wide = Spec::f32([sizes.heads, sizes.rank, sizes.dim]);
    (!sizes.has(GAINS) || gains.iter().all(|found| *found == gain))
        && (!sizes.has(MIMO) || *mimo_x == wide)
}

fn infer_prepare(call: &OpCall) -> Inferred {
    let expected = "a projection [B, T, 2HP + 2NGR + 3H + S], dt_bias [H], gains [N], biases \
                    [H, R, N] and mimo_x [H, R, P], G dividing H, 1 <= S <= N/2, R 1 without mimo_x";
    let sizes = Sizes::of(call.attrs);
    let [p, dt_bias, b_gain, c_gain, b_bias, c_bias, mimo_x] = call.inputs else {
        return refuse(call, expected);
    };
    let bias = Spec::f32([sizes.heads, sizes.rank, sizes.state]);
    let fits = sizes.sound()
        && *dt_bias == Spec::f32([sizes.heads])
        && [*b_bias, *c_bias] == [bias; 2]
        && weights_fit(&sizes, &[*b_gain, *c_gain], mimo_x);
    match sizes.sequence(p) {
        Some(sequence) if fits => Ok(sizes.outputs(sequence).to_vec()),
        _ => refuse(call, expected),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "a projection, dt_bias, gains and mimo_x of mamba3_prepare, then the gradients \
                    of its outputs";
    let sizes = Sizes::of(call.attrs);
    let [p, dt_bias, b_gain, c_gain, mimo_x, douts @ ..] = call.inputs else {
        return refuse(call, expected);
    };
    let fits = sizes.sound()
        && *dt_bias == Spec::f32([sizes.heads])
        && weights_fit(&sizes, &[*b_gain, *c_gain], mimo_x);
    match sizes.sequence(p) {
        Some(sequence) if fits && *douts == sizes.outputs(sequence) => {
            Ok(vec![*p, sizes.inverses(sequence)])
        }
        _ => refuse(call, expected),
    }
}

fn infer_parameters(call: &OpCall) -> Inferred {
    let expected = "a projection, its gradient, the inverse root mean squares, dq, dk and dv of \
                    mamba3_prepare_backward, in parts of at least one token";
    let sizes = Sizes::of(call.attrs);
    let [p, dp, inverses, dq, dk, dv] = call.inputs else { return refuse(call, expected) };
    let sequence = sizes.sequence(p).filter(|_| sizes.sound() && p == dp);
    let Some(sequence) = sequence else { return refuse(call, expected) };
    let [_, q, k, v, ..] = sizes.outputs(sequence);
    if [*inverses, *dq, *dk, *dv] != [sizes.inverses(sequence), q, k, v] {
        return refuse(call, expected);
    }
    let parts = sequence.iter().product::<usize>().div_ceil(sizes.chunk);
    let or_one = |flag, count: usize| match sizes.has(flag) {
        true => Spec::f32([parts, count]),
        false => Spec::f32([1]),
    };
    let gain = or_one(GAINS, sizes.state);
    let bias = Spec::f32([parts, sizes.heads * sizes.rank * sizes.state]);
    let mimo_x = or_one(MIMO, sizes.heads * sizes.rank * sizes.dim);
    Ok(vec![Spec::f32([parts, sizes.heads]), gain, gain, bias, bias, mimo_x])
}

fn prepare_family(call: &OpCall) -> &'static str {
    if Sizes::of(call.attrs).short() { "mamba3_prepare" } else { "mamba3_prepare_long" }
}

fn backward_family(call: &OpCall) -> &'static str {
    match Sizes::of(call.attrs).short() {
        true => "mamba3_prepare_backward",
        false => "mamba3_prepare_backward_long",
    }
}

fn launch_tokens(call: &OpCall, variant: &Variant) -> Launch {
    let (tokens, sizes) = (call.inputs[0].shape.rows(), Sizes::of(call.attrs));
    let mut rest = call.attrs.int[..7].to_vec();
    rest.extend(call.attrs.float[..2].iter().map(|float| float.to_bits()));
    launch::rows(tokens, sizes.state, &rest, variant)
}

fn launch_columns(call: &OpCall, variant: &Variant) -> Launch {
    let (tokens, sizes) = (call.inputs[0].shape.rows(), Sizes::of(call.attrs));
    let (rows, columns) = (sizes.heads * sizes.rank, variant.tile[0] as usize);
    let gain = if sizes.has(GAINS) { sizes.state } else { 0 };
    let mimo_x = if sizes.has(MIMO) { rows * sizes.dim } else { 0 };
    let parameters = [sizes.heads, gain, gain, rows * sizes.state, rows * sizes.state, mimo_x];
    let tiles: usize = parameters.iter().map(|count| count.div_ceil(columns)).sum();
    let mut push = vec![tokens as u32, sizes.chunk as u32];
    push.extend(&call.attrs.int[..7]);
    Launch { groups: (tiles * tokens.div_ceil(sizes.chunk)) as u64, push, spec: Vec::new() }
}

fn gradients(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [p, dt_bias, b_gain, c_gain, b_bias, c_bias, mimo_x] = g.inputs else {
        unreachable!("mamba3_prepare has seven inputs")
    };
    let douts = g.douts.iter().zip(g.outputs).map(|(dout, output)| or_zeros(dout, output));
    let douts: Vec<Tensor> = douts.collect::<Result<_>>()?;
    let mut inputs = vec![p, dt_bias, b_gain, c_gain, mimo_x];
    inputs.extend(&douts);
    let found = Tensor::record(&MAMBA3_PREPARE_BACKWARD, *g.attrs, &inputs)?;
    let [dp, inverses] = found.as_slice() else { unreachable!("the backward has two outputs") };
    let mut all = vec![Some(dp.clone())];
    if !g.wanted[1..].contains(&true) {
        all.resize(7, None);
        return Ok(all);
    }
    let inputs = [p, dp, inverses, &douts[1], &douts[2], &douts[3]];
    let parts = Tensor::record(&MAMBA3_PREPARE_PARAMETERS, *g.attrs, &inputs)?;
    let flags = g.attrs.int[6];
    let parameters = [dt_bias, b_gain, c_gain, b_bias, c_bias, mimo_x];
    let named = [u32::MAX, GAINS, GAINS, u32::MAX, u32::MAX, MIMO];
    for (index, (like, flag)) in parameters.into_iter().zip(named).enumerate() {
        let wanted = g.wanted[index + 1] && (flag == u32::MAX || flags & flag != 0);
        all.push(wanted.then(|| parameter(&parts[index], like)).transpose()?);
    }
    Ok(all)
}

/// Batch, time; heads, head dim, state, groups, rank, angles, flags, tokens of a part.
type Case = ([usize; 2], [u32; 8]);

const SMALL: [Case; 7] = [
    ([1, 1], [1, 1, 2, 1, 1, 1, 0, 1024]),
    ([2, 3], [2, 3, 4, 1, 1, 1, GAINS, 4]),
    ([1, 5], [4, 2, 6, 2, 1, 3, SOFTPLUS | GAINS, 2]),
    ([2, 2], [3, 3, 4, 3, 2, 2, MIMO | GAINS, 1024]),
    ([1, 3], [2, 5, 8, 1, 3, 2, MIMO | SOFTPLUS, 1]),
    ([3, 1], [4, 1, 5, 2, 4, 2, MIMO | GAINS, 1024]),
    ([1, 2], [1, 9, 3, 1, 1, 1, MIMO, 1024]),
];

const LARGE: [Case; 5] = [
    ([64, 16], [4, 16, 32, 1, 1, 8, 0, 1024]),
    ([5, 41], [8, 33, 48, 4, 1, 12, GAINS, 64]),
    ([9, 130], [6, 20, 16, 2, 3, 4, MIMO | GAINS, 1024]),
    ([3, 5], [16, 64, 128, 1, 4, 32, MIMO | GAINS, 1024]),
    ([1, 1031], [4, 8, 16, 1, 1, 4, SOFTPLUS | GAINS, 100]),
];

/// A floor that some decays of the samples reach.
const FLOOR: f32 = 0.6;

fn attrs_of(ints: [u32; 8]) -> Attrs {
    Attrs::ints(&ints).with_floats(&[FLOOR, 1.0e-5])
}

/// dt_bias, both gains, both biases, mimo_x; what is not read is as small as can be.
fn weights(sizes: &Sizes) -> Vec<HostTensor> {
    let bias = [sizes.heads, sizes.rank, sizes.state];
    let gain = |seed| match sizes.has(GAINS) {
        true => uniform([sizes.state], 0.5, 1.5, seed),
        false => uniform([1], 0.5, 1.5, seed),
    };
    let mimo_x = match sizes.has(MIMO) {
        true => uniform([sizes.heads, sizes.rank, sizes.dim], 0.5, 1.5, 906),
        false => uniform([1], 0.5, 1.5, 906),
    };
    vec![
        uniform([sizes.heads], -3.0, 0.5, 901),
        gain(902),
        gain(903),
        signed(bias, 904),
        signed(bias, 905),
        mimo_x,
    ]
}

fn projection(sizes: &Sizes, [b, t]: [usize; 2]) -> HostTensor {
    uniform([b, t, sizes.width()], -2.0, 2.0, 900)
}

fn prepare_sample((sequence, ints): Case) -> Sample {
    let attrs = attrs_of(ints);
    let sizes = Sizes::of(&attrs);
    let mut inputs = vec![projection(&sizes, sequence)];
    inputs.extend(weights(&sizes));
    Sample::new(inputs, attrs)
}

/// The gradients of the outputs.
fn upstream(sizes: &Sizes, sequence: [usize; 2]) -> impl Iterator<Item = HostTensor> {
    sizes.outputs(sequence).into_iter().zip(910..).map(|(spec, seed)| signed(spec.shape, seed))
}

fn backward_sample((sequence, ints): Case) -> Sample {
    let attrs = attrs_of(ints);
    let sizes = Sizes::of(&attrs);
    let [dt_bias, b_gain, c_gain, _, _, mimo_x] =
        <[HostTensor; 6]>::try_from(weights(&sizes)).expect("six weights");
    let mut inputs = vec![projection(&sizes, sequence), dt_bias, b_gain, c_gain, mimo_x];
    inputs.extend(upstream(&sizes, sequence));
    Sample::new(inputs, attrs)
}

fn parameters_sample((sequence, ints): Case) -> Sample {
    let attrs = attrs_of(ints);
    let sizes = Sizes::of(&attrs);
    let (p, inverses) = (projection(&sizes, sequence), sizes.inverses(sequence));
    let positive = |spec: Spec, seed| uniform(spec.shape, 0.0, 1.0, seed);
    let [_, q, k, v, ..] = sizes.outputs(sequence);
    let dp = positive(p.spec, 920);
    let inputs = vec![
        p,
        dp,
        uniform(inverses.shape, 0.5, 1.5, 921),
        positive(q, 922),
        positive(k, 923),
        positive(v, 924),
    ];
    Sample::new(inputs, attrs)
}

fn samples(of: fn(Case) -> Sample) -> Vec<Sample> {
    let large = LARGE.into_iter().map(|case| Sample::later(move || of(case)));
    SMALL.into_iter().map(of).chain(large).collect()
}

fn prepare_samples() -> Vec<Sample> {
    samples(prepare_sample)
}

fn backward_samples() -> Vec<Sample> {
    samples(backward_sample)
}

fn parameters_samples() -> Vec<Sample> {
    samples(parameters_sample)
}
