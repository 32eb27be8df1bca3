//! Mixture of experts without a capacity: router, dispatch, grouped products, combination, losses.
//!
//! Every token goes to its k experts and none is dropped. Assignment `t k + j` is token t's j-th
//! choice; a stable counting sort by expert makes the rows of each expert contiguous, and its
//! inverse lets tokens gather their answers. Ids, counts and orders never leave the device, and no
//! sum depends on timing. The experts' layers are ordinary ops between grouped products.

mod grouped;
mod losses;
mod order;
mod route;
mod rows;
mod sample;

pub use grouped::{GROUPED_MATMUL, GROUPED_WEIGHTS};
pub use losses::{MOE_LOSSES, MOE_LOSSES_BACKWARD};
pub use order::{Dispatch, MOE_DISPATCH};
pub use route::{MOE_ROUTE, MOE_ROUTE_BACKWARD, Route};
pub use rows::{MOE_COMBINE, MOE_COMBINE_BACKWARD, MOE_GATHER, MOE_GATHER_BACKWARD};

use super::OpDef;

/// Most experts of a layer: one lane chooses among all of them for a token.
pub const MAX_EXPERTS: usize = 256;

/// Most experts that one token goes to.
pub const MAX_TOP_K: usize = 32;

/// Most assignments (tokens times k) of one pass: an expert may get all of them, and software
/// drivers end a loop after 65,000 turns.
pub const MAX_ASSIGNMENTS: usize = 131_072;

/// Every op of this folder.
pub static OPS: &[&OpDef] = &[
    &MOE_ROUTE,
    &MOE_ROUTE_BACKWARD,
    &MOE_DISPATCH,
    &MOE_GATHER,
    &MOE_GATHER_BACKWARD,
    &GROUPED_MATMUL,
    &GROUPED_WEIGHTS,
    &MOE_COMBINE,
    &MOE_COMBINE_BACKWARD,
    &MOE_LOSSES,
    &MOE_LOSSES_BACKWARD,
];
