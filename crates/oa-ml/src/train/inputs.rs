//! What a step's forward pass is given.

use crate::data::Batch;
use crate::error::Result;
use crate::loss;
use crate::model::Model;
use crate::nn::DropoutPass;
use oa_graph::{Engine, Tensor};

/// One part of a step's batch, on the device or as inputs of a plan being captured.
pub struct StepInputs {
    /// Token ids, u32 `[rows, sequence]`.
    pub tokens: Tensor,
    /// Targets, i32 `[rows, sequence]`.
    pub targets: Tensor,
    /// Where documents start, u32 `[rows, sequence]`, when the batch says so: 1 at the first token
    /// of a document, else 0.
    pub starts: Option<Tensor>,
    /// Number of the optimizer step, u32 `[1]`.
    pub step: Tensor,
    /// One over the targets that count in all parts; `None` when there is only one part.
    pub(super) inverse_count: Option<Tensor>,
    /// Seed of the run.
    pub(super) seed: u64,
    /// Which part, from 0.
    pub(super) part: u16,
}

impl StepInputs {
    /// The part's share of the step's cross-entropy: the shares of all parts add up to the mean
    /// over the whole batch.
    ///
    /// # Errors
    ///
    /// When the logits do not fit the targets.
    #[track_caller]
    pub fn cross_entropy(&self, logits: &Tensor) -> Result<Tensor> {
        match &self.inverse_count {
            Some(inverse) => loss::cross_entropy_share(logits, &self.targets, inverse),
            None => loss::cross_entropy(logits, &self.targets),
        }
    }

    /// The part's share of the step's loss: the cross-entropy, and what the model's routers add.
    /// A model that can drops its state where a document starts; any other reads a packed row as
    /// one text.
    ///
    /// # Errors
    ///
    /// When the model does not take the tokens.
    #[track_caller]
    pub fn loss(&self, model: &Model) -> Result<Tensor> {
        let starts = self.starts.as_ref().filter(|_| model.config().resets_at_starts());
        let dropout = Some(self.dropout());
        let (logits, routers) = model.forward_packed(&self.tokens, starts, dropout)?;
        let loss = self.cross_entropy(&logits)?;
        let Some(routers) = routers else { return Ok(loss) };
        let Some(inverse) = &self.inverse_count else { return Ok(loss.add(&routers)?) };
        // Routers see every token, so a part's share is its part of the tokens.
        let share = routers.reshape([1])?.mul(inverse)?.scale(self.tokens.shape().elems() as f32)?;
        Ok(loss.add(&share.reshape(loss.shape())?)?)
    }

    /// The dropout masks of this part of this step.
    pub fn dropout(&self) -> DropoutPass<'_> {
        DropoutPass { seed: self.seed, step: &self.step, part: self.part }
    }
}

impl Batch {
    /// Token ids as a value on an engine: u32 `[rows, sequence]`.
    ///
    /// # Errors
    ///
    /// When the batch's vectors do not have its size.
    #[track_caller]
    pub fn tokens_on(&self, engine: &Engine) -> Result<Tensor> {
        Ok(engine.tensor_u32([self.rows, self.sequence], &self.tokens)?)
    }

    /// Targets as a value on an engine: i32 `[rows, sequence]`.
    ///
    /// # Errors
    ///
    /// As [`Batch::tokens_on`].
    #[track_caller]
    pub fn targets_on(&self, engine: &Engine) -> Result<Tensor> {
        Ok(engine.tensor_i32([self.rows, self.sequence], &self.targets)?)
    }

    /// Where documents start, as a value on an engine: u32 `[rows, sequence]`; `None` when the batch
    /// does not say.
    ///
    /// # Errors
    ///
    /// As [`Batch::tokens_on`].
    #[track_caller]
    pub fn starts_on(&self, engine: &Engine) -> Result<Option<Tensor>> {
        let shape = [self.rows, self.sequence];
        Ok(self.starts.as_ref().map(|starts| engine.tensor_u32(shape, starts)).transpose()?)
    }
}

/// One over the predictions that count in all parts; 0 when none does.
pub(super) fn inverse_count(batches: &[Batch]) -> f32 {
    match batches.iter().map(Batch::predictions).sum::<usize>() {
        0 => 0.0,
        count => (1.0 / count as f64) as f32,
    }
}
