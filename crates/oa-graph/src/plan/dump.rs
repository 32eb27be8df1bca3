//! The text form of a plan: what snapshots and readers see.

use super::place::{Place, Root};
use super::program::{Program, Resource, Window, Work};
use crate::segment::{Leaf, Operand};
use std::fmt::Write;

/// The text of a program. It holds no address, no time and no user path, so equal plans give equal
/// text.
pub(crate) fn dump(program: &Program) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(program, &mut text);
    text
}

fn write(program: &Program, out: &mut String) -> std::fmt::Result {
    let placement = &program.placement;
    writeln!(
        out,
        "plan: {} nodes, {} steps, arena {} B (lower bound {} B), inputs {} B, constants {} B",
        program.segment.nodes.len(),
        program.steps.len(),
        placement.arena_bytes,
        placement.lower_bound_bytes,
        program.inputs_bytes,
        program.constants_bytes,
    )?;
    for (index, leaf) in program.segment.leaves.iter().enumerate() {
        let (kind, name) = match leaf {
            Leaf::Host { .. } => ("host", ""),
            Leaf::Input { name, .. } => ("input", &**name),
            Leaf::External { .. } => ("external", ""),
            Leaf::State { name, .. } => ("state", &**name),
        };
        writeln!(out, "leaf {index}: {} {kind} {name}", leaf.spec())?;
    }
    for step in &program.steps {
        if let Some(barrier) = &step.barrier {
            let reason = &barrier.reason;
            writeln!(out, "  barrier {:?} -> {:?}: {reason:?}", barrier.from, barrier.to)?;
        }
        let node = &program.segment.nodes[step.node as usize];
        match &step.work {
            Work::Copy { from, to } => {
                writeln!(out, "  {}: copy {} -> {}", step.node, window(from), window(to))?;
            }
            Work::Dispatch { selection, groups, windows, .. } => {
                write!(out, "  {}: {} [{}]", step.node, node.def.name, selection.variant.name)?;
                write!(out, " groups {}x{}x{}", groups[0], groups[1], groups[2])?;
                let outputs = windows.len() - node.outputs.len();
                for (at, bound) in windows.iter().enumerate() {
                    let arrow = if at == outputs { " -> " } else { " " };
                    write!(out, "{arrow}{}", window(bound))?;
                }
                writeln!(out)?;
            }
        }
    }
    for (slot, kept) in program.segment.kept.iter().enumerate() {
        match kept {
            Operand::Leaf(leaf) => writeln!(out, "kept {slot}: leaf {leaf}")?,
            Operand::Value { node, output } => writeln!(out, "kept {slot}: {node}.{output}")?,
        }
    }
    Ok(())
}

/// A window as text.
pub(crate) fn window(window: &Window) -> String {
    let (offset, len) = (window.offset, window.len_bytes);
    match window.resource {
        Resource::Arena => format!("arena@{offset}+{len}"),
        Resource::Inputs => format!("inputs@{offset}+{len}"),
        Resource::Constants => format!("constants@{offset}+{len}"),
        Resource::State(leaf) => format!("state{leaf}+{len}"),
        Resource::External(index) => format!("external{index}+{len}"),
        Resource::Kept(slot) => format!("kept{slot}+{len}"),
    }
}

/// Where a value lives, for reports.
pub(crate) fn place(root: &Root, place: &Place) -> String {
    let place = match place {
        Place::Arena { offset } => format!("arena@{offset}"),
        Place::Kept { slot } => format!("kept{slot}"),
        Place::State { leaf } => format!("state{leaf}"),
    };
    match root {
        Root::Leaf(leaf) => format!("leaf {leaf}: {place}"),
        Root::Value { node, output } => format!("{node}.{output}: {place}"),
    }
}
