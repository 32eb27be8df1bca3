//! Modules built by hand, one per rule of the kernel convention.

use super::*;
use rspirv::binary::Assemble;
use rspirv::dr::Builder;
use rspirv::spirv::{AddressingModel, Capability, FunctionControl, MemoryModel, Word};

/// What a test changes about an ordinary kernel with two buffers.
struct Recipe {
    version: (u8, u8),
    capabilities: Vec<Capability>,
    extension: Option<&'static str>,
    entry: &'static str,
    local: [u32; 3],
    set: u32,
    bindings: Vec<u32>,
    stored: usize,
    push_words: u32,
    shared_floats: u32,
    vec3_in_buffer: bool,
    vec3_in_shared: bool,
    float_atomic: bool,
    barrier: bool,
    newer_class: bool,
    uniform_block: bool,
    spec: Option<u32>,
}

impl Default for Recipe {
    fn default() -> Recipe {
        Recipe {
            version: (1, 3),
            capabilities: vec![Capability::Shader],
            extension: None,
            entry: "main",
            local: [64, 2, 1],
            set: 0,
            bindings: vec![0, 1],
            stored: 1,
            push_words: 3,
            shared_floats: 0,
            vec3_in_buffer: false,
            vec3_in_shared: false,
            float_atomic: false,
            barrier: false,
            newer_class: false,
            uniform_block: false,
            spec: None,
        }
    }
}

