//! Recording a compiled plan once and replaying it.
//!
//! An instance is a program bound to buffers: one command buffer per ring slot, so that a replay
//! never waits for the copy of the inputs of the one before it. Kept values come from a pool that
//! their last handle returns them to.

use crate::error::Result;
use crate::plan::program::{Program, Resource, Step, Window, Work};
use crate::segment::Leaf;
use oa_kernels::Selection;
use oa_vk::sync::Stages;
use oa_vk::{Buffer, Event, Gpu, MemoryClass, Pipeline, PipelineRequest, Recorded, Slice};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Submissions of one plan that may be in flight, and outputs of past replays that stay readable.
pub const RING_SLOTS: usize = 3;

/// Idle buffers above this many bytes are freed instead of kept for reuse.
const POOL_BYTES: u64 = 256 << 20;

/// Buffers of kept values, reused when their last handle is gone. Reuse needs no wait: later
/// submissions run after earlier ones, and a host read has finished before its handle is dropped.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<(u64, BTreeMap<u64, Vec<Slice>>)>,
}

impl Pool {
    /// Frees every idle buffer.
    pub(crate) fn clear(&self) {
        *self.idle.lock().expect("no panic while the pool is held") = Default::default();
    }

    /// A buffer of exactly `len_bytes`.
    pub(crate) fn take(self: &Arc<Self>, gpu: &Gpu, len_bytes: u64) -> Result<Kept> {
        let reused = {
            let mut idle = self.idle.lock().expect("no panic while the pool is held");
            let found = idle.1.get_mut(&len_bytes).and_then(Vec::pop);
            if found.is_some() {
                idle.0 -= len_bytes;
            }
            found
        };
        let slice = match reused {
            Some(slice) => slice,
            None => gpu.buffer(MemoryClass::Device, len_bytes, "kept value")?.whole(),
        };
        let ticket = Ticket { slice: slice.clone(), pool: Arc::downgrade(self) };
        Ok(Kept { slice, _ticket: Arc::new(ticket) })
    }
}

/// A value that an executed segment left on the device.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) slice: Slice,
    _ticket: Arc<Ticket>,
}

/// Returns a buffer to its pool when the last holder drops it.
struct Ticket {
    slice: Slice,
    pool: Weak<Pool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut idle = pool.idle.lock().expect("no panic while the pool is held");
        let len_bytes = self.slice.len_bytes();
        if idle.0 + len_bytes <= POOL_BYTES {
            idle.0 += len_bytes;
            idle.1.entry(len_bytes).or_default().push(self.slice.clone());
        }
    }
}

/// The buffers that a program itself owns; shared by its instances.
pub(crate) struct Memory {
    arena: Option<Buffer>,
    inputs: Option<Buffer>,
    constants: Option<Buffer>,
    ring: Option<Buffer>,
    /// The last submission that reads each ring slot, whichever instance made it.
    events: [Option<Event>; RING_SLOTS],
    next: usize,
}

impl Memory {
    /// Allocates them. `constants` are the contents of the captured host leaves.
    pub(crate) fn new(gpu: &Gpu, program: &Program, constants: &[Arc<[u8]>]) -> Result<Memory> {
        let buffer = |class, len_bytes: u64, label: &str| -> Result<Option<Buffer>> {
            if len_bytes == 0 { Ok(None) } else { Ok(Some(gpu.buffer(class, len_bytes, label)?)) }
        };
        let memory = Memory {
            arena: buffer(MemoryClass::Device, program.placement.arena_bytes, "plan arena")?,
            inputs: buffer(MemoryClass::Device, program.inputs_bytes, "plan inputs")?,
            constants: buffer(MemoryClass::Device, program.constants_bytes, "plan constants")?,
            ring: buffer(
                MemoryClass::Upload,
                program.inputs_bytes * RING_SLOTS as u64,
                "plan input ring",
            )?,
            events: [None, None, None],
            next: 0,
        };
        for ((offset, spec), bytes) in program.constants.iter().zip(constants) {
            let buffer = memory.constants.as_ref().expect("a plan with constants has their buffer");
            gpu.upload(&buffer.slice(*offset, spec.len_bytes()), bytes)?;
        }
        Ok(memory)
    }

