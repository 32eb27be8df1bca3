//! Recording commands once, to be submitted many times.
//!
//! A recording keeps alive whatever it uses and owns the pools it was recorded into, so submitting
//! it again is one driver call. Barriers inside it are the caller's; between recordings there is
//! always one, because each starts with it.

use crate::buffer::{Buffer, Slice};
use crate::crumbs::Crumbs;
use crate::descriptors::Recycler;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::memory::MemoryClass;
use crate::pipeline::Pipeline;
use crate::profile::Stamps;
use crate::raw::{Commands, DescriptorPool, Timeline};
use crate::sync::Stages;
use crate::timeline::Tick;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most push-constant bytes that any pipeline of this crate has.
pub(crate) const PUSH_BYTES: usize = 256;

const ON_DEVICE: Stages = Stages::COMPUTE.union(Stages::TRANSFER);

/// A finished recording. Clones share it.
#[derive(Clone)]
pub struct Recorded(Arc<Recording>);

struct Recording {
    label: Arc<str>,
    /// `None` only while the recording is taken apart.
    commands: Option<Commands>,
    descriptors: Vec<DescriptorPool>,
    stamps: Stamps,
    crumbs: Option<Crumbs>,
    buffers: Vec<Buffer>,
    pipelines: Vec<Pipeline>,
    recycler: Arc<Recycler>,
    timeline: Arc<Timeline>,
    last: AtomicU64,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let descriptors = std::mem::take(&mut self.descriptors);
        self.recycler.give_back(self.commands.take(), descriptors);
    }
}

impl Recorded {
    /// Nanoseconds from the first timestamp to each, of the last submission.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinished`] before the last submission has finished or when there was none;
    /// [`Error::NoTimestamps`] on a device without them.
    pub fn timestamps_ns(&self) -> Result<Vec<f64>> {
        let recording = &*self.0;
        if !recording.stamps.is_possible() {
            return Err(Error::NoTimestamps);
        }
        let last = recording.last.load(Ordering::Acquire);
        let reached = recording.timeline.value().unwrap_or(0);
        let read = if last > 0 && reached >= last { recording.stamps.read_ns() } else { None };
        read.ok_or_else(|| Error::NotFinished { label: (&*recording.label).into() })
    }

    pub(crate) fn label(&self) -> &Arc<str> {
        &self.0.label
    }

    pub(crate) fn commands(&self) -> &Commands {
        self.0.commands.as_ref().expect("a finished recording has its commands")
    }

    /// Notes the tick of a submission.
    pub(crate) fn submitted(&self, tick: Tick) {
        self.0.last.store(tick.0, Ordering::Release);
    }

    /// The label, with the kernel that runs if that is known.
    pub(crate) fn describe(&self) -> Box<str> {
        match self.0.crumbs.as_ref().and_then(Crumbs::last) {
            Some(kernel) => format!("{} / {kernel}", self.0.label).into(),
            None => (&*self.0.label).into(),
        }
    }

    pub(crate) fn is_of(&self, timeline: &Arc<Timeline>) -> bool {
        Arc::ptr_eq(&self.0.timeline, timeline)
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorded(\"{}\")", self.0.label)
    }
}

/// A recording in progress.
pub struct Recorder {
    gpu: Gpu,
    recording: Recording,
    kept: BTreeSet<u64>,
    /// Identity of the pipeline bound last.
    bound: Option<usize>,
    /// The first failure of a call that reports none itself.
    failed: Option<Error>,
}

impl Recorder {
    pub(crate) fn begin(gpu: &Gpu, label: &str) -> Result<Recorder> {
        let mut commands = gpu.recycler().commands()?;
        commands.begin(label)?;
        commands.barrier(ON_DEVICE, ON_DEVICE);
        let recording = Recording {
            label: label.into(),
            commands: Some(commands),
            descriptors: Vec::new(),
            stamps: Stamps::new(gpu.clock()),
            crumbs: None,
            buffers: Vec::new(),
            pipelines: Vec::new(),
            recycler: Arc::clone(gpu.recycler()),
            timeline: Arc::clone(gpu.queue().timeline()),
            last: AtomicU64::new(0),
        };
        let gpu = gpu.clone();
        Ok(Recorder { gpu, recording, kept: BTreeSet::new(), bound: None, failed: None })
    }

