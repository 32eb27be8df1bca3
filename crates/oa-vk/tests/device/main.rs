//! Tests of the runtime on whatever Vulkan device is present.
//!
//! They run under the validation layer with synchronization validation where it is installed, and
//! every test ends by asserting that the layer had nothing to say. `OA_DEVICE` and `OA_VALIDATION`
//! choose otherwise. A machine without any device fails them: an absent device is never green.

mod execution;
mod failure;
mod lab;
mod memory;
