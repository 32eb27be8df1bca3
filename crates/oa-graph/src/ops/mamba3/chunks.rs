//! What each chunk adds to the state, and how much of the state it leaves.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, Lower, OpCall, OpDef};
use super::piece::pieces;
use super::sample::{LARGE, SMALL, Size, coefficients, keys, sizes, starts, values};
use super::sizes::{DECAYS, DOCUMENTS, Sizes};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;

/// Contributions and decays of the chunks. Inputs: k `[B, T, R H, N]` rotated, v `[B, T, R H, P]`,
/// coefficients `[B, T, 3, H]`, starts u32 `[B, T]`. Integer attribute: flags; without
/// documents `starts` is not read.
pub static MAMBA3_CHUNKS: OpDef = OpDef {
    name: "mamba3_chunks",
    doc: "What each chunk of tokens adds to the state, `U = sum_j e^(L_last - L_j) w_j v_j k_j^T`, \
          and what it leaves of it, `D = e^L_last`; a document's start drops what was before.",
    infer: infer_forward,
    lower: Lower::Kernel {
        family: |_| "mamba3_chunks",
        launch: |call, variant| of_call(call).over_chunks(call, variant),
    },
    backward: Backward::Rule(|call| {
        let mut gradients = gradients(call.inputs, call.attrs, call.douts)?;
        gradients.push(None);
        Ok(gradients)
    }),
    reference: forward_reference,
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`MAMBA3_CHUNKS`]. Inputs: those of the forward, dU, dD. Outputs: dk, dv, dc.
/// Integer attribute: flags; the gradient of the decays is read only with its flag.
pub static MAMBA3_CHUNKS_BACKWARD: OpDef = OpDef {
    name: "mamba3_chunks_backward",
    doc: "Backward of the chunks' contributions: with `f_j = e^(L_last - L_j) w_j`, `dk_j = f_j dU^T \
          v_j`, `dv_j = f_j dU k_j`, `df_j = v_j^T dU k_j` and `da_t = sum_{j<t} f_j df_j + D dD`.",
    infer: infer_backward,
    lower: Lower::Kernel {
        family: |_| "mamba3_chunks_backward",
        launch: |call, variant| of_call(call).over_chunks(call, variant),
    },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

fn of_call(call: &OpCall) -> Sizes {
    Sizes::of(&call.inputs[0], &call.inputs[1], &call.inputs[2]).expect("infer admitted the shapes")
}

/// Gradients of k, v and the coefficients from those of the contributions and the decays.
pub(super) fn gradients(
    inputs: &[Tensor],
    attrs: &Attrs,
    douts: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let [k, v, c, starts] = inputs else { unreachable!("mamba3_chunks has four inputs") };
    let sizes = Sizes::of(&k.spec(), &v.spec(), &c.spec()).expect("infer admitted the shapes");
    let du = match &douts[0] {
        Some(du) => du.clone(),
        None => k.graph().filled_f32(sizes.states(), 0.0)?,
    };
    let (dd, flag) = douts[1].as_ref().map_or((&du, 0), |dd| (dd, DECAYS));
    let attrs = Attrs::ints(&[attrs.int[0] | flag]);
    let found = Tensor::record(&MAMBA3_CHUNKS_BACKWARD, attrs, &[k, v, c, starts, &du, dd])?;
    Ok(found.into_iter().map(Some).collect())
}

const EXPECTED: &str = "k [B, T, R H, N], v [B, T, R H, P], coefficients [B, T, 3, H], starts u32 \
                        [B, T], R at most 32";

fn infer_forward(call: &OpCall) -> Inferred {
    let [k, v, c, starts] = call.inputs else { return refuse(call, EXPECTED) };
    match Sizes::of(k, v, c) {
        Some(s) if s.admits(starts, call.attrs.int[0]) => {
            Ok(vec![Spec::f32(s.states()), Spec::f32(s.decays())])
        }
        _ => refuse(call, EXPECTED),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "the inputs of mamba3_chunks and the gradients of its outputs";
    let [k, v, c, starts, du, dd] = call.inputs else { return refuse(call, expected) };
    let flags = call.attrs.int[0];
    match Sizes::of(k, v, c) {
        Some(s)
            if s.admits(starts, flags)
                && *du == Spec::f32(s.states())
                && (flags & DECAYS == 0 || *dd == Spec::f32(s.decays())) =>
        {
            Ok(vec![*k, *v, *c])
        }
        _ => refuse(call, expected),
    }
}

fn forward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [k, v, c, starts] = inputs else { unreachable!("mamba3_chunks has four inputs") };
    let s = Sizes::of(&k.spec, &v.spec, &c.spec).expect("infer admitted the shapes");
    let mut added = vec![0.0; s.states().elems()];
    let mut decays = vec![0.0; s.decays().elems()];
    pieces(s, c, starts, attrs.int[0], |piece| {
        decays[piece.index] = piece.carried(piece.count - 1);
        let to = piece.index * s.width * s.state;
        for row in 0..piece.rows() {
            let f = piece.left(piece.token(row)) * piece.w[piece.token(row)];
            let (key, value) = (piece.at(row, s.state), piece.at(row, s.width));
            for p in 0..s.width {
                for n in 0..s.state {
                    added[to + p * s.state + n] += f * v.data[value + p] * k.data[key + n];
                }
            }
        }
    });
    vec![HostTensor::f32(s.states(), added), HostTensor::f32(s.decays(), decays)]
}

fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [k, v, c, starts, du, dd] = inputs else { unreachable!("the backward has six inputs") };
    let s = Sizes::of(&k.spec, &v.spec, &c.spec).expect("infer admitted the shapes");
    let zero = |like: &HostTensor| HostTensor::new(like.spec, vec![0.0; like.data.len()]);
    let (mut dk, mut dv, mut dc) = (zero(k), zero(v), zero(c));
    pieces(s, c, starts, attrs.int[0], |piece| {
        let from = piece.index * s.width * s.state;
        let mut df = vec![0.0; piece.count];
        for row in 0..piece.rows() {
            let token = piece.token(row);
            let f = piece.left(token) * piece.w[token];
            let (key, value) = (piece.at(row, s.state), piece.at(row, s.width));
            for p in 0..s.width {
                for n in 0..s.state {
                    let d = du.data[from + p * s.state + n];
                    dk.data[key + n] += f * d * v.data[value + p];
                    dv.data[value + p] += f * d * k.data[key + n];
                    df[token] += d * v.data[value + p] * k.data[key + n];
                }
            }
        }
        let last = piece.count - 1;
        let mut dlog = vec![0.0; piece.count];
        for (j, df) in df.into_iter().enumerate() {
            dc.data[piece.scalar(j, 1)] = piece.left(j) * df;
            dlog[j] -= piece.left(j) * piece.w[j] * df;
            dlog[last] += piece.left(j) * piece.w[j] * df;
        }
        if attrs.int[0] & DECAYS != 0 {
            dlog[last] += piece.carried(last) * dd.data[piece.index];
        }
        for (t, da) in piece.da(&dlog).into_iter().enumerate() {
            dc.data[piece.scalar(t, 0)] = da;
        }
    });
    vec![dk, dv, dc]
}

fn forward_sample(size: Size, flags: u32) -> Sample {
    let inputs = vec![keys(size, 951), values(size, 952), coefficients(size), starts(size)];
    Sample::new(inputs, Attrs::ints(&[flags]))
}

fn forward_samples() -> Vec<Sample> {
    let small =
        SMALL.into_iter().flat_map(|s| [0, DOCUMENTS].map(|flags| forward_sample(s, flags)));
    let large = LARGE.map(|size| Sample::later(move || forward_sample(size, DOCUMENTS)));
    small.chain(large).collect()
}

fn backward_sample(size: Size, flags: u32) -> Sample {
    let mut sample = forward_sample(size, flags);
    let s = sizes(size);
    sample.inputs.extend([signed(s.states(), 953), signed(s.decays(), 954)]);
    sample
}

fn backward_samples() -> Vec<Sample> {
    let flags = [0, DOCUMENTS | DECAYS, DECAYS];
    let small = SMALL.into_iter().flat_map(|s| flags.map(|flags| backward_sample(s, flags)));
    let large = LARGE.map(|size| Sample::later(move || backward_sample(size, DECAYS)));
    small.chain(large).collect()
}
