//! One chunk of one head on the host: what the f64 references of the chunked ops share.

use super::sizes::{DOCUMENTS, Sizes};
use crate::host::HostTensor;

/// A chunk of a head: the logarithms of its decays and which pairs of tokens see each other.
pub(super) struct Piece {
    sizes: Sizes,
    /// Number of its first token over the whole batch.
    first: usize,
    pub(super) head: usize,
    /// Tokens.
    pub(super) count: usize,
    /// Number of the chunk over batch, chunks and heads.
    pub(super) index: usize,
    /// Sum of `a` from the document's first token here (exclusive), or from the chunk's (inclusive).
    pub(super) log: Vec<f64>,
    /// Documents that started inside the chunk up to each token.
    pub(super) open: Vec<usize>,
    starts: Vec<bool>,
    pub(super) w: Vec<f64>,
    pub(super) gamma: Vec<f64>,
}

/// Calls `body` with every chunk of every head.
pub(super) fn pieces(
    sizes: Sizes,
    c: &HostTensor,
    starts: &HostTensor,
    flags: u32,
    mut body: impl FnMut(&Piece),
) {
    for b in 0..sizes.batch {
        for chunk in 0..sizes.chunks() {
            for head in 0..sizes.heads {
                let begin = chunk * sizes.chunk();
                let count = sizes.chunk().min(sizes.steps - begin);
                let first = b * sizes.steps + begin;
                let index = (b * sizes.chunks() + chunk) * sizes.heads + head;
                let of = |which: usize| -> Vec<f64> {
                    let at = |i: usize| ((first + i) * 3 + which) * sizes.heads + head;
                    (0..count).map(|i| c.data[at(i)]).collect()
                };
                let starting = |i| flags & DOCUMENTS != 0 && starts.data[first + i] != 0.0;
                let starts: Vec<bool> = (0..count).map(starting).collect();
                let (mut sum, mut seen) = (0.0, 0);
                let (mut log, mut open) = (Vec::new(), Vec::new());
                for (a, &start) in of(0).into_iter().zip(&starts) {
                    sum = if start { 0.0 } else { sum + a };
                    seen += usize::from(start);
                    log.push(sum);
                    open.push(seen);
                }
                let (w, gamma) = (of(1), of(2));
                body(&Piece { sizes, first, head, count, index, log, open, starts, w, gamma });
            }
        }
    }
}

impl Piece {
    /// Rows: tokens times ranks.
    pub(super) fn rows(&self) -> usize {
        self.count * self.sizes.ranks
    }

    /// Token of a row.
    pub(super) fn token(&self, row: usize) -> usize {
        row / self.sizes.ranks
    }

    /// Offset of a row in a value with `size` columns.
    pub(super) fn at(&self, row: usize, size: usize) -> usize {
        ((self.first * self.sizes.ranks + row) * self.sizes.heads + self.head) * size
    }

    /// Offset of coefficient `which` of a token.
    pub(super) fn scalar(&self, token: usize, which: usize) -> usize {
        ((self.first + token) * 3 + which) * self.sizes.heads + self.head
    }

    /// Decay from token `j` to a later token `i`, zero over a document's start.
    pub(super) fn decay(&self, i: usize, j: usize) -> f64 {
        let same = j < i && self.open[i] == self.open[j];
        if same { (self.log[i] - self.log[j]).exp() } else { 0.0 }
    }

    /// Weight of token `j`'s key for token `i`.
    pub(super) fn weight(&self, i: usize, j: usize) -> f64 {
        if i == j { self.gamma[i] } else { self.decay(i, j) * self.w[j] }
    }

    /// How much of the state that enters the chunk is left at a token.
    pub(super) fn carried(&self, i: usize) -> f64 {
        if self.open[i] == 0 { self.log[i].exp() } else { 0.0 }
    }

    /// How much of token `j` is left at the end of the chunk, without its weight.
    pub(super) fn left(&self, j: usize) -> f64 {
        let last = self.count - 1;
        if j == last { 1.0 } else { self.decay(last, j) }
    }

    /// Gradient of `a` from that of `log`: sums to the end of the document or of the chunk.
    pub(super) fn da(&self, dlog: &[f64]) -> Vec<f64> {
        let sum = |t: usize| {
            let later = (t..self.count).filter(|&u| self.open[u] == self.open[t]);
            if self.starts[t] { 0.0 } else { later.map(|u| dlog[u]).sum() }
        };
        (0..self.count).map(sum).collect()
    }
}
