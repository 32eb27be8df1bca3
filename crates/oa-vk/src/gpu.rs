//! The open device: the owner of everything in this crate.
//!
//! Opening takes five steps: load the library, create an instance, probe the devices, choose one,
//! open it. Nothing that may never be needed is created then: pools, staging, pipelines and the
//! disk cache wait for their first use.

use crate::buffer::{Buffer, Slice};
use crate::caps::Capabilities;
use crate::choose::{DeviceInfo, DeviceKind, DeviceReport, choose};
use crate::debug::Sink;
use crate::descriptors::Recycler;
use crate::error::{Error, Result};
use crate::memory::staging::Staging;
use crate::memory::{MemoryClass, MemoryReport};
use crate::pipeline::{Pipeline, PipelineRequest, Pipelines};
use crate::profile::Clock;
use crate::queue::Queue;
use crate::raw;
use crate::recorder::{Recorded, Recorder};
use crate::request::{DeviceRequest, Validation};
use crate::timeline::Event;
use ash::vk;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An open device. Clones share it; every method may be called from any thread.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    report: DeviceReport,
    pipelines: Pipelines,
    staging: Mutex<Staging>,
    queue: Arc<Queue>,
    recycler: Arc<Recycler>,
    allocator: Arc<raw::Allocator>,
    device: Arc<raw::Device>,
    clock: Clock,
    crumbs: bool,
    deadline: Duration,
    next_buffer: AtomicU64,
    sink: Arc<Sink>,
}

