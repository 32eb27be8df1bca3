//! The compiled plan as plain data: what is dispatched, on which bytes, behind which barriers.
//!
//! Compiling is a pure function of the segment, the capabilities and the forced variants: the same
//! three give the same text, and no device is touched.

use super::place::{Place, Placement, Root, place, root};
use crate::error::{Error, Result};
use crate::host::Spec;
use crate::ops::{Lower, OpCall};
use crate::segment::{Leaf, Operand, Segment, SegmentNode};
use oa_kernels::{Selection, Variant};
use oa_vk::Capabilities;
use oa_vk::sync::{self, Access, Barrier, Stages};
use std::collections::BTreeMap;

/// A buffer that a plan is bound to when it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Resource {
    /// The plan's transients.
    Arena,
    /// Device copy of the inputs that change with each submission.
    Inputs,
    /// Host values that were fixed when the plan was captured.
    Constants,
    /// The state of the leaf with this index.
    State(u32),
    /// The n-th value that an earlier segment left on the device.
    External(u32),
    /// The n-th value that outlives the segment.
    Kept(u32),
}

/// A byte range of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) resource: Resource,
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
}

/// What one step does.
pub(crate) enum Work {
    /// A kernel.
    Dispatch {
        selection: Selection,
        groups: [u32; 3],
        push: Vec<u32>,
        spec: Vec<(u32, u32)>,
        windows: Vec<Window>,
    },
    /// A copy of bytes.
    Copy { from: Window, to: Window },
}

/// One step of a plan.
pub(crate) struct Step {
    /// The segment's node it comes from.
    pub(crate) node: u32,
    pub(crate) work: Work,
    /// The barrier that must precede it, if any.
    pub(crate) barrier: Option<Barrier>,
}

/// An input of a plan: where its bytes lie in the input region.
pub(crate) struct InputSlot {
    pub(crate) name: Box<str>,
    pub(crate) spec: Spec,
    pub(crate) offset: u64,
}

/// A compiled plan.
pub(crate) struct Program {
    pub(crate) segment: Segment,
    pub(crate) steps: Vec<Step>,
    pub(crate) placement: Placement,
    pub(crate) inputs: Vec<InputSlot>,
    pub(crate) inputs_bytes: u64,
    /// Offsets of the captured host leaves, in leaf order.
    pub(crate) constants: Vec<(u64, Spec)>,
    pub(crate) constants_bytes: u64,
}

impl Program {
    /// What the kept values hold, in slot order.
    pub(crate) fn kept_specs(&self) -> impl Iterator<Item = Spec> + '_ {
        self.segment.kept.iter().map(|&kept| operand_spec(&self.segment, kept))
    }
}

fn operand_spec(segment: &Segment, operand: Operand) -> Spec {
    match operand {
        Operand::Leaf(index) => segment.leaves[index as usize].spec(),
        Operand::Value { node, output } => segment.nodes[node as usize].outputs[output as usize],
    }
}

/// What compiling may ask besides the segment.
pub(crate) struct Target<'a> {
    pub(crate) capabilities: &'a Capabilities,
    /// Forced kernel variants by family.
    pub(crate) force: &'a BTreeMap<String, String>,
    /// True for a captured plan: unnamed host values are fixed, not uploaded at each replay.
    pub(crate) captured: bool,
}

struct Compiler<'a> {
    target: &'a Target<'a>,
    segment: &'a Segment,
    placement: &'a Placement,
    leaves: &'a [Window],
    steps: Vec<Step>,
}

/// Compiles a segment.
///
/// # Errors
///
/// When no kernel variant fits the device, or a value exceeds what the device can bind.
pub(crate) fn compile(segment: Segment, target: &Target) -> Result<Program> {
    let align = target.capabilities.limits.storage_align_bytes.max(256);
    let placement = place(&segment, align);
    let regions = Regions::of(&segment, target.captured, align);
    let mut compiler = Compiler {
        target,
        segment: &segment,
        placement: &placement,
        leaves: &regions.leaves,
        steps: Vec::new(),
    };
    for index in 0..segment.nodes.len() as u32 {
        compiler.node(index)?;
        compiler.copies(index);
    }
    compiler.copies(segment.nodes.len() as u32);
    let mut steps = compiler.steps;
    add_barriers(&segment, &mut steps, regions.inputs_bytes);
    let Regions { inputs, inputs_bytes, constants, constants_bytes, .. } = regions;
    Ok(Program { segment, steps, placement, inputs, inputs_bytes, constants, constants_bytes })
}

