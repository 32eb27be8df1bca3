//! Which optimizer, as plain data.

use super::Optimizer;
use super::adamw::{AdamW, AdamWConfig};
use super::muon::{Muon, MuonConfig};
use super::sgd::{Sgd, SgdConfig};
use crate::error::{Error, Result};
use crate::param::Parameters;
use serde::{Deserialize, Serialize};

/// An optimizer's kind and settings: what a file stores of it, and what builds it again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum OptimizerConfig {
    /// Moments of first and second order, decoupled decay.
    AdamW(AdamWConfig),
    /// Momentum.
    Sgd(SgdConfig),
    /// Orthogonalised momentum for hidden matrices, AdamW for the rest.
    Muon(MuonConfig),
}

impl OptimizerConfig {
    /// The settings usual for the optimizer of that name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownOptimizer`] when there is none.
    pub fn named(name: &str) -> Result<OptimizerConfig> {
        let all = [
            OptimizerConfig::AdamW(AdamWConfig::default()),
            OptimizerConfig::Sgd(SgdConfig::default()),
            OptimizerConfig::Muon(MuonConfig::default()),
        ];
        let found = all.into_iter().find(|config| config.name() == name);
        found.ok_or_else(|| Error::UnknownOptimizer { name: name.into() })
    }

    /// Its name: `adamw`, `sgd` or `muon`.
    pub fn name(&self) -> &'static str {
        match self {
            OptimizerConfig::AdamW(_) => "adamw",
            OptimizerConfig::Sgd(_) => "sgd",
            OptimizerConfig::Muon(_) => "muon",
        }
    }

    /// Base learning rate, which a schedule moves.
    pub fn rate(&self) -> f64 {
        match self {
            OptimizerConfig::AdamW(config) => config.lr,
            OptimizerConfig::Sgd(config) => config.lr,
            OptimizerConfig::Muon(config) => config.lr,
        }
    }

    /// Names of the moments it keeps, in the order of a file.
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            OptimizerConfig::AdamW(_) | OptimizerConfig::Muon(_) => &["m", "v"],
            OptimizerConfig::Sgd(_) => &["m"],
        }
    }

    /// Refuses settings outside their range.
    ///
    /// # Errors
    ///
    /// [`Error::Optimizer`] names the first one.
    pub fn check(&self) -> Result<()> {
        match self {
            OptimizerConfig::AdamW(config) => config.check(),
            OptimizerConfig::Sgd(config) => config.check(),
            OptimizerConfig::Muon(config) => config.check(),
        }
    }

    /// The optimizer with these settings.
    ///
    /// # Errors
    ///
    /// As [`OptimizerConfig::check`]; also when device memory is short.
    pub fn build(&self, parameters: Parameters) -> Result<Box<dyn Optimizer>> {
        Ok(match *self {
            OptimizerConfig::AdamW(config) => Box::new(AdamW::with_config(parameters, config)?),
            OptimizerConfig::Sgd(config) => Box::new(Sgd::with_config(parameters, config)?),
            OptimizerConfig::Muon(config) => Box::new(Muon::with_config(parameters, config)?),
        })
    }
}
