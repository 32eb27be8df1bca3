//! The engine: owner of the device, the open graph and the plan cache.
//!
//! There is one road to the GPU: values are recorded, a segment is cut, its plan is compiled once
//! and found again by its fingerprint, and a submission replays it.

use crate::error::{Error, Result};
use crate::event::Event;
use crate::exec::{Bindings, Instance, Kept, Memory, Pool};
use crate::graph::{Graph, NodeKind, Recorded, ValueRef};
use crate::host::Spec;
use crate::plan::ExecutionPlan;
use crate::plan::program::{Program, Target, compile};
use crate::segment::{Cut, Leaf, cut};
use crate::shape::Shape;
use crate::state::{Arena, State, StateCore};
use crate::value::Tensor;
use oa_kernels::DType;
use oa_vk::{Capabilities, DeviceInfo, DeviceRequest, Gpu, MemoryClass, Slice};
use std::collections::{BTreeMap, HashMap};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Plans kept for segments seen before; the oldest is dropped first.
const PLAN_CACHE: usize = 64;
/// Device memory that cached plans may hold for their transients, bytes: a loop needs its own plans
/// only, and a program of many large shapes must not keep them all.
const PLAN_CACHE_BYTES: u64 = 1 << 30;
/// Recorded bindings kept per plan.
const INSTANCE_CACHE: usize = 4;

/// How an engine is opened.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Which device, with which layers.
    pub device: DeviceRequest,
    /// Kernel variants to use instead of the selected ones: family name to variant name.
    pub force: BTreeMap<String, String>,
    /// How long a wait may take before it becomes an error.
    pub timeout: Duration,
}

impl Default for EngineOptions {
    /// The device that the environment names (`OA_DEVICE`, `OA_VALIDATION`), else the best one.
    fn default() -> EngineOptions {
        EngineOptions {
            device: DeviceRequest::from_env(),
            force: BTreeMap::new(),
            timeout: Duration::from_secs(60),
        }
    }
}

/// An eager plan: compiled once, recorded for a few bindings.
struct CachedPlan {
    program: Program,
    memory: Memory,
    instances: Vec<Instance>,
    used: u64,
}

impl CachedPlan {
    /// False when a state that the plan is bound to is gone: nobody can ask for the plan again.
    fn reachable(&self) -> bool {
        self.program.segment.leaves.iter().all(|leaf| match leaf {
            Leaf::State { alive, .. } => alive.strong_count() > 0,
            _ => true,
        })
    }
}

/// What executing needs, behind one lock. Lock order: executor, then pending list, then device.
#[derive(Default)]
struct Executor {
    plans: HashMap<[u8; 32], CachedPlan>,
    clock: u64,
    /// First node number that no segment has executed.
    floor: u64,
}

/// Constants by contents.
type Constants = HashMap<(Spec, Box<[u8]>), State>;

impl Executor {
    /// Drops plans that nobody can ask for, then the oldest ones until `len_bytes` more fit.
    fn make_room(&mut self, len_bytes: u64) {
        self.plans.retain(|_, plan| plan.reachable());
        loop {
            let held: u64 = self.plans.values().map(|plan| plan.memory.device_bytes()).sum();
            if self.plans.len() < PLAN_CACHE && held + len_bytes <= PLAN_CACHE_BYTES {
                return;
            }
            let oldest = self.plans.iter().min_by_key(|(_, plan)| plan.used).map(|(key, _)| *key);
            match oldest {
                Some(key) => self.plans.remove(&key),
                None => return,
            };
        }
    }
}

/// What an engine holds.
pub(crate) struct EngineInner {
    pub(crate) gpu: Gpu,
    pub(crate) graph: Arc<Graph>,
    pub(crate) options: EngineOptions,
    executor: Mutex<Executor>,
    constants: Mutex<Constants>,
    pool: Arc<Pool>,
    plans_compiled: AtomicU64,
    submissions: AtomicU64,
}

/// Owner of one Vulkan device and of the graph recorded for it. Clones share it; several engines
/// coexist, also on one device.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<EngineInner>,
}

impl Engine {
    /// Opens the device that `OA_DEVICE` names, or the best one there is.
    ///
    /// # Errors
    ///
    /// When there is no Vulkan loader or no fitting device; the error lists each refusal reason.
    pub fn new() -> Result<Engine> {
        Engine::open(EngineOptions::default())
    }

