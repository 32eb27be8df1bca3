//! Where each value of a segment lives.
//!
//! Views share their source's bytes; a value that is only stored into a state is produced there; a
//! value that outlives the segment is produced in its own buffer; everything else shares one arena,
//! placed by lifetime. Nothing is copied that could have been produced in place.

use crate::ops::Lower;
use crate::segment::{Leaf, Operand, Segment};
use oa_vk::alias::{self, Lifetime};
use std::collections::BTreeMap;

/// The storage of a value after views are resolved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Root {
    Leaf(u32),
    Value { node: u32, output: u8 },
}

/// Where a produced value lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In the arena of transients, at a byte offset.
    Arena { offset: u64 },
    /// In the buffer of a kept value.
    Kept { slot: u32 },
    /// In a state: the leaf with this index.
    State { leaf: u32 },
}

/// What the placement decided.
pub(crate) struct Placement {
    pub(crate) places: BTreeMap<Root, Place>,
    /// Stores that need no copy because their value is produced in the state.
    pub(crate) sunk: Vec<bool>,
    /// Copies after a node: (node or `nodes.len()`, source, kept slot).
    pub(crate) copies: Vec<(u32, Root, u32)>,
    /// Lifetime and offset of each transient, for reports.
    pub(crate) transients: Vec<(Root, Lifetime, u64)>,
    pub(crate) arena_bytes: u64,
    pub(crate) lower_bound_bytes: u64,
}

/// Resolves views: the storage that an operand names.
pub(crate) fn root(segment: &Segment, operand: Operand) -> Root {
    match operand {
        Operand::Leaf(index) => Root::Leaf(index),
        Operand::Value { node, output } => {
            let producer = &segment.nodes[node as usize];
            match producer.def.lower {
                Lower::View => root(segment, producer.inputs[0]),
                _ => Root::Value { node, output },
            }
        }
    }
}

struct Placer<'a> {
    segment: &'a Segment,
    last_use: BTreeMap<Root, u32>,
    placement: Placement,
}

/// Places every value of a segment. `align` is the offset alignment of storage buffers, bytes.
pub(crate) fn place(segment: &Segment, align: u64) -> Placement {
    let placement = Placement {
        places: BTreeMap::new(),
        sunk: vec![false; segment.nodes.len()],
        copies: Vec::new(),
        transients: Vec::new(),
        arena_bytes: 0,
        lower_bound_bytes: 0,
    };
    let mut placer = Placer { segment, last_use: BTreeMap::new(), placement };
    placer.uses();
    placer.sink_stores();
    placer.keep();
    placer.arena(align.max(256));
    placer.placement
}

