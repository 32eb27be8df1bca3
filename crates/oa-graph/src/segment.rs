//! Cutting the graph: from what was recorded to what one plan executes.
//!
//! A segment is the part of the graph that is still to be computed, renumbered from zero, so that
//! two turns of a loop give the same segment and hence the same plan. Pure: no device is touched.

use crate::attrs::Attrs;
use crate::error::{Error, Result};
use crate::exec::Kept;
use crate::graph::{Node, NodeKind, Recorded, ValueRef};
use crate::host::Spec;
use crate::ops::OpDef;
use crate::state::StateCore;
use oa_vk::Slice;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A value that enters a segment.
#[derive(Clone)]
pub(crate) enum Leaf {
    /// Host data: uploaded with each submission (eager) or once (captured).
    Host { spec: Spec },
    /// A named input, bound at each replay.
    Input { spec: Spec, name: Box<str> },
    /// A value that an earlier segment left on the device.
    External { spec: Spec },
    /// A window of a persistent buffer.
    State { spec: Spec, name: Box<str>, slice: Slice, alive: Weak<StateCore> },
}

impl Leaf {
    pub(crate) fn spec(&self) -> Spec {
        match self {
            Leaf::Host { spec }
            | Leaf::Input { spec, .. }
            | Leaf::External { spec }
            | Leaf::State { spec, .. } => *spec,
        }
    }
}

/// Where a node's input comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operand {
    Leaf(u32),
    Value { node: u32, output: u8 },
}

/// One op of a segment.
#[derive(Clone)]
pub(crate) struct SegmentNode {
    pub(crate) def: &'static OpDef,
    pub(crate) attrs: Attrs,
    pub(crate) inputs: Vec<Operand>,
    pub(crate) outputs: Vec<Spec>,
    pub(crate) site: &'static Location<'static>,
}

/// The pure part: all that planning may see.
#[derive(Clone, Default)]
pub(crate) struct Segment {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) nodes: Vec<SegmentNode>,
    /// Values that outlive the segment, in slot order.
    pub(crate) kept: Vec<Operand>,
}

/// A segment with the things it is bound to this time.
#[derive(Default)]
pub(crate) struct Cut {
    pub(crate) segment: Segment,
    /// Contents of the host leaves, in leaf order.
    pub(crate) host: Vec<Arc<[u8]>>,
    /// Contents of the external leaves, in leaf order.
    pub(crate) externals: Vec<Kept>,
    /// The graph values behind `segment.kept`.
    pub(crate) kept: Vec<ValueRef>,
    /// Nodes in segment order.
    pub(crate) nodes: Vec<Arc<Node>>,
}

/// Cuts what `recorded` and the extra `roots` need. `floor` is the first sequence number that no
/// earlier segment has executed.
///
/// # Errors
///
/// When a value would have to be computed again from a state that has changed since, or belongs to
/// a captured plan.
pub(crate) fn cut(recorded: &Recorded, roots: &[ValueRef], floor: u64) -> Result<Cut> {
    let mut kept: Vec<ValueRef> = Vec::new();
    for node in recorded.values.iter().filter_map(Weak::upgrade) {
        for (output, handles) in node.handles.iter().enumerate() {
            let value = ValueRef { node: node.clone(), output: output as u8 };
            if handles.load(Ordering::Acquire) > 0 && value.ready().is_none() {
                kept.push(value);
            }
        }
    }
    for root in roots {
        let same = |v: &ValueRef| Arc::ptr_eq(&v.node, &root.node) && v.output == root.output;
        if root.ready().is_none() && !kept.iter().any(same) {
            kept.push(root.clone());
        }
    }
    let starts = kept.iter().map(|value| &value.node).chain(&recorded.effects);
    let nodes = needed(starts)?;
    build(nodes, kept, floor)
}

/// Unfinished ancestors of the starting nodes, in the order of recording.
fn needed<'a>(starts: impl Iterator<Item = &'a Arc<Node>>) -> Result<BTreeMap<u64, Arc<Node>>> {
    let mut found = BTreeMap::new();
    let mut stack: Vec<Arc<Node>> = starts.cloned().collect();
    while let Some(node) = stack.pop() {
        let NodeKind::Op { def, inputs, .. } = &node.kind else { continue };
        if found.contains_key(&node.seq) {
            continue;
        }
        if node.captured.load(Ordering::Acquire) {
            return Err(Error::Captured { op: def.name, site: node.site });
        }
        if !def.mutates.is_empty() && node.executed.load(Ordering::Acquire) {
            return Err(Error::NotKept { op: def.name, site: node.site });
        }
        for input in inputs {
            if input.ready().is_none() {
                stack.push(input.node.clone());
            }
        }
        found.insert(node.seq, node);
    }
    Ok(found)
}

struct Builder {
    cut: Cut,
    places: BTreeMap<u64, u32>,
    leaves: BTreeMap<(u8, usize, u8), u32>,
    floor: u64,
}

