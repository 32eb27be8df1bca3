//! `ExecutionReport`: what a plan does and why, as data.
//!
//! Every field is computed from the plan or read from the device; nothing is a constant. A report is
//! read back from its JSON, so that two of them can be compared long after their devices are gone.

use super::dump;
use super::program::{Program, Step, Window, Work};
use crate::engine::EngineInner;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the report's JSON form.
pub const REPORT_VERSION: u32 = 2;

/// A plan, its device and the reasons behind its choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// GPU time of a replay from its first to its last step, nanoseconds; only when profiled.
    pub gpu_ns: Option<f64>,
    /// Replays that were timed; 0 when the plan was not profiled.
    pub turns: u32,
    /// Steps in order.
    pub steps: Vec<StepReport>,
    /// Transient values.
    pub values: Vec<ValueReport>,
    /// Where values that are no transients live.
    pub places: Vec<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Number of the node that it comes from.
    pub node: u32,
    /// The op, or `copy`.
    pub op: String,
    /// The user's line that recorded it.
    pub site: String,
    /// Kernel variant; empty for a copy.
    pub variant: String,
    /// Hash of its SPIR-V; empty for a copy.
    pub spirv: String,
    /// Variants that were refused, with the reason.
    pub refused: Vec<String>,
    /// Workgroups in x, y and z.
    pub groups: [u32; 3],
    /// Bytes that it may read, as bound.
    pub read_bytes: u64,
    /// Bytes that it may write, as bound.
    pub written_bytes: u64,
    /// What it is bound to, in order.
    pub bound: Vec<String>,
    /// The barrier before the step and its reason, if there is one.
    pub barrier: Option<String>,
    /// GPU time, nanoseconds: the median of the timed replays; only when profiled.
    pub gpu_ns: Option<f64>,
}

/// One transient value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueReport {
    /// First node at which it exists.
    pub birth: u32,
    /// First node at which it is gone.
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

    /// The report as one self-contained HTML page: a timeline of the steps, the arena over time,
    /// the barriers and why each kernel was chosen.
    pub fn to_html(&self) -> String {
        super::page::page(self)
    }

    /// Adds times: of each replay, the time before the first step and after every step.
    pub(super) fn timed(mut self, replays: &[Vec<f64>]) -> ExecutionReport {
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied()
        };
        // Stamp 0 lies before the copy of the inputs, stamp 1 after it.
        for (index, step) in self.steps.iter_mut().enumerate() {
            let took = replays.iter().filter_map(|at| Some(at.get(index + 2)? - at[index + 1]));
            step.gpu_ns = median(took.collect());
        }
        let whole = replays.iter().filter_map(|at| at.last().copied());
        self.gpu_ns = median(whole.collect());
        self.turns = replays.len() as u32;
        self
    }
}

impl fmt::Display for ExecutionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device {}, driver {}", self.device, self.driver)?;
        writeln!(f, "kernels {}", self.kernels_lock)?;
        writeln!(
            f,
            "{} steps, {} dispatches, {} barriers, arena {} B (no less than {} B), inputs {} B",
            self.steps.len(),
            self.dispatches(),
            self.barriers(),
            self.arena_bytes,
            self.lower_bound_bytes,
            self.inputs_bytes,
        )?;
        if let Some(ns) = self.gpu_ns {
            writeln!(f, "GPU time {:.1} us, median of {} replays", ns / 1e3, self.turns)?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            let [x, y, z] = step.groups;
            let fence = if step.barrier.is_some() { '|' } else { ' ' };
            let variant = if step.variant.is_empty() { "-" } else { &step.variant };
            write!(f, "{fence}{index:>4} {:<26} {variant:<36} {x}x{y}x{z}", step.op)?;
            write!(f, ", reads {} B, writes {} B", step.read_bytes, step.written_bytes)?;
            match step.gpu_ns {
                Some(ns) => writeln!(f, ", {:.1} us", ns / 1e3)?,
                None => writeln!(f)?,
            }
        }
        Ok(())
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
        gpu_ns: None,
        turns: 0,
        steps: program.steps.iter().map(|step| step_report(program, step)).collect(),
        values: values.collect(),
        places: placement.places.iter().map(|(root, place)| dump::place(root, place)).collect(),
    }
}

