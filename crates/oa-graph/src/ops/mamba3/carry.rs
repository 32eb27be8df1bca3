//! The walk over chunks: the only part of the chunked scan that is sequential.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, Launch, Lower, OpCall, OpDef};
use super::sizes::STATE;
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// States before each chunk. Inputs: what the chunks add `[B, C, H, P N]`, decays `[B, C, H]`, the
/// state before the first `[B, H, P N]`. Outputs: the state that enters each chunk and the one
/// after the last. Integer attribute: flags; without a state it is zero and not read.
pub static MAMBA3_CARRY: OpDef = OpDef {
    name: "mamba3_carry",
    doc: "State before each chunk and after the last: `G_{c+1} = D_c G_c + U_c`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: |_| "mamba3_carry", launch },
    backward: Backward::Rule(|call| gradients(call.inputs, call.outputs, call.attrs, call.douts)),
    reference: forward_reference,
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Adjoints of the states. Inputs: gradients of the states before the chunks `[B, C, H, P N]` and of
/// the last state, decays. Outputs: the gradient of what each chunk adds, and of the first state.
/// Integer attribute: 1 when the first counts, 2 when the second does; the others are not read.
pub static MAMBA3_CARRY_BACKWARD: OpDef = OpDef {
    name: "mamba3_carry_backward",
    doc: "Backward of the walk over chunks: `dU_{c-1} = D_c dU_c + dG_c`, from the gradient of the \
          last state; one step more gives the gradient of the first.",
    infer: infer_backward,
    lower: Lower::Kernel { family: |_| "mamba3_carry_backward", launch },
    backward: Backward::None(FIRST_ORDER),
    reference: backward_reference,
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

/// The gradients of the states before the chunks count.
const EACH: u32 = 1;
/// The gradient of the last state counts.
const LAST: u32 = 2;

/// Batch, chunks, heads and elements of a state, from the decays and the attribute or an input.
fn sizes(decays: &Spec, elems: usize) -> Option<[usize; 4]> {
    match *decays.shape.dims() {
        [b, c, h] if decays.dtype == DType::F32 && c > 0 => Some([b, c, h, elems]),
        _ => None,
    }
}

fn infer_forward(call: &OpCall) -> Inferred {
    let expected = "contributions [B, C, H, P N], decays [B, C, H] and a state [B, H, P N]";
    let [added, decays, state] = call.inputs else { return refuse(call, expected) };
    match sizes(decays, added.shape.last()) {
        Some([b, c, h, elems])
            if *added == Spec::f32([b, c, h, elems])
                && (call.attrs.int[0] & STATE == 0 || *state == Spec::f32([b, h, elems])) =>
        {
            Ok(vec![*added, Spec::f32([b, h, elems])])
        }
        _ => refuse(call, expected),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    let expected = "gradients [B, C, H, P N] of states and [B, H, P N] of the last, decays \
                    [B, C, H], one of the gradients at least";
    let [each, last, decays] = call.inputs else { return refuse(call, expected) };
    let flags = call.attrs.int[0];
    let counts = if flags & EACH != 0 { each } else { last };
    match sizes(decays, counts.shape.last()) {
        Some([b, c, h, elems])
            if flags & (EACH | LAST) != 0
                && (flags & EACH == 0 || *each == Spec::f32([b, c, h, elems]))
                && (flags & LAST == 0 || *last == Spec::f32([b, h, elems])) =>
        {
            Ok(vec![Spec::f32([b, c, h, elems]), Spec::f32([b, h, elems])])
        }
        _ => refuse(call, expected),
    }
}

/// A lane per element of a state; `push` is batch, chunks, heads, elements and the flags.
fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let &[b, c, h, elems] = call.outputs[0].shape.dims() else { unreachable!("infer gives four") };
    let mut push = [b, c, h, elems].map(|size| size as u32).to_vec();
    push.push(call.attrs.int[0]);
    let groups = (b * h * elems).div_ceil(variant.tile[0] as usize) as u64;
    Launch { groups, push, spec: Vec::new() }
}

/// Gradients of the contributions, the decays and the first state.
pub(super) fn gradients(
    inputs: &[Tensor],
    outputs: &[Tensor],
    attrs: &Attrs,
    douts: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let [_, decays, _] = inputs else { unreachable!("mamba3_carry has three inputs") };
    let states = &outputs[0];
    let flag = |given: &Option<Tensor>, flag| given.as_ref().map_or(0, |_| flag);
    let flags = flag(&douts[0], EACH) | flag(&douts[1], LAST);
    let each = douts[0].as_ref().unwrap_or(decays);
    let last = douts[1].as_ref().unwrap_or(decays);
    let found =
        Tensor::record(&MAMBA3_CARRY_BACKWARD, Attrs::ints(&[flags]), &[each, last, decays])?;
    let [added, first] = found.as_slice() else { unreachable!("the backward has two outputs") };
    let ddecays = added.mul(states)?.sum_cols()?;
    let first = (attrs.int[0] & STATE != 0).then(|| first.clone());
    Ok(vec![Some(added.clone()), Some(ddecays), first])
}

fn forward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [added, decays, first] = inputs else { unreachable!("mamba3_carry has three inputs") };
    let &[b, c, h, elems] = added.shape().dims() else { unreachable!("infer admitted four") };
    let mut states = added.data.clone();
    let mut last = vec![0.0; b * h * elems];
    for (at, last) in last.iter_mut().enumerate() {
        let (sequence, head, element) = (at / elems / h, at / elems % h, at % elems);
        let mut state = if attrs.int[0] & STATE != 0 { first.data[at] } else { 0.0 };
        for chunk in 0..c {
            let decay = (sequence * c + chunk) * h + head;
            let to = decay * elems + element;
            states[to] = state;
            state = decays.data[decay] * state + added.data[to];
        }
        *last = state;
    }
    vec![HostTensor::new(added.spec, states), HostTensor::f32([b, h, elems], last)]
}

fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [each, last, decays] = inputs else { unreachable!("the backward has three inputs") };
    let flags = attrs.int[0];
    let &[b, c, h] = decays.shape().dims() else { unreachable!("infer admitted three") };
    let elems = if flags & EACH != 0 { each.shape().last() } else { last.shape().last() };
    let mut added = vec![0.0; b * c * h * elems];
    let mut first = vec![0.0; b * h * elems];
    for (at, first) in first.iter_mut().enumerate() {
        let (sequence, head, element) = (at / elems / h, at / elems % h, at % elems);
        let mut adjoint = if flags & LAST != 0 { last.data[at] } else { 0.0 };
        for chunk in (0..c).rev() {
            let decay = (sequence * c + chunk) * h + head;
            let to = decay * elems + element;
            added[to] = adjoint;
            adjoint *= decays.data[decay];
            adjoint += if flags & EACH != 0 { each.data[to] } else { 0.0 };
        }
        *first = adjoint;
    }
    vec![HostTensor::f32([b, c, h, elems], added), HostTensor::f32([b, h, elems], first)]
}

