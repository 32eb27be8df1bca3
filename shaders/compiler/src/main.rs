//! Automation of OA.
fn main() {}
