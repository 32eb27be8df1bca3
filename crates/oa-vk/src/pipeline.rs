//! Pipelines: built when first asked for, shared afterwards, remembered on disk.
//!
//! A pipeline is known by the hash of its module, its specialisation and its required subgroup
//! size. Threads that want the same one build it once; threads that want different ones build at
//! the same time. A driver's refusal is an ordinary error, and the caller takes another variant.

mod disk;
mod module;

use crate::choose::DeviceInfo;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::raw::{Device, PipelineCache, PipelineLayout, RawPipeline, Stage};
use crate::recorder::PUSH_BYTES;
use ash::vk;
use disk::DiskCache;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a pipeline is made of.
#[derive(Clone, Copy, Debug)]
pub struct PipelineRequest<'a> {
    /// Name for errors and tools.
    pub label: &'a str,
    /// The SPIR-V module, little-endian, with one compute entry point.
    pub spirv: &'a [u8],
    /// Hash of the module: two requests with the same hash have the same module.
    pub hash: &'a str,
    /// Storage buffers, at bindings from 0 of set 0.
    pub buffers: u32,
    /// Push-constant block, bytes; a multiple of 4.
    pub push_bytes: u32,
    /// Specialisation constants: id and value.
    pub spec: &'a [(u32, u32)],
    /// A subgroup size to require; the device must be able to.
    pub subgroup_size: Option<u32>,
}

/// A compute pipeline. Clones share it.
#[derive(Clone)]
pub struct Pipeline(Arc<Inner>);

struct Inner {
    raw: RawPipeline,
    label: Box<str>,
    push_bytes: u32,
}

impl Pipeline {
    /// Storage buffers it binds.
    pub fn buffers(&self) -> u32 {
        self.0.raw.layout.buffers
    }

    /// Size of its push-constant block, bytes.
    pub fn push_bytes(&self) -> u32 {
        self.0.push_bytes
    }

    pub(crate) fn raw(&self) -> &RawPipeline {
        &self.0.raw
    }

    /// A number that differs between pipelines that are alive.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn is_of(&self, gpu: &Gpu) -> bool {
        self.0.raw.is_of(gpu.device())
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buffers, push) = (self.buffers(), self.push_bytes());
        write!(f, "Pipeline(\"{}\", {buffers} buffers, {push} B pushed)", self.0.label)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hash: Box<str>,
    spec: Box<[(u32, u32)]>,
    subgroup_size: Option<u32>,
    shape: (u32, u32),
}

type Slot = Arc<Mutex<Option<Pipeline>>>;

/// The pipelines of a device.
pub(crate) struct Pipelines {
    device: Arc<Device>,
    built: Mutex<BTreeMap<Key, Slot>>,
    layouts: Mutex<BTreeMap<(u32, u32), Arc<PipelineLayout>>>,
    cache: Mutex<Option<Arc<OpenCache>>>,
    disk: DiskCache,
    /// Storage buffers that one pipeline may bind.
    bindings: u32,
}

struct OpenCache {
    raw: PipelineCache,
    /// What the file holds.
    on_disk: Mutex<blake3::Hash>,
}

impl Pipelines {
    /// An empty store; the disk is not touched before the first pipeline is built.
    pub(crate) fn new(
        device: &Arc<Device>,
        info: &DeviceInfo,
        bindings: u32,
        cache_dir: Option<&Path>,
    ) -> Pipelines {
        Pipelines {
            device: Arc::clone(device),
            built: Mutex::default(),
            layouts: Mutex::default(),
            cache: Mutex::default(),
            disk: DiskCache::new(info, cache_dir),
            bindings,
        }
    }

    /// The file of the disk cache, if there is a folder for it.
    pub(crate) fn cache_path(&self) -> Option<PathBuf> {
        self.disk.path()
    }

    fn slot(&self, request: &PipelineRequest) -> Slot {
        let key = Key {
            hash: request.hash.into(),
            spec: request.spec.into(),
            subgroup_size: request.subgroup_size,
            shape: (request.buffers, request.push_bytes),
        };
        Arc::clone(lock(&self.built).entry(key).or_default())
    }

