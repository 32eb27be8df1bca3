//! What the tokens read: pairs of tokens inside a chunk, and the state that entered it.

use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, Lower, OpCall, OpDef};
use super::outputs_gradient::gradients;
use super::piece::pieces;
use super::sample::{LARGE, SMALL, Size, coefficients, keys, sizes, starts, values};
use super::sizes::{DOCUMENTS, STATE, Sizes};
use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};

/// Outputs of a scan. Inputs: q and k `[B, T, R H, N]` rotated, v `[B, T, R H, P]`, coefficients
/// `[B, T, 3, H]`, starts u32 `[B, T]`, the state that enters each chunk `[B, C, H, P N]`. Integer
/// attribute: flags; what they leave out is not read.
pub static MAMBA3_OUTPUTS: OpDef = OpDef {
    name: "mamba3_outputs",
    doc: "Outputs of the chunked scan: `y_i = e^L_i G q_i + sum_{j<i} e^(L_i - L_j) w_j (q_i k_j) v_j \
          + gamma_i (q_i k_i) v_i`, each token's ranks together, inside one document.",
    infer,
    lower: Lower::Kernel {
        family: |_| "mamba3_outputs",
        launch: |call, variant| of_call(call).over_chunks(call, variant),
    },
    backward: Backward::Rule(|call| gradients(call.inputs, call.attrs, call.dout())),
    reference,
    samples,
    mutates: &[],
    in_place: None,
};

fn of_call(call: &OpCall) -> Sizes {
    Sizes::of(&call.inputs[1], &call.inputs[2], &call.inputs[3]).expect("infer admitted the shapes")
}

/// The sizes, when the six inputs of the forward fit together.
pub(super) fn sizes_of(inputs: &[Spec], flags: u32) -> Option<Sizes> {
    let [q, k, v, c, starts, states, ..] = inputs else { return None };
    let s = Sizes::of(k, v, c)?;
    let fits = q == k
        && s.admits(starts, flags)
        && (flags & STATE == 0 || *states == Spec::f32(s.states()));
    fits.then_some(s)
}

fn infer(call: &OpCall) -> Inferred {
    match sizes_of(call.inputs, call.attrs.int[0]) {
        Some(_) if call.inputs.len() == 6 => Ok(vec![call.inputs[2]]),
        _ => refuse(
            call,
            "q and k [B, T, R H, N], v [B, T, R H, P], coefficients [B, T, 3, H], starts u32 \
             [B, T] and states [B, C, H, P N], R at most 32",
        ),
    }
}

fn reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [q, k, v, c, starts, states] = inputs else { unreachable!("six inputs") };
    let s = Sizes::of(&k.spec, &v.spec, &c.spec).expect("infer admitted the shapes");
    let mut y = vec![0.0; v.data.len()];
    pieces(s, c, starts, attrs.int[0], |piece| {
        for row in 0..piece.rows() {
            let (i, to) = (piece.token(row), piece.at(row, s.width));
            let query = &q.data[piece.at(row, s.state)..][..s.state];
            for other in 0..piece.rows().min((i + 1) * s.ranks) {
                let key = &k.data[piece.at(other, s.state)..][..s.state];
                let score: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                let weight = score * piece.weight(i, piece.token(other));
                for p in 0..s.width {
                    y[to + p] += weight * v.data[piece.at(other, s.width) + p];
                }
            }
            if attrs.int[0] & STATE != 0 {
                let state = &states.data[piece.index * s.width * s.state..];
                for (p, row) in state.chunks(s.state).take(s.width).enumerate() {
                    let read: f64 = query.iter().zip(row).map(|(q, g)| q * g).sum();
                    y[to + p] += piece.carried(i) * read;
                }
            }
        }
    });
    vec![HostTensor::new(v.spec, y)]
}

/// Inputs of the forward.
pub(super) fn sample(size: Size, flags: u32) -> Sample {
    let inputs = vec![
        keys(size, 971),
        keys(size, 972),
        values(size, 973),
        coefficients(size),
        starts(size),
        signed(sizes(size).states(), 974),
    ];
    Sample::new(inputs, Attrs::ints(&[flags]))
}

/// Samples made by `make` from sizes and flags.
pub(super) fn samples_of(make: fn(Size, u32) -> Sample) -> Vec<Sample> {
    let flags = [0, STATE, DOCUMENTS, DOCUMENTS | STATE];
    let small = SMALL.into_iter().flat_map(|size| flags.map(|flags| make(size, flags)));
    let large = LARGE.into_iter().zip([STATE, DOCUMENTS | STATE, STATE, STATE, 0]);
    let large = large.map(|(size, flags)| Sample::later(move || make(size, flags)));
    small.chain(large).collect()
}

fn samples() -> Vec<Sample> {
    samples_of(sample)
}