fn build(nodes: BTreeMap<u64, Arc<Node>>, kept: Vec<ValueRef>, floor: u64) -> Result<Cut> {
    let mut builder =
        Builder { cut: Cut::default(), places: BTreeMap::new(), leaves: BTreeMap::new(), floor };
    for (seq, node) in nodes {
        let NodeKind::Op { def, attrs, inputs } = &node.kind else { continue };
        let operands: Result<Vec<Operand>> =
            inputs.iter().map(|input| builder.operand(input, &node)).collect();
        builder.places.insert(seq, builder.cut.nodes.len() as u32);
        builder.cut.segment.nodes.push(SegmentNode {
            def,
            attrs: *attrs,
            inputs: operands?,
            outputs: node.outputs.to_vec(),
            site: node.site,
        });
        builder.cut.nodes.push(node);
    }
    for value in kept {
        let operand = builder.operand(&value, &value.node.clone())?;
        builder.cut.segment.kept.push(operand);
        builder.cut.kept.push(value);
    }
    Ok(builder.cut)
}

impl Builder {
    fn operand(&mut self, input: &ValueRef, reader: &Node) -> Result<Operand> {
        if let Some(&node) = self.places.get(&input.node.seq) {
            return Ok(Operand::Value { node, output: input.output });
        }
        let node = Arc::as_ptr(&input.node) as usize;
        if let Some(kept) = input.ready() {
            return Ok(self.leaf((0, node, input.output), |cut| {
                cut.externals.push(kept);
                Leaf::External { spec: input.spec() }
            }));
        }
        match &input.node.kind {
            NodeKind::Host(bytes) => Ok(self.leaf((1, node, 0), |cut| {
                cut.host.push(bytes.clone());
                Leaf::Host { spec: input.spec() }
            })),
            NodeKind::Input { name } => {
                Ok(self
                    .leaf((2, node, 0), |_| Leaf::Input { spec: input.spec(), name: name.clone() }))
            }
            NodeKind::State { state, version } => {
                let stale =
                    reader.seq < self.floor && state.executed.load(Ordering::Acquire) != *version;
                if stale {
                    let (op, site, state) = (reader.name(), reader.site, state.name.clone());
                    return Err(Error::StaleState { op, site, state });
                }
                Ok(self.leaf((3, Arc::as_ptr(state) as usize, 0), |_| Leaf::State {
                    spec: state.spec,
                    name: state.name.clone(),
                    slice: state.slice.clone(),
                    alive: Arc::downgrade(state),
                }))
            }
            NodeKind::Op { def, .. } => {
                unreachable!("every unfinished input of {} is in the segment", def.name)
            }
        }
    }

    fn leaf(&mut self, key: (u8, usize, u8), make: impl FnOnce(&mut Cut) -> Leaf) -> Operand {
        if let Some(&index) = self.leaves.get(&key) {
            return Operand::Leaf(index);
        }
        let leaf = make(&mut self.cut);
        let index = self.cut.segment.leaves.len() as u32;
        self.cut.segment.leaves.push(leaf);
        self.leaves.insert(key, index);
        Operand::Leaf(index)
    }
}

impl Segment {
    /// A hash of everything that decides the plan. User lines are left out: they do not change it.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let mut word = |value: u64| {
            hasher.update(&value.to_le_bytes());
        };
        for leaf in &self.leaves {
            match leaf {
                Leaf::Host { spec } => spec_words(1, spec, &mut word),
                Leaf::Input { spec, name } => {
                    spec_words(2, spec, &mut word);
                    name.bytes().for_each(|byte| word(byte.into()));
                }
                Leaf::External { spec } => spec_words(3, spec, &mut word),
                Leaf::State { spec, slice, .. } => {
                    spec_words(4, spec, &mut word);
                    word(slice.buffer_id());
                    word(slice.offset_bytes());
                }
            }
        }
        for node in &self.nodes {
            word(5);
            node.def.name.bytes().for_each(|byte| word(byte.into()));
            node.attrs.words().iter().for_each(|&attr| word(attr.into()));
            node.inputs.iter().for_each(|&input| operand_words(input, &mut word));
            node.outputs.iter().for_each(|spec| spec_words(6, spec, &mut word));
        }
        word(7);
        self.kept.iter().for_each(|&kept| operand_words(kept, &mut word));
        *hasher.finalize().as_bytes()
    }
}

fn spec_words(kind: u64, spec: &Spec, word: &mut impl FnMut(u64)) {
    word(kind | (spec.dtype as u64) << 8 | (spec.shape.rank() as u64) << 16);
    spec.shape.dims().iter().for_each(|&dim| word(dim as u64));
}

fn operand_words(operand: Operand, word: &mut impl FnMut(u64)) {
    match operand {
        Operand::Leaf(index) => word(u64::from(index) << 8),
        Operand::Value { node, output } => {
            word(1 | u64::from(output) << 1 | u64::from(node) << 16);
        }
    }
}
