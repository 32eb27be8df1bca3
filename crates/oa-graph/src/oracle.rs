//! The host interpreter: evaluates a recorded graph in double precision with the op table's
//! references.
//!
//! It is the oracle that kernels and derivative rules are compared with; it is slow on purpose and
//! touches no device.

use crate::graph::{Node, NodeKind, ValueRef};
use crate::host::HostTensor;
use crate::value::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The values of `tensors`, computed by the f64 references.
///
/// # Panics
///
/// When a value depends on a state or on an op that changes one: the oracle has no device to ask.
pub fn evaluate(tensors: &[&Tensor]) -> Vec<HostTensor> {
    let roots: Vec<&ValueRef> = tensors.iter().map(|tensor| &tensor.value).collect();
    let mut results: BTreeMap<u64, Vec<HostTensor>> = BTreeMap::new();
    for node in ancestors(&roots).values() {
        let outputs = match &node.kind {
            NodeKind::Host(bytes) => vec![HostTensor::from_bytes(node.outputs[0], bytes)],
            NodeKind::Op { def, attrs, inputs } => {
                assert!(def.mutates.is_empty(), "the oracle evaluates values, not updates");
                let inputs: Vec<HostTensor> = inputs
                    .iter()
                    .map(|input| results[&input.node.seq][input.output as usize].clone())
                    .collect();
                (def.reference)(&inputs, attrs)
            }
            NodeKind::State { .. } | NodeKind::Input { .. } => {
                panic!("the oracle evaluates graphs of host values only")
            }
        };
        for (output, spec) in outputs.iter().zip(&node.outputs) {
            assert_eq!(output.spec, *spec, "the reference of {} follows infer", node.name());
        }
        results.insert(node.seq, outputs);
    }
    roots.iter().map(|root| results[&root.node.seq][root.output as usize].clone()).collect()
}

/// Every node that the roots depend on, in the order of recording.
pub(crate) fn ancestors(roots: &[&ValueRef]) -> BTreeMap<u64, Arc<Node>> {
    let mut found: BTreeMap<u64, Arc<Node>> = BTreeMap::new();
    let mut queued: BTreeSet<u64> = BTreeSet::new();
    let mut stack: Vec<Arc<Node>> = roots.iter().map(|root| root.node.clone()).collect();
    while let Some(node) = stack.pop() {
        if !queued.insert(node.seq) {
            continue;
        }
        if let NodeKind::Op { inputs, .. } = &node.kind {
            stack.extend(inputs.iter().map(|input| input.node.clone()));
        }
        found.insert(node.seq, node);
    }
    found
}
