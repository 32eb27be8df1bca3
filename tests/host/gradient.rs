//! Derivative rules against finite differences of the f64 references.
//!
//! A rule emits ops, so the oracle evaluates it without a device; a wrong rule is reported by op
//! and input. Fourth-order central differences of `sum <output, random>` are taken per element and,
//! for large inputs, also along a random direction, which no element escapes.

use oa_graph::graph::Graph;
use oa_graph::ops::sample::{Sample, Source, signed};
use oa_graph::ops::{Backward, Lower, OpDef, all, rule};
use oa_graph::{Attrs, DType, HostTensor, Tensor, grad, oracle};

/// Step of the differences: the rounding error of f64 and the fifth derivative weigh alike here.
const STEP: f64 = 1.0e-3;
/// Largest error over the largest gradient of the tensor. Rules may hold f32 attributes such as
/// one over a count, whose rounding alone is 6e-8.
const LIMIT: f64 = 1.0e-6;
/// Inputs with more elements than this are differentiated at this many elements and along one
/// direction.
const ELEMENTS: usize = 48;

/// Float inputs that an op treats as constants, with the reason; everything else must get a
/// gradient when the outputs depend on it.
const CONSTANT_INPUTS: &[(&str, usize, &str)] = &[];

#[test]
fn rules_agree_with_finite_differences() {
    let mut faults = Vec::new();
    let (mut ops, mut tensors) = (0, 0);
    for op in all() {
        if matches!(op.backward, Backward::None(_)) {
            continue;
        }
        ops += 1;
        for (index, sample) in (op.samples)().iter().enumerate().filter(|(_, s)| !s.large) {
            for fault in check(op, sample, &mut tensors) {
                faults.push(format!("{} sample {index}: {fault}", op.name));
            }
        }
    }
    println!("{tensors} gradients of {ops} ops compared");
    assert!(tensors > ops, "too few gradients were compared: {tensors} of {ops} ops");
    assert!(faults.is_empty(), "{} gradients are wrong:\n{}", faults.len(), faults.join("\n"));
}

/// A square whose rule forgets the factor 2 `x`.
static WRONG: OpDef = OpDef {
    name: "wrong_square",
    doc: "`x * x`, with the derivative of `x`.",
    infer: rule::same1,
    lower: Lower::View,
    backward: Backward::Rule(|call| Ok(vec![Some(call.dout().clone())])),
    reference: |inputs, _| {
        let squares = inputs[0].data.iter().map(|x| x * x).collect();
        vec![HostTensor::new(inputs[0].spec, squares)]
    },
    samples: || vec![Sample::new(vec![signed([5], 1)], Attrs::NONE)],
    mutates: &[],
    in_place: None,
};

/// The same square whose rule gives nothing at all.
static SILENT: OpDef = OpDef {
    name: "silent_square",
    backward: Backward::Rule(|_| Ok(vec![None])),
    doc: WRONG.doc,
    infer: WRONG.infer,
    lower: Lower::View,
    reference: WRONG.reference,
    samples: WRONG.samples,
    mutates: &[],
    in_place: None,
};

#[test]
fn a_wrong_rule_and_a_silent_one_are_found() {
    for (op, word) in [(&WRONG, "input 0: error"), (&SILENT, "input 0 (the rule gives none)")] {
        let faults = check(op, &(op.samples)()[0], &mut 0);
        assert_eq!(faults.len(), 1, "{}: {faults:?}", op.name);
        assert!(faults[0].starts_with(word), "{}: {faults:?}", op.name);
    }
}

/// The faults of one op on one sample.
fn check(op: &'static OpDef, sample: &Sample, tensors: &mut usize) -> Vec<String> {
    let seeds = seeds(op, sample);
    let gradients = match analytic(op, sample, &seeds) {
        Ok(gradients) => gradients,
        Err(error) => return vec![error.to_string()],
    };
    let mut faults = Vec::new();
    for (index, input) in sample.inputs.iter().enumerate() {
        if input.spec.dtype != DType::F32 {
            continue;
        }
        let constant = CONSTANT_INPUTS.iter().any(|(name, at, _)| *name == op.name && *at == index);
        if constant {
            continue;
        }
        *tensors += 1;
        let zero = vec![0.0; input.data.len()];
        let gradient = gradients[index].as_ref().map_or(&zero, |gradient| &gradient.data);
        let (error, place) = worst(op, sample, &seeds, index, gradient);
        if error.is_nan() || error > LIMIT {
            let none = if gradients[index].is_none() { " (the rule gives none)" } else { "" };
            faults.push(format!("input {index}{none}: error {error:.2e} at {place}"));
        }
    }
    faults
}

