//! Batch norm: normalised by the batch while training, by running statistics afterwards.

use crate::error::Result;
use crate::init::Init;
use crate::param::{Buffer, Parameter, Scope};
use oa_graph::Tensor;

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Statistics are those of the batch, and the running ones follow.
    Training,
    /// Statistics are the running ones, which stay as they are: an example's answer does not depend
    /// on the batch it comes in.
    #[default]
    Evaluation,
}

/// Zero mean and unit variance of each channel of `[B, C, ..]`, times a gain, plus a bias.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// The gain, `[channels]`.
    pub gain: Parameter,
    /// The bias, `[channels]`.
    pub bias: Parameter,
    /// Running mean, `[channels]`.
    pub mean: Buffer,
    /// Running variance, `[channels]`, without the bias of a small batch.
    pub variance: Buffer,
    /// Share of a new batch in the running statistics.
    pub momentum: f32,
    /// Added to the variance.
    pub eps: f32,
}

impl BatchNorm {
    /// A norm with parameters `name.g` and `name.b` and buffers `name.mean` and `name.variance`; the
    /// momentum is 0.1 and epsilon 1e-5.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, name: &str, channels: usize) -> Result<BatchNorm> {
        let mut scope = scope.scope(name);
        Ok(BatchNorm {
            gain: scope.declare("g", [channels], Init::Ones)?,
            bias: scope.declare("b", [channels], Init::Zeros)?,
            mean: scope.declare_buffer("mean", [channels], 0.0)?,
            variance: scope.declare_buffer("variance", [channels], 1.0)?,
            momentum: 0.1,
            eps: 1.0e-5,
        })
    }

    /// Normalises `[B, channels, ..]`. A training pass records the update of the running
    /// statistics.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit, or, while training, a channel has fewer than two values.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let (gain, bias) = (self.gain.value(), self.bias.value());
        if mode == Mode::Evaluation {
            let (mean, variance) = (self.mean.value(), self.variance.value());
            return Ok(x.channel_norm(&gain, &bias, &mean, &variance, self.eps)?);
        }
        let batch = x.batch_norm(&gain, &bias, self.eps)?;
        let values = batch.values as f64;
        follow(&self.mean, &batch.mean, self.momentum, 1.0)?;
        follow(&self.variance, &batch.variance, self.momentum, values / (values - 1.0))?;
        Ok(batch.y)
    }
}

/// Moves a running statistic towards `factor` times that of a batch.
fn follow(running: &Buffer, batch: &Tensor, momentum: f32, factor: f64) -> Result<()> {
    let share = f64::from(momentum);
    let kept = running.value().scale((1.0 - share) as f32)?;
    running.store(&kept.add(&batch.scale((share * factor) as f32)?)?)
}
