//! A whole step as one execution plan.
//!
//! Tokens, targets, step number and optimizer settings are inputs of the plan; weights, gradients
//! and moments are states. A replay allocates nothing on the host when a step has one part.

use super::inputs::StepInputs;
use super::session::{ItTraining, walk_back};
use crate::data::Batch;
use crate::error::{Result, StepFault};
use oa_graph::{Event, ExecutionPlan, InputId, Spec, Tensor};

/// The inputs of one part of the batch. A forward pass need not use all of them.
struct PartInputs {
    tokens: Option<InputId>,
    targets: Option<InputId>,
    starts: Option<InputId>,
    /// Whether the captured batch said where documents start.
    packed: bool,
    rows: usize,
    sequence: usize,
}

/// The plan of a step.
pub(super) struct CapturedStep {
    plan: ExecutionPlan,
    parts: Vec<PartInputs>,
    hyper: InputId,
    step: Option<InputId>,
    inverse_count: Option<InputId>,
    freezing: u64,
}

impl CapturedStep {
    /// Captures a step whose parts have the sizes of `batches`.
    pub(super) fn capture(
        training: &mut ItTraining<'_>,
        batches: &[Batch],
        forward: &mut dyn FnMut(&StepInputs) -> Result<Tensor>,
    ) -> Result<CapturedStep> {
        training.zero_grad();
        let (engine, seed) = (training.engine.clone(), training.config.seed);
        let optimizer = &mut *training.optimizer;
        let freezing = optimizer.parameters().freezing_changes();
        let plan = engine.capture(|| {
            let step = engine.input("step", Spec::u32([1]));
            let several = batches.len() > 1;
            let inverse = several.then(|| engine.input("inverse_count", Spec::f32([1])));
            let mut total: Option<Tensor> = None;
            for (part, batch) in batches.iter().enumerate() {
                let shape = [batch.rows, batch.sequence];
                let inputs = StepInputs {
                    tokens: engine.input(&format!("tokens.{part}"), Spec::u32(shape)),
                    targets: engine.input(&format!("targets.{part}"), Spec::i32(shape)),
                    starts: batch
                        .starts
                        .is_some()
                        .then(|| engine.input(&format!("starts.{part}"), Spec::u32(shape))),
                    step: step.clone(),
                    inverse_count: inverse.clone(),
                    seed,
                    part: part as u16,
                };
                walk_back(&mut total, forward(&inputs)?)?;
            }
            let norm = optimizer.record(&engine.input("hyper", Spec::f32([8])))?;
            let loss = total.expect("a step has at least one part");
            Ok::<Vec<Tensor>, crate::Error>(vec![loss, norm])
        })?;
        let part = |(part, batch): (usize, &Batch)| PartInputs {
            tokens: plan.input(&format!("tokens.{part}")),
            targets: plan.input(&format!("targets.{part}")),
            starts: plan.input(&format!("starts.{part}")),
            packed: batch.starts.is_some(),
            rows: batch.rows,
            sequence: batch.sequence,
        };
        let parts = batches.iter().enumerate().map(part).collect();
        let hyper = plan.input("hyper").expect("the update of every step reads its settings");
        let (step, inverse_count) = (plan.input("step"), plan.input("inverse_count"));
        Ok(CapturedStep { plan, parts, hyper, step, inverse_count, freezing })
    }

    /// Refuses batches of other sizes than the captured ones.
    pub(super) fn check(&self, batches: &[Batch]) -> std::result::Result<(), StepFault> {
        let fits = |(part, batch): (&PartInputs, &Batch)| {
            let cells = batch.rows * batch.sequence;
            let filled = batch.tokens.len() == cells && batch.targets.len() == cells;
            let starts = batch.starts.as_ref().map(Vec::len);
            let starts = starts == part.packed.then_some(cells);
            part.rows == batch.rows && part.sequence == batch.sequence && filled && starts
        };
        match batches.iter().zip(&self.parts).find(|(batch, part)| !fits((part, batch))) {
            Some((&Batch { rows, sequence, .. }, _)) => {
                Err(StepFault::BatchSize { rows, sequence })
            }
            None => Ok(()),
        }
    }

    /// Submits the step.
    pub(super) fn replay(
        &self,
        batches: &[Batch],
        step: u32,
        hyper: &[f32; 8],
        inverse_count: f32,
    ) -> Result<Event> {
        let (step, inverse) = ([step], [inverse_count]);
        let scalars = [
            Some((self.hyper, bytemuck::cast_slice(hyper))),
            self.step.map(|id| (id, bytemuck::cast_slice(&step))),
            self.inverse_count.map(|id| (id, bytemuck::cast_slice(&inverse))),
        ];
        let parts = self.parts.iter().zip(batches).flat_map(|(part, batch)| {
            [
                part.tokens.map(|id| (id, bytemuck::cast_slice(&batch.tokens))),
                part.targets.map(|id| (id, bytemuck::cast_slice(&batch.targets))),
                part.starts
                    .zip(batch.starts.as_deref())
                    .map(|(id, s)| (id, bytemuck::cast_slice(s))),
            ]
        });
        let mut bindings = scalars.into_iter().chain(parts).flatten();
        let (Some(first), rest) = (bindings.next(), &mut bindings) else {
            unreachable!("a step has at least its settings as input");
        };
        let mut few: [(InputId, &[u8]); FEW] = [first; FEW];
        let mut count = 1;
        for binding in rest.take(FEW - 1) {
            few[count] = binding;
            count += 1;
        }
        match bindings.next() {
            None => Ok(self.plan.submit(&few[..count])?),
            Some(next) => {
                let all: Vec<_> = few.into_iter().chain([next]).chain(bindings).collect();
                Ok(self.plan.submit(&all)?)
            }
        }
    }

    /// The freezing that it was captured under; see `Parameters::freezing_changes`.
    pub(super) fn freezing(&self) -> u64 {
        self.freezing
    }

    /// The plan.
    pub(super) fn plan(&self) -> &ExecutionPlan {
        &self.plan
    }
}

/// Bindings kept on the stack: enough for the settings and one packed part or two.
const FEW: usize = 8;