const SMALL: [[usize; 4]; 4] = [[1, 1, 1, 1], [2, 3, 2, 5], [1, 5, 3, 43], [3, 2, 1, 129]];

fn forward_sample([b, c, h, elems]: [usize; 4], flags: u32) -> Sample {
    let inputs = vec![
        signed([b, c, h, elems], 961),
        uniform([b, c, h], 0.0, 1.0, 962),
        signed([b, h, elems], 963),
    ];
    Sample::new(inputs, Attrs::ints(&[flags]))
}

fn forward_samples() -> Vec<Sample> {
    let small = SMALL.into_iter().flat_map(|s| [0, STATE].map(|flags| forward_sample(s, flags)));
    small.chain([Sample::later(|| forward_sample([2, 64, 3, 2048], STATE))]).collect()
}

fn backward_sample([b, c, h, elems]: [usize; 4], flags: u32) -> Sample {
    let inputs = vec![
        signed([b, c, h, elems], 964),
        signed([b, h, elems], 965),
        uniform([b, c, h], 0.0, 1.0, 966),
    ];
    Sample::new(inputs, Attrs::ints(&[flags]))
}

fn backward_samples() -> Vec<Sample> {
    let flags = [EACH, LAST, EACH | LAST];
    let small = SMALL.into_iter().flat_map(|s| flags.map(|flags| backward_sample(s, flags)));
    small.chain([Sample::later(|| backward_sample([2, 64, 3, 2048], EACH | LAST))]).collect()
}
