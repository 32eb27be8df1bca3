//! Images `[batch, channels, height, width]`: convolution, pooling, batch norm.
//!
//! A convolution and both of its gradients are matrix products whose second operand is gathered
//! from an image, so nothing is unfolded in memory and nothing is scattered: every result, forward
//! and backward, is one lane's own sum. Sums over a batch are trees of parts. Padding is zeros and
//! is never stored.

mod batch_norm;
mod batch_norm_reference;
mod channels;
mod conv;
mod conv_reference;
#[cfg(test)]
mod elsewhere;
mod pool;
mod pool_reference;
mod sample;
#[cfg(test)]
mod tests;
mod window;

pub use batch_norm::{
    BATCH_NORM, BATCH_NORM_INPUT, BATCH_NORM_SUMS, BatchStatistics, CHANNEL_NORM,
};
pub use channels::{CHANNEL_MOMENTS, MERGE_MOMENTS};
pub use conv::{CONV2D, CONV2D_BIAS, CONV2D_INPUT, CONV2D_WEIGHTS};
pub use pool::{AVG_POOL, AVG_POOL_BACKWARD, MAX_POOL, MAX_POOL_BACKWARD};
pub use window::{Convolution, Pooling, WindowFault};

use super::OpDef;

/// Every op of this folder.
pub static OPS: &[&OpDef] = &[
    &CONV2D,
    &CONV2D_BIAS,
    &CONV2D_INPUT,
    &CONV2D_WEIGHTS,
    &MAX_POOL,
    &MAX_POOL_BACKWARD,
    &AVG_POOL,
    &AVG_POOL_BACKWARD,
    &CHANNEL_MOMENTS,
    &MERGE_MOMENTS,
    &BATCH_NORM,
    &CHANNEL_NORM,
    &BATCH_NORM_SUMS,
    &BATCH_NORM_INPUT,
];
