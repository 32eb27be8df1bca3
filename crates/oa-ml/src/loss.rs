//! Losses: from logits and targets to a scalar.

use crate::error::Result;
use oa_graph::Tensor;
use oa_graph::ops::loss::CrossEntropy;

/// Mean cross-entropy in nats of `logits` `[.., V]` over the targets (i32, the shape of the logits
/// without `V`) that are not ignored (-100); 0 when all are.
///
/// # Errors
///
/// When the shapes do not fit; the error names the caller's line.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    Ok(logits.cross_entropy(targets, CrossEntropy::default())?)
}

/// The share that one part of a batch has in the mean cross-entropy of the whole batch:
/// `inverse_count` (f32 `[1]`) is one over the number of targets that count in the whole batch.
/// The shares of the parts add up to the mean, so accumulated gradients are those of the batch.
///
/// # Errors
///
/// As [`cross_entropy`].
#[track_caller]
pub fn cross_entropy_share(
    logits: &Tensor,
    targets: &Tensor,
    inverse_count: &Tensor,
) -> Result<Tensor> {
    Ok(logits.cross_entropy_with(targets, inverse_count, CrossEntropy::default())?)
}
