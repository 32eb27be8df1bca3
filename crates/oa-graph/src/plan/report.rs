//! `ExecutionReport`: what a plan does and why, as data.
//!
//! Every field is computed from the plan or read from the device; nothing is a constant.

use super::dump;
use super::program::{Program, Work};
use crate::engine::EngineInner;
use serde::Serialize;

/// Version of the report's JSON form.
pub const REPORT_VERSION: u32 = 1;

/// A plan, its device and the reasons behind its choices.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Device name.
    pub device: String,
    /// Driver name and version text.
    pub driver: String,
    /// Hash of `kernels.lock`: which kernels were built in.
    pub kernels_lock: String,
    /// Bytes of the arena of transients.
    pub arena_bytes: u64,
    /// Largest sum of live bytes at one step: no arena can be smaller.
    pub lower_bound_bytes: u64,
    /// Bytes of the inputs that change with each submission.
    pub inputs_bytes: u64,
    /// Steps in order.
    pub steps: Vec<StepReport>,
    /// Transient values.
    pub values: Vec<ValueReport>,
    /// Where values that are no transients live.
    pub places: Vec<String>,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The op, or `copy`.
    pub op: &'static str,
    /// The user's line that recorded it.
    pub site: String,
    /// Kernel variant; empty for a copy.
    pub variant: &'static str,
    /// Hash of its SPIR-V; empty for a copy.
    pub spirv: &'static str,
    /// Variants that were refused, with the reason.
    pub refused: Vec<String>,
    /// Workgroups in x, y and z.
    pub groups: [u32; 3],
    /// Bytes read and written, as bound.
    pub bound_bytes: u64,
    /// The barrier before the step and its reason, if there is one.
    pub barrier: Option<String>,
}

/// One transient value.
#[derive(Clone, Debug, Serialize)]
pub struct ValueReport {
    /// First step at which it exists.
    pub birth: u32,
    /// First step at which it is gone.
    pub death: u32,
    /// Bytes.
    pub len_bytes: u64,
    /// Offset in the arena, bytes.
    pub offset_bytes: u64,
}

impl ExecutionReport {
    /// Number of kernel dispatches.
    pub fn dispatches(&self) -> usize {
        self.steps.iter().filter(|step| !step.variant.is_empty()).count()
    }

    /// Number of barriers.
    pub fn barriers(&self) -> usize {
        self.steps.iter().filter(|step| step.barrier.is_some()).count()
    }
}

pub(crate) fn report(engine: &EngineInner, program: &Program) -> ExecutionReport {
    let info = engine.gpu.info();
    let placement = &program.placement;
    let values = placement.transients.iter().map(|(_, life, offset)| ValueReport {
        birth: life.birth,
        death: life.death,
        len_bytes: life.len_bytes,
        offset_bytes: *offset,
    });
    ExecutionReport {
        version: REPORT_VERSION,
        device: info.name.clone(),
        driver: format!("{} {}", info.driver_name, info.driver_info),
        kernels_lock: oa_kernels::LOCK_HASH.into(),
        arena_bytes: placement.arena_bytes,
        lower_bound_bytes: placement.lower_bound_bytes,
        inputs_bytes: program.inputs_bytes,
        steps: program.steps.iter().map(|step| step_report(program, step)).collect(),
        values: values.collect(),
        places: placement.places.iter().map(|(root, place)| dump::place(root, place)).collect(),
    }
}

fn step_report(program: &Program, step: &super::program::Step) -> StepReport {
    let node = &program.segment.nodes[step.node as usize];
    let site = format!("{}:{}", node.site.file(), node.site.line());
    let barrier = step
        .barrier
        .as_ref()
        .map(|barrier| format!("{:?} -> {:?}: {:?}", barrier.from, barrier.to, barrier.reason));
    match &step.work {
        Work::Copy { from, .. } => StepReport {
            op: "copy",
            site,
            variant: "",
            spirv: "",
            refused: Vec::new(),
            groups: [0; 3],
            bound_bytes: 2 * from.len_bytes,
            barrier,
        },
        Work::Dispatch { selection, groups, windows, .. } => StepReport {
            op: node.def.name,
            site,
            variant: selection.variant.name,
            spirv: selection.variant.spv_hash,
            refused: selection.rejected.iter().map(ToString::to_string).collect(),
            groups: *groups,
            bound_bytes: windows.iter().map(|window| window.len_bytes).sum(),
            barrier,
        },
    }
}
