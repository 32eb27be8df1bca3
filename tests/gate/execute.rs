//! Runs one op of the table on one sample, on a device and on the host.
//!
//! The device runs it exactly as any recorded op: inputs as host data or, where the op changes
//! them, as states that are read back afterwards. Knows no op by name.

use crate::context::Force;
use anyhow::{Context, Result};
use oa_graph::engine::Engine;
use oa_graph::graph::Graph;
use oa_graph::ops::sample::Sample;
use oa_graph::ops::{Lower, OpCall, OpDef};
use oa_graph::{DType, HostTensor, Spec, State, Tensor};
use oa_kernels::select::misfit;
use oa_kernels::{Variant, registry};
use oa_vk::Capabilities;
use std::collections::BTreeSet;

/// The specs of a sample's inputs and of what the op makes of them.
///
/// # Errors
///
/// When the op's own shape rule refuses its sample.
pub fn specs(op: &OpDef, sample: &Sample) -> Result<(Vec<Spec>, Vec<Spec>)> {
    let inputs: Vec<Spec> = sample.inputs.iter().map(|input| input.spec).collect();
    let call = OpCall { inputs: &inputs, outputs: &[], attrs: &sample.attrs };
    let outputs = (op.infer)(&call).with_context(|| format!("{} refuses its sample", op.name))?;
    Ok((inputs, outputs))
}

/// The kernel family that a sample is computed by; `None` for an op without a kernel.
///
/// # Errors
///
/// As [`specs`].
pub fn family(op: &OpDef, sample: &Sample) -> Result<Option<&'static str>> {
    let (inputs, outputs) = specs(op, sample)?;
    match op.lower {
        Lower::Kernel { family, .. } => {
            let call = OpCall { inputs: &inputs, outputs: &outputs, attrs: &sample.attrs };
            Ok(Some(family(&call)))
        }
        Lower::View | Lower::Store => Ok(None),
    }
}

/// The set of forced variants that this one is forced by. Sets are shared: the first forces the first
/// variant of every family that the device can run, the second every second one, and so on, so
/// that a few engines cover all variants.
pub fn force_of(variant: &Variant, device: &Capabilities) -> Force {
    let fitting = |family: &str| -> Vec<&'static Variant> {
        let of_family = registry().iter().filter(|variant| variant.family == family);
        of_family.filter(|variant| misfit(variant, device).is_none()).collect()
    };
    let same = |other: &&Variant| other.name == variant.name;
    let place = fitting(variant.family).iter().position(same);
    let place = place.expect("only a variant that the device can run is forced");
    let families: BTreeSet<&str> = registry().iter().map(|variant| variant.family).collect();
    let nth = |family: &str| {
        let variant = *fitting(family).get(place)?;
        Some((family.to_owned(), variant.name.to_owned()))
    };
    families.into_iter().filter_map(nth).collect()
}

/// One result of an op: an output, or an input that it changed.
pub struct Found {
    /// `out0`, `out1`, … or `in0`, … for a changed input.
    pub name: String,
    /// What the device left, as bytes.
    pub bytes: Vec<u8>,
    /// Its shape and element type.
    pub spec: Spec,
}

/// Runs a sample on a device: the outputs, then the inputs that the op changes.
///
/// # Errors
///
/// When recording, compiling or executing fails.
pub fn on_device(engine: &Engine, op: &'static OpDef, sample: &Sample) -> Result<Vec<Found>> {
    let mut states: Vec<(usize, State)> = Vec::new();
    let mut inputs: Vec<Tensor> = Vec::new();
    for (index, input) in sample.inputs.iter().enumerate() {
        let bytes = input.to_bytes();
        if op.mutates.contains(&index) {
            let state = engine.state(&format!("in{index}"), input.spec)?;
            engine.write_state(&state, &bytes)?;
            inputs.push(engine.read(&state));
            states.push((index, state));
        } else {
            inputs.push(engine.graph().host(input.spec, bytes.into())?);
        }
    }
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let outputs = Graph::record(op, sample.attrs, &inputs)?;
    let mut found = Vec::new();
    for (index, output) in outputs.iter().enumerate() {
        let (name, spec) = (format!("out{index}"), output.spec());
        found.push(Found { name, bytes: bytes_of(output)?, spec });
    }
    for &mutated in op.mutates {
        let of_input = states.iter().find(|(index, _)| *index == mutated);
        let (_, state) = of_input.context("a changed input is a state")?;
        let mut bytes = vec![0; state.spec().len_bytes() as usize];
        engine.read_state(state, &mut bytes)?;
        found.push(Found { name: format!("in{mutated}"), bytes, spec: state.spec() });
    }
    Ok(found)
}

/// What the f64 reference makes of a sample, in the order of [`on_device`].
pub fn on_host(op: &OpDef, sample: &Sample) -> Vec<HostTensor> {
    (op.reference)(&sample.inputs, &sample.attrs)
}

/// The elements of a value as bytes; executes what it needs and waits.
///
/// # Errors
///
/// When the device fails.
pub fn bytes_of(value: &Tensor) -> Result<Vec<u8>> {
    Ok(match value.dtype() {
        DType::F32 => bytemuck::cast_slice(&value.to_vec_f32()?).to_vec(),
        DType::U32 => bytemuck::cast_slice(&value.to_vec_u32()?).to_vec(),
        DType::I32 => bytemuck::cast_slice(&value.to_vec_i32()?).to_vec(),
    })
}
