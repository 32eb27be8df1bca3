//! The Mamba-3 scan: data-dependent rotations and a decayed state, `H_t = alpha_t H_{t-1} + beta_t
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
mod load;
mod outputs;
mod outputs_gradient;
mod piece;
mod recurrent;
mod rotate;
mod sample;
mod scan;
mod sizes;
mod weights;

pub use angles::{MAMBA3_ANGLES, MAMBA3_ANGLES_BACKWARD};
pub use carry::{MAMBA3_CARRY, MAMBA3_CARRY_BACKWARD};
pub use chunks::{MAMBA3_CHUNKS, MAMBA3_CHUNKS_BACKWARD};
pub use load::{MAMBA3_LOAD, MAMBA3_LOAD_BACKWARD};
pub use outputs::MAMBA3_OUTPUTS;
pub use outputs_gradient::MAMBA3_OUTPUTS_BACKWARD;
pub use recurrent::MAMBA3_RECURRENT;
pub use rotate::{MAMBA3_ROTATE, MAMBA3_ROTATE_BACKWARD};
pub use scan::{Mamba3Form, Mamba3Scan, Mamba3Scanned, Mamba3State};
pub use sizes::MAX_RANKS;
pub use weights::{MAMBA3_WEIGHTS, MAMBA3_WEIGHTS_BACKWARD};

use super::OpDef;

/// Every op of this folder.
pub static OPS: &[&OpDef] = &[
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
];
