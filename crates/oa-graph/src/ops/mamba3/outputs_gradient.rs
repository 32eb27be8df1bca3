//! The derivative of the outputs, a chunk at a time.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::Sample;
use super::super::{Backward, Lower, OpCall, OpDef, turns};
use super::outputs::{sample, samples_of, sizes_of};
use super::piece::{Piece, pieces};
use super::sample::{Size, values};
use super::sizes::{STATE, Sizes};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;

/// Derivative of [`super::MAMBA3_OUTPUTS`]. Inputs: those of the forward, dy. Outputs: dq, dk, dv, dc
/// and the gradient of the states, or one zero where there are none.
pub static MAMBA3_OUTPUTS_BACKWARD: OpDef = OpDef {
    name: "mamba3_outputs_backward",
    doc: "Backward of the chunked scan's outputs: gradients of rotated queries and keys, values, \
          coefficients and states; `da_t = sum_{u>=t} (<dy_u, y_u without its own token> - w_u dw_u)` \
          inside the chunk and the document.",
    infer,
    lower: Lower::Kernel {
        family: |_| "mamba3_outputs_backward",
        launch: |call, variant| {
            let sizes =
                sizes_of(call.inputs, call.attrs.int[0]).expect("infer admitted the shapes");
            sizes.over_chunks(call, variant)
        },
    },
    backward: Backward::None(FIRST_ORDER),
    reference,
    samples: || samples_of(backward_sample),
    mutates: &[],
    in_place: None,
};

/// Gradients of q, k, v, the coefficients and the states; the starts have none.
pub(super) fn gradients(
    inputs: &[Tensor],
    attrs: &Attrs,
    dy: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let mut all: Vec<&Tensor> = inputs.iter().collect();
    all.push(dy);
    let specs: Vec<Spec> = inputs.iter().map(Tensor::spec).collect();
    let sizes = sizes_of(&specs, attrs.int[0]).expect("infer admitted the shapes");
    turns::check(&MAMBA3_OUTPUTS_BACKWARD, &all, sizes.chunk_turns())?;
    let found = Tensor::record(&MAMBA3_OUTPUTS_BACKWARD, *attrs, &all)?;
    let mut gradients: Vec<Option<Tensor>> = found.into_iter().map(Some).collect();
    if attrs.int[0] & STATE == 0 {
        gradients[4] = None;
    }
    gradients.insert(4, None);
    Ok(gradients)
}

fn infer(call: &OpCall) -> Inferred {
    let expected = "the inputs of mamba3_outputs and dy [B, T, R H, P]";
    let [q, k, v, c, _, _, dy] = call.inputs else { return refuse(call, expected) };
    let flags = call.attrs.int[0];
    match sizes_of(call.inputs, flags) {
        Some(s) if dy == v => {
            let states = if flags & STATE != 0 { s.states() } else { [1].into() };
            Ok(vec![*q, *k, *v, *c, Spec::f32(states)])
        }
        _ => refuse(call, expected),
    }
}

/// The gradients under construction.
struct Found {
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
    dc: Vec<f64>,
    dstates: Vec<f64>,
}

fn reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [q, k, v, c, starts, _, _] = inputs else { unreachable!("seven inputs") };
    let s = Sizes::of(&k.spec, &v.spec, &c.spec).expect("infer admitted the shapes");
    let with_state = attrs.int[0] & STATE != 0;
    let states = if with_state { s.states() } else { [1].into() };
    let mut found = Found {
        dq: vec![0.0; q.data.len()],
        dk: vec![0.0; k.data.len()],
        dv: vec![0.0; v.data.len()],
        dc: vec![0.0; c.data.len()],
        dstates: vec![0.0; states.elems()],
    };
    pieces(s, c, starts, attrs.int[0], |piece| {
        let mut dlog = vec![0.0; piece.count];
        pairs(inputs, s, piece, &mut found, &mut dlog);
        if with_state {
            entered(inputs, s, piece, &mut found, &mut dlog);
        }
        for (t, da) in piece.da(&dlog).into_iter().enumerate() {
            found.dc[piece.scalar(t, 0)] = da;
        }
    });
    let Found { dq, dk, dv, dc, dstates } = found;
    vec![
        HostTensor::new(q.spec, dq),
        HostTensor::new(k.spec, dk),
        HostTensor::new(v.spec, dv),
        HostTensor::new(c.spec, dc),
        HostTensor::f32(states, dstates),
    ]
}

/// What pairs of rows give.
fn pairs(inputs: &[HostTensor], s: Sizes, piece: &Piece, found: &mut Found, dlog: &mut [f64]) {
    let [q, k, v, _, _, _, dy] = inputs else { unreachable!("seven inputs") };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    for row in 0..piece.rows() {
        let i = piece.token(row);
        let (query, dout) = (piece.at(row, s.state), piece.at(row, s.width));
        for other in 0..piece.rows().min((i + 1) * s.ranks) {
            let j = piece.token(other);
            let (key, value) = (piece.at(other, s.state), piece.at(other, s.width));
            let score = dot(&q.data[query..][..s.state], &k.data[key..][..s.state]);
            let dscore = dot(&dy.data[dout..][..s.width], &v.data[value..][..s.width]);
            let weight = piece.weight(i, j);
            for n in 0..s.state {
                found.dq[query + n] += dscore * weight * k.data[key + n];
                found.dk[key + n] += dscore * weight * q.data[query + n];
            }
            for p in 0..s.width {
                found.dv[value + p] += score * weight * dy.data[dout + p];
            }
            if i == j {
                found.dc[piece.scalar(i, 2)] += score * dscore;
            } else {
                let dweight = piece.decay(i, j) * score * dscore;
                found.dc[piece.scalar(j, 1)] += dweight;
                dlog[i] += piece.w[j] * dweight;
                dlog[j] -= piece.w[j] * dweight;
            }
        }
    }
}

/// What the state that entered the chunk gives.
fn entered(inputs: &[HostTensor], s: Sizes, piece: &Piece, found: &mut Found, dlog: &mut [f64]) {
    let [q, _, _, _, _, states, dy] = inputs else { unreachable!("seven inputs") };
    let from = piece.index * s.width * s.state;
    for row in 0..piece.rows() {
        let i = piece.token(row);
        let (query, dout) = (piece.at(row, s.state), piece.at(row, s.width));
        for p in 0..s.width {
            for n in 0..s.state {
                let at = from + p * s.state + n;
                let slope = piece.carried(i) * dy.data[dout + p];
                dlog[i] += slope * states.data[at] * q.data[query + n];
                found.dq[query + n] += slope * states.data[at];
                found.dstates[at] += slope * q.data[query + n];
            }
        }
    }
}

fn backward_sample(size: Size, flags: u32) -> Sample {
    let mut sample = sample(size, flags);
    sample.inputs.push(values(size, 975));
    sample
}
