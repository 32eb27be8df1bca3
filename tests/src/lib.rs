//! Harness of the conformance tests: devices, tolerances, fixtures, verdicts and reports.
//!
//! Exists so that the gate, the host tests and the vector runner share one meaning of "equal", of
//! "passed" and of "this device is absent". Holds no test itself and knows no op by name.
#![forbid(unsafe_code)]

pub mod case;
pub mod compare;
pub mod device;
pub mod expect;
pub mod fixture;
pub mod report;

pub use case::{Check, Verdict};
pub use compare::Tolerance;
pub use fixture::Fixture;
