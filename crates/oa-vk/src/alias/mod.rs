//! Where values live in one arena: a pure planner.
//!
//! Values whose lifetimes do not meet may share bytes, so an arena needs to be little larger than
//! the bytes alive at the busiest moment. [`place`] finds offsets; [`verify`] checks them without
//! knowing how they were found, and its O(n^2) simplicity is the point. Nothing here touches
//! Vulkan or knows what a value is.

mod interval;
mod place;
#[cfg(test)]
mod tests;
mod verify;

pub use interval::Lifetime;
pub use place::{Placement, place};
pub use verify::{Overlap, verify};
