//! What a compiled kernel says about itself.
//!
//! Every fact the registry needs is read from the SPIR-V module: sizes, bindings, which buffers are
//! written, and the abilities it asks of a device. Reading them is also where the kernel convention
//! is enforced, because a module that breaks it has no place in the registry. It does not validate
//! SPIR-V; `spirv-val` does that when a kernel is compiled.

mod layout;
mod need;
mod problem;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use rspirv::dr::{Instruction, Module, Operand};
use rspirv::spirv::{Decoration, ExecutionMode, ExecutionModel, Op, StorageClass};

use crate::error::Refusal;
use crate::table::{Class, Row};
use layout::TypeTable;
pub use need::Need;
pub use problem::Problem;

/// Bytes of push constants every device has.
pub const PUSH_LIMIT_BYTES: u32 = 128;
/// Bytes of the launch header (group count and grid width) at the start of the push constants.
pub const PUSH_HEADER_BYTES: u32 = 8;
/// Invocations of a workgroup every device allows.
pub const PORTABLE_INVOCATIONS: u32 = 128;
/// Shared memory of a workgroup every device has.
pub const PORTABLE_SHARED_BYTES: u32 = 16 << 10;
/// Storage buffers a module can have: one bit each in [`Reflection::writes`].
pub const BUFFER_LIMIT: u32 = 32;

/// Facts of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reflection {
    /// Optional abilities the module uses.
    pub needs: BTreeSet<Need>,
    /// Bytes of all workgroup variables, laid out naturally one after the other, with
    /// specialisation constants at their defaults.
    pub shared_bytes: u32,
    /// Workgroup size in x, y and z.
    pub local_size: [u32; 3],
    /// Storage buffers, bindings `0..buffers` of set 0.
    pub buffers: u32,
    /// Bit i is set when the module stores to binding i.
    pub writes: u32,
    /// Bytes of the push-constant block, a multiple of four.
    pub push_bytes: u32,
    /// Ids of specialisation constants, ascending.
    pub spec_ids: Vec<u32>,
}

/// Reads a module and checks it against the rules of its row's class.
pub fn reflect(row: &Row, bytes: &[u8]) -> Result<Reflection, Refusal> {
    // rspirv indexes past the end of some damaged modules; a damaged blob has to be a refusal.
    std::panic::catch_unwind(|| reflect_sound(row, bytes)).unwrap_or_else(|_| {
        let problem = "the module is damaged".to_owned();
        Err(Refusal::Parse { name: row.name.clone(), problem })
    })
}

fn reflect_sound(row: &Row, bytes: &[u8]) -> Result<Reflection, Refusal> {
    let module = rspirv::dr::load_bytes(bytes)
        .map_err(|state| Refusal::Parse { name: row.name.clone(), problem: state.to_string() })?;
    let broken = |problem| Refusal::Module { name: row.name.clone(), problem };
    let reflection = facts(&module).map_err(broken)?;
    class_rules(row.class, &reflection, &module).map_err(broken)?;
    Ok(reflection)
}

