//! The table from SPIR-V capabilities and extensions to device abilities.
//!
//! Names are those that `oa_vk::Caps` prints; a test of oa-kernels holds the two together. What the
//! table does not know is refused: an ability nobody checks for is a crash on somebody's device.

use std::collections::BTreeSet;

use rspirv::dr::{Module, Operand};
use rspirv::spirv::Capability;

use super::Problem;

/// An optional device ability a module uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the abilities are documented at oa_vk::Caps")]
pub enum Need {
    F16Storage,
    F16Arithmetic,
    I8Storage,
    I8Arithmetic,
    SubgroupBasic,
    SubgroupArithmetic,
    SubgroupShuffle,
    SubgroupBallot,
    IntegerDot,
    CooperativeMatrix,
    BufferAddress,
    I64,
    MemoryModel,
}

impl Need {
    /// The name in `kernels.lock`.
    pub fn name(self) -> &'static str {
        match self {
            Need::F16Storage => "f16-storage",
            Need::F16Arithmetic => "f16-arithmetic",
            Need::I8Storage => "i8-storage",
            Need::I8Arithmetic => "i8-arithmetic",
            Need::SubgroupBasic => "subgroup-basic",
            Need::SubgroupArithmetic => "subgroup-arithmetic",
            Need::SubgroupShuffle => "subgroup-shuffle",
            Need::SubgroupBallot => "subgroup-ballot",
            Need::IntegerDot => "integer-dot",
            Need::CooperativeMatrix => "cooperative-matrix",
            Need::BufferAddress => "buffer-address",
            Need::I64 => "int64",
            Need::MemoryModel => "memory-model",
        }
    }

    /// The constant of `oa_vk::Caps`.
    pub fn caps_constant(self) -> &'static str {
        match self {
            Need::F16Storage => "F16_STORAGE",
            Need::F16Arithmetic => "F16_ARITHMETIC",
            Need::I8Storage => "I8_STORAGE",
            Need::I8Arithmetic => "I8_ARITHMETIC",
            Need::SubgroupBasic => "SUBGROUP_BASIC",
            Need::SubgroupArithmetic => "SUBGROUP_ARITHMETIC",
            Need::SubgroupShuffle => "SUBGROUP_SHUFFLE",
            Need::SubgroupBallot => "SUBGROUP_BALLOT",
            Need::IntegerDot => "INTEGER_DOT",
            Need::CooperativeMatrix => "COOPERATIVE_MATRIX",
            Need::BufferAddress => "BUFFER_ADDRESS",
            Need::I64 => "I64",
            Need::MemoryModel => "MEMORY_MODEL",
        }
    }

    /// True for abilities that concern subgroups.
    pub fn is_subgroup(self) -> bool {
        matches!(
            self,
            Need::SubgroupBasic
                | Need::SubgroupArithmetic
                | Need::SubgroupShuffle
                | Need::SubgroupBallot
        )
    }

    /// True when Vulkan 1.1 does not know the ability, so that the validator must assume 1.3.
    pub fn is_after_vulkan_1_1(self) -> bool {
        matches!(self, Need::IntegerDot | Need::CooperativeMatrix | Need::MemoryModel)
    }
}

/// Extensions that a device of the required profile always takes, or that a capability covers.
const EXTENSIONS: &[&str] = &[
    "SPV_KHR_16bit_storage",
    "SPV_KHR_8bit_storage",
    "SPV_KHR_cooperative_matrix",
    "SPV_KHR_integer_dot_product",
    "SPV_KHR_physical_storage_buffer",
    "SPV_KHR_storage_buffer_storage_class",
    "SPV_KHR_vulkan_memory_model",
];

pub(super) fn needs(module: &Module) -> Result<BTreeSet<Need>, Problem> {
    for extension in &module.extensions {
        match &extension.operands[0] {
            Operand::LiteralString(name) if EXTENSIONS.contains(&name.as_str()) => {}
            other => return Err(Problem::Extension { extension: other.to_string() }),
        }
    }
    let mut needs = BTreeSet::new();
    for instruction in &module.capabilities {
        let Operand::Capability(capability) = instruction.operands[0] else { continue };
        let found: &[Need] = match capability {
            Capability::Shader => &[],
            Capability::Float16 => &[Need::F16Arithmetic],
            Capability::StorageBuffer16BitAccess => &[Need::F16Storage],
            Capability::Int8 => &[Need::I8Arithmetic],
            Capability::StorageBuffer8BitAccess => &[Need::I8Storage],
            Capability::Int64 => &[Need::I64],
            Capability::GroupNonUniform => &[Need::SubgroupBasic],
            Capability::GroupNonUniformArithmetic => {
                &[Need::SubgroupBasic, Need::SubgroupArithmetic]
            }
            Capability::GroupNonUniformShuffle => &[Need::SubgroupBasic, Need::SubgroupShuffle],
            Capability::GroupNonUniformBallot => &[Need::SubgroupBasic, Need::SubgroupBallot],
            Capability::DotProduct
            | Capability::DotProductInputAll
            | Capability::DotProductInput4x8Bit
            | Capability::DotProductInput4x8BitPacked => &[Need::IntegerDot],
            Capability::CooperativeMatrixKHR => &[Need::CooperativeMatrix],
            Capability::PhysicalStorageBufferAddresses => &[Need::BufferAddress],
            Capability::VulkanMemoryModel => &[Need::MemoryModel],
            Capability::AtomicFloat32AddEXT
            | Capability::AtomicFloat64AddEXT
            | Capability::AtomicFloat16AddEXT
            | Capability::AtomicFloat32MinMaxEXT => return Err(Problem::FloatAtomic),
            other => return Err(Problem::Capability { capability: format!("{other:?}") }),
        };
        needs.extend(found);
    }
    Ok(needs)
}
