//! Tests of the op table that need no device: part of every `cargo test`.
//!
//! They run over the whole table, so an op that is added is tested without an edit here.

mod gradient;
mod shape_rules;
mod table;
