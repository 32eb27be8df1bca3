//! Where each parameter lies in an arena.
//!
//! Slots start at multiples of 64 elements, the largest offset alignment of any driver, so every
//! slot is also a buffer window of its own. Padding is always zero: a sum over an arena is the sum
//! over its parameters.

use crate::error::{Error, Result};
use oa_graph::Shape;
use oa_graph::state::ARENA_ALIGN_ELEMS;

/// One parameter of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Dotted name.
    pub name: Box<str>,
    /// Dimensions.
    pub shape: Shape,
    /// First element in the arena; a multiple of 64.
    pub offset: usize,
    /// Whether weight decay applies.
    pub decays: bool,
    /// Whether it is a matrix, or a batch of matrices, between two hidden layers: not an embedding
    /// and not a head.
    pub hidden: bool,
}

impl Slot {
    /// The elements of the slot in an arena.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.shape.elems()
    }
}

/// The parameters of a model in declaration order, placed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    slots: Vec<Slot>,
    elems: usize,
}

impl Layout {
    /// Places one more parameter.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateParameter`] when the name is taken.
    pub fn push(&mut self, name: &str, shape: Shape, decays: bool, hidden: bool) -> Result<()> {
        if self.find(name).is_some() {
            return Err(Error::DuplicateParameter { name: name.into() });
        }
        self.slots.push(Slot { name: name.into(), shape, offset: self.elems, decays, hidden });
        self.elems = (self.elems + shape.elems()).next_multiple_of(ARENA_ALIGN_ELEMS);
        Ok(())
    }

    /// The slots, in declaration order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Number of a parameter.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| &*slot.name == name)
    }

    /// Elements of an arena, padding included.
    pub fn elems(&self) -> usize {
        self.elems
    }

    /// Parameters, padding not counted.
    pub fn count(&self) -> usize {
        self.slots.iter().map(|slot| slot.shape.elems()).sum()
    }

    /// The table that tells an update what to do with each block of 64 elements: a rate factor and
    /// a weight decay, or, where `row` gives none, that it leaves the block alone.
    pub fn blocks(&self, row: impl Fn(usize, &Slot) -> Option<[f32; 2]>) -> Vec<f32> {
        let mut table = vec![0.0; 2 * self.elems / ARENA_ALIGN_ELEMS];
        for (index, slot) in self.slots.iter().enumerate() {
            let range = slot.range();
            let blocks = range.start / ARENA_ALIGN_ELEMS..range.end.div_ceil(ARENA_ALIGN_ELEMS);
            let entry = row(index, slot).unwrap_or([-1.0, 0.0]);
            for block in blocks {
                table[2 * block..2 * block + 2].copy_from_slice(&entry);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.push("embed", Shape::from([3, 50]), true, false).unwrap();
        layout.push("norm", Shape::from([64]), false, false).unwrap();
        layout.push("head", Shape::from([2, 1]), true, true).unwrap();
        layout
    }

    #[test]
    fn slots_are_aligned_and_do_not_touch() {
        let layout = layout();
        let offsets: Vec<usize> = layout.slots().iter().map(|slot| slot.offset).collect();
        assert_eq!(offsets, [0, 192, 256]);
        assert_eq!(layout.elems(), 320);
        assert_eq!(layout.count(), 150 + 64 + 2);
    }

    #[test]
    fn a_table_has_a_row_a_block() {
        let row = |index: usize, slot: &Slot| {
            (index != 1).then_some([1.0 + index as f32, if slot.hidden { 0.5 } else { 0.0 }])
        };
        let table = layout().blocks(row);
        assert_eq!(table, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 3.0, 0.5]);
    }

    #[test]
    fn a_name_is_declared_once() {
        let message =
            layout().push("norm", Shape::from([1]), false, false).unwrap_err().to_string();
        assert_eq!(message, "parameter `norm` is declared twice");
    }
}
