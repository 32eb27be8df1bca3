//! Which buffers a module stores to, and whether it uses atomics on floats.
//!
//! Barriers are planned from the answer, so it must never miss a store: a pointer handed to a
//! function counts as stored through unless its buffer is declared read-only.

use std::collections::BTreeMap;

use rspirv::dr::{Instruction, Module, Operand};
use rspirv::spirv::Op;

use super::layout::TypeTable;
use super::{Decorations, Problem};

/// All instructions inside functions, in order.
pub(super) fn instructions(module: &Module) -> impl Iterator<Item = &Instruction> {
    let blocks = module.functions.iter().flat_map(|function| &function.blocks);
    blocks.flat_map(|block| &block.instructions)
}

/// Bit mask of the bindings that are stored to.
pub(super) fn written(
    module: &Module,
    bindings: &BTreeMap<u32, u32>,
    decorations: &Decorations,
) -> u32 {
    // Id of a pointer -> binding of the buffer it points into.
    let mut origin: BTreeMap<u32, u32> = bindings.iter().map(|(bind, id)| (*id, *bind)).collect();
    let mut mask = 0u32;
    for instruction in instructions(module) {
        let opcode = instruction.class.opcode;
        match opcode {
            Op::AccessChain | Op::InBoundsAccessChain | Op::CopyObject => {
                let base = first_id(instruction).and_then(|id| origin.get(&id).copied());
                if let (Some(base), Some(id)) = (base, instruction.result_id) {
                    origin.insert(id, base);
                }
            }
            Op::FunctionCall => {
                let arguments = instruction.operands[1..].iter();
                let reached = arguments.filter_map(|operand| origin.get(&operand.id_ref_any()?));
                for binding in reached {
                    if !decorations.is_read_only(bindings[binding]) {
                        mask |= 1 << binding;
                    }
                }
            }
            _ if stores_through_first(opcode) => {
                if let Some(binding) = first_id(instruction).and_then(|id| origin.get(&id)) {
                    mask |= 1 << binding;
                }
            }
            _ => {}
        }
    }
    mask
}

/// Refuses atomics whose value is a float.
pub(super) fn refuse_float_atomics(module: &Module, types: &TypeTable<'_>) -> Result<(), Problem> {
    for instruction in instructions(module) {
        let opcode = instruction.class.opcode;
        let float = instruction.result_type.is_some_and(|id| types.is_float(id));
        let named = matches!(opcode, Op::AtomicFAddEXT | Op::AtomicFMinEXT | Op::AtomicFMaxEXT);
        if named || (float && is_atomic(opcode)) {
            return Err(Problem::FloatAtomic);
        }
    }
    Ok(())
}

fn is_atomic(opcode: Op) -> bool {
    matches!(
        opcode,
        Op::AtomicExchange
            | Op::AtomicCompareExchange
            | Op::AtomicIIncrement
            | Op::AtomicIDecrement
            | Op::AtomicIAdd
            | Op::AtomicISub
            | Op::AtomicSMin
            | Op::AtomicUMin
            | Op::AtomicSMax
            | Op::AtomicUMax
            | Op::AtomicAnd
            | Op::AtomicOr
            | Op::AtomicXor
    )
}

fn stores_through_first(opcode: Op) -> bool {
    is_atomic(opcode)
        || matches!(
            opcode,
            Op::Store
                | Op::AtomicStore
                | Op::CopyMemory
                | Op::CopyMemorySized
                | Op::CooperativeMatrixStoreKHR
        )
}

fn first_id(instruction: &Instruction) -> Option<u32> {
    match instruction.operands.first() {
        Some(Operand::IdRef(id)) => Some(*id),
        _ => None,
    }
}