impl Placer<'_> {
    fn uses(&mut self) {
        for (index, node) in self.segment.nodes.iter().enumerate() {
            for &input in &node.inputs {
                self.last_use.insert(root(self.segment, input), index as u32);
            }
        }
        for &kept in &self.segment.kept {
            let at = match kept {
                Operand::Value { node, .. } => node,
                Operand::Leaf(_) => 0,
            };
            let last = self.last_use.entry(root(self.segment, kept)).or_insert(at);
            *last = (*last).max(at);
        }
    }

    /// Lets a value be produced directly in the state it is stored to.
    fn sink_stores(&mut self) {
        for (index, node) in self.segment.nodes.iter().enumerate() {
            if !matches!(node.def.lower, Lower::Store) {
                continue;
            }
            let Operand::Leaf(state) = node.inputs[0] else {
                unreachable!("a store writes a state")
            };
            let source = root(self.segment, node.inputs[1]);
            if let Root::Value { node: producer, .. } = source
                && !self.placement.places.contains_key(&source)
                && self.may_sink(producer, index as u32, state, self.last_use[&source])
            {
                self.placement.places.insert(source, Place::State { leaf: state });
                self.placement.sunk[index] = true;
            }
        }
    }

    /// True when nothing touches the state between the producer and the store, and nothing writes
    /// it while the value is still read.
    fn may_sink(&self, producer: u32, store: u32, state: u32, last_use: u32) -> bool {
        let window = producer..=last_use.max(store);
        window.into_iter().filter(|&at| at != store).all(|at| {
            let node = &self.segment.nodes[at as usize];
            node.inputs.iter().enumerate().all(|(position, &input)| {
                let Root::Leaf(leaf) = root(self.segment, input) else { return true };
                let writes = node.def.mutates.contains(&position);
                !self.overlap(leaf, state) || (at > store && !writes)
            })
        })
    }

    fn overlap(&self, a: u32, b: u32) -> bool {
        let (Leaf::State { slice: a, .. }, Leaf::State { slice: b, .. }) =
            (&self.segment.leaves[a as usize], &self.segment.leaves[b as usize])
        else {
            return false;
        };
        let end = |slice: &oa_vk::Slice| slice.offset_bytes() + slice.len_bytes();
        a.buffer_id() == b.buffer_id() && a.offset_bytes() < end(b) && b.offset_bytes() < end(a)
    }

    /// Gives each kept value its buffer, by production there or by a copy.
    fn keep(&mut self) {
        for (slot, &kept) in self.segment.kept.iter().enumerate() {
            let slot = slot as u32;
            let source = root(self.segment, kept);
            let produced = matches!(source, Root::Value { .. });
            if produced && !self.placement.places.contains_key(&source) {
                self.placement.places.insert(source, Place::Kept { slot });
            } else {
                let at = match kept {
                    Operand::Value { node, .. } => node,
                    Operand::Leaf(_) => self.segment.nodes.len() as u32,
                };
                self.placement.copies.push((at, source, slot));
            }
        }
    }

    /// Places what is left in the arena, reusing an input's bytes where the op allows it.
    fn arena(&mut self, align: u64) {
        let mut shares: BTreeMap<Root, usize> = BTreeMap::new();
        let mut lifetimes: Vec<Lifetime> = Vec::new();
        let mut owners: Vec<Root> = Vec::new();
        for (index, node) in self.segment.nodes.iter().enumerate() {
            if matches!(node.def.lower, Lower::View) {
                continue;
            }
            for (output, spec) in node.outputs.iter().enumerate() {
                let value = Root::Value { node: index as u32, output: output as u8 };
                if self.placement.places.contains_key(&value) {
                    continue;
                }
                let death = self.last_use.get(&value).copied().unwrap_or(index as u32) + 1;
                let reused = if output == 0 { self.reusable(index, &shares) } else { None };
                let share = match reused {
                    Some(share) if lifetimes[share].len_bytes == spec.len_bytes() => share,
                    _ => {
                        lifetimes.push(Lifetime {
                            len_bytes: spec.len_bytes(),
                            birth: index as u32,
                            death,
                        });
                        owners.push(value);
                        lifetimes.len() - 1
                    }
                };
                lifetimes[share].death = lifetimes[share].death.max(death);
                shares.insert(value, share);
            }
        }
        let placed = alias::place(&lifetimes, align);
        debug_assert!(
            alias::verify(&lifetimes, &placed, align).is_ok(),
            "no two live values overlap"
        );
        for (value, share) in shares {
            let place = Place::Arena { offset: placed.offsets[share] };
            self.placement.places.insert(value, place);
        }
        let rows = owners.into_iter().zip(lifetimes).zip(&placed.offsets);
        self.placement.transients = rows.map(|((root, life), &at)| (root, life, at)).collect();
        self.placement.arena_bytes = placed.peak_bytes;
        self.placement.lower_bound_bytes = placed.lower_bound_bytes;
    }

    /// The arena share that the first output of a node may take over from its in-place input.
    fn reusable(&self, index: usize, shares: &BTreeMap<Root, usize>) -> Option<usize> {
        let node = &self.segment.nodes[index];
        let position = node.def.in_place?;
        let source = root(self.segment, node.inputs[position]);
        let others = node.inputs.iter().enumerate().filter(|&(other, _)| other != position);
        let alone = others.map(|(_, &input)| root(self.segment, input)).all(|r| r != source);
        let dies_here = self.last_use.get(&source) == Some(&(index as u32));
        if alone && dies_here { shares.get(&source).copied() } else { None }
    }
}
