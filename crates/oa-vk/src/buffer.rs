//! Buffers, and slices: ranges that are known to lie inside their buffer.
//!
//! Only this file makes a slice, and it checks the range (H3); everything that reaches the device
//! is written in terms of slices, so no descriptor or copy can name bytes that do not exist.

use crate::raw::{Allocator, RawBuffer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Memory on a device or shared with it. Clones share one buffer; it is freed when the last handle
/// is gone and the device has passed every submission that uses it.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

struct Inner {
    raw: RawBuffer,
    id: u64,
    len_bytes: u64,
    label: Box<str>,
}

impl Buffer {
    pub(crate) fn new(raw: RawBuffer, id: u64, len_bytes: u64, label: &str) -> Buffer {
        raw.name(label);
        Buffer(Arc::new(Inner { raw, id, len_bytes, label: label.into() }))
    }

    /// All of the buffer.
    pub fn whole(&self) -> Slice {
        Slice { buffer: self.clone(), offset: 0, len: self.0.len_bytes }
    }

    /// The `len_bytes` bytes from `offset_bytes` on.
    ///
    /// # Panics
    ///
    /// When the range reaches beyond the buffer.
    pub fn slice(&self, offset_bytes: u64, len_bytes: u64) -> Slice {
        self.whole().sub(offset_bytes, len_bytes)
    }

    pub(crate) fn raw(&self) -> &RawBuffer {
        &self.0.raw
    }

    pub(crate) fn is_of(&self, allocator: &Arc<Allocator>) -> bool {
        self.0.raw.is_of(allocator)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} \"{}\", {} B)", self.0.id, self.0.label, self.0.len_bytes)
    }
}

/// A range of a buffer. Slices are equal when they name the same bytes of the same buffer.
#[derive(Clone)]
pub struct Slice {
    buffer: Buffer,
    offset: u64,
    len: u64,
}

impl Slice {
    /// The `len_bytes` bytes from `offset_bytes` on, counted within this slice.
    ///
    /// # Panics
    ///
    /// When the range reaches beyond the slice.
    pub fn sub(&self, offset_bytes: u64, len_bytes: u64) -> Slice {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "H3: {len_bytes} B at {offset_bytes} lie outside {self:?}"
        );
        Slice { buffer: self.buffer.clone(), offset: self.offset + offset_bytes, len: len_bytes }
    }

    /// A number that no other buffer of the same device has.
    pub fn buffer_id(&self) -> u64 {
        self.buffer.0.id
    }

    /// Where the slice starts in its buffer, bytes.
    pub fn offset_bytes(&self) -> u64 {
        self.offset
    }

    /// How long the slice is, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// True when [`Slice::read`] and [`Slice::write`] work: for the upload and readback classes,
    /// and for every buffer where device and host share one memory.
    pub fn is_mapped(&self) -> bool {
        self.buffer.0.raw.mapped.is_some()
    }

    /// Writes `bytes` at the start of the slice. The device sees them in submissions made
    /// afterwards; the caller waits for those that still use the bytes.
    ///
    /// # Panics
    ///
    /// When the slice is not mapped or is shorter than `bytes`.
    pub fn write(&self, bytes: &[u8]) {
        self.check(bytes.len(), "write");
        self.mapped("write").write(self.offset as usize, bytes);
    }

    /// Fills `bytes` from the start of the slice with what submissions that were waited for left
    /// there.
    ///
    /// # Panics
    ///
    /// When the slice is not mapped or is shorter than `bytes`.
    pub fn read(&self, bytes: &mut [u8]) {
        self.check(bytes.len(), "read");
        self.mapped("read").read(self.offset as usize, bytes);
    }

    fn check(&self, len: usize, verb: &str) {
        assert!(len as u64 <= self.len, "H3: cannot {verb} {len} B of {self:?}");
    }

    fn mapped(&self, verb: &str) -> &crate::raw::Mapped {
        let mapped = self.buffer.0.raw.mapped.as_ref();
        mapped.unwrap_or_else(|| panic!("H7: cannot {verb} {self:?}: it is not mapped"))
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// True when both name common bytes.
    pub(crate) fn overlaps(&self, other: &Slice) -> bool {
        Arc::ptr_eq(&self.buffer.0, &other.buffer.0)
            && self.offset.max(other.offset)
                < (self.offset + self.len).min(other.offset + other.len)
    }

    /// The length in whole words. A slice that ends with its buffer may be rounded up: buffers
    /// end on whole words.
    pub(crate) fn word_bytes(&self) -> u64 {
        let rounded = self.len.next_multiple_of(4);
        let inside = self.offset + self.len == self.buffer.0.len_bytes || rounded == self.len;
        assert!(self.offset.is_multiple_of(4) && inside, "{self:?} is no range of whole words");
        assert!(self.offset + rounded <= self.buffer.0.raw.size, "H3: buffers end on whole words");
        rounded
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        Arc::ptr_eq(&self.buffer.0, &other.buffer.0)
            && (self.offset, self.len) == (other.offset, other.len)
    }
}

impl Eq for Slice {}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.buffer.0.id, self.offset, self.len).hash(state);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.offset + self.len;
        write!(f, "{:?}[{}..{end}]", self.buffer, self.offset)
    }
}
