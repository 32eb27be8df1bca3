//! The `oa` command from outside: exit codes, messages, files, and runs that are killed.
//!
//! Tests that need a device say so loudly and pass where there is none, unless `OA_REQUIRE_DEVICE`
//! is set, as it is where a driver was prepared.
#![expect(clippy::unwrap_used, reason = "everything here is test code")]

mod device;
mod host;
mod limits;
mod losses;
mod place;
mod tokens;