/// Where the leaves of a segment lie.
struct Regions {
    leaves: Vec<Window>,
    inputs: Vec<InputSlot>,
    inputs_bytes: u64,
    constants: Vec<(u64, Spec)>,
    constants_bytes: u64,
}

impl Regions {
    fn of(segment: &Segment, captured: bool, align: u64) -> Regions {
        let mut regions = Regions {
            leaves: Vec::new(),
            inputs: Vec::new(),
            inputs_bytes: 0,
            constants: Vec::new(),
            constants_bytes: 0,
        };
        let mut externals = 0;
        for (index, leaf) in segment.leaves.iter().enumerate() {
            let spec = leaf.spec();
            let (resource, offset) = match leaf {
                Leaf::Host { .. } if captured => {
                    let offset = regions.constants_bytes;
                    regions.constants.push((offset, spec));
                    regions.constants_bytes = (offset + spec.len_bytes()).next_multiple_of(align);
                    (Resource::Constants, offset)
                }
                Leaf::Host { .. } => (Resource::Inputs, regions.input("", spec, align)),
                Leaf::Input { name, .. } => (Resource::Inputs, regions.input(name, spec, align)),
                Leaf::External { .. } => {
                    externals += 1;
                    (Resource::External(externals - 1), 0)
                }
                Leaf::State { .. } => (Resource::State(index as u32), 0),
            };
            regions.leaves.push(Window { resource, offset, len_bytes: spec.len_bytes() });
        }
        regions
    }

    fn input(&mut self, name: &str, spec: Spec, align: u64) -> u64 {
        let offset = self.inputs_bytes;
        self.inputs.push(InputSlot { name: name.into(), spec, offset });
        self.inputs_bytes = (offset + spec.len_bytes()).next_multiple_of(align);
        offset
    }
}

impl Compiler<'_> {
    fn window(&self, operand: Operand) -> Window {
        let len_bytes = operand_spec(self.segment, operand).len_bytes();
        self.root_window(root(self.segment, operand), len_bytes)
    }

    fn root_window(&self, root: Root, len_bytes: u64) -> Window {
        let (resource, offset) = match root {
            Root::Leaf(index) => {
                let leaf = self.leaves[index as usize];
                (leaf.resource, leaf.offset)
            }
            Root::Value { .. } => match self.placement.places[&root] {
                Place::Arena { offset } => (Resource::Arena, offset),
                Place::Kept { slot } => (Resource::Kept(slot), 0),
                Place::State { leaf } => (Resource::State(leaf), 0),
            },
        };
        Window { resource, offset, len_bytes }
    }

    fn node(&mut self, index: u32) -> Result<()> {
        let node = &self.segment.nodes[index as usize];
        let work = match &node.def.lower {
            Lower::View => return Ok(()),
            Lower::Store if self.placement.sunk[index as usize] => return Ok(()),
            Lower::Store => {
                let (to, from) = (self.window(node.inputs[0]), self.window(node.inputs[1]));
                Work::Copy { from, to }
            }
            Lower::Kernel { family, launch } => {
                let inputs = node.inputs.iter();
                let specs: Vec<Spec> =
                    inputs.map(|&input| operand_spec(self.segment, input)).collect();
                let call = OpCall { inputs: &specs, outputs: &node.outputs, attrs: &node.attrs };
                let selection = self.select(family(&call))?;
                let launch = launch(&call, selection.variant);
                let limits = &self.target.capabilities.limits;
                let groups = oa_kernels::launch::grid(launch.groups, limits)?;
                let mut push = Vec::with_capacity(2 + launch.push.len());
                push.extend([launch.groups as u32, groups[0]]);
                push.extend(launch.push);
                let windows = self.windows(index, node)?;
                Work::Dispatch { selection, groups, push, spec: launch.spec, windows }
            }
        };
        self.steps.push(Step { node: index, work, barrier: None });
        Ok(())
    }

    fn windows(&self, index: u32, node: &SegmentNode) -> Result<Vec<Window>> {
        let inputs = node.inputs.iter().copied();
        let outputs = 0..node.outputs.len() as u8;
        let outputs = outputs.map(|output| Operand::Value { node: index, output });
        let windows: Vec<Window> =
            inputs.chain(outputs).map(|operand| self.window(operand)).collect();
        let limit_bytes = self.target.capabilities.limits.storage_range_bytes;
        match windows.iter().find(|window| window.len_bytes > limit_bytes) {
            Some(&Window { len_bytes, .. }) => {
                let (op, site) = (node.def.name, node.site);
                Err(Error::TooLarge { op, site, len_bytes, limit_bytes })
            }
            None => Ok(windows),
        }
    }

    fn select(&self, family: &'static str) -> Result<Selection> {
        let Some(name) = self.target.force.get(family) else {
            return Ok(oa_kernels::select(family, self.target.capabilities)?);
        };
        let refuse = |reason| Error::Forced { family, variant: name.as_str().into(), reason };
        let variant: &'static Variant = oa_kernels::select_named(name)
            .filter(|variant| variant.family == family)
            .ok_or_else(|| refuse(None))?;
        if let Some(reason) = oa_kernels::misfit(variant, self.target.capabilities) {
            return Err(refuse(Some(reason)));
        }
        Ok(Selection { variant, rejected: Vec::new() })
    }

    /// Copies of kept values whose source lives elsewhere, once `node` has run.
    fn copies(&mut self, node: u32) {
        for &(at, source, slot) in &self.placement.copies {
            if at == node {
                let kept = self.segment.kept[slot as usize];
                let len_bytes = operand_spec(self.segment, kept).len_bytes();
                let from = self.root_window(source, len_bytes);
                let to = Window { resource: Resource::Kept(slot), offset: 0, len_bytes };
                let node = node.min(self.segment.nodes.len().saturating_sub(1) as u32);
                self.steps.push(Step { node, work: Work::Copy { from, to }, barrier: None });
            }
        }
    }
}

