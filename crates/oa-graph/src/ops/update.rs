//! Ops that change a state in place: store, and rows written into a cache.
//!
//! An update is an effect, not a value: the graph keeps updates in the order of recording. The
//! steps of optimizers are updates too; they have a folder of their own.

use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed};
use super::{Backward, Launch, Lower, OpCall, OpDef};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::Variant;

const EFFECT: &str = "it changes a state; differentiate the value before the update";

/// The second input's bytes replace the first input, a state.
pub static STORE: OpDef = OpDef {
    name: "store",
    doc: "A state takes over a value of its shape and element type.",
    infer: |call| match call.inputs {
        [state, value] if state == value => Ok(Vec::new()),
        _ => refuse(call, "a state and a value of its shape and element type"),
    },
    lower: Lower::Store,
    backward: Backward::None(EFFECT),
    reference: |inputs, _| vec![inputs[1].clone()],
    samples: || vec![Sample::new(vec![signed([3, 5], 1), signed([3, 5], 2)], Attrs::NONE)],
    mutates: &[0],
    in_place: None,
};

/// Rows written into a cache at a position. Inputs: cache `[B, Tmax, ..]`, x `[B, T, ..]`, position
/// u32 `[1]`. Rows that would lie at or beyond Tmax are not written.
pub static WRITE_ROWS: OpDef = OpDef {
    name: "write_rows",
    doc: "Writes x into the rows position, position + 1, .. of a cache, per batch entry.",
    infer: infer_write_rows,
    lower: Lower::Kernel { family: |_| "write_rows", launch: launch_write_rows },
    backward: Backward::None(EFFECT),
    reference: write_rows_reference,
    samples: write_rows_samples,
    mutates: &[0],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&STORE, &WRITE_ROWS];

/// Records that `x` is written into rows position, position + 1, .. of `cache`, a read of a state.
///
/// # Errors
///
/// When the shapes do not fit together, or `cache` is not a current read of a state.
#[track_caller]
pub fn write_rows(cache: &Tensor, x: &Tensor, position: &Tensor) -> Result<()> {
    Tensor::record(&WRITE_ROWS, Attrs::NONE, &[cache, x, position])?;
    Ok(())
}

fn infer_write_rows(call: &OpCall) -> Inferred {
    let expected = "a cache [B, Tmax, ..], x [B, T, ..] and a position u32 [1]";
    let [cache, x, position] = call.inputs else { return refuse(call, expected) };
    let fits = cache.dtype == x.dtype
        && *position == Spec::u32([1])
        && match (cache.shape.dims(), x.shape.dims()) {
            ([cache_batch, _, cache_row @ ..], [x_batch, _, x_row @ ..]) => {
                cache_batch == x_batch && cache_row == x_row
            }
            _ => false,
        };
    if fits { Ok(Vec::new()) } else { refuse(call, expected) }
}

fn launch_write_rows(call: &OpCall, variant: &Variant) -> Launch {
    let (cache, x) = (call.inputs[0].shape, call.inputs[1].shape);
    let row: usize = x.dims()[2..].iter().product();
    let words = [x.elems(), x.dims()[1], cache.dims()[1], row];
    Launch {
        groups: x.elems().div_ceil(variant.tile[0] as usize) as u64,
        push: words.map(|word| word as u32).to_vec(),
        spec: Vec::new(),
    }
}

fn write_rows_reference(inputs: &[HostTensor], _: &Attrs) -> Vec<HostTensor> {
    let [cache, x, position] = inputs else { unreachable!("write_rows has three inputs") };
    let (rows, limit) = (x.shape().dims()[1], cache.shape().dims()[1]);
    let row: usize = x.shape().dims()[2..].iter().product();
    let mut cache = cache.clone();
    for (index, source) in x.data.chunks(row).enumerate() {
        let (batch, at) = (index / rows, index % rows + position.data[0] as usize);
        if at < limit {
            let start = (batch * limit + at) * row;
            cache.data[start..start + row].copy_from_slice(source);
        }
    }
    vec![cache]
}

fn write_rows_samples() -> Vec<Sample> {
    let sample = |cache: [usize; 4], rows: usize, position: u32| {
        let [batch, _, heads, width] = cache;
        let inputs = vec![
            signed(cache, 41),
            signed([batch, rows, heads, width], 42),
            HostTensor::new(Spec::u32([1]), vec![f64::from(position)]),
        ];
        Sample::new(inputs, Attrs::NONE)
    };
    vec![
        sample([1, 1, 1, 1], 1, 0),
        sample([2, 7, 3, 4], 1, 6),
        sample([2, 7, 3, 4], 3, 2),
        sample([2, 7, 3, 4], 3, 5),
        sample([3, 129, 2, 32], 127, 1),
    ]
}