/// Every device that the loader lists, usable or not, with what it can do and why it is refused.
/// Never validates: looking needs no layer.
///
/// # Errors
///
/// [`Error::NoLoader`], or a failure to create an instance.
pub fn devices(request: &DeviceRequest) -> Result<Vec<DeviceReport>> {
    let request = DeviceRequest { validation: Validation::Off, ..request.clone() };
    match probe(&request, &Arc::default()) {
        Ok((_, probed)) => Ok(probed.into_iter().map(|physical| physical.report).collect()),
        // What the loader answers when no driver is installed.
        Err(Error::NoDevice { rejected }) if rejected.is_empty() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn probe(
    request: &DeviceRequest,
    sink: &Arc<Sink>,
) -> Result<(Arc<raw::Instance>, Vec<raw::Physical>)> {
    let entry = raw::Entry::load(request.library.as_deref())?;
    let options = raw::InstanceOptions { validation: request.validation, labels: request.profile };
    let instance = Arc::new(raw::Instance::create(entry, &options, sink)?);
    raw::keep_drivers(&instance);
    let probed = raw::probe_all(&instance, request)?;
    Ok((instance, probed))
}

/// Says which device was taken, loudly for one that is slow.
fn announce(info: &DeviceInfo, asked: bool) {
    let (name, driver) = (&info.name, &info.driver_info);
    match (info.kind, asked) {
        (DeviceKind::Software, true) => {
            tracing::warn!("using the software device {name} ({driver}), as asked: it is slow");
        }
        (DeviceKind::Software, false) => {
            tracing::warn!("no GPU found: using the software device {name} ({driver}), it is slow");
        }
        (kind, _) => tracing::info!("using the {kind} device {name} ({driver})"),
    }
}

impl Gpu {
    /// Opens the device that the request names, or the best there is.
    ///
    /// # Errors
    ///
    /// [`Error::NoLoader`], [`Error::NoDevice`] with every refusal, [`Error::UnknownDevice`],
    /// [`Error::AmbiguousDevice`], [`Error::NoValidationLayer`], or a failed Vulkan call.
    pub fn open(request: &DeviceRequest) -> Result<Gpu> {
        let sink = Arc::<Sink>::default();
        let (instance, mut probed) = probe(request, &sink)?;
        let reports: Vec<DeviceReport> =
            probed.iter().map(|physical| physical.report.clone()).collect();
        let physical = probed.swap_remove(choose(&reports, request)?);
        announce(&physical.report.info, request.selector.is_some());
        for quirk in &physical.report.quirks {
            tracing::debug!("quirk {}: {}", quirk.id, quirk.symptom);
        }
        Gpu::start(request, &instance, physical, sink)
    }

    fn start(
        request: &DeviceRequest,
        instance: &Arc<raw::Instance>,
        physical: raw::Physical,
        sink: Arc<Sink>,
    ) -> Result<Gpu> {
        let robust = request.validation != Validation::Off;
        let device = Arc::new(raw::Device::create(instance, &physical, robust)?);
        let capabilities = &physical.report.capabilities;
        let policy = raw::MemoryPolicy {
            unified: capabilities.unified_memory,
            software: capabilities.software,
        };
        let allocator = Arc::new(raw::Allocator::create(&device, &physical, policy)?);
        let info = &physical.report.info;
        let cache_dir = request.cache_dir.as_deref();
        let clock = Clock {
            period_ns: capabilities.limits.timestamp_period_ns,
            bits: physical.timestamp_bits,
        };
        Ok(Gpu(Arc::new(Inner {
            pipelines: Pipelines::new(&device, info, physical.bindings, cache_dir),
            staging: Mutex::new(Staging::new()),
            queue: Arc::new(Queue::new(&device, request.deadline)?),
            recycler: Arc::new(Recycler::new(&device)),
            allocator,
            device,
            clock,
            crumbs: request.crumbs,
            deadline: request.deadline,
            next_buffer: AtomicU64::new(1),
            sink,
            report: physical.report,
        })))
    }

    /// What the device can do, after quirks and the request were applied.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.report.capabilities
    }

    /// What the driver says of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.report.info
    }

    /// Everything known of the device, with the quirks that were applied.
    pub fn report(&self) -> &DeviceReport {
        &self.0.report
    }

    /// A new buffer of `len_bytes`. Device buffers start as zeros; the contents of the other
    /// classes are undefined until they are written.
    ///
    /// # Errors
    ///
    /// [`Error::OverLimit`] for a buffer that this device never has room for;
    /// [`Error::OutOfMemory`] when it has none now, even after caches were freed.
    pub fn buffer(&self, class: MemoryClass, len_bytes: u64, label: &str) -> Result<Buffer> {
        let limit = self.capabilities().limits.allocation_bytes;
        if len_bytes > limit {
            let (label, what) = (label.into(), "B in one buffer");
            return Err(Error::OverLimit { label, what, requested: len_bytes, limit });
        }
        let allocator = &self.0.allocator;
        let raw = allocator.buffer(class, len_bytes, false).or_else(|_| {
            self.free_caches();
            allocator.buffer(class, len_bytes, true)
        });
        let raw = raw.map_err(|code| match code {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
                let available = allocator.available_bytes(class);
                Error::OutOfMemory { label: label.into(), class, requested: len_bytes, available }
            }
            code => Error::Vk { call: "vmaCreateBuffer", code },
        })?;
        let id = self.0.next_buffer.fetch_add(1, Ordering::Relaxed);
        let buffer = Buffer::new(raw, id, len_bytes, label);
        if class == MemoryClass::Device {
            self.zero(&buffer)?;
        }
        Ok(buffer)
    }

    /// Writes zeros over a new buffer, in place or ahead of every later submission.
    fn zero(&self, buffer: &Buffer) -> Result<()> {
        if let Some(mapped) = &buffer.raw().mapped {
            mapped.zero();
            return Ok(());
        }
        let mut recorder = self.recorder("zero")?;
        recorder.fill_zero(&buffer.whole());
        self.submit(&recorder.finish()?)?;
        Ok(())
    }

    /// Gives back what can be had again: staging, idle pools, what the device has passed.
    fn free_caches(&self) {
        // A mover that holds the staging is using it.
        if let Ok(mut staging) = self.0.staging.try_lock() {
            staging.clear();
        }
        // If the device hangs, the allocation fails and says so.
        let _waited = self.0.queue.wait_idle(self.0.deadline);
        self.0.recycler.clear();
    }

    /// Copies `bytes` to `slice`, behind everything submitted before. The bytes are taken when
    /// this returns. Waits for the device only where host and device share one memory, or when
    /// more is moved than the staging holds.
    ///
    /// # Errors
    ///
    /// Out of memory, a timeout after the request's deadline, a lost device.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn upload(&self, slice: &Slice, bytes: &[u8]) -> Result<()> {
        self.staging().upload(self, slice, bytes)
    }

    /// Fills `bytes` from `slice`, as everything submitted before leaves it. Blocks.
    ///
    /// # Errors
    ///
    /// A timeout, out of memory, a lost device.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn download(&self, slice: &Slice, bytes: &mut [u8], timeout: Duration) -> Result<()> {
        self.staging().download(self, slice, bytes, timeout)
    }

    fn staging(&self) -> std::sync::MutexGuard<'_, Staging> {
        // A panic in a caller's slice range leaves the rings as they were.
        self.0.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The pipeline of a request, built if it is new.
    ///
    /// # Errors
    ///
    /// [`Error::BadSpirv`], [`Error::OverLimit`], [`Error::PipelineRefused`].
    ///
    /// # Panics
    ///
    /// When a subgroup size is required that the device cannot require.
    pub fn pipeline(&self, request: &PipelineRequest) -> Result<Pipeline> {
        self.0.pipelines.get(self, request)
    }

    /// The pipelines of several requests, in their order; those that are new are built by as many
    /// threads as the host has cores.
    ///
    /// # Errors
    ///
    /// The first failure in the order of the requests, as [`Gpu::pipeline`].
    pub fn pipelines(&self, requests: &[PipelineRequest]) -> Result<Vec<Pipeline>> {
        let pipelines = self.0.pipelines.get_all(self, requests)?;
        self.0.pipelines.save();
        Ok(pipelines)
    }

    /// The file in which compiled pipelines are remembered; `None` when no folder is known.
    pub fn pipeline_cache_path(&self) -> Option<PathBuf> {
        self.0.pipelines.cache_path()
    }

    /// Writes what the driver has compiled to the disk cache. Also done when the device is closed.
    pub fn save_pipelines(&self) {
        self.0.pipelines.save();
    }

    /// Starts a recording.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn recorder(&self, label: &str) -> Result<Recorder> {
        Recorder::begin(self, label)
    }

    /// Submits a recording behind everything submitted before. When three submissions are in
    /// flight, waits for the oldest. Allocates nothing.
    ///
    /// # Errors
    ///
    /// A timeout after the request's deadline, a lost device.
    ///
    /// # Panics
    ///
    /// When the recording belongs to another device.
    pub fn submit(&self, recorded: &Recorded) -> Result<Event> {
        let queue = &self.0.queue;
        assert!(recorded.is_of(queue.timeline()), "{recorded:?} is of another device");
        queue.submit(recorded)
    }

    /// Waits until everything submitted has finished.
    ///
    /// # Errors
    ///
    /// A timeout, a lost device.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        self.0.queue.wait_idle(timeout)
    }

    /// Takes the validation messages since the last call; always empty without validation.
    pub fn validation_messages(&self) -> Vec<String> {
        self.0.sink.drain()
    }

    /// Memory in use and left.
    pub fn memory(&self) -> MemoryReport {
        self.0.queue.retire();
        self.0.allocator.report()
    }

    pub(crate) fn device(&self) -> &Arc<raw::Device> {
        &self.0.device
    }

    pub(crate) fn allocator(&self) -> &Arc<raw::Allocator> {
        &self.0.allocator
    }

    pub(crate) fn recycler(&self) -> &Arc<Recycler> {
        &self.0.recycler
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0.queue
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.0.deadline
    }

    pub(crate) fn wants_crumbs(&self) -> bool {
        self.0.crumbs
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.0.report.name())
    }
}
