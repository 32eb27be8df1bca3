//! Tests of the whole crate on a device: training, resuming, generating, refusing.
//!
//! They open the device that `OA_DEVICE` names, or the best one; a software driver will do. A
//! machine without any Vulkan driver fails them: an absent device is never a pass.

mod fit;
mod generation;
mod images;
mod learning;
mod optimizers;
mod parity;
mod refusals;
mod vectors;

use crate::checkpoint::Checkpoint;
use crate::data::TokenizerConfig;
use crate::data::{
    Batch, Batches, ByteTokenizer, DataCursor, TextDataset, TokenView, contract_corpus,
};
use crate::model::{
    ContractMoeConfig, ContractTransformerConfig, DecayStyle, Mamba3LmConfig, MoeLmConfig,
    RnnLmConfig, RopeStyle, TransformerConfig,
};
use crate::train::RunIdentity;
use crate::{ItTraining, Model, ModelConfig, Result, StepInputs};
use oa_graph::{Engine, Tensor};
use std::collections::BTreeMap;

/// A fresh engine, which must not have displeased the validation layer when the test ends. The
/// layer speaks when `OA_VALIDATION` turns it on.
fn engine() -> Watched {
    let engine = Engine::new();
    Watched(engine.expect("these tests need a Vulkan device; a software driver will do"))
}

struct Watched(Engine);

impl std::ops::Deref for Watched {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let messages = self.0.gpu().validation_messages();
        assert!(std::thread::panicking() || messages.is_empty(), "{messages:#?}");
    }
}

/// The built-in corpus as tokens.
fn corpus() -> TokenView {
    TextDataset::from_bytes(&contract_corpus(), &ByteTokenizer).unwrap().whole()
}

/// Batches of the built-in corpus in contract order.
fn batches(rows: usize, sequence: usize) -> Batches {
    corpus().batches(rows, sequence, DataCursor::CONTRACT).unwrap()
}

/// A small model of each architecture, with grouped heads, normed queries and dropout somewhere.
fn small_models() -> [ModelConfig; 8] {
    let transformer = TransformerConfig {
        width: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        ff: 24,
        context: 12,
        rope: RopeStyle::Half,
        qk_norm: true,
        dropout: 0.1,
        ..Default::default()
    };
    let mamba3 = Mamba3LmConfig {
        width: 16,
        layers: 2,
        heads: 4,
        head_dim: 6,
        state: 8,
        groups: 2,
        angles: 2,
        ff: 12,
        ..Default::default()
    };
    [
        ModelConfig::Rnn(RnnLmConfig { vocab: 256, width: 8, hidden: 12, layers: 2 }),
        ModelConfig::ContractTransformer(ContractTransformerConfig {
            width: 16,
            heads: 2,
            ff: 24,
            context: 12,
            ..ContractTransformerConfig::contract(256)
        }),
        ModelConfig::Transformer(transformer),
        ModelConfig::ContractMoe(ContractMoeConfig {
            width: 16,
            heads: 2,
            context: 12,
            ..ContractMoeConfig::contract(256)
        }),
        ModelConfig::Moe(MoeLmConfig {
            width: 16,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 4,
            experts: 5,
            top_k: 1,
            ff: 12,
            renormalise: false,
            context: 12,
            ..Default::default()
        }),
        ModelConfig::Gru(RnnLmConfig { vocab: 256, width: 8, hidden: 12, layers: 2 }),
        ModelConfig::Mamba3(mamba3),
        ModelConfig::Mamba3(Mamba3LmConfig {
            groups: 1,
            rank: 3,
            mimo: true,
            rope: RopeStyle::Half,
            decay: DecayStyle::Softplus,
            out_norm: true,
            ..mamba3
        }),
    ]
}

/// The forward pass of a training step.
fn step_of(model: &Model) -> impl FnMut(&StepInputs) -> Result<Tensor> + '_ {
    |inputs| inputs.loss(model)
}

/// Every weight, as bits.
fn bits(model: &Model) -> Vec<(String, Vec<u32>)> {
    let tensors = model.parameters().to_host().unwrap();
    let words = |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect();
    tensors.into_iter().map(|tensor| (tensor.name, words(tensor.data))).collect()
}

/// `count` batches from an order.
fn take(order: &mut Batches, count: usize) -> Vec<Batch> {
    (0..count).map(|_| order.next_batch()).collect()
}

/// Trains from fresh weights or a checkpoint until `stop` steps are done, and gathers a checkpoint.
fn train_until(
    model: &Model,
    training: &mut ItTraining<'_>,
    from: Option<&Checkpoint>,
    stop: u64,
) -> Checkpoint {
    let mut cursor = DataCursor::shuffled(8);
    if let Some(checkpoint) = from {
        let state = checkpoint.training.as_ref().unwrap();
        model.load(checkpoint).unwrap();
        training.resume(state).unwrap();
        cursor = state.data;
    }
    let mut order = corpus().batches(4, 10, cursor).unwrap();
    let mut forward = step_of(model);
    while training.steps_done() < stop && training.begin_step().unwrap() {
        training.step(&[order.next_batch()], &mut forward).unwrap();
    }
    let run = RunIdentity {
        model,
        tokenizer: &TokenizerConfig::Byte,
        cursor: order.cursor(),
        sampled: 0,
        validation_loss: None,
        best_validation_loss: None,
        elapsed_seconds: 0.0,
        metadata: &BTreeMap::new(),
    };
    training.checkpoint(&run).unwrap()
}
