//! The composed losses on the host reference.

use super::*;
use crate::graph::Graph;
use crate::{grad, oracle};
use std::sync::Arc;

/// Logits and targets of a graph: some rows ignored, or all of them.
fn data(graph: &Arc<Graph>, rows: usize, classes: usize, all: bool) -> (Tensor, Tensor) {
    let logits = super::super::sample::uniform([rows, classes], -3.0, 3.0, 5);
    let target = |row: usize| if all || row % 5 == 1 { IGNORE } else { (row % classes) as i32 };
    let targets: Vec<i32> = (0..rows).map(target).collect();
    let spec = Spec::i32([rows]);
    let bytes = bytemuck::cast_slice(&targets).to_vec();
    let logits = graph.host(logits.spec, logits.to_bytes().into()).unwrap();
    (logits, graph.host(spec, bytes.into()).unwrap())
}

/// Loss and gradient of the logits.
fn evaluate(loss: &Tensor, logits: &Tensor) -> (f64, Vec<f64>) {
    let seed = loss.graph().filled_f32(loss.shape(), 1.0).unwrap();
    let found = grad::gradients(&[(loss, &seed)], &[logits]).unwrap().remove(0).unwrap();
    let values = oracle::evaluate(&[loss, &found]);
    (values[0].data[0], values[1].data.clone())
}

fn close(a: &(f64, Vec<f64>), b: &(f64, Vec<f64>)) {
    assert!((a.0 - b.0).abs() < 1.0e-12 * a.0.abs().max(1.0), "{} and {}", a.0, b.0);
    let worst = a.1.iter().zip(&b.1).fold(0.0f64, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst < 1.0e-12, "the gradients differ by {worst}");
}

#[test]
fn both_ways_to_the_mean_agree() {
    let options = CrossEntropy { smoothing: 0.1, z_coef: 1.0e-3, ..CrossEntropy::default() };
    for (rows, classes) in [(1, 1), (7, 5), (129, 17)] {
        let graph = Graph::detached();
        let (logits, targets) = data(&graph, rows, classes, false);
        let direct = logits.cross_entropy(&targets, options).unwrap();
        let inverse = targets.inverse_count(IGNORE).unwrap();
        let scaled = logits.cross_entropy_with(&targets, &inverse, options).unwrap();
        close(&evaluate(&direct, &logits), &evaluate(&scaled, &logits));
    }
}

/// More rows than one workgroup averages: parts are summed, and each part has its gradient.
#[test]
fn many_rows_are_summed_in_parts() {
    let graph = Graph::detached();
    let (logits, targets) = data(&graph, MEAN_ROWS + 100, 3, false);
    let options = CrossEntropy::default();
    let loss = logits.cross_entropy(&targets, options).unwrap();
    assert_eq!(loss.shape(), Shape::SCALAR);
    let values = oracle::evaluate(&[&logits, &targets]);
    let rows = row_losses(&values[0], &values[1], &Attrs::ints(&[IGNORE as u32]));
    let valid = values[1].data.iter().filter(|&&target| target != f64::from(IGNORE)).count();
    let (got, gradient) = evaluate(&loss, &logits);
    assert!((got - sum(&rows) / valid as f64).abs() < 1.0e-12, "{got}");
    let total: f64 = gradient.iter().sum();
    assert!(total.abs() < 1.0e-9, "each row's gradient sums to zero, not to {total}");
}

#[test]
fn a_batch_without_valid_rows_has_no_loss() {
    let graph = Graph::detached();
    let (logits, targets) = data(&graph, 4, 3, true);
    let loss = logits.cross_entropy(&targets, CrossEntropy::default()).unwrap();
    let (loss, gradient) = evaluate(&loss, &logits);
    assert_eq!(loss, 0.0);
    assert!(gradient.iter().all(|&g| g == 0.0));
}

#[test]
fn a_target_that_is_no_class_shows() {
    let graph = Graph::detached();
    let (logits, _) = data(&graph, 1, 3, false);
    let bytes = bytemuck::cast_slice(&[3i32]).to_vec();
    let targets = graph.host(Spec::i32([1]), bytes.into()).unwrap();
    let loss = logits.cross_entropy(&targets, CrossEntropy::default()).unwrap();
    assert!(evaluate(&loss, &logits).0.is_nan());
}
