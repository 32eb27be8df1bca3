//! Tests of OA across crates.
