//! A shuffled order of `0..count` that is computed, not stored.
//!
//! A Feistel network over the next even number of bits is a bijection whatever its round function
//! is; numbers at or above `count` are sent through it again until they fall below (cycle walking,
//! at most four times on average). The round function is Philox, so an order is a pure function of
//! its stream.

use crate::philox::Stream;

/// Rounds of the network: four make a strong pseudo-random permutation of a random function; two
/// more cost nothing here.
const ROUNDS: u64 = 6;

/// A permutation of `0..count`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    stream: Stream,
}

impl Permutation {
    /// The permutation of a stream; `count` is at most 2^62.
    pub(super) fn new(count: u64, stream: Stream) -> Permutation {
        assert!(count <= 1 << 62, "a permutation fits in two halves of 31 bits");
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Permutation { count, half_bits: bits.div_ceil(2).max(1), stream }
    }

    /// Where `index` goes; `index` is below the count.
    pub(super) fn of(&self, index: u64) -> u64 {
        assert!(index < self.count, "an index of the permutation");
        let mut at = index;
        loop {
            at = self.network(at);
            if at < self.count {
                return at;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let word = u64::from(self.stream.words(round << 32 | right)[0]);
            (left, right) = (right, left ^ (word & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(count: u64, seed: u64, step: u32) -> Vec<u64> {
        let permutation = Permutation::new(count, Stream { seed, stream: 1, step });
        (0..count).map(|index| permutation.of(index)).collect()
    }

    #[test]
    fn every_index_comes_once() {
        for count in [1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 1000, 4097] {
            let mut order = order(count, 5, 0);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn seeds_and_epochs_give_other_orders() {
        assert_eq!(order(100, 5, 0), order(100, 5, 0));
        assert_ne!(order(100, 5, 0), order(100, 6, 0));
        assert_ne!(order(100, 5, 0), order(100, 5, 1));
        assert_ne!(order(100, 5, 0), (0..100).collect::<Vec<u64>>());
    }

    #[test]
    fn positions_are_spread_evenly() {
        // Where index 0 goes over 6,000 epochs: six places, a thousand times each, give or take
        // five standard deviations of 29.
        let mut seen = [0usize; 6];
        for step in 0..6_000 {
            let permutation = Permutation::new(6, Stream { seed: 9, stream: 1, step });
            seen[permutation.of(0) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (856..1_144).contains(&count)), "{seen:?}");
    }

    #[test]
    fn large_counts_work() {
        let permutation = Permutation::new((1 << 40) + 7, Stream { seed: 2, stream: 3, step: 4 });
        let mut images: Vec<u64> = (0..1_000).map(|index| permutation.of(index)).collect();
        images.sort_unstable();
        images.dedup();
        assert_eq!(images.len(), 1_000);
    }
}
