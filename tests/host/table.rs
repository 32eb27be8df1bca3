//! Every row of the op table is complete and agrees with itself.

use oa_graph::ops::{Backward, Lower, OpCall, OpDef, all};
use oa_graph::{DType, HostTensor};
use std::collections::BTreeSet;

#[test]
fn names_are_unique_words() {
    let mut names = BTreeSet::new();
    for op in all() {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(!op.name.is_empty() && op.name.chars().all(word), "`{}` is no plain name", op.name);
        assert!(names.insert(op.name), "two ops are called `{}`", op.name);
    }
    assert!(names.len() >= 30, "the table lost rows: {names:?}");
}

#[test]
fn every_op_is_explained_in_a_sentence() {
    for op in all() {
        let doc = op.doc.trim();
        assert!(doc.len() >= 10 && doc.ends_with('.'), "{}: doc is `{doc}`", op.name);
    }
}

#[test]
fn an_op_without_a_derivative_says_why() {
    for op in all() {
        if let Backward::None(reason) = op.backward {
            assert!(reason.len() >= 10, "{}: the reason is `{reason}`", op.name);
        }
    }
}

#[test]
fn every_op_has_a_small_sample_of_plain_numbers() {
    for op in all() {
        let samples = (op.samples)();
        assert!(samples.iter().any(|sample| !sample.large), "{} has no small sample", op.name);
        for sample in samples.iter().filter(|sample| !sample.large) {
            for input in &sample.inputs {
                let exact = |&value: &f64| match input.spec.dtype {
                    DType::F32 => f64::from(value as f32) == value,
                    DType::U32 => f64::from(value as u32) == value,
                    DType::I32 => f64::from(value as i32) == value,
                };
                let bad = input.data.iter().find(|value| !exact(value));
                assert_eq!(bad, None, "{}: a sample value is no {}", op.name, input.spec.dtype);
            }
        }
    }
}

/// Outputs as `infer` says, then the changed inputs with their own specs.
#[test]
fn references_follow_the_shape_rule() {
    for op in all() {
        for (index, sample) in (op.samples)().iter().enumerate().filter(|(_, s)| !s.large) {
            let inputs: Vec<_> = sample.inputs.iter().map(|input| input.spec).collect();
            let call = OpCall { inputs: &inputs, outputs: &[], attrs: &sample.attrs };
            let mut specs = (op.infer)(&call).unwrap_or_else(|error| {
                panic!("{} refuses its sample {index}: {error}", op.name);
            });
            specs.extend(op.mutates.iter().map(|&input| inputs[input]));
            let results: Vec<HostTensor> = (op.reference)(&sample.inputs, &sample.attrs);
            let found: Vec<_> = results.iter().map(|result| result.spec).collect();
            assert_eq!(found, specs, "{}: the reference on sample {index}", op.name);
            let finite = results.iter().all(|r| r.data.iter().all(|value| !value.is_nan()));
            assert!(finite, "{}: the reference on sample {index} has a NaN", op.name);
        }
    }
}

#[test]
fn inputs_that_are_changed_or_reused_exist() {
    for op in all() {
        for sample in (op.samples)().iter().filter(|sample| !sample.large) {
            let count = sample.inputs.len();
            assert!(op.mutates.iter().all(|&input| input < count), "{} mutates", op.name);
            assert!(op.in_place.is_none_or(|input| input < count), "{} in place", op.name);
        }
        check_in_place(op);
    }
}

/// The first output may take an input's buffer only when both have the same bytes.
fn check_in_place(op: &OpDef) {
    let Some(reused) = op.in_place else { return };
    for sample in (op.samples)().iter().filter(|sample| !sample.large) {
        let inputs: Vec<_> = sample.inputs.iter().map(|input| input.spec).collect();
        let call = OpCall { inputs: &inputs, outputs: &[], attrs: &sample.attrs };
        let outputs = (op.infer)(&call).expect("references_follow_the_shape_rule checks it");
        assert_eq!(outputs[0].len_bytes(), inputs[reused].len_bytes(), "{} in place", op.name);
    }
}

/// A family that an op names has a kernel, so that no op is found missing at run time.
#[test]
fn every_family_has_a_kernel_for_the_smallest_device() {
    let floor = oa_vk::Capabilities::floor();
    for op in all() {
        let Lower::Kernel { family, .. } = op.lower else { continue };
        for sample in (op.samples)().iter().filter(|sample| !sample.large) {
            let inputs: Vec<_> = sample.inputs.iter().map(|input| input.spec).collect();
            let call = OpCall { inputs: &inputs, outputs: &[], attrs: &sample.attrs };
            let outputs = (op.infer)(&call).expect("references_follow_the_shape_rule checks it");
            let call = OpCall { inputs: &inputs, outputs: &outputs, attrs: &sample.attrs };
            let family = family(&call);
            let selected = oa_kernels::select(family, &floor);
            assert!(selected.is_ok(), "{}: {}", op.name, selected.unwrap_err());
        }
    }
}