    /// Opens a device as the options say.
    ///
    /// # Errors
    ///
    /// As [`Engine::new`].
    pub fn open(options: EngineOptions) -> Result<Engine> {
        let gpu = Gpu::open(&options.device)?;
        let graph = Graph::detached();
        let inner = Arc::new(EngineInner {
            gpu,
            graph: graph.clone(),
            options,
            executor: Mutex::default(),
            constants: Mutex::default(),
            pool: Arc::default(),
            plans_compiled: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
        });
        graph.engine.set(Arc::downgrade(&inner)).expect("a new graph has no engine yet");
        Ok(Engine { inner })
    }

    pub(crate) fn from_inner(inner: Arc<EngineInner>) -> Engine {
        Engine { inner }
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.inner.gpu.capabilities()
    }

    /// Which device it is.
    pub fn device(&self) -> &DeviceInfo {
        self.inner.gpu.info()
    }

    /// The device runtime, for memory reports and validation messages.
    pub fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }

    /// The graph that values of this engine are recorded in.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.inner.graph
    }

    /// Plans compiled so far; flat once a loop has warmed up.
    pub fn plans_compiled(&self) -> u64 {
        self.inner.plans_compiled.load(Ordering::Relaxed)
    }

    /// Submissions made so far.
    pub fn submissions(&self) -> u64 {
        self.inner.submissions.load(Ordering::Relaxed)
    }

    pub(crate) fn count_submission(&self) {
        self.inner.submissions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.inner.options.timeout
    }

    /// A value of f32 elements from the host, row-major.
    ///
    /// # Errors
    ///
    /// When `data` does not have as many elements as the shape.
    #[track_caller]
    pub fn tensor_f32(&self, shape: impl Into<Shape>, data: &[f32]) -> Result<Tensor> {
        self.inner.graph.host(Spec::f32(shape), bytemuck::cast_slice(data).into())
    }

    /// A value of u32 elements from the host.
    ///
    /// # Errors
    ///
    /// As [`Engine::tensor_f32`].
    #[track_caller]
    pub fn tensor_u32(&self, shape: impl Into<Shape>, data: &[u32]) -> Result<Tensor> {
        self.inner.graph.host(Spec::u32(shape), bytemuck::cast_slice(data).into())
    }

    /// A value of i32 elements from the host.
    ///
    /// # Errors
    ///
    /// As [`Engine::tensor_f32`].
    #[track_caller]
    pub fn tensor_i32(&self, shape: impl Into<Shape>, data: &[i32]) -> Result<Tensor> {
        self.inner.graph.host(Spec::i32(shape), bytemuck::cast_slice(data).into())
    }

    /// A device-resident value of zeros.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn zeros(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.inner.graph.filled_f32(shape.into(), 0.0)
    }

    /// A device-resident constant of u32 elements with shape `[data.len()]`; equal contents share
    /// one buffer.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn constant_u32(&self, data: &[u32]) -> Result<Tensor> {
        self.constant(Spec::u32([data.len()]), bytemuck::cast_slice(data))
    }

    /// A device-resident constant of f32 elements; equal contents share one buffer.
    ///
    /// # Errors
    ///
    /// When device memory is short or `data` does not fit the shape.
    #[track_caller]
    pub fn constant_f32(&self, shape: impl Into<Shape>, data: &[f32]) -> Result<Tensor> {
        let spec = Spec::f32(shape);
        let (expected, got) = (spec.shape.elems(), data.len());
        if expected != got {
            return Err(Error::Length { site: Location::caller(), spec, expected, got });
        }
        self.constant(spec, bytemuck::cast_slice(data))
    }

    pub(crate) fn constant(&self, spec: Spec, bytes: &[u8]) -> Result<Tensor> {
        let mut constants = self.inner.constants.lock().expect("no panic while constants are held");
        let key = (spec, Box::from(bytes));
        if let Some(state) = constants.get(&key) {
            return Ok(self.read(state));
        }
        let state = self.state("constant", spec)?;
        self.inner.gpu.upload(&state.core.slice, bytes)?;
        constants.insert(key, state.clone());
        Ok(self.read(&state))
    }

    /// A new zeroed state with a buffer of its own.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn state(&self, name: &str, spec: Spec) -> Result<State> {
        let len_bytes = spec.len_bytes().max(4);
        let buffer =
            self.with_room(|| Ok(self.inner.gpu.buffer(MemoryClass::Device, len_bytes, name)?))?;
        Ok(State::new(name, spec, buffer.slice(0, spec.len_bytes())))
    }

    /// A new zeroed arena of `elems` f32 elements.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn arena(&self, name: &str, elems: usize) -> Result<Arena> {
        Ok(Arena::new(self.state(name, Spec::f32([elems]))?))
    }

    /// The current contents of a state as a lazy value.
    #[track_caller]
    pub fn read(&self, state: &State) -> Tensor {
        self.inner.graph.read_state(state)
    }

    /// Records that `state` takes over `value`.
    ///
    /// # Errors
    ///
    /// When shapes or element types differ.
    #[track_caller]
    pub fn store(&self, state: &State, value: &Tensor) -> Result<()> {
        let target = self.read(state);
        Tensor::record(&crate::ops::update::STORE, crate::Attrs::NONE, &[&target, value])?;
        Ok(())
    }

    /// Overwrites a state with host bytes, after everything recorded so far.
    ///
    /// # Errors
    ///
    /// When the length differs or the device fails.
    #[track_caller]
    pub fn write_state(&self, state: &State, bytes: &[u8]) -> Result<()> {
        check_len(state, bytes.len(), Location::caller())?;
        self.flush()?;
        self.inner.gpu.upload(&state.core.slice, bytes)?;
        bump(&state.core);
        Ok(())
    }

    /// Reads a state's contents, after everything recorded so far.
    ///
    /// # Errors
    ///
    /// When the length differs or the device fails.
    #[track_caller]
    pub fn read_state(&self, state: &State, bytes: &mut [u8]) -> Result<()> {
        check_len(state, bytes.len(), Location::caller())?;
        self.flush()?;
        Ok(self.inner.gpu.download(&state.core.slice, bytes, self.timeout())?)
    }

    /// Cuts what was recorded into a segment and submits its plan.
    ///
    /// # Errors
    ///
    /// When the plan cannot be compiled or the device fails.
    pub fn submit(&self) -> Result<Event> {
        let mut executor = self.executor();
        let event = self.execute(&mut executor, &[])?;
        Ok(Event::eager(event))
    }

    /// Records the values of `body` as an [`ExecutionPlan`] instead of executing them. The values
    /// that `body` returns become the plan's outputs, [`Engine::input`]s become its inputs, and
    /// other host data is fixed. Other threads may go on recording meanwhile.
    ///
    /// # Errors
    ///
    /// What `body` returns, and what compiling finds.
    #[track_caller]
    pub fn capture<E: From<Error>>(
        &self,
        body: impl FnOnce() -> std::result::Result<Vec<Tensor>, E>,
    ) -> std::result::Result<ExecutionPlan, E> {
        self.flush()?;
        self.begin_capture(Location::caller())?;
        let outputs = body();
        let recorded = self.end_capture();
        let outputs = outputs?;
        Ok(self.plan(&recorded, &outputs)?)
    }

    /// A named input of the plan being captured.
    #[track_caller]
    pub fn input(&self, name: &str, spec: Spec) -> Tensor {
        self.inner.graph.input(name, spec)
    }

    /// Submits what is pending, if anything is.
    pub(crate) fn flush(&self) -> Result<()> {
        let empty = {
            let pending = self.inner.graph.pending.lock().expect("no panic while pending is held");
            pending.open.effects.is_empty() && pending.open.values.is_empty()
        };
        if !empty {
            self.execute(&mut self.executor(), &[])?;
        }
        Ok(())
    }

    fn executor(&self) -> MutexGuard<'_, Executor> {
        self.inner.executor.lock().expect("no panic while the executor is held")
    }

    fn begin_capture(&self, site: &'static Location<'static>) -> Result<()> {
        let mut pending = self.inner.graph.pending.lock().expect("no panic while pending is held");
        if pending.capture.is_some() {
            return Err(Error::NestedCapture { site });
        }
        pending.capture = Some((std::thread::current().id(), Recorded::default()));
        Ok(())
    }

    fn end_capture(&self) -> Recorded {
        let mut pending = self.inner.graph.pending.lock().expect("no panic while pending is held");
        let (_, recorded) = pending.capture.take().expect("a capture is open");
        recorded
    }

    fn plan(&self, recorded: &Recorded, outputs: &[Tensor]) -> Result<ExecutionPlan> {
        let roots: Vec<ValueRef> = outputs.iter().map(|output| output.value.clone()).collect();
        let effects = Recorded { effects: recorded.effects.clone(), values: Vec::new() };
        let floor = self.executor().floor;
        let cut = cut(&effects, &roots, floor)?;
        for node in recorded.values.iter().filter_map(Weak::upgrade).chain(recorded.effects.clone())
        {
            node.captured.store(true, Ordering::Release);
            settle(&node.kind);
        }
        let order: Result<Vec<usize>> = roots.iter().map(|root| kept_index(&cut, root)).collect();
        let program = self.compile(cut.segment, true)?;
        ExecutionPlan::new(self, program, &cut.host, cut.externals, order?)
    }

    fn compile(&self, segment: crate::segment::Segment, captured: bool) -> Result<Program> {
        self.inner.plans_compiled.fetch_add(1, Ordering::Relaxed);
        let (capabilities, force) = (self.capabilities(), &self.inner.options.force);
        compile(segment, &Target { capabilities, force, captured })
    }

    /// Cuts, compiles or finds, binds and submits; returns the event of the submission, if there
    /// was anything to do.
    fn execute(&self, executor: &mut Executor, roots: &[ValueRef]) -> Result<Option<oa_vk::Event>> {
        let recorded = {
            let mut pending =
                self.inner.graph.pending.lock().expect("no panic while pending is held");
            std::mem::take(&mut pending.open)
        };
        let cut = cut(&recorded, roots, executor.floor)?;
        executor.floor = self.inner.graph.recorded();
        if cut.segment.nodes.is_empty() {
            return Ok(None);
        }
        let attempt = |executor: &mut Executor| -> Result<(oa_vk::Event, Vec<Kept>)> {
            let take =
                |value: &ValueRef| self.inner.pool.take(&self.inner.gpu, value.spec().len_bytes());
            let kept: Vec<Kept> = cut.kept.iter().map(take).collect::<Result<_>>()?;
            Ok((self.run(executor, &cut, &kept)?, kept))
        };
        let (event, kept) = match attempt(executor) {
            Err(error) if error.is_out_of_memory() => {
                self.free_caches(executor)?;
                attempt(executor)?
            }
            done => done?,
        };
        for node in &cut.nodes {
            node.executed.store(true, Ordering::Release);
        }
        for node in &recorded.effects {
            settle(&node.kind);
        }
        for (value, kept) in cut.kept.iter().zip(kept) {
            let mut ready = value.node.ready.lock().expect("no panic while ready is held");
            ready[value.output as usize] = Some(kept);
        }
        Ok(Some(event))
    }

    /// Frees what only saves time: cached plans with their transients, and idle buffers.
    fn free_caches(&self, executor: &mut Executor) -> Result<()> {
        executor.plans.clear();
        self.inner.pool.clear();
        Ok(self.inner.gpu.wait_idle(self.timeout())?)
    }

    /// Allocates; when memory is short, frees the caches and tries once more.
    pub(crate) fn with_room<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        match allocate() {
            Err(error) if error.is_out_of_memory() => {
                self.free_caches(&mut self.executor())?;
                allocate()
            }
            done => done,
        }
    }

    fn run(&self, executor: &mut Executor, cut: &Cut, kept: &[Kept]) -> Result<oa_vk::Event> {
        let key = cut.segment.fingerprint();
        executor.clock += 1;
        let clock = executor.clock;
        if !executor.plans.contains_key(&key) {
            let program = self.compile(cut.segment.clone(), false)?;
            executor.make_room(program.placement.arena_bytes + program.inputs_bytes);
            let memory = Memory::new(&self.inner.gpu, &program, &[])?;
            let plan = CachedPlan { program, memory, instances: Vec::new(), used: clock };
            executor.plans.insert(key, plan);
        }
        let plan = executor.plans.get_mut(&key).expect("the plan was just found or inserted");
        plan.used = clock;
        let bindings = Bindings {
            externals: cut.externals.iter().map(|kept| kept.slice.clone()).collect(),
            kept: kept.iter().map(|kept| kept.slice.clone()).collect(),
        };
        let found = plan.instances.iter().position(|instance| instance.bindings == bindings);
        let index = match found {
            Some(index) => index,
            None => {
                if plan.instances.len() >= INSTANCE_CACHE {
                    plan.instances.remove(0);
                }
                let gpu = &self.inner.gpu;
                let (program, memory) = (&plan.program, &plan.memory);
                plan.instances.push(Instance::record(gpu, program, memory, bindings, false)?);
                plan.instances.len() - 1
            }
        };
        self.count_submission();
        let CachedPlan { program, memory, instances, .. } = plan;
        let write = |ring: &dyn Fn(usize, &[u8])| {
            cut.host.iter().enumerate().for_each(|(input, bytes)| ring(input, bytes));
        };
        let gpu = &self.inner.gpu;
        let submitted = instances[index].submit(gpu, program, memory, self.timeout(), write)?;
        Ok(submitted.0)
    }

    /// The bytes of a value: executes what it needs, then waits for it.
    pub(crate) fn fetch(&self, value: &ValueRef) -> Result<Vec<u8>> {
        let mut bytes = vec![0; value.spec().len_bytes() as usize];
        let slice = match &value.node.kind {
            NodeKind::Host(host) => {
                bytes.copy_from_slice(host);
                return Ok(bytes);
            }
            NodeKind::Input { .. } => {
                return Err(Error::Captured { op: "input", site: value.node.site });
            }
            NodeKind::State { state, version } => {
                self.flush()?;
                if state.version.load(Ordering::Acquire) != *version {
                    let (site, state) = (value.node.site, state.name.clone());
                    return Err(Error::StaleState { op: "read", site, state });
                }
                state.slice.clone()
            }
            NodeKind::Op { .. } => self.finish(value)?,
        };
        self.inner.gpu.download(&slice, &mut bytes, self.timeout())?;
        Ok(bytes)
    }

    fn finish(&self, value: &ValueRef) -> Result<Slice> {
        if value.ready().is_none() {
            self.execute(&mut self.executor(), std::slice::from_ref(value))?;
        }
        Ok(value.ready().expect("an executed root is kept").slice)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.device().name)
    }
}

