//! Running a workload: train, measure, continue the corpus.

use super::{CONTINUATION, ROWS, SEED, SEQUENCE, STEPS, Workload};
use crate::checkpoint::Checkpoint;
use crate::data::tokenizer::{Tokenizer, TokenizerConfig};
use crate::data::{Batch, DataCursor, TextDataset, contract_corpus};
use crate::error::Result;
use crate::evaluate::{Evaluation, evaluate};
use crate::generate::{Generator, Sampling};
use crate::model::Model;
use crate::optim::adamw::AdamW;
use crate::train::{ItTraining, ItTrainingConfig, RunIdentity};
use oa_graph::{Engine, ExecutionReport};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Steps before the clock starts: pipelines are built and caches warm.
const WARM_UP: u64 = 20;

/// A trained workload.
pub struct Trained {
    /// The model, with the weights of the last step.
    pub model: Model,
    /// Loss of each step, nats.
    pub losses: Vec<f32>,
    /// Wall time of a replayed step, milliseconds, warm-up left out; replays are in flight and
    /// losses are read late.
    pub milliseconds: f64,
    /// Processor time of the process in such a step, milliseconds over all threads, a software
    /// driver's among them; `None` where the clock that was given does not know it.
    pub cpu_milliseconds: Option<f64>,
    /// Time of the first step, milliseconds: capturing, compiling, building pipelines.
    pub first_step_milliseconds: f64,
    /// Bytes of the corpus that were predicted in a second of such steps.
    pub source_bytes_per_second: f64,
    /// What the step's plan does.
    pub report: ExecutionReport,
    /// Loss and accuracy over the corpus.
    pub evaluation: Evaluation,
    /// Everything needed to save the run.
    pub checkpoint: Checkpoint,
}

/// Trains a workload for [`STEPS`] steps on the built-in corpus and measures it. `processor` tells
/// the processor time of the process so far.
///
/// # Errors
///
/// When the device fails or a step has no finite loss.
pub fn train(
    engine: &Engine,
    workload: &Workload,
    processor: &dyn Fn() -> Option<Duration>,
) -> Result<Trained> {
    let model = workload.config.build(engine, SEED)?;
    let tokenizer = workload.tokenizer.build();
    let text = TextDataset::from_bytes(&contract_corpus(), tokenizer.as_ref())?.whole();
    let mut batches = text.batches(ROWS, SEQUENCE, DataCursor::CONTRACT)?;
    let mut optimizer = AdamW::new(model.all_parameters()?, workload.rate)?;
    let config = ItTrainingConfig { total_steps: STEPS, seed: SEED, ..Default::default() };
    let mut session = ItTraining::new_captured(engine, &mut optimizer, config)?;
    let (mut losses, mut clock) = (Vec::new(), Clock::start(processor));
    while session.begin_step()? {
        let batch = [batches.next_batch()];
        session.step(&batch, &mut |inputs| inputs.loss(&model))?;
        losses.extend(std::iter::from_fn(|| session.take_report()).map(|report| report.loss));
        clock.predicted(&batch[0], tokenizer.as_ref());
        match session.steps_done() {
            1 => clock.first_step(),
            WARM_UP => {
                session.finish()?;
                clock = clock.restart();
            }
            STEPS => session.finish()?,
            _ => {}
        }
    }
    let timed = clock.read();
    losses.extend(std::iter::from_fn(|| session.take_report()).map(|report| report.loss));
    let report = session.plan().expect("a captured session that ran has its plan").report();
    let name = format!("{} {}", workload.family, workload.coding.name());
    let checkpoint = session.checkpoint(&RunIdentity {
        model: &model,
        tokenizer: &workload.tokenizer,
        cursor: batches.cursor(),
        sampled: 0,
        validation_loss: None,
        best_validation_loss: None,
        elapsed_seconds: 0.0,
        metadata: &BTreeMap::from([("contract".to_string(), name)]),
    })?;
    drop(session);
    let evaluation = evaluate(&model, text.pass(ROWS, SEQUENCE)?)?;
    Ok(Trained {
        model,
        losses,
        milliseconds: timed.milliseconds,
        cpu_milliseconds: timed.cpu_milliseconds,
        first_step_milliseconds: timed.first_step_milliseconds,
        source_bytes_per_second: timed.source_bytes_per_second,
        report,
        evaluation,
        checkpoint,
    })
}

