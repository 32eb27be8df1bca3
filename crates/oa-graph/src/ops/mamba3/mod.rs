//! Mamba-3: what a mixer does between its two projections, in three parts.
//!
//! `prepare` makes what the scan reads from the input projection, and `gate` makes what the output
//! projection reads from what the scan gives. Each is one dispatch, and its backward two: one for
//! the activations, one for the parameters.
//!
//! The scan: data-dependent rotations and a decayed state, `H_t = alpha_t H_{t-1} + beta_t
//! M_{t-1} + gamma_t M_t`, `y_t = H_t q_t`, with `M_t = sum_r v_t^r (k_t^r)^T`.
//!
//! The trapezoid is folded into the pre-loaded state `G_t = H_t + s_{t+1} M_t`, which obeys `G_t =
//! alpha_t G_{t-1} + w_t M_t`: plain decayed linear attention whose diagonal has the weight gamma_t.
//! One op walks the tokens in order; three others split the sequence into chunks, whose states are
//! the only sequential part. Documents are masks, never infinities, and every exponential is of a
//! difference that is at most zero inside one chunk, so no rounding error grows with the length.

mod angles;
mod carry;
mod chunks;
mod gate;
mod gate_reference;
mod load;
mod outputs;
mod outputs_gradient;
mod piece;
mod prepare;
mod prepare_reference;
mod recurrent;
mod rotate;
mod sample;
mod scan;
mod sizes;
mod weights;

pub use angles::{MAMBA3_ANGLES, MAMBA3_ANGLES_BACKWARD};
pub use carry::{MAMBA3_CARRY, MAMBA3_CARRY_BACKWARD};
pub use chunks::{MAMBA3_CHUNKS, MAMBA3_CHUNKS_BACKWARD};
pub use gate::{MAMBA3_GATE, MAMBA3_GATE_BACKWARD, MAMBA3_GATE_PARAMETERS, Mamba3Gate};
pub use load::{MAMBA3_LOAD, MAMBA3_LOAD_BACKWARD};
pub use outputs::MAMBA3_OUTPUTS;
pub use outputs_gradient::MAMBA3_OUTPUTS_BACKWARD;
pub use prepare::{
    DecayRate, MAMBA3_PREPARE, MAMBA3_PREPARE_BACKWARD, MAMBA3_PREPARE_PARAMETERS, Mamba3Prepare,
    Mamba3Prepared,
};
pub use recurrent::MAMBA3_RECURRENT;
pub use rotate::{MAMBA3_ROTATE, MAMBA3_ROTATE_BACKWARD};
pub use scan::{Mamba3Form, Mamba3Scan, Mamba3Scanned, Mamba3State};
pub use sizes::MAX_RANKS;
pub use weights::{MAMBA3_WEIGHTS, MAMBA3_WEIGHTS_BACKWARD};

use super::OpDef;
use super::reduce::ROW_CHUNK;
use crate::error::Result;
use crate::value::Tensor;

/// Every op of this folder.
pub static OPS: &[&OpDef] = &[
    &MAMBA3_PREPARE,
    &MAMBA3_PREPARE_BACKWARD,
    &MAMBA3_PREPARE_PARAMETERS,
    &MAMBA3_ANGLES,
    &MAMBA3_ANGLES_BACKWARD,
    &MAMBA3_ROTATE,
    &MAMBA3_ROTATE_BACKWARD,
    &MAMBA3_WEIGHTS,
    &MAMBA3_WEIGHTS_BACKWARD,
    &MAMBA3_LOAD,
    &MAMBA3_LOAD_BACKWARD,
    &MAMBA3_RECURRENT,
    &MAMBA3_CHUNKS,
    &MAMBA3_CHUNKS_BACKWARD,
    &MAMBA3_CARRY,
    &MAMBA3_CARRY_BACKWARD,
    &MAMBA3_OUTPUTS,
    &MAMBA3_OUTPUTS_BACKWARD,
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
