//! Merging one piece of text: the most urgent pair first, the leftmost of equals.
//!
//! The pieces of a piece are a linked list in an array, the pairs a heap whose stale entries are
//! passed over, so a piece of n bytes costs n log n.

use super::BpeTable;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// No neighbour.
const NONE: u32 = u32::MAX;

/// The merges of a table, by pair.
#[derive(Debug)]
pub(super) struct Merges {
    /// Rank and token of a pair.
    pairs: HashMap<(u32, u32), (u32, u32)>,
    /// Token of each byte.
    bytes: [u32; 256],
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    before: u32,
    after: u32,
    alive: bool,
}

impl Merges {
    /// The merges of a table whose tokens are `index`ed by their bytes.
    pub(super) fn new(table: &BpeTable, index: &HashMap<Box<[u8]>, u32>) -> Merges {
        let (parts, mut whole) = (table.parts(), Vec::new());
        let mut pairs = HashMap::with_capacity(parts.merges.len());
        for (rank, &(left, right)) in (0..).zip(&parts.merges) {
            whole.clear();
            whole.extend_from_slice(&parts.tokens[left as usize]);
            whole.extend_from_slice(&parts.tokens[right as usize]);
            pairs.insert((left, right), (rank, index[whole.as_slice()]));
        }
        let bytes = std::array::from_fn(|byte| index[[byte as u8].as_slice()]);
        Merges { pairs, bytes }
    }

    /// Appends the tokens of a piece; returns how many pairs were looked at.
    pub(super) fn apply(&self, piece: &[u8], out: &mut Vec<u32>) -> usize {
        let mut symbols = self.symbols(piece);
        let mut heap = BinaryHeap::new();
        for (at, pair) in (0..).zip(symbols.windows(2)) {
            heap.extend(self.candidate(at, pair[0].id, pair[1].id));
        }
        let mut looked = 0;
        while let Some(Reverse((rank, at))) = heap.pop() {
            looked += 1;
            let left = symbols[at as usize];
            if !left.alive || left.after == NONE {
                continue;
            }
            let right = symbols[left.after as usize];
            let Some(&(current, id)) = self.pairs.get(&(left.id, right.id)) else { continue };
            if current != rank {
                continue;
            }
            symbols[left.after as usize].alive = false;
            symbols[at as usize] = Symbol { id, after: right.after, ..left };
            if right.after != NONE {
                symbols[right.after as usize].before = at;
                heap.extend(self.candidate(at, id, symbols[right.after as usize].id));
            }
            if left.before != NONE {
                heap.extend(self.candidate(left.before, symbols[left.before as usize].id, id));
            }
        }
        out.extend(symbols.iter().filter(|symbol| symbol.alive).map(|symbol| symbol.id));
        looked
    }

    fn symbols(&self, piece: &[u8]) -> Vec<Symbol> {
        let last = piece.len().saturating_sub(1);
        let symbol = |(at, &byte): (usize, &u8)| Symbol {
            id: self.bytes[byte as usize],
            before: if at == 0 { NONE } else { at as u32 - 1 },
            after: if at == last { NONE } else { at as u32 + 1 },
            alive: true,
        };
        piece.iter().enumerate().map(symbol).collect()
    }

    /// The heap's entry of a pair that merges.
    fn candidate(&self, at: u32, left: u32, right: u32) -> Option<Reverse<(u32, u32)>> {
        self.pairs.get(&(left, right)).map(|&(rank, _)| Reverse((rank, at)))
    }
}
