//! Moving bytes between the host and memory that the host cannot see.
//!
//! A ring of two halves per direction: while the device copies one half, the host fills or empties
//! the other. Rings grow with what is moved, up to a bound, and are freed when memory is short.
//! Where device and host share one memory there is nothing to stage, and the bytes are written in
//! place once the device is idle.

use crate::buffer::{Buffer, Slice};
use crate::error::Result;
use crate::gpu::Gpu;
use crate::memory::MemoryClass;
use crate::timeline::{Deadline, Event};
use std::ops::Range;
use std::time::Duration;

/// The staging of a device; one mover at a time.
pub(crate) struct Staging {
    upload: Ring,
    readback: Ring,
}

/// Reads of mapped memory that is not cached cost a bus transaction each; above this many bytes
/// a copy to cached memory is faster.
const UNCACHED_READ_BYTES: usize = 4096;

impl Staging {
    pub(crate) fn new() -> Staging {
        Staging {
            upload: Ring::new(MemoryClass::Upload),
            readback: Ring::new(MemoryClass::Readback),
        }
    }

    /// Frees the rings. What is in flight keeps its buffer until it has landed.
    pub(crate) fn clear(&mut self) {
        *self = Staging::new();
    }

    /// Copies `bytes` to `slice` behind everything submitted so far. The bytes are taken when this
    /// returns; the device may still be copying them.
    pub(crate) fn upload(&mut self, gpu: &Gpu, slice: &Slice, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len() as u64, slice.len_bytes(), "upload to {slice:?}");
        if bytes.is_empty() {
            return Ok(());
        }
        if slice.is_mapped() {
            gpu.wait_idle(gpu.deadline())?;
            slice.write(bytes);
            return Ok(());
        }
        let ring = &mut self.upload;
        ring.reserve(gpu, bytes.len() as u64)?;
        for piece in pieces(bytes.len(), ring.half_bytes) {
            let (half, staged) = ring.take(gpu, piece.len() as u64)?;
            staged.write(&bytes[piece.clone()]);
            let target = slice.sub(piece.start as u64, piece.len() as u64);
            ring.busy[half] = Some(copy(gpu, "upload", &staged, &target)?);
        }
        Ok(())
    }

    /// Fills `bytes` from `slice` as everything submitted so far leaves it.
    pub(crate) fn download(
        &mut self,
        gpu: &Gpu,
        slice: &Slice,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> Result<()> {
        assert_eq!(bytes.len() as u64, slice.len_bytes(), "download of {slice:?}");
        let cached = slice.buffer().raw().is_cached() || bytes.len() <= UNCACHED_READ_BYTES;
        if bytes.is_empty() || slice.is_mapped() && cached {
            gpu.wait_idle(timeout)?;
            if !bytes.is_empty() {
                slice.read(bytes);
            }
            return Ok(());
        }
        let deadline = Deadline::after(timeout);
        let ring = &mut self.readback;
        ring.reserve(gpu, bytes.len() as u64)?;
        let mut arriving: Option<(Range<usize>, Slice, Event)> = None;
        let mut land = |arriving: Option<(Range<usize>, Slice, Event)>| -> Result<()> {
            let Some((piece, staged, event)) = arriving else { return Ok(()) };
            event.wait(deadline.left())?;
            staged.read(&mut bytes[piece]);
            Ok(())
        };
        for piece in pieces(slice.len_bytes() as usize, ring.half_bytes) {
            let (_, staged) = ring.take(gpu, piece.len() as u64)?;
            let source = slice.sub(piece.start as u64, piece.len() as u64);
            let event = copy(gpu, "download", &source, &staged)?;
            land(arriving.replace((piece, staged, event)))?;
        }
        land(arriving)
    }
}

fn pieces(len: usize, half_bytes: u64) -> impl Iterator<Item = Range<usize>> {
    let step = half_bytes as usize;
    (0..len).step_by(step).map(move |start| start..len.min(start + step))
}

fn copy(gpu: &Gpu, label: &str, from: &Slice, to: &Slice) -> Result<Event> {
    let mut recorder = gpu.recorder(label)?;
    recorder.copy(from, to);
    gpu.submit(&recorder.finish()?)
}

/// Two halves of one mapped buffer, used in turn.
struct Ring {
    class: MemoryClass,
    buffer: Option<Buffer>,
    half_bytes: u64,
    busy: [Option<Event>; 2],
    next: usize,
}

impl Ring {
    const LEAST: u64 = 64 << 10;
    const MOST: u64 = 8 << 20;

    fn new(class: MemoryClass) -> Ring {
        Ring { class, buffer: None, half_bytes: 0, busy: [None, None], next: 0 }
    }

    /// Makes the halves large enough for `len` bytes, or as large as they get.
    fn reserve(&mut self, gpu: &Gpu, len: u64) -> Result<()> {
        let wanted = len.clamp(Ring::LEAST, Ring::MOST).next_power_of_two();
        if self.buffer.is_none() || self.half_bytes < wanted {
            self.buffer = Some(gpu.buffer(self.class, 2 * wanted, "staging")?);
            self.half_bytes = wanted;
            self.busy = [None, None];
        }
        Ok(())
    }

    /// The next half, free to be used again.
    fn take(&mut self, gpu: &Gpu, len: u64) -> Result<(usize, Slice)> {
        let half = self.next;
        self.next = 1 - half;
        if let Some(event) = self.busy[half].take() {
            event.wait(gpu.deadline())?;
        }
        let buffer = self.buffer.as_ref().expect("a ring is reserved before it is used");
        Ok((half, buffer.slice(half as u64 * self.half_bytes, len)))
    }
}