    /// The pipeline, built now if it is new.
    pub(crate) fn get(&self, gpu: &Gpu, request: &PipelineRequest) -> Result<Pipeline> {
        let slot = self.slot(request);
        let mut slot = lock(&slot);
        if let Some(pipeline) = &*slot {
            return Ok(pipeline.clone());
        }
        let pipeline = self.build(gpu, request)?;
        *slot = Some(pipeline.clone());
        Ok(pipeline)
    }

    /// The pipelines, those that are new built by several threads.
    pub(crate) fn get_all(&self, gpu: &Gpu, requests: &[PipelineRequest]) -> Result<Vec<Pipeline>> {
        let mut missing = requests.iter().filter(|r| lock(&self.slot(r)).is_none());
        if missing.by_ref().take(2).count() == 2 {
            let next = AtomicUsize::new(0);
            let work = || {
                while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A failure is met again below, in the order of the requests.
                    let _built = self.get(gpu, request);
                }
            };
            let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
            std::thread::scope(|scope| {
                for _ in 1..threads.min(requests.len()) {
                    scope.spawn(work);
                }
                work();
            });
        }
        requests.iter().map(|request| self.get(gpu, request)).collect()
    }

    fn build(&self, gpu: &Gpu, request: &PipelineRequest) -> Result<Pipeline> {
        let limits = &gpu.capabilities().limits;
        let label = request.label;
        let check = |what, requested: u32, limit: u32| match requested > limit {
            true => {
                let (requested, limit) = (requested.into(), limit.into());
                Err(Error::OverLimit { label: label.into(), what, requested, limit })
            }
            false => Ok(()),
        };
        check("storage buffers", request.buffers, self.bindings)?;
        check("B of push constants", request.push_bytes, limits.push_bytes.min(PUSH_BYTES as u32))?;
        assert!(request.push_bytes.is_multiple_of(4), "{label}: push constants are words");
        if let Some(size) = request.subgroup_size {
            check("invocations in a subgroup", size, limits.subgroup_max)?;
            let able = gpu.capabilities().caps.covers(crate::Caps::SUBGROUP_SIZE_CONTROL);
            let inside = size >= limits.subgroup_min && size.is_power_of_two();
            assert!(able && inside, "{label}: the device cannot require a subgroup of {size}");
        }
        let module = module::parse(request.spirv);
        let module = module.map_err(|reason| Error::BadSpirv { label: label.into(), reason })?;
        let layout = self.layout(request.buffers, request.push_bytes)?;
        let cache = self.open_cache()?;
        let stage = Stage {
            words: &module.words,
            entry: &module.entry,
            spec: request.spec,
            subgroup_size: request.subgroup_size,
        };
        let raw = RawPipeline::create(&layout, &cache.raw, &stage, label);
        let raw = raw.map_err(|code| refused(label, code))?;
        let push_bytes = request.push_bytes;
        Ok(Pipeline(Arc::new(Inner { raw, label: label.into(), push_bytes })))
    }

    fn layout(&self, buffers: u32, push_bytes: u32) -> Result<Arc<PipelineLayout>> {
        let mut layouts = lock(&self.layouts);
        if let Some(layout) = layouts.get(&(buffers, push_bytes)) {
            return Ok(Arc::clone(layout));
        }
        let layout = Arc::new(PipelineLayout::create(&self.device, buffers, push_bytes)?);
        layouts.insert((buffers, push_bytes), Arc::clone(&layout));
        Ok(layout)
    }

    fn open_cache(&self) -> Result<Arc<OpenCache>> {
        let mut cache = lock(&self.cache);
        if let Some(open) = &*cache {
            return Ok(Arc::clone(open));
        }
        let data = self.disk.load();
        let raw = PipelineCache::create(&self.device, &data)?;
        let on_disk = Mutex::new(blake3::hash(&data));
        let open = Arc::new(OpenCache { raw, on_disk });
        *cache = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Writes the disk cache if the driver has something new for it. A folder that cannot be
    /// written costs only the time of building again.
    pub(crate) fn save(&self) {
        let Some(open) = lock(&self.cache).clone() else { return };
        let Ok(data) = open.raw.data() else { return };
        let mut on_disk = lock(&open.on_disk);
        let hash = blake3::hash(&data);
        if *on_disk != hash && self.disk.store(&data) {
            *on_disk = hash;
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        self.save();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while pipelines are held")
}

fn refused(label: &str, code: vk::Result) -> Error {
    Error::PipelineRefused { label: label.into(), code }
}