impl Recipe {
    fn bytes(&self) -> Vec<u8> {
        let mut b = Builder::new();
        b.set_version(self.version.0, self.version.1);
        for capability in &self.capabilities {
            b.capability(*capability);
        }
        if let Some(extension) = self.extension {
            b.extension(extension);
        }
        b.memory_model(AddressingModel::Logical, MemoryModel::GLSL450);
        let buffers = self.buffers(&mut b);
        self.push(&mut b);
        self.shared(&mut b);
        if let Some(id) = self.spec {
            let uint = b.type_int(32, 0);
            let constant = b.spec_constant_bit32(uint, 4);
            b.decorate(constant, Decoration::SpecId, [Operand::LiteralBit32(id)]);
        }
        let main = self.body(&mut b, &buffers);
        b.entry_point(ExecutionModel::GLCompute, main, self.entry, []);
        b.execution_mode(main, ExecutionMode::LocalSize, self.local);
        b.module().assemble().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn class(&self) -> StorageClass {
        if self.newer_class { StorageClass::StorageBuffer } else { StorageClass::Uniform }
    }

    fn buffers(&self, b: &mut Builder) -> Vec<Word> {
        let float = b.type_float(32, None);
        let element = if self.vec3_in_buffer { b.type_vector(float, 3) } else { float };
        let array = b.type_runtime_array(element);
        let block = b.type_struct([array]);
        let newer = self.newer_class || self.uniform_block;
        let decoration = if newer { Decoration::Block } else { Decoration::BufferBlock };
        b.decorate(block, decoration, []);
        let pointer = b.type_pointer(None, self.class(), block);
        let mut variables = Vec::new();
        for binding in &self.bindings {
            let variable = b.variable(pointer, None, self.class(), None);
            b.decorate(variable, Decoration::DescriptorSet, [Operand::LiteralBit32(self.set)]);
            b.decorate(variable, Decoration::Binding, [Operand::LiteralBit32(*binding)]);
            variables.push(variable);
        }
        variables
    }

    fn push(&self, b: &mut Builder) {
        if self.push_words == 0 {
            return;
        }
        let uint = b.type_int(32, 0);
        let block = b.type_struct(vec![uint; self.push_words as usize]);
        for word in 0..self.push_words {
            let offset = [Operand::LiteralBit32(word * 4)];
            b.member_decorate(block, word, Decoration::Offset, offset);
        }
        let pointer = b.type_pointer(None, StorageClass::PushConstant, block);
        b.variable(pointer, None, StorageClass::PushConstant, None);
    }

    fn shared(&self, b: &mut Builder) {
        if self.shared_floats == 0 {
            return;
        }
        let float = b.type_float(32, None);
        let element = if self.vec3_in_shared { b.type_vector(float, 3) } else { float };
        let uint = b.type_int(32, 0);
        let length = b.constant_bit32(uint, self.shared_floats);
        let array = b.type_array(element, length);
        let pointer = b.type_pointer(None, StorageClass::Workgroup, array);
        b.variable(pointer, None, StorageClass::Workgroup, None);
    }

    fn body(&self, b: &mut Builder, buffers: &[Word]) -> Word {
        let void = b.type_void();
        let float = b.type_float(32, None);
        let uint = b.type_int(32, 0);
        let signature = b.type_function(void, []);
        let pointer = b.type_pointer(None, self.class(), float);
        let zero = b.constant_bit32(uint, 0);
        let scope = b.constant_bit32(uint, 2);
        let value = b.constant_bit32(float, 0);
        let main = b.begin_function(void, None, FunctionControl::NONE, signature).unwrap();
        b.begin_block(None).unwrap();
        if let Some(buffer) = buffers.get(self.stored) {
            let place = b.access_chain(pointer, None, *buffer, [zero, zero]).unwrap();
            b.store(place, value, None, []).unwrap();
            if self.float_atomic {
                b.atomic_exchange(float, None, place, scope, zero, value).unwrap();
            }
        }
        if self.barrier {
            b.control_barrier(scope, scope, zero).unwrap();
        }
        b.ret().unwrap();
        b.end_function().unwrap();
        main
    }
}

fn row(class: Class) -> Row {
    Row {
        name: "test/kernel".into(),
        family: "kernel".into(),
        class,
        file: "test/kernel.slang".into(),
        entry: "kernel".into(),
        tile: [1; 3],
    }
}

fn found(class: Class, recipe: &Recipe) -> Result<Reflection, String> {
    reflect(&row(class), &recipe.bytes()).map_err(|refusal| refusal.to_string())
}

/// The module is refused with a message that contains `expected`.
fn refused(class: Class, recipe: Recipe, expected: &str) {
    let message = found(class, &recipe).expect_err(expected);
    assert!(message.contains(expected), "{message} lacks {expected}");
}

#[test]
fn an_ordinary_kernel_is_read() {
    let expected = Reflection {
        local_size: [64, 2, 1],
        buffers: 2,
        writes: 0b10,
        push_bytes: 12,
        spec_ids: vec![7],
        shared_bytes: 256,
        ..Reflection::default()
    };
    let recipe = Recipe { shared_floats: 64, spec: Some(7), ..Recipe::default() };
    assert_eq!(found(Class::Portable, &recipe), Ok(expected.clone()));
    // Both spellings of a storage buffer give the same facts.
    let recipe = Recipe { newer_class: true, ..recipe };
    assert_eq!(found(Class::Portable, &recipe), Ok(expected));
}

#[test]
fn stores_are_traced_to_their_buffer() {
    for (stored, writes) in [(0, 0b001), (1, 0b010), (2, 0b100)] {
        let recipe = Recipe { bindings: vec![0, 1, 2], stored, ..Recipe::default() };
        assert_eq!(found(Class::Portable, &recipe).map(|found| found.writes), Ok(writes));
    }
}

#[test]
fn a_kernel_that_stores_nothing_is_refused() {
    refused(Class::Portable, Recipe { stored: 9, ..Recipe::default() }, "stores to no buffer");
}

#[test]
fn needs_come_from_capabilities() {
    let capabilities = vec![
        Capability::Shader,
        Capability::GroupNonUniform,
        Capability::GroupNonUniformArithmetic,
        Capability::StorageBuffer16BitAccess,
    ];
    let recipe = Recipe { capabilities, ..Recipe::default() };
    let needs = found(Class::Subgroup, &recipe).expect("a subgroup kernel").needs;
    let names: Vec<&str> = needs.iter().map(|need| need.name()).collect();
    assert_eq!(names, ["f16-storage", "subgroup-basic", "subgroup-arithmetic"]);
    refused(Class::Portable, recipe, "a portable variant needs nothing");
}

#[test]
fn unknown_abilities_are_refused() {
    let capabilities = vec![Capability::Shader, Capability::Float64];
    refused(Class::Portable, Recipe { capabilities, ..Recipe::default() }, "Float64");
    let extension = Some("SPV_KHR_non_semantic_info");
    refused(Class::Portable, Recipe { extension, ..Recipe::default() }, "non_semantic");
}

#[test]
fn bindings_are_contiguous_in_set_0() {
    let with = |bindings: &[u32]| Recipe { bindings: bindings.to_vec(), ..Recipe::default() };
    refused(Class::Portable, with(&[0, 2]), "binding 1 is missing before binding 2");
    refused(Class::Portable, with(&[1]), "binding 0 is missing");
    refused(Class::Portable, with(&[0, 0]), "used by two buffers");
    refused(Class::Portable, with(&[]), "0 storage buffers");
    refused(Class::Portable, Recipe { set: 1, ..Recipe::default() }, "in set 1");
    let uniform = Recipe { uniform_block: true, ..Recipe::default() };
    refused(Class::Portable, uniform, "storage class Uniform");
}

#[test]
fn push_constants_have_a_header_and_a_limit() {
    let with = |push_words| Recipe { push_words, ..Recipe::default() };
    assert!(found(Class::Portable, &with(32)).is_ok());
    refused(Class::Portable, with(33), "132 bytes of push constants, more than 128");
    refused(Class::Portable, with(0), "0 bytes of push constants");
    refused(Class::Portable, with(1), "must come first");
}

#[test]
fn float_atomics_are_refused() {
    refused(
        Class::Portable,
        Recipe { float_atomic: true, ..Recipe::default() },
        "atomics on floats",
    );
    let capabilities = vec![Capability::Shader, Capability::AtomicFloat32AddEXT];
    refused(Class::Subgroup, Recipe { capabilities, ..Recipe::default() }, "atomics on floats");
}

#[test]
fn three_component_vectors_are_refused_in_memory() {
    let buffer = Recipe { vec3_in_buffer: true, ..Recipe::default() };
    refused(Class::Portable, buffer, "three components in a buffer");
    let shared = Recipe { vec3_in_shared: true, shared_floats: 2, ..Recipe::default() };
    refused(Class::Portable, shared, "three components in shared memory");
}

#[test]
fn classes_keep_their_promises() {
    let wide = || Recipe { local: [129, 1, 1], ..Recipe::default() };
    refused(Class::Portable, wide(), "129 invocations");
    assert!(found(Class::Cpu, &wide()).is_ok());
    let shared = |shared_floats| Recipe { shared_floats, ..Recipe::default() };
    assert!(found(Class::Portable, &shared(4096)).is_ok());
    refused(Class::Portable, shared(4097), "16388 bytes of shared memory");
    refused(Class::Cpu, shared(1), "no shared memory");
    let barrier = Recipe { barrier: true, ..Recipe::default() };
    refused(Class::Cpu, barrier, "no barrier");
    refused(Class::Subgroup, Recipe::default(), "uses subgroup operations");
}

#[test]
fn versions_and_entry_points_are_checked() {
    refused(Class::Portable, Recipe { version: (1, 4), ..Recipe::default() }, "SPIR-V 1.4");
    refused(Class::Portable, Recipe { entry: "gelu", ..Recipe::default() }, "named main");
}

#[test]
fn damaged_bytes_are_refused_not_panicked_on() {
    let bytes = Recipe { shared_floats: 8, ..Recipe::default() }.bytes();
    let kernel = row(Class::Portable);
    for cut in (0..bytes.len()).step_by(3) {
        assert!(reflect(&kernel, &bytes[..cut]).is_err(), "cut at {cut}");
    }
    let mut state = 20_261_201u32;
    for _ in 0..1000 {
        let mut bad = bytes.clone();
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = state as usize % bad.len();
        bad[at] ^= 1 << (state >> 29);
        // Any answer will do, as long as there is one.
        let _ = reflect(&kernel, &bad);
    }
}
