//! The teaching contract: small workloads that every family must learn, measured alike.
//!
//! Sizes, rate, seed and data order are fixed, so that two engines, two drivers or two versions can
//! be compared. Files are not this crate's business: who runs a workload saves its checkpoint.

use crate::checkpoint::Checkpoint;
use crate::data::{ByteTokenizer, DataCursor, TextDataset, Tokenizer, contract_corpus};
use crate::error::Result;
use crate::evaluate::{Evaluation, evaluate};
use crate::generate::{Generator, Sampling};
use crate::model::{
    ContractMamba3Config, ContractMoeConfig, ContractTransformerConfig, Model, ModelConfig,
    RnnLmConfig,
};
use crate::optim::adamw::AdamW;
use crate::train::{ItTraining, ItTrainingConfig, RunIdentity};
use oa_graph::{Engine, ExecutionReport};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

/// Training steps.
pub const STEPS: u64 = 300;
/// Sequences of a batch.
pub const ROWS: usize = 64;
/// Predictions of a sequence.
pub const SEQUENCE: usize = 16;
/// Seed of the weights.
pub const SEED: u64 = 20_260_714;
/// Share of the corpus that a trained model must predict.
pub const ACCURACY: f64 = 0.90;
/// Bytes that a trained model must continue the corpus by.
pub const CONTINUATION: usize = 80;

/// Steps before the clock starts: pipelines are built and caches warm.
const WARM_UP: u64 = 20;

/// One family with its rate.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of the family.
    pub family: &'static str,
    /// The model.
    pub config: ModelConfig,
    /// Learning rate.
    pub rate: f64,
}

/// The byte workloads of the families that there are.
pub fn workloads() -> Vec<Workload> {
    let vocab = ByteTokenizer.vocab();
    let of = |family, config| Workload { family, config, rate: 0.01 };
    vec![
        of("rnn", ModelConfig::Rnn(RnnLmConfig::contract(vocab))),
        of("gru", ModelConfig::Gru(RnnLmConfig::contract(vocab))),
        of(
            "transformer",
            ModelConfig::ContractTransformer(ContractTransformerConfig::contract(vocab)),
        ),
        of("moe", ModelConfig::ContractMoe(ContractMoeConfig::contract(vocab))),
        Workload {
            family: "mamba3",
            config: ModelConfig::ContractMamba3(ContractMamba3Config::contract(vocab)),
            rate: 0.003,
        },
    ]
}

/// A trained workload.
pub struct Trained {
    /// The model, with the weights of the last step.
    pub model: Model,
    /// Loss of each step, nats.
    pub losses: Vec<f32>,
    /// Wall time of a replayed step, milliseconds, warm-up left out; replays are in flight and
    /// losses are read late.
    pub milliseconds: f64,
    /// Time of the first step, milliseconds: capturing, compiling, building pipelines.
    pub first_step_milliseconds: f64,
    /// What the step's plan does.
    pub report: ExecutionReport,
    /// Loss and accuracy over the corpus.
    pub evaluation: Evaluation,
    /// Everything needed to save the run.
    pub checkpoint: Checkpoint,
}

/// Trains a workload for [`STEPS`] steps on the built-in corpus and measures it.
///
/// # Errors
///
/// When the device fails or a step has no finite loss.
pub fn train(engine: &Engine, workload: &Workload) -> Result<Trained> {
    let model = workload.config.build(engine, SEED)?;
    let text = TextDataset::from_bytes(&contract_corpus(), &ByteTokenizer)?.whole();
    let mut batches = text.batches(ROWS, SEQUENCE, DataCursor::CONTRACT)?;
    let mut optimizer = AdamW::new(model.all_parameters()?, workload.rate)?;
    let config = ItTrainingConfig { total_steps: STEPS, seed: SEED, ..Default::default() };
    let mut session = ItTraining::new_captured(engine, &mut optimizer, config)?;
    let mut losses = Vec::new();
    let (mut started, mut first) = (Instant::now(), 0.0);
    while session.begin_step()? {
        session.step(&[batches.next_batch()], &mut |inputs| inputs.loss(&model))?;
        losses.extend(std::iter::from_fn(|| session.take_report()).map(|report| report.loss));
        if session.steps_done() == 1 {
            first = started.elapsed().as_secs_f64() * 1e3;
        }
        if session.steps_done() == WARM_UP {
            session.finish()?;
            started = Instant::now();
        }
    }
    let milliseconds = started.elapsed().as_secs_f64() * 1e3 / (STEPS - WARM_UP) as f64;
    losses.extend(std::iter::from_fn(|| session.take_report()).map(|report| report.loss));
    let report = session.plan().expect("a captured session that ran has its plan").report();
    let checkpoint = session.checkpoint(&RunIdentity {
        model: &model,
        tokenizer: &ByteTokenizer.config(),
        cursor: batches.cursor(),
        sampled: 0,
        validation_loss: None,
        best_validation_loss: None,
        elapsed_seconds: 0.0,
        metadata: &BTreeMap::from([("contract".to_string(), workload.family.to_string())]),
    })?;
    drop(session);
    let evaluation = evaluate(&model, text.pass(ROWS, SEQUENCE)?)?;
    let first_step_milliseconds = first;
    Ok(Trained {
        model,
        losses,
        milliseconds,
        first_step_milliseconds,
        report,
        evaluation,
        checkpoint,
    })
}

/// The bytes that the model continues the start of the corpus with, greedily.
///
/// # Errors
///
/// When the device fails.
pub fn continuation(model: &Model) -> Result<Vec<u8>> {
    let prompt = ByteTokenizer.encode(&contract_corpus()[..SEQUENCE]);
    let greedy = Sampling::default();
    let on_token = |_| ControlFlow::Continue(());
    let ids = Generator::new(model)?.generate(&prompt, CONTINUATION, &greedy, on_token)?;
    Ok(ids.into_iter().map(|id| u8::try_from(id).unwrap_or(b'?')).collect())
}

/// What [`continuation`] must give: the corpus goes on where the prompt ended.
pub fn expected_continuation() -> Vec<u8> {
    contract_corpus()[SEQUENCE..SEQUENCE + CONTINUATION].to_vec()
}
