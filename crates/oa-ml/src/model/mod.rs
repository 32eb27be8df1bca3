//! Whole models by architecture identity.
//!
//! A [`ModelConfig`] says everything about a model but its weights; building it declares the
//! parameters on an engine. Files rebuild models through it.

pub mod config;
mod config_limits;
mod contract;
mod contract_mamba3;
mod contract_moe;
mod mamba3;
mod mamba3_config;
mod moe;
mod moe_config;
mod rnn_lm;
mod routing;
mod transformer;

pub use config::{
    ContractMamba3Config, ContractMoeConfig, ContractTransformerConfig, DecayStyle, Mamba3LmConfig,
    ModelConfig, MoeLmConfig, RnnLmConfig, RopeStyle, TransformerConfig,
};
pub use routing::RouteStatistics;

use crate::error::{Error, Result};
use crate::nn::attention::check_context;
use crate::nn::{Cache, Cell, DropoutPass, Pass};
use crate::param::{ParameterStore, Parameters};
use contract::ContractTransformer;
use contract_mamba3::ContractMamba3;
use contract_moe::ContractMoe;
use mamba3::Mamba3Lm;
use moe::MoeLm;
use oa_graph::{Engine, Tensor};
use rnn_lm::RnnLm;
use std::panic::Location;
use transformer::Transformer;

/// The layers, by architecture.
#[derive(Clone)]
enum Network {
    Rnn(RnnLm),
    ContractTransformer(Box<ContractTransformer>),
    Transformer(Transformer),
    ContractMoe(Box<ContractMoe>),
    Moe(MoeLm),
    ContractMamba3(Box<ContractMamba3>),
    Mamba3(Mamba3Lm),
}

/// A language model on an engine. Clones share its parameters.
#[derive(Clone)]
pub struct Model {
    config: ModelConfig,
    parameters: Parameters,
    network: Network,
}

impl ModelConfig {
    /// Builds the model with fresh weights, which the seed decides.
    ///
    /// # Errors
    ///
    /// When the configuration describes no model, or device memory is short.
    pub fn build(&self, engine: &Engine, seed: u64) -> Result<Model> {
        self.validate()?;
        let mut store = ParameterStore::new(engine, seed);
        let network = match self {
            ModelConfig::Rnn(c) => Network::Rnn(RnnLm::new(&mut store.root(), Cell::Elman, c)?),
            ModelConfig::Gru(c) => Network::Rnn(RnnLm::new(&mut store.root(), Cell::Gru, c)?),
            ModelConfig::ContractTransformer(c) => Network::ContractTransformer(Box::new(
                ContractTransformer::new(&mut store.root(), c)?,
            )),
            ModelConfig::Transformer(c) => {
                Network::Transformer(Transformer::new(&mut store.root(), c)?)
            }
            ModelConfig::ContractMoe(c) => {
                Network::ContractMoe(Box::new(ContractMoe::new(&mut store.root(), c)?))
            }
            ModelConfig::Moe(c) => Network::Moe(MoeLm::new(&mut store.root(), c)?),
            ModelConfig::ContractMamba3(c) => {
                Network::ContractMamba3(Box::new(ContractMamba3::new(&mut store.root(), c)?))
            }
            ModelConfig::Mamba3(c) => Network::Mamba3(Mamba3Lm::new(&mut store.root(), c)?),
        };
        let parameters = store.finalise()?;
        assert_eq!(
            parameters.layout().count(),
            self.parameter_count(),
            "the configuration counts the parameters that the layers declare"
        );
        Ok(Model { config: *self, parameters, network })
    }
}

impl Model {
    /// Architecture and sizes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The engine it lives on.
    pub fn engine(&self) -> &Engine {
        self.parameters.engine()
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Its parameters, to hand to an optimizer.
    ///
    /// # Errors
    ///
    /// None today; a model that is still being loaded would have to refuse.
    pub fn all_parameters(&self) -> Result<Parameters> {
        Ok(self.parameters.clone())
    }

    /// Logits `[B, T, V]` of tokens `[B, T]` (u32), without dropout.
    ///
    /// # Errors
    ///
    /// [`Error::Context`] when the sequence is longer than the model's positions; shape errors of
    /// the graph, with the caller's line.
    #[track_caller]
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.head(&self.hidden(tokens, &Pass::default())?)
    }

    /// As [`Model::forward`], with the dropout masks of a training step.
    ///
    /// # Errors
    ///
    /// As [`Model::forward`].
    #[track_caller]
    pub fn forward_training(&self, tokens: &Tensor, dropout: DropoutPass<'_>) -> Result<Tensor> {
        let pass = Pass { dropout: Some(dropout), ..Pass::default() };
        self.head(&self.hidden(tokens, &pass)?)
    }

    /// What the head reads: the last hidden states `[B, T, width]`.
    #[track_caller]
    pub(crate) fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        if let (Some(context), [_, sequence]) = (self.config.context(), tokens.shape().dims()) {
            check_context(*sequence, context)?;
        }
        if pass.starts.is_some() && !self.config.resets_at_starts() {
            let architecture = self.config.architecture();
            return Err(Error::NoResets { site: Location::caller(), architecture });
        }
        match &self.network {
            Network::Rnn(network) => network.hidden(tokens, pass),
            Network::ContractTransformer(network) => network.hidden(tokens, pass),
            Network::Transformer(network) => network.hidden(tokens, pass),
            Network::ContractMoe(network) => network.hidden(tokens, pass),
            Network::Moe(network) => network.hidden(tokens, pass),
            Network::ContractMamba3(network) => network.hidden(tokens, pass),
            Network::Mamba3(network) => network.hidden(tokens, pass),
        }
    }

    /// Logits `[.., V]` of hidden states `[.., width]`.
    #[track_caller]
    pub(crate) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        match &self.network {
            Network::Rnn(network) => network.head(hidden),
            Network::ContractTransformer(network) => network.head(hidden),
            Network::Transformer(network) => network.head(hidden),
            Network::ContractMoe(network) => network.head(hidden),
            Network::Moe(network) => network.head(hidden),
            Network::ContractMamba3(network) => network.head(hidden),
            Network::Mamba3(network) => network.head(hidden),
        }
    }

    /// An empty cache for `rows` sequences.
    pub(crate) fn cache(&self, rows: usize) -> Result<Cache> {
        match &self.network {
            Network::Rnn(network) => network.cache(self.engine(), rows),
            Network::ContractTransformer(network) => network.cache(self.engine(), rows),
            Network::Transformer(network) => network.cache(self.engine(), rows),
            Network::ContractMoe(network) => network.cache(self.engine(), rows),
            Network::Moe(network) => network.cache(self.engine(), rows),
            Network::ContractMamba3(network) => network.cache(self.engine(), rows),
            Network::Mamba3(network) => network.cache(self.engine(), rows),
        }
    }

    /// Overwrites the weights with those of a checkpoint of the same architecture and sizes.
    ///
    /// # Errors
    ///
    /// [`Error::OtherModel`] when the configurations differ; [`Error::Vocabulary`] when the
    /// checkpoint's tokenizer has other token ids than the model; errors that name the tensor when
    /// a name or a shape differs. Nothing changes then.
    pub fn load(&self, checkpoint: &crate::Checkpoint) -> Result<()> {
        if checkpoint.model != self.config {
            let (found, expected) = (Box::new(checkpoint.model), Box::new(self.config));
            return Err(Error::OtherModel { found, expected });
        }
        self.config.check_tokenizer(&checkpoint.tokenizer)?;
        self.parameters.load(&checkpoint.tensors)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model({:?}, {:?})", self.config, self.parameters)
    }
}
