//! Bytes of a buffer that the host sees.

use std::ptr::NonNull;
use std::sync::Mutex;

/// A mapped buffer.
pub(crate) struct Mapped {
    start: NonNull<u8>,
    len: usize,
    /// Host accesses to one mapping take turns (H7).
    turn: Mutex<()>,
}

// SAFETY: H7: the pointer is valid on every thread, and accesses take turns.
unsafe impl Send for Mapped {}
// SAFETY: H7: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Wraps the mapping of a buffer of `len` bytes that lives as long as the result.
    pub(super) fn new(start: NonNull<u8>, len: usize) -> Mapped {
        Mapped { start, len, turn: Mutex::new(()) }
    }

    /// Copies bytes into the mapping.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        let _turn = self.turn.lock().expect("no panic while a mapping is held");
        // SAFETY: H3, H7: the range was just checked.
        let target = unsafe { self.start.add(offset) };
        // SAFETY: H3, H7: `bytes` is host memory of another object, so they do not overlap.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Copies bytes out of the mapping.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        let _turn = self.turn.lock().expect("no panic while a mapping is held");
        // SAFETY: H3, H7: the range was just checked.
        let source = unsafe { self.start.add(offset) };
        let len = bytes.len();
        // SAFETY: H3, H7: `bytes` is host memory of another object, so they do not overlap.
        unsafe { source.copy_to_nonoverlapping(NonNull::from(bytes).cast(), len) };
    }

    /// Writes zeros over the whole mapping.
    pub(crate) fn zero(&self) {
        let _turn = self.turn.lock().expect("no panic while a mapping is held");
        // SAFETY: H7: the whole mapping is `len` bytes.
        unsafe { self.start.write_bytes(0, self.len) };
    }

    fn check(&self, offset: usize, len: usize) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "H3: {len} B at {offset} lie outside a mapping of {} B", self.len);
    }
}