    /// Records a dispatch of `groups` workgroups, with `slices` bound in order and `push` as the
    /// push constants; missing trailing words are zero. `label` names it for tools and hangs.
    ///
    /// # Errors
    ///
    /// [`Error::OverLimit`] for a binding or a grid that the device does not take; out of memory.
    ///
    /// # Panics
    ///
    /// When the number of slices or push constants is not the pipeline's, a slice is empty or
    /// misaligned, or something belongs to another device.
    pub fn dispatch(
        &mut self,
        pipeline: &Pipeline,
        slices: &[Slice],
        push: &[u32],
        groups: [u32; 3],
        label: &str,
    ) -> Result<()> {
        self.check(pipeline, slices, push, groups, label)?;
        if groups.contains(&0) {
            return Ok(());
        }
        if self.gpu.wants_crumbs() {
            self.crumb(label)?;
        }
        slices.iter().for_each(|slice| self.keep(slice));
        let raw = pipeline.raw();
        let set = match slices {
            [] => None,
            _ => {
                let pool = descriptor_pool(&mut self.recording, slices.len() as u32)?;
                let range = |slice: &Slice| (slice.offset_bytes(), slice.len_bytes());
                let ranges = slices.iter().map(|slice| {
                    let (offset, len) = range(slice);
                    (slice.buffer().raw(), offset, len)
                });
                Some(pool.bind(&raw.layout, ranges)?)
            }
        };
        let commands = commands(&mut self.recording);
        commands.begin_label(label);
        if self.bound != Some(pipeline.identity()) {
            commands.bind_pipeline(raw);
            self.bound = Some(pipeline.identity());
        }
        if let Some(set) = set {
            commands.bind_set(&raw.layout, set);
        }
        if pipeline.push_bytes() > 0 {
            let mut words = [0u32; PUSH_BYTES / 4];
            words[..push.len()].copy_from_slice(push);
            let bytes: &[u8] = bytemuck::cast_slice(&words);
            commands.push(&raw.layout, &bytes[..pipeline.push_bytes() as usize]);
        }
        commands.dispatch(groups);
        commands.end_label();
        self.recording.pipelines.push(pipeline.clone());
        Ok(())
    }

    fn check(
        &self,
        pipeline: &Pipeline,
        slices: &[Slice],
        push: &[u32],
        groups: [u32; 3],
        label: &str,
    ) -> Result<()> {
        let limits = &self.gpu.capabilities().limits;
        let over = |what, requested: u64, limit: u64| {
            Err(Error::OverLimit { label: label.into(), what, requested, limit })
        };
        assert!(pipeline.is_of(&self.gpu), "{label}: a pipeline of another device");
        assert_eq!(slices.len(), pipeline.buffers() as usize, "{label}: slices of {pipeline:?}");
        assert!(
            4 * push.len() <= pipeline.push_bytes() as usize,
            "{label}: {} push constants for {pipeline:?}",
            push.len()
        );
        for slice in slices {
            assert!(slice.len_bytes() > 0, "{label}: an empty slice cannot be bound");
            let aligned = slice.offset_bytes().is_multiple_of(limits.storage_align_bytes);
            assert!(aligned, "{label}: {slice:?} is not aligned to {}", limits.storage_align_bytes);
            if slice.len_bytes() > limits.storage_range_bytes {
                return over("B in one binding", slice.len_bytes(), limits.storage_range_bytes);
            }
        }
        for (count, limit) in groups.into_iter().zip(limits.groups) {
            if count > limit {
                return over("workgroups along one axis", count.into(), limit.into());
            }
        }
        Ok(())
    }