/// What runs while a workload trains.
struct Clock<'a> {
    processor: &'a dyn Fn() -> Option<Duration>,
    started: Instant,
    cpu: Option<Duration>,
    bytes: u64,
    first_step_milliseconds: f64,
}

/// What a clock has measured over the steps after the warm-up.
struct Timed {
    milliseconds: f64,
    cpu_milliseconds: Option<f64>,
    first_step_milliseconds: f64,
    source_bytes_per_second: f64,
}

impl Clock<'_> {
    fn start(processor: &dyn Fn() -> Option<Duration>) -> Clock<'_> {
        let (started, cpu) = (Instant::now(), processor());
        Clock { processor, started, cpu, bytes: 0, first_step_milliseconds: 0.0 }
    }

    fn restart(self) -> Self {
        let first_step_milliseconds = self.first_step_milliseconds;
        Clock { first_step_milliseconds, ..Clock::start(self.processor) }
    }

    fn first_step(&mut self) {
        self.first_step_milliseconds = self.started.elapsed().as_secs_f64() * 1e3;
    }

    fn predicted(&mut self, batch: &Batch, tokenizer: &dyn Tokenizer) {
        let bytes = |&target: &i32| tokenizer.token(target as u32).map_or(0, |token| token.len());
        self.bytes += batch.targets.iter().map(bytes).sum::<usize>() as u64;
    }

    fn read(&self) -> Timed {
        let (seconds, steps) = (self.started.elapsed().as_secs_f64(), (STEPS - WARM_UP) as f64);
        let cpu = (self.processor)().zip(self.cpu).map(|(now, then)| now.saturating_sub(then));
        Timed {
            milliseconds: seconds * 1e3 / steps,
            cpu_milliseconds: cpu.map(|cpu| cpu.as_secs_f64() * 1e3 / steps),
            first_step_milliseconds: self.first_step_milliseconds,
            source_bytes_per_second: self.bytes as f64 / seconds,
        }
    }
}

/// The bytes that the model continues the start of the corpus with, greedily: [`CONTINUATION`] of
/// them.
///
/// # Errors
///
/// When the device fails.
pub fn continuation(model: &Model, tokenizer: &TokenizerConfig) -> Result<Vec<u8>> {
    let tokenizer = tokenizer.build();
    let (prompt, _) = prompt(tokenizer.as_ref())?;
    let mut text = Vec::new();
    let on_token = |id| {
        text.extend_from_slice(&tokenizer.token(id).expect("sampled ids are tokens"));
        let enough = text.len() >= CONTINUATION;
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    Generator::new(model)?.generate(&prompt, CONTINUATION, &Sampling::default(), on_token)?;
    text.truncate(CONTINUATION);
    Ok(text)
}

/// What [`continuation`] must give: the corpus goes on where the prompt ended.
///
/// # Errors
///
/// When the tokenizer cannot say the corpus.
pub fn expected_continuation(tokenizer: &TokenizerConfig) -> Result<Vec<u8>> {
    let (_, bytes) = prompt(tokenizer.build().as_ref())?;
    Ok(contract_corpus()[bytes..bytes + CONTINUATION].to_vec())
}

/// The first tokens of the corpus, and the bytes that they stand for.
fn prompt(tokenizer: &dyn Tokenizer) -> Result<(Vec<u32>, usize)> {
    let mut ids = tokenizer.encode(&contract_corpus())?;
    ids.truncate(SEQUENCE);
    let bytes = tokenizer.decode(&ids).map_or(0, |text| text.len());
    Ok((ids, bytes))
}
