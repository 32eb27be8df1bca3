//! Learning merges from a corpus.
//!
//! Equal pieces are counted once. Each merge looks only where its pair stands, and the next pair
//! comes from a heap whose stale entries are put right when they are drawn, so training is linear in
//! the corpus but for logarithms. The same corpus gives the same table: of pairs that are equally
//! frequent, the smallest pair of ids merges first.

use super::{AddedToken, BpeParts, BpeTable, PreTokenizer, TableFault};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// No neighbour.
const NONE: u32 = u32::MAX;
/// Fewest occurrences of a pair that merges: what comes once teaches nothing.
const LEAST: u64 = 2;
/// Most bytes of a corpus: places are counted in 32 bits.
const CORPUS_BYTES: usize = u32::MAX as usize - 1;

/// Settings of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpeTrainer {
    /// Tokens to reach: 256 bytes, merges and special tokens together. A corpus that runs out of
    /// pairs that come twice gives fewer.
    pub vocab: usize,
    /// How the corpus is cut; merges never cross a cut.
    pub pre_tokenizer: PreTokenizer,
    /// Special tokens, which get the last ids.
    pub special: Vec<String>,
}

impl BpeTrainer {
    /// The 320 tokens of the teaching contract: 256 bytes and 64 merges of a text that stays whole.
    pub fn contract() -> BpeTrainer {
        BpeTrainer { vocab: 320, pre_tokenizer: PreTokenizer::Whole, special: Vec::new() }
    }

    /// Learns a table from a corpus.
    ///
    /// # Errors
    ///
    /// [`TableFault::SmallVocabulary`] when `vocab` has no room for 256 bytes and the special
    /// tokens; [`TableFault::TooMany`] when it, or the corpus, is larger than can be counted;
    /// [`TableFault::EmptyToken`] for an empty special token.
    pub fn train(&self, corpus: &[u8]) -> Result<BpeTable, TableFault> {
        self.counted(corpus).map(|(table, _)| table)
    }

    /// The table of a corpus, and how many places and heap entries were looked at.
    pub(super) fn counted(&self, corpus: &[u8]) -> Result<(BpeTable, u64), TableFault> {
        self.check(corpus)?;
        let special = self.special.len();
        let mut corpus = Corpus::cut(corpus, self.pre_tokenizer);
        let mut tokens: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        let mut ids: HashMap<Vec<u8>, u32> = tokens.iter().cloned().zip(0..).collect();
        let mut merges = Vec::new();
        while tokens.len() + special < self.vocab {
            let Some((left, right)) = corpus.best(&tokens) else { break };
            let bytes = [tokens[left as usize].as_slice(), tokens[right as usize].as_slice()];
            // Two ways to the same bytes lead to one token.
            let id = *ids.entry(bytes.concat()).or_insert_with_key(|bytes| {
                tokens.push(bytes.clone());
                tokens.len() as u32 - 1
            });
            merges.push((left, right));
            corpus.merge((left, right), id);
        }
        let added = (0..special).map(|index| AddedToken {
            id: (tokens.len() + index) as u32,
            special: true,
            ..AddedToken::default()
        });
        let added = added.collect();
        tokens.extend(self.special.iter().map(|text| text.clone().into_bytes()));
        let pre_tokenizer = self.pre_tokenizer;
        let parts = BpeParts { tokens, merges, added, pre_tokenizer, ..BpeParts::default() };
        BpeTable::new(parts).map(|table| (table, corpus.looked))
    }

    fn check(&self, corpus: &[u8]) -> Result<(), TableFault> {
        let least = 256 + self.special.len();
        if self.vocab < least {
            return Err(TableFault::SmallVocabulary { vocab: self.vocab, least });
        }
        let counts = [
            ("tokens", self.vocab, super::table::TOKENS),
            ("bytes of a corpus", corpus.len(), CORPUS_BYTES),
        ];
        match counts.into_iter().find(|&(_, found, limit)| found > limit) {
            Some((what, found, limit)) => Err(TableFault::TooMany { what, found, limit }),
            None => Ok(()),
        }
    }
}

type Pair = (u32, u32);

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    before: u32,
    after: u32,
    /// Index of the piece's count.
    piece: u32,
    alive: bool,
}

