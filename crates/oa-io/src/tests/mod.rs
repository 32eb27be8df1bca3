//! Tests of the crate from outside in: fixtures, round trips, and what is refused.
//!
//! Damage is done in memory where it can be, so that every byte of a file gets its turn.

mod damage;
mod disk;
mod fixture;
mod forge;
mod golden;
mod import;
mod round_trip;
mod tables;
