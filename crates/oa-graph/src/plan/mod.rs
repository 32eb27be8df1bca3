//! `ExecutionPlan`: the immutable, inspectable form of everything that executes.

pub(crate) mod dump;
mod page;
pub(crate) mod place;
pub(crate) mod program;
pub mod report;

use crate::engine::{Engine, EngineInner, bump};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::exec::{Bindings, Instance, Kept, Memory};
use crate::host::Spec;
use crate::segment::Leaf;
use program::Program;
use report::ExecutionReport;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// An input of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputId(usize);

/// What a plan holds; events share it.
pub(crate) struct PlanInner {
    engine: Arc<EngineInner>,
    program: Program,
    /// Kept slot of each output.
    outputs: Vec<usize>,
    /// Values of earlier segments that the plan reads: their buffers must not be reused.
    _externals: Vec<Kept>,
    _kept: Vec<Kept>,
    replay: Mutex<Replay>,
}

struct Replay {
    memory: Memory,
    instance: Instance,
    submitted: u64,
    numbers: [u64; crate::exec::RING_SLOTS],
}

impl PlanInner {
    pub(crate) fn engine_timeout(&self) -> Duration {
        self.engine.options.timeout
    }

    /// Copies an output; false when its slot holds another replay by now.
    pub(crate) fn read(&self, slot: usize, number: u64, output: usize, target: &mut [u8]) -> bool {
        let replay = self.replay.lock().expect("no panic while a replay is held");
        if replay.numbers[slot] != number {
            return false;
        }
        replay.instance.output(slot, self.outputs[output]).read(target);
        true
    }
}

/// A compiled, recorded plan. It is immutable: a replay changes only the bytes of its inputs.
#[derive(Clone)]
pub struct ExecutionPlan {
    inner: Arc<PlanInner>,
}

impl ExecutionPlan {
    pub(crate) fn new(
        engine: &Engine,
        program: Program,
        constants: &[Arc<[u8]>],
        externals: Vec<Kept>,
        outputs: Vec<usize>,
    ) -> Result<ExecutionPlan> {
        let gpu = &engine.inner.gpu;
        let (memory, kept, instance) = engine.with_room(|| {
            let memory = Memory::new(gpu, &program, constants)?;
            let take = |spec: Spec| engine.pool().take(gpu, spec.len_bytes());
            let kept: Vec<Kept> = program.kept_specs().map(take).collect::<Result<_>>()?;
            let bindings = Bindings {
                externals: externals.iter().map(|kept| kept.slice.clone()).collect(),
                kept: kept.iter().map(|kept| kept.slice.clone()).collect(),
            };
            let instance = Instance::record(gpu, &program, &memory, bindings, true)?;
            Ok((memory, kept, instance))
        })?;
        let replay =
            Replay { memory, instance, submitted: 0, numbers: [0; crate::exec::RING_SLOTS] };
        let inner = PlanInner {
            engine: engine.inner.clone(),
            program,
            outputs,
            _externals: externals,
            _kept: kept,
            replay: Mutex::new(replay),
        };
        Ok(ExecutionPlan { inner: Arc::new(inner) })
    }

    /// The input with this name.
    pub fn input(&self, name: &str) -> Option<InputId> {
        let mut inputs = self.inner.program.inputs.iter();
        inputs.position(|input| &*input.name == name).map(InputId)
    }