fn step_report(program: &Program, step: &Step) -> StepReport {
    let node = &program.segment.nodes[step.node as usize];
    let barrier = step.barrier.as_ref();
    let bytes = |windows: &mut dyn Iterator<Item = &Window>| windows.map(|w| w.len_bytes).sum();
    let blank = StepReport {
        node: step.node,
        op: "copy".to_owned(),
        site: format!("{}:{}", node.site.file(), node.site.line()),
        variant: String::new(),
        spirv: String::new(),
        refused: Vec::new(),
        groups: [0; 3],
        read_bytes: 0,
        written_bytes: 0,
        bound: Vec::new(),
        barrier: barrier.map(|it| format!("{:?} -> {:?}: {:?}", it.from, it.to, it.reason)),
        gpu_ns: None,
    };
    match &step.work {
        Work::Copy { from, to } => StepReport {
            read_bytes: from.len_bytes,
            written_bytes: to.len_bytes,
            bound: vec![dump::window(from), dump::window(to)],
            ..blank
        },
        Work::Dispatch { selection, groups, windows, .. } => {
            let (inputs, outputs) = windows.split_at(windows.len() - node.outputs.len());
            let changed = node.def.mutates.iter().map(|&index| &inputs[index]);
            StepReport {
                op: node.def.name.to_owned(),
                variant: selection.variant.name.to_owned(),
                spirv: selection.variant.spv_hash.to_owned(),
                refused: selection.rejected.iter().map(ToString::to_string).collect(),
                groups: *groups,
                read_bytes: bytes(&mut inputs.iter()),
                written_bytes: bytes(&mut outputs.iter().chain(changed)),
                bound: windows.iter().map(dump::window).collect(),
                ..blank
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(op: &str) -> StepReport {
        StepReport {
            node: 0,
            op: op.to_owned(),
            site: "a.rs:1".to_owned(),
            variant: "family/variant".to_owned(),
            spirv: "00".to_owned(),
            refused: vec!["<other> is too wide".to_owned()],
            groups: [2, 1, 1],
            read_bytes: 8,
            written_bytes: 4,
            bound: Vec::new(),
            barrier: Some("after a write".to_owned()),
            gpu_ns: None,
        }
    }

    fn report() -> ExecutionReport {
        ExecutionReport {
            version: REPORT_VERSION,
            device: "a device".to_owned(),
            driver: "a driver".to_owned(),
            kernels_lock: "00".to_owned(),
            arena_bytes: 256,
            lower_bound_bytes: 256,
            inputs_bytes: 4,
            gpu_ns: None,
            turns: 0,
            steps: vec![step("first"), step("second")],
            values: vec![ValueReport { birth: 0, death: 2, len_bytes: 256, offset_bytes: 0 }],
            places: Vec::new(),
        }
    }

    #[test]
    fn times_are_medians_of_differences() {
        let replays =
            [vec![0.0, 5.0, 8.0, 20.0], vec![0.0, 1.0, 2.0, 4.0], vec![0.0, 2.0, 4.0, 9.0]];
        let timed = report().timed(&replays);
        let each: Vec<Option<f64>> = timed.steps.iter().map(|step| step.gpu_ns).collect();
        assert_eq!(each, [Some(2.0), Some(5.0)]);
        assert_eq!((timed.gpu_ns, timed.turns), (Some(9.0), 3));
    }

    #[test]
    fn a_report_comes_back_from_its_json() {
        let report = report().timed(&[vec![0.0, 1.0, 2.0, 3.0]]);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<ExecutionReport>(&json).unwrap(), report);
    }

    #[test]
    fn the_page_shows_every_step_and_escapes_names() {
        let page = report().timed(&[vec![0.0, 1.0, 2.0, 3.0]]).to_html();
        for text in ["first", "second", "a device", "&lt;other&gt; is too wide", "after a write"] {
            assert!(page.contains(text), "{text} is missing");
        }
        assert!(!page.contains("<other>"));
        assert!(!page.contains("http"), "the page needs nothing from elsewhere");
    }
}
