//! The sizes of a scan, read from the shapes of its inputs, and what its kernels are told of them.

use super::super::{Launch, OpCall};
use crate::host::Spec;
use crate::shape::Shape;
use oa_kernels::{DType, Variant};

/// Most ranks of a head: a chunk has at most 32 rows, one for each token and rank.
pub const MAX_RANKS: usize = 32;

/// Integer attribute 0: the documents' starts are read.
pub(super) const DOCUMENTS: u32 = 1;
/// Integer attribute 0: there is an initial state.
pub(super) const STATE: u32 = 2;
/// Integer attribute 0 of the chunks' backward: the gradient of the decays counts.
pub(super) const DECAYS: u32 = 4;

/// Sizes of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) steps: usize,
    pub(super) heads: usize,
    pub(super) ranks: usize,
    /// N: columns of a state, length of a key.
    pub(super) state: usize,
    /// P: rows of a state, length of a value.
    pub(super) width: usize,
}

impl Sizes {
    /// The sizes, when keys `[B, T, R H, N]`, values `[B, T, R H, P]` and coefficients `[B, T, 3, H]`
    /// fit together.
    pub(super) fn of(k: &Spec, v: &Spec, c: &Spec) -> Option<Sizes> {
        let (&[batch, steps, rows, state], &[_, _, _, width], &[_, _, 3, heads]) =
            (k.shape.dims(), v.shape.dims(), c.shape.dims())
        else {
            return None;
        };
        let ranks = rows.checked_div(heads)?;
        let fits = rows == ranks * heads
            && (1..=MAX_RANKS).contains(&ranks)
            && [batch, steps, state, width].iter().all(|&size| size > 0)
            && k.dtype == DType::F32
            && *v == Spec::f32([batch, steps, rows, width])
            && *c == Spec::f32([batch, steps, 3, heads]);
        fits.then_some(Sizes { batch, steps, heads, ranks, state, width })
    }

    /// Tokens of a chunk: as many as have 32 rows together.
    pub(super) fn chunk(self) -> usize {
        MAX_RANKS / self.ranks
    }

    /// Chunks of the sequence.
    pub(super) fn chunks(self) -> usize {
        self.steps.div_ceil(self.chunk())
    }

    /// Shape of the queries and keys.
    pub(super) fn keys(self) -> Shape {
        [self.batch, self.steps, self.ranks * self.heads, self.state].into()
    }

    /// Shape of the values.
    pub(super) fn values(self) -> Shape {
        [self.batch, self.steps, self.ranks * self.heads, self.width].into()
    }

    /// Shape of the state that enters each chunk.
    pub(super) fn states(self) -> Shape {
        [self.batch, self.chunks(), self.heads, self.width * self.state].into()
    }

    /// Shape of one state.
    pub(super) fn one_state(self) -> Shape {
        [self.batch, self.heads, self.width * self.state].into()
    }

    /// Shape of the decay over each chunk.
    pub(super) fn decays(self) -> Shape {
        [self.batch, self.chunks(), self.heads].into()
    }

    /// True when `starts` marks the tokens of this scan, or is not read.
    pub(super) fn admits(self, starts: &Spec, flags: u32) -> bool {
        flags & DOCUMENTS == 0 || *starts == Spec::u32([self.batch, self.steps])
    }

    /// A launch over `units` of what a workgroup covers `tile[0]` of.
    pub(super) fn launch(self, units: usize, call: &OpCall, variant: &Variant) -> Launch {
        let Sizes { batch, steps, heads, ranks, state, width } = self;
        let sizes = [batch, steps, heads, ranks, state, width, self.chunk()];
        let mut push = sizes.map(|size| size as u32).to_vec();
        push.push(call.attrs.int[0]);
        let groups = units.div_ceil(variant.tile[0] as usize) as u64;
        Launch { groups, push, spec: Vec::new() }
    }

    /// A launch over the chunks of all heads.
    pub(super) fn over_chunks(self, call: &OpCall, variant: &Variant) -> Launch {
        let mut launch = self.launch(self.batch * self.chunks() * self.heads, call, variant);
        launch.spec.push((1, self.terms()));
        launch
    }

    /// Turns of the loops of one invocation that does a whole chunk alone, at most: blocks of four
    /// by four, and some for each pair of rows.
    pub(super) fn chunk_turns(self) -> usize {
        self.turns_with(self.terms() as usize)
    }

    /// Terms of a turn: two where one would take more turns than older drivers carry out.
    fn terms(self) -> u32 {
        if self.turns_with(1) < FEW_TURNS { 1 } else { 2 }
    }

    fn turns_with(self, terms: usize) -> usize {
        let turn = |count: usize| count.div_ceil(terms) + 1;
        let write = 5;
        let rows = (self.chunk() * self.ranks).div_ceil(4);
        let (n, p) = (self.state.div_ceil(4), self.width.div_ceil(4));
        let scores = rows * rows * (turn(self.state) + turn(self.width) + 2 * write);
        let keys = rows * n * (2 * turn(MAX_RANKS) + turn(self.width) + 3 * write);
        let values = rows * p * (turn(MAX_RANKS) + write);
        let backward = keys + values + p * n * (MAX_RANKS + 1 + write);
        let forward = values + rows * p * turn(self.state);
        scores + forward.max(backward) + 9_000
    }

    /// Turns of the loops of one invocation that walks over the chunks with its elements.
    pub(super) fn walk_turns(self) -> usize {
        WALKED * (self.chunks() + 2)
    }
}

/// Turns that every driver carries out.
const FEW_TURNS: usize = 65_000;

/// Elements of a state that a lane of the cpu kernel walks with.
const WALKED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_at_most_32_rows_and_at_least_one_token() {
        for ranks in 1..=MAX_RANKS {
            let sizes = Sizes { batch: 1, steps: 100, heads: 1, ranks, state: 4, width: 4 };
            assert!(sizes.chunk() >= 1 && sizes.chunk() * ranks <= MAX_RANKS, "{ranks} ranks");
            assert!(sizes.chunks() * sizes.chunk() >= 100);
        }
    }

    #[test]
    fn a_chunk_of_the_usual_sizes_stays_below_the_turns_of_older_drivers() {
        for ranks in 1..=4 {
            let sizes = Sizes { batch: 1, steps: 4096, heads: 1, ranks, state: 128, width: 64 };
            assert!(sizes.chunk_turns() < 65_000, "{} turns", sizes.chunk_turns());
            assert!(sizes.walk_turns() < 65_000, "{} turns", sizes.walk_turns());
        }
    }
}