    /// Names, shapes and element types of the inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Spec)> {
        self.inner.program.inputs.iter().map(|input| (&*input.name, input.spec))
    }

    /// Submits one replay with these inputs: every input of the plan, once. Waits only when three
    /// replays of the plan are in flight already; allocates nothing.
    ///
    /// # Errors
    ///
    /// When an input is missing or has another length, or the device fails.
    pub fn submit(&self, bindings: &[(InputId, &[u8])]) -> Result<Event> {
        let inner = &self.inner;
        self.check(bindings)?;
        let engine = Engine::from_inner(inner.engine.clone());
        engine.flush()?;
        let mut replay = self.replay();
        let timeout = inner.engine_timeout();
        let write = |ring: &dyn Fn(usize, &[u8])| {
            bindings.iter().for_each(|(InputId(input), bytes)| ring(*input, bytes));
        };
        let gpu = &inner.engine.gpu;
        let Replay { memory, instance, .. } = &mut *replay;
        let (event, slot) = instance.submit(gpu, &inner.program, memory, timeout, write)?;
        replay.submitted += 1;
        let number = replay.submitted;
        replay.numbers[slot] = number;
        drop(replay);
        self.count_changes();
        engine.count_submission();
        Ok(Event::replay(event, inner.clone(), slot, number))
    }

    fn replay(&self) -> MutexGuard<'_, Replay> {
        self.inner.replay.lock().expect("no panic while a replay is held")
    }

    fn check(&self, bindings: &[(InputId, &[u8])]) -> Result<()> {
        for (index, input) in self.inner.program.inputs.iter().enumerate() {
            let mut bound = bindings.iter().filter(|(InputId(id), _)| *id == index);
            let got = bound.next().map_or(0, |(_, bytes)| bytes.len() as u64);
            let expected = input.spec.len_bytes();
            if got != expected || bound.next().is_some() {
                return Err(Error::Binding { name: input.name.clone(), expected, got });
            }
        }
        Ok(())
    }

    /// Values read from a state before a replay changed it must not be used after.
    fn count_changes(&self) {
        let segment = &self.inner.program.segment;
        for node in &segment.nodes {
            for &index in node.def.mutates {
                if let crate::segment::Operand::Leaf(leaf) = node.inputs[index]
                    && let Leaf::State { alive, .. } = &segment.leaves[leaf as usize]
                    && let Some(state) = alive.upgrade()
                {
                    bump(&state);
                }
            }
        }
    }

    /// The report with the GPU time of each step: the median of `turns` replays of the inputs that
    /// were submitted last, each waited for. A replay does everything it always does, so states
    /// change: a training step trains on its last batch again.
    ///
    /// # Errors
    ///
    /// [`Error::NothingSubmitted`] before the first replay or with no turns; when the device has no
    /// timestamps or fails.
    pub fn profile(&self, turns: u32) -> Result<ExecutionReport> {
        let (inner, mut times) = (&self.inner, Vec::new());
        let gpu = &inner.engine.gpu;
        let recorded = {
            let replay = self.replay();
            if replay.submitted == 0 || turns == 0 {
                return Err(Error::NothingSubmitted);
            }
            let slot =
                (replay.memory.next_slot() + crate::exec::RING_SLOTS - 1) % crate::exec::RING_SLOTS;
            replay.instance.record_stamped(gpu, &inner.program, &replay.memory, slot)?
        };
        for _ in 0..turns {
            gpu.submit(&recorded)?.wait(inner.engine_timeout())?;
            times.push(recorded.timestamps_ns()?);
            self.count_changes();
        }
        Ok(self.report().timed(&times))
    }

    /// Fills the plan's transients and inputs with a byte, after everything submitted so far. A
    /// replay writes each of them before it reads it, so this changes no result: tests prove it so.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn poison(&self, byte: u8) -> Result<()> {
        self.replay().memory.poison(&self.inner.engine.gpu, byte)
    }

    /// The plan as text: stable for the same graph and capabilities.
    pub fn dump(&self) -> String {
        dump::dump(&self.inner.program)
    }

    /// Everything known about the plan.
    pub fn report(&self) -> ExecutionReport {
        report::report(&self.inner.engine, &self.inner.program)
    }

    /// Bytes of device memory that the plan itself holds: transients, inputs and constants.
    pub fn device_bytes(&self) -> u64 {
        self.replay().memory.device_bytes()
    }
}

impl std::fmt::Debug for ExecutionPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExecutionPlan({} steps)", self.inner.program.steps.len())
    }
}