    /// Fills everything that a replay has to write before it reads it.
    pub(crate) fn poison(&self, gpu: &Gpu, byte: u8) -> Result<()> {
        for buffer in [&self.arena, &self.inputs].into_iter().flatten() {
            let whole = buffer.whole();
            gpu.upload(&whole, &vec![byte; whole.len_bytes() as usize])?;
        }
        Ok(())
    }

    /// The ring slot of the next submission.
    pub(crate) fn next_slot(&self) -> usize {
        self.next
    }

    /// Bytes of device memory held.
    pub(crate) fn device_bytes(&self) -> u64 {
        let buffers = [&self.arena, &self.inputs, &self.constants];
        buffers.into_iter().flatten().map(|buffer| buffer.whole().len_bytes()).sum()
    }
}

/// What a program is bound to besides its own memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Bindings {
    pub(crate) externals: Vec<Slice>,
    pub(crate) kept: Vec<Slice>,
}

/// A program recorded with its bindings.
pub(crate) struct Instance {
    pub(crate) bindings: Bindings,
    slots: [Recorded; RING_SLOTS],
    /// Mapped copies of the kept values, per slot; empty when nothing is read back.
    readback: Vec<Vec<Slice>>,
}

/// The pipelines of a program's dispatches, in step order; new ones are built in parallel.
fn pipelines(gpu: &Gpu, program: &Program) -> Result<Vec<Pipeline>> {
    fn request(step: &Step) -> Option<PipelineRequest<'_>> {
        match &step.work {
            Work::Copy { .. } => None,
            Work::Dispatch { selection: Selection { variant, .. }, spec, .. } => {
                Some(PipelineRequest {
                    label: variant.name,
                    spirv: variant.spirv,
                    hash: variant.spv_hash,
                    buffers: variant.buffers,
                    push_bytes: variant.push_bytes,
                    spec,
                    subgroup_size: None,
                })
            }
        }
    }
    let requests: Vec<PipelineRequest> = program.steps.iter().filter_map(request).collect();
    Ok(gpu.pipelines(&requests)?)
}

impl Instance {
    /// Records a program. With `read_back`, every kept value is copied to mapped memory at the end.
    pub(crate) fn record(
        gpu: &Gpu,
        program: &Program,
        memory: &Memory,
        bindings: Bindings,
        read_back: bool,
    ) -> Result<Instance> {
        let pipelines = pipelines(gpu, program)?;
        let mut readback = Vec::new();
        if read_back {
            for _ in 0..RING_SLOTS {
                let copy = |kept: &Slice| -> Result<Slice> {
                    let buffer = gpu.buffer(MemoryClass::Readback, kept.len_bytes(), "output")?;
                    Ok(buffer.whole())
                };
                readback.push(bindings.kept.iter().map(copy).collect::<Result<Vec<_>>>()?);
            }
        }
        let binder = Binder { program, memory, bindings: &bindings };
        let record = |slot: usize| -> Result<Recorded> {
            let outputs = readback.get(slot).map(Vec::as_slice).unwrap_or_default();
            binder.record(gpu, slot as u64, &pipelines, Tail::Outputs(outputs))
        };
        let slots = [record(0)?, record(1)?, record(2)?];
        Ok(Instance { bindings, slots, readback })
    }

    /// Records the program once more with a timestamp before it, after the inputs' copy and after
    /// every step. It reads the inputs that ring slot `slot` holds.
    pub(crate) fn record_stamped(
        &self,
        gpu: &Gpu,
        program: &Program,
        memory: &Memory,
        slot: usize,
    ) -> Result<Recorded> {
        let binder = Binder { program, memory, bindings: &self.bindings };
        binder.record(gpu, slot as u64, &pipelines(gpu, program)?, Tail::Stamps)
    }

