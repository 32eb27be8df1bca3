//! Shape rules refuse what they cannot take, and never panic on the way.
//!
//! Each small sample of each op is bent: inputs left out, doubled, of another type, of another
//! rank or size, attributes at their extremes. A rule may accept some of these; it may not panic,
//! and it must refuse what is wrong for every op.

use oa_graph::attrs::Attrs;
use oa_graph::ops::{OpCall, OpDef, all};
use oa_graph::{DType, Shape, Spec};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Asks a rule; `None` when it panicked.
fn ask(op: &OpDef, inputs: &[Spec], attrs: &Attrs) -> Option<bool> {
    let call = || (op.infer)(&OpCall { inputs, outputs: &[], attrs }).is_ok();
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Every op with the specs and attributes of each small sample.
fn each(mut visit: impl FnMut(&OpDef, &[Spec], &Attrs)) {
    for op in all() {
        for sample in (op.samples)().iter().filter(|sample| !sample.large) {
            let specs: Vec<Spec> = sample.inputs.iter().map(|input| input.spec).collect();
            visit(op, &specs, &sample.attrs);
        }
    }
}

#[test]
fn no_input_and_too_many_inputs_are_refused() {
    let mut faults = Vec::new();
    each(|op, specs, attrs| {
        let mut many = specs.to_vec();
        many.extend([Spec::f32([3, 5]); 4]);
        for (what, inputs) in [("no input", &[][..]), ("too many inputs", &many)] {
            match ask(op, inputs, attrs) {
                Some(false) => {}
                Some(true) => faults.push(format!("{} takes {what}", op.name)),
                None => faults.push(format!("{} panics on {what}", op.name)),
            }
        }
    });
    faults.dedup();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_input_of_another_type_is_refused_by_most_and_panics_nowhere() {
    let mut faults = Vec::new();
    each(|op, specs, attrs| {
        for index in 0..specs.len() {
            for dtype in [DType::F32, DType::U32, DType::I32] {
                let mut bent = specs.to_vec();
                bent[index].dtype = dtype;
                if ask(op, &bent, attrs).is_none() {
                    faults.push(format!("{} panics on {dtype} at input {index}", op.name));
                }
            }
        }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn bent_shapes_panic_nowhere() {
    let mut faults = Vec::new();
    each(|op, specs, attrs| {
        for index in 0..specs.len() {
            for shape in bends(specs[index].shape) {
                let mut bent = specs.to_vec();
                bent[index].shape = shape;
                if ask(op, &bent, attrs).is_none() {
                    faults.push(format!("{} panics on {shape} at input {index}", op.name));
                }
            }
            let fewer = [&specs[..index], &specs[index + 1..]].concat();
            if ask(op, &fewer, attrs).is_none() {
                faults.push(format!("{} panics without input {index}", op.name));
            }
        }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// An op of several inputs takes them because their shapes belong together, so at least one bend of
/// one of them must be refused.
#[test]
fn shapes_that_do_not_belong_together_are_refused() {
    let mut faults = Vec::new();
    each(|op, specs, attrs| {
        if specs.len() < 2 {
            return;
        }
        let refused = (0..specs.len()).any(|index| {
            bends(specs[index].shape).into_iter().any(|shape| {
                let mut bent = specs.to_vec();
                bent[index].shape = shape;
                ask(op, &bent, attrs) == Some(false)
            })
        });
        if !refused {
            faults.push(format!("{} takes any shapes", op.name));
        }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn extreme_attributes_panic_nowhere() {
    let mut faults = Vec::new();
    each(|op, specs, attrs| {
        for slot in 0..attrs.int.len() {
            for value in [0, 1, 7, u32::MAX / 2, u32::MAX] {
                let mut bent = *attrs;
                bent.int[slot] = value;
                if ask(op, specs, &bent).is_none() {
                    faults.push(format!("{} panics on {value} in attribute {slot}", op.name));
                }
            }
        }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Shapes near a given one: every axis longer, shorter and empty, one axis less and one more.
fn bends(shape: Shape) -> Vec<Shape> {
    let dims = shape.dims();
    let mut bent = vec![vec![], [dims, &[1]].concat(), [&[2], dims].concat()];
    if let Some((_, fewer)) = dims.split_last() {
        bent.push(dims[1..].to_vec());
        bent.push(fewer.to_vec());
    }
    for axis in 0..dims.len() {
        for size in [0, 1, dims[axis] + 1, dims[axis] - dims[axis].min(1), 1 << 33] {
            let mut dims = dims.to_vec();
            dims[axis] = size;
            bent.push(dims);
        }
    }
    let shapes = bent.iter().filter_map(|dims| Shape::try_new(dims));
    shapes.filter(|bent| bent.dims() != dims).collect()
}