/// The distinct pieces of a corpus with what merging needs to know about their pairs.
struct Corpus {
    symbols: Vec<Symbol>,
    counts: Vec<u64>,
    /// Occurrences of each pair, and the places where it stood when they were noted.
    pairs: HashMap<Pair, (u64, Vec<u32>)>,
    heap: BinaryHeap<(u64, Reverse<Pair>)>,
    looked: u64,
}

impl Corpus {
    fn cut(text: &[u8], pre_tokenizer: PreTokenizer) -> Corpus {
        let mut pieces: BTreeMap<&[u8], u64> = BTreeMap::new();
        if pre_tokenizer == PreTokenizer::Whole {
            pieces.insert(text, 1);
        } else {
            for chunk in text.utf8_chunks() {
                for piece in pre_tokenizer.pieces(chunk.valid()) {
                    *pieces.entry(piece.as_bytes()).or_default() += 1;
                }
                *pieces.entry(chunk.invalid()).or_default() += 1;
            }
        }
        let mut corpus = Corpus {
            symbols: Vec::new(),
            counts: Vec::new(),
            pairs: HashMap::new(),
            heap: BinaryHeap::new(),
            looked: 0,
        };
        for (piece, count) in pieces {
            corpus.push(piece, count);
        }
        corpus.heap = corpus.pairs.iter().map(|(&pair, known)| (known.0, Reverse(pair))).collect();
        corpus
    }

    fn push(&mut self, piece: &[u8], count: u64) {
        let (start, index) = (self.symbols.len() as u32, self.counts.len() as u32);
        let end = start + piece.len() as u32;
        self.counts.push(count);
        for (at, &byte) in (start..).zip(piece) {
            let before = if at == start { NONE } else { at - 1 };
            let after = if at + 1 == end { NONE } else { at + 1 };
            let id = u32::from(byte);
            self.symbols.push(Symbol { id, before, after, piece: index, alive: true });
            if before != NONE {
                self.note(before);
            }
        }
    }

    /// Counts the pair that starts at a place.
    fn note(&mut self, at: u32) -> Pair {
        let left = self.symbols[at as usize];
        let pair = (left.id, self.symbols[left.after as usize].id);
        let known = self.pairs.entry(pair).or_default();
        known.0 += self.counts[left.piece as usize];
        known.1.push(at);
        pair
    }

    /// Uncounts a pair of a piece.
    fn forget(&mut self, pair: Pair, piece: u32) {
        if let Some(known) = self.pairs.get_mut(&pair) {
            known.0 -= self.counts[piece as usize];
        }
    }

    /// The most frequent pair that may merge.
    fn best(&mut self, tokens: &[Vec<u8>]) -> Option<Pair> {
        while let Some((count, Reverse(pair))) = self.heap.pop() {
            self.looked += 1;
            let current = self.pairs.get(&pair).map_or(0, |known| known.0);
            if count != current {
                if current >= LEAST {
                    self.heap.push((current, Reverse(pair)));
                }
                continue;
            }
            let bytes = tokens[pair.0 as usize].len() + tokens[pair.1 as usize].len();
            if current >= LEAST && bytes <= super::table::TOKEN_BYTES {
                return Some(pair);
            }
        }
        None
    }

    /// Merges a pair everywhere, in the order of the corpus.
    fn merge(&mut self, pair: Pair, id: u32) {
        let (_, mut places) = self.pairs.remove(&pair).expect("the best pair was counted");
        places.sort_unstable();
        let mut fresh: Vec<Pair> = Vec::new();
        for at in places {
            self.looked += 1;
            let left = self.symbols[at as usize];
            if !left.alive || left.id != pair.0 || left.after == NONE {
                continue;
            }
            let right = self.symbols[left.after as usize];
            if right.id != pair.1 {
                continue;
            }
            if left.before != NONE {
                let before = (self.symbols[left.before as usize].id, left.id);
                self.forget(before, left.piece);
            }
            if right.after != NONE {
                let after = (right.id, self.symbols[right.after as usize].id);
                self.forget(after, left.piece);
            }
            self.symbols[left.after as usize].alive = false;
            self.symbols[at as usize] = Symbol { id, after: right.after, ..left };
            if right.after != NONE {
                self.symbols[right.after as usize].before = at;
                fresh.push(self.note(at));
            }
            if left.before != NONE {
                fresh.push(self.note(left.before));
            }
        }
        fresh.sort_unstable();
        fresh.dedup();
        for pair in fresh {
            let count = self.pairs.get(&pair).map_or(0, |known| known.0);
            self.heap.push((count, Reverse(pair)));
        }
    }
}