    /// Submits the next slot after `write` has filled its part of the input ring.
    pub(crate) fn submit(
        &self,
        gpu: &Gpu,
        program: &Program,
        memory: &mut Memory,
        timeout: Duration,
        write: impl FnOnce(&dyn Fn(usize, &[u8])),
    ) -> Result<(Event, usize)> {
        let slot = memory.next;
        if let Some(event) = &memory.events[slot] {
            event.wait(timeout)?;
        }
        let base = slot as u64 * program.inputs_bytes;
        write(&|input, bytes| {
            let ring = memory.ring.as_ref().expect("a plan with inputs has a ring");
            let offset = base + program.inputs[input].offset;
            ring.slice(offset, bytes.len() as u64).write(bytes);
        });
        let event = gpu.submit(&self.slots[slot])?;
        memory.events[slot] = Some(event.clone());
        memory.next = (slot + 1) % RING_SLOTS;
        Ok((event, slot))
    }

    /// The mapped copy of an output in a slot.
    pub(crate) fn output(&self, slot: usize, output: usize) -> &Slice {
        &self.readback[slot][output]
    }
}

/// What a recording does besides the program's steps.
enum Tail<'a> {
    /// Copies the kept values to these at the end.
    Outputs(&'a [Slice]),
    /// Takes the time of each step.
    Stamps,
}

/// Resolves windows to slices while recording.
struct Binder<'a> {
    program: &'a Program,
    memory: &'a Memory,
    bindings: &'a Bindings,
}

impl Binder<'_> {
    fn slice(&self, window: &Window) -> Slice {
        let own = |buffer: &Option<Buffer>| {
            let buffer = buffer.as_ref().expect("a window of a region implies its buffer");
            buffer.slice(window.offset, window.len_bytes)
        };
        match window.resource {
            Resource::Arena => own(&self.memory.arena),
            Resource::Inputs => own(&self.memory.inputs),
            Resource::Constants => own(&self.memory.constants),
            Resource::External(index) => {
                self.bindings.externals[index as usize].sub(window.offset, window.len_bytes)
            }
            Resource::Kept(slot) => {
                self.bindings.kept[slot as usize].sub(window.offset, window.len_bytes)
            }
            Resource::State(leaf) => match &self.program.segment.leaves[leaf as usize] {
                Leaf::State { slice, .. } => slice.sub(window.offset, window.len_bytes),
                _ => unreachable!("a state window names a state leaf"),
            },
        }
    }

    fn record(
        &self,
        gpu: &Gpu,
        slot: u64,
        pipelines: &[Pipeline],
        tail: Tail<'_>,
    ) -> Result<Recorded> {
        let mut recorder = gpu.recorder("plan")?;
        let stamped = matches!(tail, Tail::Stamps);
        if stamped {
            recorder.timestamp();
        }
        if let (Some(ring), Some(inputs)) = (&self.memory.ring, &self.memory.inputs) {
            let len_bytes = self.program.inputs_bytes;
            recorder.copy(&ring.slice(slot * len_bytes, len_bytes), &inputs.whole());
        }
        if stamped {
            recorder.timestamp();
        }
        let mut pipelines = pipelines.iter();
        for step in &self.program.steps {
            if let Some(barrier) = &step.barrier {
                recorder.barrier(barrier.from, barrier.to);
            }
            match &step.work {
                Work::Copy { from, to } => {
                    recorder.copy(&self.slice(from), &self.slice(to));
                }
                Work::Dispatch { groups, push, windows, .. } => {
                    let pipeline = pipelines.next().expect("a dispatch has a pipeline");
                    let slices: Vec<Slice> = windows.iter().map(|w| self.slice(w)).collect();
                    let label = self.program.segment.nodes[step.node as usize].def.name;
                    recorder.dispatch(pipeline, &slices, push, *groups, label)?;
                }
            }
            if stamped {
                recorder.timestamp();
            }
        }
        if let Tail::Outputs(outputs) = tail
            && !outputs.is_empty()
        {
            recorder.barrier(Stages::COMPUTE | Stages::TRANSFER, Stages::TRANSFER);
            for (kept, output) in self.bindings.kept.iter().zip(outputs) {
                recorder.copy(kept, output);
            }
            recorder.barrier(Stages::TRANSFER, Stages::HOST);
        }
        Ok(recorder.finish()?)
    }
}
