//! Timestamps of a recording.
//!
//! A device counts in ticks of its own period, in a counter of limited width that wraps; what
//! callers get is nanoseconds since the first timestamp of the recording.

use crate::error::Result;
use crate::raw::{Commands, Device, QueryPool};
use std::sync::Arc;

/// How a device counts time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clock {
    /// Nanoseconds a tick takes.
    pub(crate) period_ns: f32,
    /// Meaningful low bits of a timestamp; 0 when there are none.
    pub(crate) bits: u32,
}

impl Clock {
    /// Nanoseconds from the first of `ticks` to each of them, across one wrap of the counter.
    fn since_first(self, ticks: &[u64]) -> Vec<f64> {
        let mask = if self.bits >= 64 { u64::MAX } else { (1 << self.bits) - 1 };
        let first = ticks.first().copied().unwrap_or(0);
        let since = ticks.iter().map(|tick| tick.wrapping_sub(first) & mask);
        since.map(|ticks| ticks as f64 * f64::from(self.period_ns)).collect()
    }
}

/// The timestamps of one recording.
pub(crate) struct Stamps {
    clock: Clock,
    pools: Vec<QueryPool>,
    count: u32,
}

impl Stamps {
    pub(crate) fn new(clock: Clock) -> Stamps {
        Stamps { clock, pools: Vec::new(), count: 0 }
    }

    /// True when the device has timestamps.
    pub(crate) fn is_possible(&self) -> bool {
        self.clock.bits > 0
    }

    /// Records one more and returns its number. Without timestamps it only counts.
    pub(crate) fn record(&mut self, device: &Arc<Device>, commands: &mut Commands) -> Result<u32> {
        let index = self.count;
        if self.is_possible() {
            if index.is_multiple_of(QueryPool::LEN) {
                let pool = QueryPool::create(device)?;
                commands.reset_queries(&pool);
                self.pools.push(pool);
            }
            let pool = self.pools.last().expect("a pool was just added");
            commands.timestamp(pool, index % QueryPool::LEN);
        }
        self.count += 1;
        Ok(index)
    }

    /// Reads all of them; `None` when the device has not written one.
    pub(crate) fn read_ns(&self) -> Option<Vec<f64>> {
        let mut ticks = vec![0u64; self.count as usize];
        for (pool, ticks) in self.pools.iter().zip(ticks.chunks_mut(QueryPool::LEN as usize)) {
            pool.read(ticks).ok()?;
        }
        Some(self.clock.since_first(&ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bits: u32, ticks: &[u64], ns: &[f64]) {
        assert_eq!(Clock { period_ns: 2.0, bits }.since_first(ticks), ns);
    }

    #[test]
    fn time_counts_from_the_first_stamp_and_survives_a_wrap() {
        check(64, &[], &[]);
        check(64, &[7], &[0.0]);
        check(64, &[100, 101, 150], &[0.0, 2.0, 100.0]);
        check(36, &[(1 << 36) - 1, 1], &[0.0, 4.0]);
        check(64, &[u64::MAX, 0], &[0.0, 2.0]);
    }
}