    /// Records a copy of all of `from` to all of `to`.
    ///
    /// # Panics
    ///
    /// When the lengths differ, the slices overlap, or one belongs to another device.
    pub fn copy(&mut self, from: &Slice, to: &Slice) {
        assert_eq!(from.len_bytes(), to.len_bytes(), "copy from {from:?} to {to:?}");
        assert!(!from.overlaps(to), "copy from {from:?} to {to:?}, which overlaps it");
        if from.len_bytes() == 0 {
            return;
        }
        self.keep(from);
        self.keep(to);
        let place = |slice: &Slice| slice.offset_bytes();
        commands(&mut self.recording).copy(
            (from.buffer().raw(), place(from)),
            (to.buffer().raw(), place(to)),
            from.len_bytes(),
        );
    }

    /// Records zeros over all of `slice`.
    ///
    /// # Panics
    ///
    /// When the slice is no range of whole words (the end of its buffer counts as one), or belongs
    /// to another device.
    pub fn fill_zero(&mut self, slice: &Slice) {
        let len = slice.word_bytes();
        if len > 0 {
            self.keep(slice);
            let offset = slice.offset_bytes();
            commands(&mut self.recording).fill(slice.buffer().raw(), offset, len, 0);
        }
    }

    /// Records a barrier: what `from` did before is finished and visible to `to` after it.
    /// Nothing is recorded when either is empty.
    pub fn barrier(&mut self, from: Stages, to: Stages) {
        if !from.is_empty() && !to.is_empty() {
            commands(&mut self.recording).barrier(from, to);
        }
    }

    /// Records a timestamp of the moment when everything before has finished; returns its number
    /// in [`Recorded::timestamps_ns`].
    pub fn timestamp(&mut self) -> u32 {
        let Recording { stamps, commands, .. } = &mut self.recording;
        let commands = commands.as_mut().expect("a recording in progress has its commands");
        stamps.record(self.gpu.device(), commands).unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            0
        })
    }

    /// Ends the recording. What it wrote is visible to the host once a submission has finished.
    ///
    /// # Errors
    ///
    /// When the driver failed to record.
    pub fn finish(mut self) -> Result<Recorded> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let commands = commands(&mut self.recording);
        commands.barrier(ON_DEVICE, Stages::HOST);
        commands.end()?;
        Ok(Recorded(Arc::new(self.recording)))
    }

    /// Keeps a slice's buffer until the recording dies.
    fn keep(&mut self, slice: &Slice) {
        if self.kept.insert(slice.buffer_id()) {
            assert!(slice.buffer().is_of(self.gpu.allocator()), "{slice:?} is of another device");
            self.recording.buffers.push(slice.buffer().clone());
        }
    }

    fn crumb(&mut self, label: &str) -> Result<()> {
        if self.recording.crumbs.is_none() {
            let word = self.gpu.buffer(MemoryClass::Readback, 4, "breadcrumb")?;
            let crumbs = Crumbs::new(word);
            self.keep(&crumbs.buffer().whole());
            self.recording.crumbs = Some(crumbs);
        }
        let Recording { crumbs, commands, .. } = &mut self.recording;
        let commands = commands.as_mut().expect("a recording in progress has its commands");
        if let Some(crumbs) = crumbs {
            crumbs.drop_one(commands, label);
        }
        Ok(())
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder(\"{}\")", self.recording.label)
    }
}

fn commands(recording: &mut Recording) -> &mut Commands {
    recording.commands.as_mut().expect("a recording in progress has its commands")
}

/// A pool of the recording with room for a set of `buffers`.
fn descriptor_pool(recording: &mut Recording, buffers: u32) -> Result<&mut DescriptorPool> {
    if !recording.descriptors.last().is_some_and(|pool| pool.has_room(buffers)) {
        recording.descriptors.push(recording.recycler.descriptors()?);
    }
    Ok(recording.descriptors.last_mut().expect("a pool was just added"))
}
