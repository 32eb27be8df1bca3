//! The scan token by token: one state, walked in order.

use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed};
use super::super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, turns};
use super::outputs_gradient::gradients as outputs_gradients;
use super::sample::{SMALL, Size, coefficients, keys, sizes, starts, values};
use super::sizes::{DOCUMENTS, STATE, Sizes};
use super::{MAMBA3_CARRY, MAMBA3_CHUNKS, carry, chunks};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::Variant;

/// Outputs and the last state. Inputs: q and k `[B, T, R H, N]` rotated, v `[B, T, R H, P]`,
/// coefficients `[B, T, 3, H]`, starts u32 `[B, T]`, the state before the first token `[B, H, P N]`.
/// Integer attribute: flags; what they leave out is not read.
pub static MAMBA3_RECURRENT: OpDef = OpDef {
    name: "mamba3_recurrent",
    doc: "Scan token by token: `H_t = e^a_t G_{t-1} + gamma_t M_t`, `y_t = H_t q_t`, `G_t = e^a_t \
          G_{t-1} + w_t M_t` with `M_t = sum_r v_t^r (k_t^r)^T`; a document's start drops `G_{t-1}`.",
    infer,
    lower: Lower::Kernel { family: |_| "mamba3_recurrent", launch },
    backward: Backward::Rule(gradients),
    reference,
    samples,
    mutates: &[],
    in_place: None,
};

fn of_call(call: &OpCall) -> Option<Sizes> {
    let [q, k, v, c, starts, state] = call.inputs else { return None };
    let (s, flags) = (Sizes::of(k, v, c)?, call.attrs.int[0]);
    let fits = q == k
        && s.admits(starts, flags)
        && (flags & STATE == 0 || *state == Spec::f32(s.one_state()));
    fits.then_some(s)
}

fn infer(call: &OpCall) -> Inferred {
    match of_call(call) {
        Some(s) => Ok(vec![call.inputs[2], Spec::f32(s.one_state())]),
        None => refuse(
            call,
            "q and k [B, T, R H, N], v [B, T, R H, P], coefficients [B, T, 3, H], starts u32 \
             [B, T] and a state [B, H, P N], R at most 32",
        ),
    }
}

/// A team of lanes per row of a state.
fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let s = of_call(call).expect("infer admitted the shapes");
    let mut launch = s.launch(s.batch * s.heads * s.width, call, variant);
    launch.spec.push((0, s.ranks as u32));
    launch
}

/// Turns of the loops of one invocation for one token.
pub(super) fn turns_of_a_token(s: Sizes) -> usize {
    s.state * (2 * s.ranks + 3) + 2 * s.ranks + 6
}

/// The chunked derivative: the states are computed again, a chunk at a time.
fn gradients(call: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [q, k, v, c, starts, state] = call.inputs else { unreachable!("six inputs") };
    let s = Sizes::of(&k.spec(), &v.spec(), &c.spec()).expect("infer admitted the shapes");
    let flags = call.attrs.int[0];
    turns::check(&MAMBA3_CHUNKS, &[k, v, c], s.chunk_turns())?;
    turns::check(&MAMBA3_CARRY, &[k, v, c], s.walk_turns())?;
    let of_chunks = [k, v, c, starts].map(Tensor::clone);
    let documents = Attrs::ints(&[flags & DOCUMENTS]);
    let made = Tensor::record(&MAMBA3_CHUNKS, documents, &[k, v, c, starts])?;
    let [added, decays] = made.as_slice() else { unreachable!("mamba3_chunks has two outputs") };
    let of_carry = [added, decays, state].map(Tensor::clone);
    let carried = Tensor::record(&MAMBA3_CARRY, *call.attrs, &[added, decays, state])?;
    let many = s.chunks() > 1 || flags & STATE != 0;
    let attrs = Attrs::ints(&[flags | if many { STATE } else { 0 }]);
    let mut total = vec![None; 6];
    let mut dstates = None;
    if let Some(dy) = &call.douts[0] {
        let inputs = [q, k, v, c, starts, &carried[0]].map(Tensor::clone);
        total = outputs_gradients(&inputs, &attrs, dy)?;
        dstates = total[5].take();
    }
    if dstates.is_none() && call.douts[1].is_none() {
        return Ok(total);
    }
    let douts = [dstates, call.douts[1].clone()];
    let walked = carry::gradients(&of_carry, &carried, call.attrs, &douts)?;
    let local = chunks::gradients(&of_chunks, &documents, &walked[..2])?;
    for (sum, more) in total[1..4].iter_mut().zip(local) {
        *sum = match (sum.take(), more) {
            (Some(a), Some(b)) => Some(a.add(&b)?),
            (a, b) => a.or(b),
        };
    }
    total[5] = walked[2].clone();
    Ok(total)
}

fn reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [q, k, v, c, starts, state] = inputs else { unreachable!("six inputs") };
    let s = Sizes::of(&k.spec, &v.spec, &c.spec).expect("infer admitted the shapes");
    let (flags, size) = (attrs.int[0], s.width * s.state);
    let mut y = vec![0.0; v.data.len()];
    let mut last = vec![0.0; s.one_state().elems()];
    if flags & STATE != 0 {
        last.copy_from_slice(&state.data);
    }
    for at in 0..s.batch * s.steps * s.heads {
        let (token, head) = (at / s.heads, at % s.heads);
        let of = |which: usize| c.data[(token * 3 + which) * s.heads + head];
        let start = flags & DOCUMENTS != 0 && starts.data[token] != 0.0;
        let alpha = if start { 0.0 } else { of(0).exp() };
        let rows = (0..s.ranks).map(|r| (token * s.ranks + r) * s.heads + head);
        let rows: Vec<usize> = rows.collect();
        let held = &mut last[(token / s.steps * s.heads + head) * size..][..size];
        for (index, g) in held.iter_mut().enumerate() {
            let (p, n) = (index / s.state, index % s.state);
            let product = |&row: &usize| v.data[row * s.width + p] * k.data[row * s.state + n];
            let m: f64 = rows.iter().map(product).sum();
            let h = alpha * *g + of(2) * m;
            for row in &rows {
                y[row * s.width + p] += h * q.data[row * s.state + n];
            }
            *g = alpha * *g + of(1) * m;
        }
    }
    vec![HostTensor::new(v.spec, y), HostTensor::f32(s.one_state(), last)]
}

fn sample(size: Size, flags: u32) -> Sample {
    let inputs = vec![
        keys(size, 981),
        keys(size, 982),
        values(size, 983),
        coefficients(size),
        starts(size),
        signed(sizes(size).one_state(), 984),
    ];
    Sample::new(inputs, Attrs::ints(&[flags]))
}

fn samples() -> Vec<Sample> {
    let flags = [0, STATE, DOCUMENTS, DOCUMENTS | STATE];
    let small = SMALL.into_iter().flat_map(|size| flags.map(|flags| sample(size, flags)));
    let large = [([2, 9, 3], 3, 66, 18), ([64, 1, 4], 1, 32, 16), ([1, 4, 5], 4, 128, 64)];
    let large = large.map(|size| Sample::later(move || sample(size, DOCUMENTS | STATE)));
    small.chain(large).collect()
}
