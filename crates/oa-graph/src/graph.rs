//! The append-only graph: what was recorded and has not been executed yet.
//!
//! A node owns its inputs, so a chain lives exactly as long as somebody can still ask for its
//! value. Recording one op is O(1). Nodes of one graph are numbered in the order of recording;
//! executing them in that order respects every state update.

use crate::attrs::Attrs;
use crate::engine::{Engine, EngineInner};
use crate::error::{Error, Result, ShapeError};
use crate::exec::Kept;
use crate::extension::Extensions;
use crate::host::Spec;
use crate::ops::{OpCall, OpDef};
use crate::shape::Shape;
use crate::state::{State, StateCore};
use crate::value::Tensor;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;

/// Where an unexecuted value comes from.
pub(crate) enum NodeKind {
    /// Data from the host, uploaded when a segment that reads it is submitted.
    Host(Arc<[u8]>),
    /// A named input of a captured plan, bound at each replay.
    Input { name: Box<str> },
    /// The contents of a state at a version.
    State { state: Arc<StateCore>, version: u64 },
    /// An op applied to values.
    Op { def: &'static OpDef, attrs: Attrs, inputs: Box<[ValueRef]> },
}

/// One recorded node.
pub(crate) struct Node {
    pub(crate) graph: Arc<Graph>,
    pub(crate) seq: u64,
    pub(crate) kind: NodeKind,
    pub(crate) outputs: Box<[Spec]>,
    pub(crate) site: &'static Location<'static>,
    /// User handles per output: an output without one is an intermediate.
    pub(crate) handles: Box<[AtomicU32]>,
    /// Set when the node was recorded inside `capture`.
    pub(crate) captured: AtomicBool,
    /// Set when a segment with this node was submitted; a node that changes a state runs once.
    pub(crate) executed: AtomicBool,
    /// Device contents per output, once a segment has produced them.
    pub(crate) ready: Mutex<Box<[Option<Kept>]>>,
}

impl Node {
    /// The op's name, or what kind of leaf it is.
    pub(crate) fn name(&self) -> &'static str {
        match &self.kind {
            NodeKind::Host(_) => "host data",
            NodeKind::Input { .. } => "input",
            NodeKind::State { .. } => "state",
            NodeKind::Op { def, .. } => def.name,
        }
    }
}

/// One output of a node.
#[derive(Clone)]
pub(crate) struct ValueRef {
    pub(crate) node: Arc<Node>,
    pub(crate) output: u8,
}

impl ValueRef {
    /// The device contents, when a segment has produced and kept them.
    pub(crate) fn ready(&self) -> Option<Kept> {
        let ready = self.node.ready.lock().expect("no panic while ready is held");
        ready[self.output as usize].clone()
    }

    pub(crate) fn spec(&self) -> Spec {
        self.node.outputs[self.output as usize]
    }
}

impl Drop for Node {
    /// Unlinks long chains without recursion: dropping 10,000 chained ops must not need a deep stack.
    fn drop(&mut self) {
        let mut stack: Vec<ValueRef> = Vec::new();
        if let NodeKind::Op { inputs, .. } = &mut self.kind {
            stack.extend(std::mem::take(inputs));
        }
        while let Some(value) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(value.node)
                && let NodeKind::Op { inputs, .. } = &mut node.kind
            {
                stack.extend(std::mem::take(inputs));
            }
        }
    }
}

/// What was recorded since the last cut.
#[derive(Default)]
pub(crate) struct Recorded {
    /// Nodes that change a state, in order.
    pub(crate) effects: Vec<Arc<Node>>,
    /// Nodes whose value somebody may still read.
    pub(crate) values: Vec<Weak<Node>>,
}

/// The open segment, and beside it the one that a `capture` closure is recording.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) open: Recorded,
    /// Only the capturing thread records here; other threads go on with the open segment.
    pub(crate) capture: Option<(ThreadId, Recorded)>,
}

impl Pending {
    fn list(&mut self) -> &mut Recorded {
        match &mut self.capture {
            Some((thread, recorded)) if *thread == std::thread::current().id() => recorded,
            _ => &mut self.open,
        }
    }
}

/// An append-only graph, owned by an engine or, for the host reference, by nobody.
pub struct Graph {
    next: AtomicU64,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) engine: OnceLock<Weak<EngineInner>>,
    pub(crate) extensions: Extensions,
}

impl Graph {
    /// A graph without a device: values recorded in it can be evaluated by the host reference only.
    pub fn detached() -> Arc<Graph> {
        Arc::new(Graph {
            next: AtomicU64::new(0),
            pending: Mutex::new(Pending::default()),
            engine: OnceLock::new(),
            extensions: Extensions::default(),
        })
    }

    /// Records a value with the given bytes.
    #[track_caller]
    pub fn host(self: &Arc<Self>, spec: Spec, bytes: Arc<[u8]>) -> Result<Tensor> {
        let got = bytes.len() / spec.dtype.len_bytes();
        if spec.len_bytes() != bytes.len() as u64 {
            let (site, expected) = (Location::caller(), spec.shape.elems());
            return Err(Error::Length { site, spec, expected, got });
        }
        Ok(Tensor::of(self.push(NodeKind::Host(bytes), vec![spec].into(), Location::caller()), 0))
    }

