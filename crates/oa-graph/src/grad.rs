//! The reverse walk: gradients as more ops in the same graph.
//!
//! It knows no op by name: each row of the op table brings its derivative rule, and an op without
//! one is an error as soon as a gradient is asked through it.

use crate::error::{Error, Result};
use crate::graph::{Node, NodeKind, ValueRef};
use crate::ops::{Backward, GradCall};
use crate::oracle::ancestors;
use crate::state::State;
use crate::value::Tensor;
use oa_kernels::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sum of the gradients that reached each output of a node.
type Adjoints = BTreeMap<u64, Vec<Option<Tensor>>>;

/// Gradients of `sum_i <outputs[i].0, outputs[i].1>` with respect to `inputs`; `None` where the
/// outputs do not depend on an input.
///
/// # Errors
///
/// [`Error::NotDifferentiable`] when the only way to an input leads through an op without a
/// derivative.
pub fn gradients(
    outputs: &[(&Tensor, &Tensor)],
    inputs: &[&Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let targets: BTreeSet<u64> = inputs.iter().map(|input| input.value.node.seq).collect();
    let adjoints = walk(outputs, &targets)?;
    let of = |input: &&Tensor| {
        let found = adjoints.get(&input.value.node.seq)?;
        found[input.value.output as usize].clone()
    };
    Ok(inputs.iter().map(of).collect())
}

/// Gradients of the scalar `loss` with respect to the current contents of `states`, summed over all
/// reads of each state; `None` for a state that the loss does not depend on.
///
/// # Errors
///
/// As [`gradients`].
#[track_caller]
pub fn backward(loss: &Tensor, states: &[&State]) -> Result<Vec<Option<Tensor>>> {
    let wanted: BTreeMap<usize, usize> = states
        .iter()
        .enumerate()
        .map(|(index, state)| (Arc::as_ptr(&state.core) as usize, index))
        .collect();
    let mut reads: Vec<(usize, u64)> = Vec::new();
    for (seq, node) in ancestors(&[&loss.value]) {
        if let NodeKind::State { state, .. } = &node.kind
            && let Some(&index) = wanted.get(&(Arc::as_ptr(state) as usize))
        {
            reads.push((index, seq));
        }
    }
    let targets: BTreeSet<u64> = reads.iter().map(|&(_, seq)| seq).collect();
    let seed = loss.graph().filled_f32(loss.shape(), 1.0)?;
    let adjoints = walk(&[(loss, &seed)], &targets)?;
    let mut sums: Vec<Option<Tensor>> = vec![None; states.len()];
    for (index, seq) in reads {
        let found = adjoints.get(&seq).and_then(|outputs| outputs[0].clone());
        accumulate(&mut sums[index], found)?;
    }
    Ok(sums)
}

fn accumulate(sum: &mut Option<Tensor>, more: Option<Tensor>) -> Result<()> {
    *sum = match (sum.take(), more) {
        (Some(a), Some(b)) => Some(a.add(&b)?),
        (a, b) => a.or(b),
    };
    Ok(())
}

/// The nodes between the targets and the outputs: only these need an adjoint.
fn dependents(nodes: &BTreeMap<u64, Arc<Node>>, targets: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut needed = targets.clone();
    for (seq, node) in nodes {
        if let NodeKind::Op { inputs, .. } = &node.kind
            && inputs.iter().any(|input| wants(input, &needed))
        {
            needed.insert(*seq);
        }
    }
    needed
}

fn wants(input: &ValueRef, needed: &BTreeSet<u64>) -> bool {
    needed.contains(&input.node.seq) && input.spec().dtype == DType::F32
}

fn walk(outputs: &[(&Tensor, &Tensor)], targets: &BTreeSet<u64>) -> Result<Adjoints> {
    let roots: Vec<&ValueRef> = outputs.iter().map(|(output, _)| &output.value).collect();
    let nodes = ancestors(&roots);
    let needed = dependents(&nodes, targets);
    let mut adjoints: Adjoints = BTreeMap::new();
    for (output, seed) in outputs {
        let ValueRef { node, output: index } = &output.value;
        let slots = adjoints.entry(node.seq).or_insert_with(|| vec![None; node.outputs.len()]);
        accumulate(&mut slots[*index as usize], Some((*seed).clone()))?;
    }
    for (seq, node) in nodes.iter().rev() {
        if !needed.contains(seq) || !adjoints.contains_key(seq) {
            continue;
        }
        for (input, gradient) in step(node, &adjoints[seq], &needed)? {
            let slots = adjoints
                .entry(input.node.seq)
                .or_insert_with(|| vec![None; input.node.outputs.len()]);
            accumulate(&mut slots[input.output as usize], Some(gradient))?;
        }
    }
    Ok(adjoints)
}

/// Applies one node's derivative rule.
fn step(
    node: &Arc<Node>,
    douts: &[Option<Tensor>],
    needed: &BTreeSet<u64>,
) -> Result<Vec<(ValueRef, Tensor)>> {
    let NodeKind::Op { def, attrs, inputs } = &node.kind else { return Ok(Vec::new()) };
    let rule = match def.backward {
        Backward::Rule(rule) => rule,
        Backward::None(reason) => {
            return Err(Error::NotDifferentiable { op: def.name, site: node.site, reason });
        }
    };
    let wanted: Vec<bool> = inputs.iter().map(|input| wants(input, needed)).collect();
    if !wanted.contains(&true) {
        return Ok(Vec::new());
    }
    let tensors: Vec<Tensor> = inputs.iter().map(Tensor::of_ref).collect();
    let outputs: Vec<Tensor> =
        (0..node.outputs.len()).map(|output| Tensor::of(node.clone(), output as u8)).collect();
    let gradients =
        rule(&GradCall { inputs: &tensors, outputs: &outputs, douts, attrs, wanted: &wanted })?;
    assert_eq!(gradients.len(), inputs.len(), "{} returns a gradient slot per input", def.name);
    let pairs = inputs.iter().zip(gradients).zip(&wanted);
    let mut result = Vec::new();
    for ((input, gradient), &wanted) in pairs {
        let Some(gradient) = gradient.filter(|_| wanted) else { continue };
        assert_eq!(gradient.shape(), input.spec().shape, "{}'s gradient fits its input", def.name);
        result.push((input.clone(), gradient));
    }
    Ok(result)
}