/// Marks the changes of a node as done: it was executed, or its plan counts each replay's changes.
fn settle(kind: &NodeKind) {
    let NodeKind::Op { def, inputs, .. } = kind else { return };
    for &index in def.mutates {
        if let NodeKind::State { state, .. } = &inputs[index].node.kind {
            let version = state.version.load(Ordering::Acquire);
            state.executed.store(version, Ordering::Release);
        }
    }
}

/// Counts a change that was made outside the graph.
pub(crate) fn bump(state: &StateCore) {
    let version = state.version.fetch_add(1, Ordering::AcqRel) + 1;
    state.executed.store(version, Ordering::Release);
}

fn check_len(state: &State, got: usize, site: &'static Location<'static>) -> Result<()> {
    let spec = state.spec();
    let size = spec.dtype.len_bytes();
    if spec.len_bytes() == got as u64 {
        return Ok(());
    }
    Err(Error::Length { site, spec, expected: spec.shape.elems(), got: got / size })
}

fn kept_index(cut: &Cut, root: &ValueRef) -> Result<usize> {
    let same = |v: &ValueRef| Arc::ptr_eq(&v.node, &root.node) && v.output == root.output;
    cut.kept
        .iter()
        .position(same)
        .ok_or(Error::Captured { op: root.node.name(), site: root.node.site })
}

