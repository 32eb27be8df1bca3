//! Optimizers and learning-rate schedules.
//!
//! A schedule says how large a step is, an optimizer how the step is taken; both are plain data
//! plus one recorded update over the parameter arenas.

pub mod adamw;
pub mod schedule;
