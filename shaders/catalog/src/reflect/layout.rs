//! Types of a module: sizes, constants, and vectors of three components.

use std::collections::BTreeMap;

use rspirv::dr::{Instruction, Module, Operand};
use rspirv::spirv::Op;

use super::{Decorations, Problem};

/// Types and constants by id.
pub(super) struct TypeTable<'m> {
    by_id: BTreeMap<u32, &'m Instruction>,
}

impl<'m> TypeTable<'m> {
    pub(super) fn new(module: &'m Module) -> TypeTable<'m> {
        let by_id = module
            .types_global_values
            .iter()
            .filter_map(|instruction| Some((instruction.result_id?, instruction)))
            .collect();
        TypeTable { by_id }
    }

    pub(super) fn get(&self, id: u32) -> Option<&'m Instruction> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn pointee(&self, pointer: u32) -> Result<u32, Problem> {
        let pointer = self.get(pointer).ok_or(Problem::Unsized)?;
        id_at(pointer, 1).ok_or(Problem::Unsized)
    }

    /// Value of a 32-bit constant; with specialisation constants, of their defaults.
    pub(super) fn constant(&self, id: u32) -> Option<u32> {
        let instruction = self.get(id)?;
        match (instruction.class.opcode, instruction.operands.first()) {
            (Op::Constant | Op::SpecConstant, Some(Operand::LiteralBit32(value))) => Some(*value),
            (Op::SpecConstantOp, Some(Operand::LiteralSpecConstantOpInteger(operation))) => {
                let a = self.constant(id_at(instruction, 1)?)?;
                let b = self.constant(id_at(instruction, 2)?)?;
                match operation {
                    Op::IAdd => a.checked_add(b),
                    Op::ISub => a.checked_sub(b),
                    Op::IMul => a.checked_mul(b),
                    Op::UDiv => a.checked_div(b),
                    Op::ShiftLeftLogical => a.checked_shl(b),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Value of a constant vector of three.
    pub(super) fn constant_vector(&self, id: u32) -> Option<[u32; 3]> {
        let parts = self.get(id)?;
        let mut out = [1; 3];
        for (index, axis) in out.iter_mut().enumerate() {
            *axis = self.constant(id_at(parts, index)?)?;
        }
        Some(out)
    }

    /// True when the type is a float, or a vector of floats.
    pub(super) fn is_float(&self, id: u32) -> bool {
        self.get(id).is_some_and(|instruction| instruction.class.opcode == Op::TypeFloat)
    }

    /// Refuses a vector of three components anywhere inside the type.
    pub(super) fn refuse_vec3(&self, id: u32, place: &'static str) -> Result<(), Problem> {
        let Some(instruction) = self.get(id) else { return Ok(()) };
        match instruction.class.opcode {
            Op::TypeVector if instruction.operands[1] == Operand::LiteralBit32(3) => {
                Err(Problem::Vec3 { place })
            }
            Op::TypeArray | Op::TypeRuntimeArray | Op::TypeMatrix => {
                let element = id_at(instruction, 0).ok_or(Problem::Unsized)?;
                self.refuse_vec3(element, place)
            }
            Op::TypeStruct => (0..instruction.operands.len())
                .filter_map(|index| id_at(instruction, index))
                .try_for_each(|member| self.refuse_vec3(member, place)),
            _ => Ok(()),
        }
    }

    /// Bytes of a type that has no explicit layout, each member at its natural alignment.
    pub(super) fn natural_size(&self, id: u32) -> Result<u32, Problem> {
        self.natural(id).map(|(size, _)| size)
    }

    fn natural(&self, id: u32) -> Result<(u32, u32), Problem> {
        let instruction = self.get(id).ok_or(Problem::Unsized)?;
        match instruction.class.opcode {
            Op::TypeBool => Ok((4, 4)),
            Op::TypeInt | Op::TypeFloat => {
                let bytes = literal_at(instruction, 0).ok_or(Problem::Unsized)? / 8;
                Ok((bytes, bytes))
            }
            Op::TypeVector | Op::TypeMatrix | Op::TypeArray => {
                let (size, align) = self.natural(id_at(instruction, 0).ok_or(Problem::Unsized)?)?;
                let count = match instruction.class.opcode {
                    Op::TypeArray => id_at(instruction, 1).and_then(|id| self.constant(id)),
                    _ => literal_at(instruction, 1),
                };
                let count = count.ok_or(Problem::Unsized)?;
                let total = size.next_multiple_of(align).checked_mul(count);
                Ok((total.ok_or(Problem::Unsized)?, align))
            }
            Op::TypeStruct => {
                let mut end = 0u32;
                let mut most = 1;
                for index in 0..instruction.operands.len() {
                    let member = id_at(instruction, index).ok_or(Problem::Unsized)?;
                    let (size, align) = self.natural(member)?;
                    end = end.next_multiple_of(align).checked_add(size).ok_or(Problem::Unsized)?;
                    most = most.max(align);
                }
                Ok((end.next_multiple_of(most), most))
            }
            _ => Err(Problem::Unsized),
        }
    }

    /// Bytes of a push-constant block, whose members must be 32-bit scalars in a row.
    pub(super) fn block_size(&self, id: u32, decorations: &Decorations) -> Result<u32, Problem> {
        let mut offsets = Vec::new();
        self.words(id, 0, decorations, &mut offsets)?;
        offsets.sort_unstable();
        for (expected, offset) in (0u32..).zip(&offsets) {
            if *offset != expected * 4 {
                return Err(Problem::PushWords);
            }
        }
        Ok(offsets.len() as u32 * 4)
    }

    fn words(
        &self,
        id: u32,
        start: u32,
        decorations: &Decorations,
        offsets: &mut Vec<u32>,
    ) -> Result<(), Problem> {
        let instruction = self.get(id).ok_or(Problem::Unsized)?;
        match instruction.class.opcode {
            Op::TypeInt | Op::TypeFloat if literal_at(instruction, 0) == Some(32) => {
                offsets.push(start);
                Ok(())
            }
            Op::TypeStruct => {
                for index in 0..instruction.operands.len() {
                    let member = id_at(instruction, index).ok_or(Problem::Unsized)?;
                    let offset = decorations.member_offset(id, index as u32);
                    let offset = start + offset.ok_or(Problem::PushWords)?;
                    self.words(member, offset, decorations, offsets)?;
                }
                Ok(())
            }
            _ => Err(Problem::PushWords),
        }
    }
}

fn id_at(instruction: &Instruction, index: usize) -> Option<u32> {
    match instruction.operands.get(index) {
        Some(Operand::IdRef(id)) => Some(*id),
        _ => None,
    }
}

fn literal_at(instruction: &Instruction, index: usize) -> Option<u32> {
    match instruction.operands.get(index) {
        Some(Operand::LiteralBit32(value)) => Some(*value),
        _ => None,
    }
}
