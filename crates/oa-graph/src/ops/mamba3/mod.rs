//! Mamba-3: what a mixer does between its two projections.
//!
//! `prepare` makes what the scan reads from the input projection, and `gate` makes what the output
//! projection reads from what the scan gives. Each is one dispatch, and its backward two: one for
//! the activations, one for the parameters.

mod gate;
mod gate_reference;
mod prepare;
mod prepare_reference;

pub use gate::{MAMBA3_GATE, MAMBA3_GATE_BACKWARD, MAMBA3_GATE_PARAMETERS, Mamba3Gate};
pub use prepare::{
    DecayRate, MAMBA3_PREPARE, MAMBA3_PREPARE_BACKWARD, MAMBA3_PREPARE_PARAMETERS, Mamba3Prepare,
    Mamba3Prepared,
};

use super::OpDef;
use super::reduce::ROW_CHUNK;
use crate::error::Result;
use crate::value::Tensor;

/// Every op of this folder.
pub static OPS: &[&OpDef] = &[
    &MAMBA3_PREPARE,
    &MAMBA3_PREPARE_BACKWARD,
    &MAMBA3_PREPARE_PARAMETERS,
    &MAMBA3_GATE,
    &MAMBA3_GATE_BACKWARD,
    &MAMBA3_GATE_PARAMETERS,
];

/// Rows of heads of a token that a column of a gain sums over before parts get shorter.
const ROWS_OF_A_PART: usize = 256;

/// Tokens of a part of a parameter's gradient: a lane sums `rows` terms of each.
fn chunk(rows: usize) -> u32 {
    (ROW_CHUNK * ROWS_OF_A_PART / rows.max(ROWS_OF_A_PART)).max(1) as u32
}

/// The sum over the parts of a parameter's gradient, in the parameter's shape.
fn parameter(parts: &Tensor, like: &Tensor) -> Result<Tensor> {
    match parts.shape().dims()[0] {
        1 => parts.reshape(like.shape()),
        _ => parts.sum_rows()?.reshape(like.shape()),
    }
}

/// A gradient, or zeros where nothing depends on the output.
fn or_zeros(dout: &Option<Tensor>, output: &Tensor) -> Result<Tensor> {
    match dout {
        Some(dout) => Ok(dout.clone()),
        None => output.graph().filled_f32(output.shape(), 0.0),
    }
}