/// Finds the barrier before each step. The inputs arrive by a copy that precedes the first step.
fn add_barriers(segment: &Segment, steps: &mut [Step], inputs_bytes: u64) {
    let mut accesses: Vec<Vec<Access>> = vec![Vec::new()];
    if inputs_bytes > 0 {
        let (resource, stage) = (INPUTS, Stages::TRANSFER);
        accesses[0].push(Access { resource, start: 0, end: inputs_bytes, write: true, stage });
    }
    accesses.extend(steps.iter().map(|step| step_accesses(segment, step)));
    let barriers = sync::plan(&accesses);
    for (step, barrier) in steps.iter_mut().zip(barriers.into_iter().skip(1)) {
        step.barrier = barrier;
    }
}

const INPUTS: u64 = 1;

fn step_accesses(segment: &Segment, step: &Step) -> Vec<Access> {
    let access = |window: &Window, write: bool, stage: Stages| {
        let (resource, start) = match window.resource {
            Resource::Arena => (0, 0),
            Resource::Inputs => (INPUTS, 0),
            Resource::Constants => (2, 0),
            Resource::External(index) => (1 << 33 | u64::from(index), 0),
            Resource::Kept(slot) => (1 << 34 | u64::from(slot), 0),
            Resource::State(leaf) => match &segment.leaves[leaf as usize] {
                Leaf::State { slice, .. } => (1 << 35 | slice.buffer_id(), slice.offset_bytes()),
                _ => unreachable!("a state window names a state leaf"),
            },
        };
        let start = start + window.offset;
        Access { resource, start, end: start + window.len_bytes, write, stage }
    };
    match &step.work {
        Work::Copy { from, to } => {
            vec![access(from, false, Stages::TRANSFER), access(to, true, Stages::TRANSFER)]
        }
        Work::Dispatch { windows, .. } => {
            let node = &segment.nodes[step.node as usize];
            let writes = |position: usize| {
                position >= node.inputs.len() || node.def.mutates.contains(&position)
            };
            let numbered = windows.iter().enumerate();
            numbered.map(|(at, window)| access(window, writes(at), Stages::COMPUTE)).collect()
        }
    }
}
