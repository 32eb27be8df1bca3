//! The engine: owner of the device, the open graph and the plan cache.

/// What an engine holds.
pub(crate) struct EngineInner {}