fn facts(module: &Module) -> Result<Reflection, Problem> {
    let types = TypeTable::new(module);
    let decorations = Decorations::new(module);
    check_version_and_entry(module)?;
    let needs = need::needs(module)?;
    writes::refuse_float_atomics(module, &types)?;
    let mut reflection = Reflection {
        needs,
        local_size: local_size(module, &types, &decorations)?,
        spec_ids: decorations.spec_ids(),
        ..Reflection::default()
    };
    let mut bindings = BTreeMap::new();
    for variable in module.types_global_values.iter().filter(|i| i.class.opcode == Op::Variable) {
        let id = variable.result_id.expect("a variable has an id");
        let pointee = types.pointee(variable.result_type.expect("a variable has a type"))?;
        // SPIR-V 1.3 spells a storage buffer in two ways; the compiler uses the older one.
        let older = decorations.is_buffer_block(pointee);
        match &variable.operands[0] {
            Operand::StorageClass(class)
                if *class == StorageClass::StorageBuffer
                    || (*class == StorageClass::Uniform && older) =>
            {
                types.refuse_vec3(pointee, "a buffer")?;
                let set = decorations.value(id, Decoration::DescriptorSet).unwrap_or(0);
                let binding =
                    decorations.value(id, Decoration::Binding).ok_or(Problem::NoBinding)?;
                if set != 0 {
                    return Err(Problem::Set { binding, set });
                }
                if bindings.insert(binding, id).is_some() {
                    return Err(Problem::BindingTwice { binding });
                }
            }
            Operand::StorageClass(StorageClass::Workgroup) => {
                types.refuse_vec3(pointee, "shared memory")?;
                let size = types.natural_size(pointee)?;
                reflection.shared_bytes = reflection.shared_bytes.next_multiple_of(16) + size;
            }
            Operand::StorageClass(StorageClass::PushConstant) => {
                types.refuse_vec3(pointee, "push constants")?;
                reflection.push_bytes = types.block_size(pointee, &decorations)?;
            }
            Operand::StorageClass(
                StorageClass::Input | StorageClass::Private | StorageClass::Function,
            ) => {}
            Operand::StorageClass(class) => {
                return Err(Problem::StorageClass { class: format!("{class:?}") });
            }
            _ => unreachable!("the grammar puts a storage class first"),
        }
    }
    reflection.buffers = count_bindings(&bindings)?;
    reflection.writes = writes::written(module, &bindings, &decorations);
    if reflection.writes == 0 {
        return Err(Problem::NothingWritten);
    }
    check_push(reflection.push_bytes)?;
    Ok(reflection)
}

fn count_bindings(bindings: &BTreeMap<u32, u32>) -> Result<u32, Problem> {
    for (expected, binding) in (0..).zip(bindings.keys()) {
        if *binding != expected {
            return Err(Problem::BindingGap { missing: expected, next: *binding });
        }
    }
    let count = bindings.len() as u32;
    if count == 0 || count > BUFFER_LIMIT {
        return Err(Problem::BufferCount { count, limit: BUFFER_LIMIT });
    }
    Ok(count)
}

fn check_push(bytes: u32) -> Result<(), Problem> {
    if bytes > PUSH_LIMIT_BYTES {
        return Err(Problem::PushTooLarge { bytes, limit: PUSH_LIMIT_BYTES });
    }
    if bytes < PUSH_HEADER_BYTES {
        return Err(Problem::NoPushHeader { bytes });
    }
    Ok(())
}

fn check_version_and_entry(module: &Module) -> Result<(), Problem> {
    let version = module.header.as_ref().map(|header| header.version()).unwrap_or_default();
    if version != (1, 3) {
        return Err(Problem::Version { major: version.0, minor: version.1 });
    }
    let [entry] = module.entry_points.as_slice() else {
        return Err(Problem::EntryCount { count: module.entry_points.len() });
    };
    let compute = entry.operands[0] == Operand::ExecutionModel(ExecutionModel::GLCompute);
    let main = matches!(&entry.operands[2], Operand::LiteralString(name) if name == "main");
    if !compute || !main {
        return Err(Problem::EntryName);
    }
    Ok(())
}

fn local_size(
    module: &Module,
    types: &TypeTable<'_>,
    decorations: &Decorations,
) -> Result<[u32; 3], Problem> {
    if let Some(id) = decorations.work_group_size() {
        return types.constant_vector(id).ok_or(Problem::NoLocalSize);
    }
    for mode in &module.execution_modes {
        match mode.operands[1] {
            Operand::ExecutionMode(ExecutionMode::LocalSize) => {
                let mut size = [1; 3];
                for (axis, operand) in size.iter_mut().zip(&mode.operands[2..]) {
                    if let Operand::LiteralBit32(value) = operand {
                        *axis = *value;
                    }
                }
                return Ok(size);
            }
            Operand::ExecutionMode(ExecutionMode::LocalSizeId) => {
                let mut size = [1; 3];
                for (axis, operand) in size.iter_mut().zip(&mode.operands[2..]) {
                    if let Operand::IdRef(id) = operand {
                        *axis = types.constant(*id).ok_or(Problem::NoLocalSize)?;
                    }
                }
                return Ok(size);
            }
            _ => {}
        }
    }
    Err(Problem::NoLocalSize)
}