/// Random numbers to contract each float output with.
fn seeds(op: &OpDef, sample: &Sample) -> Vec<Option<Vec<f64>>> {
    let mut source = Source::new(0x5EED);
    let outputs = (op.reference)(&sample.inputs, &sample.attrs);
    let mut seed = |output: &HostTensor| {
        let float = output.spec.dtype == DType::F32;
        float.then(|| output.data.iter().map(|_| source.uniform(-1.0, 1.0)).collect())
    };
    outputs.iter().map(&mut seed).collect()
}

/// What the rule says.
fn analytic(
    op: &'static OpDef,
    sample: &Sample,
    seeds: &[Option<Vec<f64>>],
) -> oa_graph::Result<Vec<Option<HostTensor>>> {
    let graph = Graph::detached();
    let host = |value: &HostTensor| graph.host(value.spec, value.to_bytes().into());
    let inputs: oa_graph::Result<Vec<Tensor>> = sample.inputs.iter().map(host).collect();
    let inputs = inputs?;
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let outputs = Graph::record(op, sample.attrs, &inputs)?;
    let mut pairs = Vec::new();
    for (output, seed) in outputs.iter().zip(seeds) {
        if let Some(seed) = seed {
            pairs.push((output, host(&HostTensor::new(output.spec(), seed.clone()))?));
        }
    }
    let pairs: Vec<(&Tensor, &Tensor)> = pairs.iter().map(|(o, seed)| (*o, seed)).collect();
    let gradients = grad::gradients(&pairs, &inputs)?;
    let present: Vec<&Tensor> = gradients.iter().flatten().collect();
    let mut values = oracle::evaluate(&present).into_iter();
    Ok(gradients.iter().map(|gradient| gradient.as_ref().and_then(|_| values.next())).collect())
}

/// The largest relative error of a gradient and where it is.
fn worst(
    op: &OpDef,
    sample: &Sample,
    seeds: &[Option<Vec<f64>>],
    input: usize,
    gradient: &[f64],
) -> (f64, String) {
    let count = gradient.len();
    let mut source = Source::new(0xD1FF + input as u64);
    let mut pick = |index: usize| match count <= ELEMENTS {
        true => index,
        false => (source.bits() % count as u64) as usize,
    };
    let elements: Vec<usize> = (0..count.min(ELEMENTS)).map(&mut pick).collect();
    let mut directions: Vec<(String, Vec<(usize, f64)>)> = elements
        .into_iter()
        .map(|element| (format!("element {element}"), vec![(element, 1.0)]))
        .collect();
    if count > ELEMENTS {
        let random: Vec<f64> = (0..count).map(|_| source.uniform(-1.0, 1.0)).collect();
        let norm = random.iter().map(|x| x * x).sum::<f64>().sqrt();
        let whole = random.iter().enumerate().map(|(index, x)| (index, x / norm)).collect();
        directions.push(("a random direction".to_owned(), whole));
    }
    let mut found: Vec<(f64, String)> = Vec::new();
    let mut scale = gradient.iter().fold(0.0f64, |scale, g| scale.max(g.abs()));
    for (place, direction) in directions {
        let want = difference(op, sample, seeds, input, &direction);
        let got: f64 = direction.iter().map(|&(index, x)| gradient[index] * x).sum();
        scale = scale.max(want.abs());
        found.push(((got - want).abs(), place));
    }
    let (error, place) = found
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or((f64::NAN, "no element".to_owned()));
    // A gradient that is zero everywhere is compared with the rounding error of the differences.
    (error / scale.max(1.0e-3), place)
}

/// The fourth-order central difference of the contracted outputs along a direction.
fn difference(
    op: &OpDef,
    sample: &Sample,
    seeds: &[Option<Vec<f64>>],
    input: usize,
    direction: &[(usize, f64)],
) -> f64 {
    let at = |steps: f64| {
        let mut inputs = sample.inputs.clone();
        for &(index, x) in direction {
            inputs[input].data[index] += steps * STEP * x;
        }
        contract(&(op.reference)(&inputs, &sample.attrs), seeds)
    };
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * STEP)
}

fn contract(outputs: &[HostTensor], seeds: &[Option<Vec<f64>>]) -> f64 {
    let mut sum = 0.0;
    for (output, seed) in outputs.iter().zip(seeds) {
        let Some(seed) = seed else { continue };
        sum += output.data.iter().zip(seed).map(|(value, seed)| value * seed).sum::<f64>();
    }
    sum
}
