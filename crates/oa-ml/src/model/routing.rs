//! Losses and statistics of a model's routers.
//!
//! Losses are values of the graph and part of what training minimises; statistics are read back and
//! block. Models without experts have neither.

use super::{Model, ModelConfig};
use crate::error::Result;
use crate::nn::moe::{Routed, RouterLog};
use crate::nn::{DropoutPass, Pass};
use oa_graph::Tensor;

/// How the tokens of one pass were spread over the experts of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStatistics {
    /// Assignments of each expert; they add up to tokens times k.
    pub assignments: Vec<u32>,
    /// Load-balance loss: 1 when uniform.
    pub balance: f32,
    /// Mean squared log-sum-exp of the logits.
    pub z: f32,
}

impl ModelConfig {
    /// Coefficients of the load-balance loss and of the z loss; `None` without experts.
    pub fn router_coefficients(&self) -> Option<[f32; 2]> {
        match self {
            ModelConfig::ContractMoe(config) => Some([config.aux_coef, config.z_coef]),
            ModelConfig::Moe(config) => Some([config.aux_coef, config.z_coef]),
            _ => None,
        }
    }
}

impl Model {
    /// Logits, with the dropout masks of a training step if given, and what the routers add to the loss:
    /// the mean over layers of their losses times the model's coefficients. `None` for a model
    /// without experts, or with both coefficients 0.
    ///
    /// # Errors
    ///
    /// As [`Model::forward`].
    #[track_caller]
    pub fn forward_with_losses(
        &self,
        tokens: &Tensor,
        dropout: Option<DropoutPass<'_>>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        self.forward_packed(tokens, None, dropout)
    }

    /// As [`Model::forward_with_losses`], for rows that hold several documents: `starts` is u32
    /// `[B, T]`, 1 at the first token of a document and else 0, and nothing before a start reaches
    /// what follows it.
    ///
    /// # Errors
    ///
    /// As [`Model::forward`]; [`Error::NoResets`](crate::Error::NoResets) when starts are given to a
    /// model that [cannot](ModelConfig::resets_at_starts) tell documents apart.
    #[track_caller]
    pub fn forward_packed(
        &self,
        tokens: &Tensor,
        starts: Option<&Tensor>,
        dropout: Option<DropoutPass<'_>>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let log = RouterLog::default();
        let pass = Pass { dropout, starts, routers: Some(&log), cache: None };
        let logits = self.head(&self.hidden(tokens, &pass)?)?;
        let routed = log.into_inner();
        let coefficients = self.config().router_coefficients().filter(|c| *c != [0.0; 2]);
        let Some(coefficients) = coefficients else { return Ok((logits, None)) };
        let share = coefficients.map(|c| (f64::from(c) / routed.len().max(1) as f64) as f32);
        let mut total: Option<Tensor> = None;
        for layer in &routed {
            let losses = layer.losses(share)?;
            total = Some(match total {
                Some(total) => total.add(&losses)?,
                None => losses,
            });
        }
        Ok((logits, total))
    }

    /// How the routers spread the tokens `[B, T]`, per layer; empty without experts. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Model::forward`].
    #[track_caller]
    pub fn route_statistics(&self, tokens: &Tensor) -> Result<Vec<RouteStatistics>> {
        let log = RouterLog::default();
        let pass = Pass { routers: Some(&log), ..Pass::default() };
        self.hidden(tokens, &pass)?;
        log.into_inner().iter().map(statistics).collect()
    }
}

fn statistics(layer: &Routed) -> Result<RouteStatistics> {
    let offsets = layer.offsets.to_vec_u32()?;
    Ok(RouteStatistics {
        assignments: offsets.windows(2).map(|pair| pair[1] - pair[0]).collect(),
        balance: layer.losses([1.0, 0.0])?.item()?,
        z: layer.losses([0.0, 1.0])?.item()?,
    })
}
