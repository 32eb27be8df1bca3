//! Sample inputs that several of the scan's ops share.

use super::super::sample::{Source, signed, uniform};
use super::sizes::Sizes;
use crate::host::{HostTensor, Spec};

/// `[B, T, H]`, R, N and P.
pub(super) type Size = ([usize; 3], usize, usize, usize);

/// Small sizes: one token, ragged blocks, one chunk, several chunks.
pub(super) const SMALL: [Size; 5] = [
    ([1, 1, 1], 1, 1, 1),
    ([2, 5, 2], 1, 6, 5),
    ([1, 7, 3], 3, 4, 6),
    ([1, 11, 1], 4, 5, 3),
    ([3, 9, 2], 2, 3, 2),
];

/// Large sizes: many chunks, the usual widths, the teaching contract.
pub(super) const LARGE: [Size; 5] = [
    ([1, 131, 3], 1, 33, 18),
    ([2, 70, 2], 3, 128, 64),
    ([1, 70, 2], 1, 128, 64),
    ([1, 37, 9], 4, 66, 35),
    ([64, 16, 4], 1, 32, 16),
];

/// The sizes of a sample.
pub(super) fn sizes(([batch, steps, heads], ranks, state, width): Size) -> Sizes {
    Sizes { batch, steps, heads, ranks, state, width }
}

/// Queries or keys.
pub(super) fn keys(size: Size, seed: u64) -> HostTensor {
    signed(sizes(size).keys(), seed)
}

/// Values.
pub(super) fn values(size: Size, seed: u64) -> HostTensor {
    signed(sizes(size).values(), seed)
}

/// Coefficients as step sizes give them: `a` below zero, `w` and `gamma` above.
pub(super) fn coefficients(([b, t, h], ..): Size) -> HostTensor {
    let mut c = uniform([b, t, 3, h], 0.05, 0.9, 941);
    for token in c.data.chunks_mut(3 * h) {
        token[..h].iter_mut().for_each(|a| *a = -*a);
    }
    c
}

/// Starts of documents: the first token of every second sequence, and about every fifth token.
pub(super) fn starts(([b, t, _], ..): Size) -> HostTensor {
    let mut source = Source::new(942);
    let start = |at: usize| match at.is_multiple_of(t) {
        true => at / t % 2,
        false => usize::from(source.bits().is_multiple_of(5)),
    };
    HostTensor::new(Spec::u32([b, t]), (0..b * t).map(start).map(|s| s as f64).collect())
}