impl Tensor {
    /// The elements as f32; executes what they need and waits.
    ///
    /// # Errors
    ///
    /// When the value holds another element type, or the device fails.
    #[track_caller]
    pub fn to_vec_f32(&self) -> Result<Vec<f32>> {
        self.elements(DType::F32, Location::caller())
    }

    /// The elements as u32; executes what they need and waits.
    ///
    /// # Errors
    ///
    /// As [`Tensor::to_vec_f32`].
    #[track_caller]
    pub fn to_vec_u32(&self) -> Result<Vec<u32>> {
        self.elements(DType::U32, Location::caller())
    }

    /// The elements as i32; executes what they need and waits.
    ///
    /// # Errors
    ///
    /// As [`Tensor::to_vec_f32`].
    #[track_caller]
    pub fn to_vec_i32(&self) -> Result<Vec<i32>> {
        self.elements(DType::I32, Location::caller())
    }

    /// The only element of an f32 value.
    ///
    /// # Errors
    ///
    /// When there is more than one, or as [`Tensor::to_vec_f32`].
    #[track_caller]
    pub fn item(&self) -> Result<f32> {
        let (site, spec) = (Location::caller(), self.spec());
        if spec.shape.elems() != 1 {
            return Err(Error::Length { site, spec, expected: 1, got: spec.shape.elems() });
        }
        Ok(self.to_vec_f32()?[0])
    }

    /// The engine it belongs to.
    ///
    /// # Errors
    ///
    /// When the graph has no device.
    pub fn engine(&self) -> Result<Engine> {
        self.graph().engine()
    }

    fn elements<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        wanted: DType,
        site: &'static Location<'static>,
    ) -> Result<Vec<T>> {
        let actual = self.dtype();
        if actual != wanted {
            return Err(Error::DType { site, actual, wanted });
        }
        let bytes = self.engine()?.fetch(&self.value)?;
        let words = bytes.chunks_exact(wanted.len_bytes());
        Ok(words.map(bytemuck::pod_read_unaligned).collect())
    }
}
