//! The tensor index: places tensors in a section, and judges the places that a file claims.
//!
//! Tensors lie in the order of the index, each at the next multiple of 64, and fill their section
//! exactly. Anything else - an overlap, a hole, a wrong length - is a fault of the file.

use crate::dtype::Encoding;
use crate::error::{Fault, Part};
use crate::layout::{TENSOR_ALIGN, align_up};
use crate::limits;
use crate::manifest::{Entry, List, Text};
use oa_ml::NamedTensor;
use std::collections::BTreeSet;

/// Lays tensors into a section from `end` on, and moves `end` behind them.
pub(crate) fn place(tensors: &[NamedTensor], end: &mut u64) -> Result<List<Entry>, Fault> {
    within("tensors", tensors.len() as u64, limits::TENSORS)?;
    let mut entries = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let shape: Vec<u64> = tensor.shape.iter().map(|&dim| dim as u64).collect();
        let expected = elements(&tensor.name, &shape)?;
        if expected != tensor.data.len() as u64 {
            let (tensor, found) = (tensor.name.as_str().into(), tensor.data.len() as u64);
            return Err(Fault::TensorLength { tensor, found, expected });
        }
        let offset = align_up(*end, TENSOR_ALIGN).expect("what is in memory can be addressed");
        let length = expected * 4;
        *end = offset + length;
        entries.push(Entry {
            name: Text(tensor.name.clone()),
            encoding: Encoding::F32.code(),
            shape: List(shape),
            offset,
            length,
            scale_offset: 0,
            scale_length: 0,
            group: 0,
        });
    }
    names(entries.iter().map(|entry| entry.name.0.as_str()))?;
    Ok(List(entries))
}

/// Judges the tensor lists of a section of `section_bytes`: `part` is what it holds.
pub(crate) fn judge<'a>(
    part: Part,
    lists: impl Iterator<Item = &'a List<Entry>>,
    section_bytes: u64,
) -> Result<(), Fault> {
    let mut end = 0;
    for list in lists {
        names(list.0.iter().map(|entry| entry.name.0.as_str()))?;
        for entry in &list.0 {
            end = judge_entry(entry, end)?;
        }
    }
    if end != section_bytes {
        return Err(Fault::TensorTotal { part, found: end, expected: section_bytes });
    }
    Ok(())
}

/// Judges one entry after tensors that end at `end`; returns where it ends itself.
fn judge_entry(entry: &Entry, end: u64) -> Result<u64, Fault> {
    let name = entry.name.0.as_str();
    Encoding::readable(entry.encoding, name)?;
    let too_large = || Fault::Shape { tensor: name.into(), shape: entry.shape.0.as_slice().into() };
    let expected = elements(name, &entry.shape.0)?.checked_mul(4).ok_or_else(too_large)?;
    let scales = [entry.scale_offset, entry.scale_length, u64::from(entry.group)];
    if entry.length != expected || scales != [0; 3] {
        let found = entry.length.saturating_add(entry.scale_length);
        return Err(Fault::TensorLength { tensor: name.into(), found, expected });
    }
    let place = align_up(end, TENSOR_ALIGN).unwrap_or(u64::MAX);
    if entry.offset != place {
        let found = entry.offset;
        return Err(Fault::TensorPlace { tensor: name.into(), found, expected: place });
    }
    place.checked_add(expected).ok_or_else(too_large)
}

/// Elements of a shape, within the caps and within what a machine can address.
fn elements(tensor: &str, shape: &[u64]) -> Result<u64, Fault> {
    let fits = shape.len() as u64 <= limits::DIMENSIONS;
    let product = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
    product
        .filter(|&product| fits && product <= (isize::MAX as u64) / 4)
        .ok_or_else(|| Fault::Shape { tensor: tensor.into(), shape: shape.into() })
}

/// Judges names: printable, short, each once.
pub(crate) fn names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    for name in names {
        let length = name.len() as u64;
        if name.is_empty() || length > limits::NAME_BYTES || name.chars().any(char::is_control) {
            let name = name.chars().take(40).collect::<String>().into();
            return Err(Fault::Name { name, length });
        }
        if !seen.insert(name) {
            return Err(Fault::Duplicate { name: name.into() });
        }
    }
    Ok(())
}

/// Holds a count against its cap.
pub(crate) fn within(what: &'static str, found: u64, limit: u64) -> Result<(), Fault> {
    if found > limit { Err(Fault::Limit { what, found, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize]) -> NamedTensor {
        let elements = shape.iter().product();
        NamedTensor { name: name.into(), shape: shape.to_vec(), data: vec![1.0; elements] }
    }

    fn check(spoil: impl FnOnce(&mut Vec<Entry>), expected: &str) {
        let mut end = 0;
        let tensors = [tensor("a", &[3]), tensor("b", &[2, 2]), tensor("c", &[])];
        let mut list = place(&tensors, &mut end).unwrap();
        assert_eq!(end, 132);
        spoil(&mut list.0);
        let verdict = judge(Part::Weights, [&list].into_iter(), end);
        assert_eq!(verdict.map_or_else(|fault| fault.to_string(), |()| "whole".into()), expected);
    }

    #[test]
    fn places_are_judged() {
        check(|_| (), "whole");
        check(|list| list[1].offset = 0, "tensor `b` begins at 0 of its section instead of 64");
        check(|list| list[1].offset = 128, "tensor `b` begins at 128 of its section instead of 64");
        check(
            |list| list[1].length = 20,
            "tensor `b` takes 20 bytes instead of the 16 of its shape",
        );
        check(
            |list| list[0].group = 32,
            "tensor `a` takes 12 bytes instead of the 12 of its shape",
        );
        check(
            |list| drop(list.pop()),
            "the tensors of the weights take 80 bytes of a section of 132",
        );
        check(
            |list| list[0].shape.0 = vec![1 << 40, 1 << 40],
            "the dimensions [1099511627776, 1099511627776] of tensor `a` are too many or too large",
        );
        check(
            |list| list[0].shape.0 = vec![1; 9],
            "the dimensions [1, 1, 1, 1, 1, 1, 1, 1, 1] of tensor `a` are too many or too large",
        );
    }

    #[test]
    fn names_and_encodings_are_judged() {
        check(|list| list[2].name = "a".into(), "`a` is there twice");
        check(
            |list| list[2].name = "a\0b".into(),
            "a name of 3 bytes is empty, too long or has control characters: \"a\\0b\"",
        );
        check(
            |list| list[2].name = "".into(),
            "a name of 0 bytes is empty, too long or has control characters: \"\"",
        );
        check(
            |list| list[2].encoding = 5,
            "tensor `c` is stored as q4, which this release does not read",
        );
        check(|list| list[2].encoding = 77, "tensor `c` has the unknown encoding 77");
    }
}