fn class_rules(class: Class, found: &Reflection, module: &Module) -> Result<(), Problem> {
    let invocations = found.local_size.iter().product::<u32>();
    match class {
        Class::Portable => {
            if let Some(need) = found.needs.iter().next() {
                return Err(Problem::PortableNeeds { need: need.name() });
            }
            if invocations > PORTABLE_INVOCATIONS {
                return Err(Problem::Invocations { invocations, limit: PORTABLE_INVOCATIONS });
            }
            if found.shared_bytes > PORTABLE_SHARED_BYTES {
                let bytes = found.shared_bytes;
                return Err(Problem::Shared { bytes, limit: PORTABLE_SHARED_BYTES });
            }
        }
        Class::Cpu => {
            let barrier = writes::instructions(module)
                .any(|instruction| instruction.class.opcode == Op::ControlBarrier);
            if barrier || found.shared_bytes > 0 {
                return Err(Problem::CpuShares);
            }
        }
        Class::Subgroup => {
            if !found.needs.iter().any(|need| need.is_subgroup()) {
                return Err(Problem::NoSubgroup);
            }
        }
    }
    Ok(())
}

/// Decorations of a module, by target.
struct Decorations {
    values: BTreeMap<(u32, u32), u32>,
    member_offsets: BTreeMap<(u32, u32), u32>,
    read_only: BTreeSet<u32>,
    buffer_blocks: BTreeSet<u32>,
    spec: BTreeSet<u32>,
    work_group_size: Option<u32>,
}

impl Decorations {
    fn new(module: &Module) -> Decorations {
        let mut found = Decorations {
            values: BTreeMap::new(),
            member_offsets: BTreeMap::new(),
            read_only: BTreeSet::new(),
            buffer_blocks: BTreeSet::new(),
            spec: BTreeSet::new(),
            work_group_size: None,
        };
        for annotation in &module.annotations {
            match annotation.class.opcode {
                Op::Decorate => found.decorate(annotation),
                Op::MemberDecorate => found.decorate_member(annotation),
                _ => {}
            }
        }
        found
    }

    fn decorate(&mut self, annotation: &Instruction) {
        let (Operand::IdRef(target), Operand::Decoration(decoration)) =
            (&annotation.operands[0], &annotation.operands[1])
        else {
            return;
        };
        match (decoration, annotation.operands.get(2)) {
            (Decoration::NonWritable, _) => {
                self.read_only.insert(*target);
            }
            (Decoration::BufferBlock, _) => {
                self.buffer_blocks.insert(*target);
            }
            (Decoration::SpecId, Some(Operand::LiteralBit32(id))) => {
                self.spec.insert(*id);
            }
            (
                Decoration::BuiltIn,
                Some(Operand::BuiltIn(rspirv::spirv::BuiltIn::WorkgroupSize)),
            ) => {
                self.work_group_size = Some(*target);
            }
            (_, Some(Operand::LiteralBit32(value))) => {
                self.values.insert((*target, *decoration as u32), *value);
            }
            _ => {}
        }
    }

    fn decorate_member(&mut self, annotation: &Instruction) {
        if let [
            Operand::IdRef(target),
            Operand::LiteralBit32(member),
            Operand::Decoration(Decoration::Offset),
            Operand::LiteralBit32(offset),
        ] = annotation.operands.as_slice()
        {
            self.member_offsets.insert((*target, *member), *offset);
        }
    }

    fn value(&self, target: u32, decoration: Decoration) -> Option<u32> {
        self.values.get(&(target, decoration as u32)).copied()
    }

    fn member_offset(&self, target: u32, member: u32) -> Option<u32> {
        self.member_offsets.get(&(target, member)).copied()
    }

    fn is_read_only(&self, target: u32) -> bool {
        self.read_only.contains(&target)
    }

    fn is_buffer_block(&self, target: u32) -> bool {
        self.buffer_blocks.contains(&target)
    }

    fn spec_ids(&self) -> Vec<u32> {
        self.spec.iter().copied().collect()
    }

    fn work_group_size(&self) -> Option<u32> {
        self.work_group_size
    }
}

#[cfg(test)]
mod tests;
