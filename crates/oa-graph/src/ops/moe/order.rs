//! Dispatch: assignments in the order of their experts.
//!
//! A stable counting sort on the device. Nothing is dropped and nothing has a capacity.

use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, ids};
use super::super::{Backward, Launch, Lower, OpCall, OpDef};
use super::{MAX_ASSIGNMENTS, MAX_EXPERTS};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{Class, DType, Variant};

/// Sorts assignments by expert. Input: ids u32 `[T, k]`. Integer attribute: experts. Outputs:
/// offsets u32 `[experts + 1]`, order u32 `[2, T k]`, expert of each row u32 `[T k]`.
pub static MOE_DISPATCH: OpDef = OpDef {
    name: "moe_dispatch",
    doc: "Stable counting sort of assignments by expert: where each expert's rows begin, the \
          assignment of each row, the row of each assignment, and the expert of each row.",
    infer,
    lower: Lower::Kernel { family: |_| "moe_dispatch", launch },
    backward: Backward::None("an order is a discrete choice"),
    reference: dispatch_reference,
    samples,
    mutates: &[],
    in_place: None,
};

/// Where each assignment goes.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// First row of each expert, and the number of rows at the end: u32 `[experts + 1]`.
    pub offsets: Tensor,
    /// The assignment of each row, then the row of each assignment: u32 `[2, T k]`.
    pub order: Tensor,
    /// The expert of each row: u32 `[T k]`.
    pub experts: Tensor,
}

impl Tensor {
    /// Sorts these expert ids (u32 `[T, k]`) stably by expert. An id beyond the last expert counts
    /// as the last.
    ///
    /// # Errors
    ///
    /// When this is no u32 `[T, k]`, there is no expert or more than [`MAX_EXPERTS`], or there are
    /// more than [`MAX_ASSIGNMENTS`] ids.
    #[track_caller]
    pub fn moe_dispatch(&self, experts: usize) -> Result<Dispatch> {
        let experts = u32::try_from(experts).unwrap_or(u32::MAX);
        let mut found =
            Tensor::record(&MOE_DISPATCH, Attrs::ints(&[experts]), &[self])?.into_iter();
        let mut next = || found.next().expect("moe_dispatch has three outputs");
        Ok(Dispatch { offsets: next(), order: next(), experts: next() })
    }
}

fn infer(call: &OpCall) -> Inferred {
    let expected = "u32 ids [T, k], at most 131,072 of them, and 1 to 256 experts";
    let experts = call.attrs.int[0] as usize;
    match call.inputs {
        [ids]
            if ids.dtype == DType::U32
                && ids.shape.rank() == 2
                && (1..=MAX_ASSIGNMENTS).contains(&ids.shape.elems())
                && (1..=MAX_EXPERTS).contains(&experts) =>
        {
            let count = ids.shape.elems();
            Ok(vec![Spec::u32([experts + 1]), Spec::u32([2, count]), Spec::u32([count])])
        }
        _ => refuse(call, expected),
    }
}

fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let (count, experts) = (call.inputs[0].shape.elems(), call.attrs.int[0]);
    let groups = match variant.class {
        Class::Cpu => experts.div_ceil(variant.tile[0]),
        Class::Subgroup | Class::Portable => experts,
    };
    Launch { groups: groups.into(), push: vec![count as u32, experts], spec: Vec::new() }
}

pub(super) fn dispatch_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let (ids, experts) = (&inputs[0].data, attrs.int[0] as usize);
    let expert = |assignment: usize| (ids[assignment] as usize).min(experts - 1);
    let mut rows: Vec<usize> = (0..ids.len()).collect();
    rows.sort_by_key(|&assignment| expert(assignment));
    let offset = |e: usize| rows.partition_point(|&assignment| expert(assignment) < e) as f64;
    let offsets = (0..=experts).map(offset).collect();
    let mut order = vec![0.0; 2 * ids.len()];
    for (row, &assignment) in rows.iter().enumerate() {
        order[row] = assignment as f64;
        order[ids.len() + assignment] = row as f64;
    }
    let sorted = rows.iter().map(|&assignment| expert(assignment) as f64).collect();
    vec![
        HostTensor::new(Spec::u32([experts + 1]), offsets),
        HostTensor::new(Spec::u32([2, ids.len()]), order),
        HostTensor::new(Spec::u32([ids.len()]), sorted),
    ]
}

fn samples() -> Vec<Sample> {
    let sample = |tokens: usize, k: usize, experts: u32, below: u32| {
        Sample::new(vec![ids([tokens, k], below, 811)], Attrs::ints(&[experts]))
    };
    vec![
        sample(1, 1, 1, 1),
        sample(3, 2, 4, 4),
        sample(17, 2, 5, 5),
        sample(127, 1, 3, 2),
        sample(129, 2, 9, 9),
        sample(64, 2, 4, 1),
        sample(20, 3, 7, 9),
        Sample::later(move || sample(1031, 8, 64, 64)),
        Sample::later(move || sample(MAX_ASSIGNMENTS / 2, 2, 8, 8)),
        Sample::later(move || sample(5000, 1, 256, 256)),
    ]
}
