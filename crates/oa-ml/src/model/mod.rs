//! Whole models by architecture identity.

pub mod config;