    /// Records a value in which every element is `fill`; on an engine it is a cached constant.
    pub fn filled_f32(self: &Arc<Self>, shape: Shape, fill: f32) -> Result<Tensor> {
        let bytes = bytemuck::cast_slice(&vec![fill; shape.elems()]).to_vec();
        match self.engine() {
            Ok(engine) => engine.constant(Spec::f32(shape), &bytes),
            Err(_) => self.host(Spec::f32(shape), bytes.into()),
        }
    }

    /// The engine that executes this graph.
    pub(crate) fn engine(&self) -> Result<Engine> {
        self.engine.get().and_then(Weak::upgrade).map(Engine::from_inner).ok_or(Error::NoEngine)
    }

    /// Records a named input of the plan that is being captured.
    #[track_caller]
    pub(crate) fn input(self: &Arc<Self>, name: &str, spec: Spec) -> Tensor {
        let kind = NodeKind::Input { name: name.into() };
        Tensor::of(self.push(kind, vec![spec].into(), Location::caller()), 0)
    }

    /// Records a read of a state's current contents.
    #[track_caller]
    pub(crate) fn read_state(self: &Arc<Self>, state: &State) -> Tensor {
        let version = state.core.version.load(Ordering::Acquire);
        let kind = NodeKind::State { state: state.core.clone(), version };
        Tensor::of(self.push(kind, vec![state.spec()].into(), Location::caller()), 0)
    }

    /// Number of nodes recorded so far.
    pub fn recorded(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    fn push(
        self: &Arc<Self>,
        kind: NodeKind,
        outputs: Box<[Spec]>,
        site: &'static Location<'static>,
    ) -> Arc<Node> {
        let ready = outputs.iter().map(|_| None).collect();
        let handles = outputs.iter().map(|_| AtomicU32::new(0)).collect();
        Arc::new(Node {
            graph: self.clone(),
            seq: self.next.fetch_add(1, Ordering::Relaxed),
            kind,
            outputs,
            site,
            handles,
            captured: AtomicBool::new(false),
            executed: AtomicBool::new(false),
            ready: Mutex::new(ready),
        })
    }

    /// Records one op of the table; its shape rule runs here, so a mistake is reported at the
    /// caller's line. The methods of [`Tensor`] are the usual way in; this one is for those who walk
    /// the table.
    ///
    /// # Errors
    ///
    /// When the op does not take these inputs, when they belong to different graphs, or when one
    /// is the value of a state that has changed since.
    ///
    /// # Panics
    ///
    /// Without any input: an op has at least one.
    #[track_caller]
    pub fn record(def: &'static OpDef, attrs: Attrs, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let site = Location::caller();
        let graph = &inputs.first().expect("an op has at least one input").value.node.graph;
        if inputs.iter().any(|input| !Arc::ptr_eq(&input.value.node.graph, graph)) {
            return Err(Error::MixedEngines { op: def.name, site });
        }
        let specs: Vec<Spec> = inputs.iter().map(|input| input.spec()).collect();
        let refuse = |source| Error::Shape { op: def.name, site, source: Box::new(source) };
        let outputs =
            (def.infer)(&OpCall { inputs: &specs, outputs: &[], attrs: &attrs }).map_err(refuse)?;
        if specs.iter().chain(&outputs).any(|spec| spec.shape.elems() == 0) {
            return Err(refuse(ShapeError::new("values with at least one element", &specs)));
        }
        let is_state = |&i: &usize| matches!(inputs[i].value.node.kind, NodeKind::State { .. });
        if !def.mutates.iter().all(is_state) {
            let expected = "a state, read with engine.read, at each input that it changes";
            return Err(refuse(ShapeError::new(expected, &specs)));
        }
        for input in inputs {
            if let NodeKind::State { state, version } = &input.value.node.kind
                && state.version.load(Ordering::Acquire) != *version
            {
                return Err(Error::StaleState { op: def.name, site, state: state.name.clone() });
            }
        }
        let refs: Box<[ValueRef]> = inputs.iter().map(|input| input.value.clone()).collect();
        let count = outputs.len();
        let kind = NodeKind::Op { def, attrs, inputs: refs };
        let node = graph.push(kind, outputs.into(), site);
        graph.enlist(def, &node, inputs);
        Ok((0..count).map(|output| Tensor::of(node.clone(), output as u8)).collect())
    }

    fn enlist(&self, def: &'static OpDef, node: &Arc<Node>, inputs: &[&Tensor]) {
        let mut pending = self.pending.lock().expect("no panic while the pending list is held");
        if !node.outputs.is_empty() {
            pending.list().values.push(Arc::downgrade(node));
        }
        if def.mutates.is_empty() {
            return;
        }
        for &index in def.mutates {
            match &inputs[index].value.node.kind {
                NodeKind::State { state, .. } => state.version.fetch_add(1, Ordering::AcqRel),
                _ => unreachable!("record admits only states at input {index} of {}", def.name),
            };
        }
        pending.list().effects.push(node.clone());
    }
}
