//! The loop of a run: step, measure, save, until it is over or somebody asks it to end.

use super::metrics::Metrics;
use super::show::{Pace, Show};
use super::start::Start;
use crate::failure::{Explain, Failure};
use crate::flags::Common;
use crate::interrupt::Interrupt;
use crate::settings::{Mode, Plan, Routine};
use crate::{eval, open, output};
use indicatif::ProgressBar;
use oa::Engine;
use oa::io::CheckpointFolder;
use oa::ml::data::{Batch, Batches, DataCursor, TextDataset, TokenView};
use oa::ml::train::RunIdentity;
use oa::ml::{AdamW, ItTraining, Model};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// What an error of the loop could not do.
const STOPPED: &str = "the training stopped";
/// What an error before it could not do.
const PREPARING: &str = "cannot prepare the training";

/// Runs a run to its end, or to the first Ctrl-C.
pub fn run(common: &Common, start: Start) -> Result<(), Failure> {
    let plan = &start.plan;
    let texts = Texts::of(&start)?;
    let engine = open::engine(common)?;
    let model = model(&engine, &start)?;
    let folder = CheckpointFolder::create(&start.out, plan.routine.keep)?;
    if let Some(record) = &start.record {
        let path = start.out.join("settings.toml");
        std::fs::write(&path, record).map_err(|error| Failure::file("write", &path, &error))?;
    }
    let parameters = model.all_parameters().explain(PREPARING)?;
    let mut optimizer = AdamW::with_config(parameters, plan.optimizer).explain(PREPARING)?;
    let training = session(&engine, &mut optimizer, &start)?;
    let done = training.steps_done();
    let metrics = Metrics::open(&start.out, done)?;
    let show = Show::new(common.json, plan.training.total_steps, done);
    introduce(&show, &engine, &model, &start, &texts)?;
    let measured = start.state().map(|state| state.metrics).unwrap_or_default();
    let tokens_a_step = texts.batches.rows() * texts.batches.sequence();
    let tokens_a_step = tokens_a_step as u64 * u64::from(plan.training.accumulation);
    let mut run = Run {
        plan,
        start: &start,
        model: &model,
        training,
        texts,
        folder,
        metrics,
        show,
        pace: Pace::new(tokens_a_step),
        tokens_a_step,
        validation_loss: measured.validation_loss,
        best: measured.best_validation_loss,
        elapsed_before: measured.elapsed_seconds,
        began: Instant::now(),
        saved: start.from.as_ref().map(|(file, _)| (done, file.clone())),
    };
    let outcome = run.go(&Interrupt::listen()?);
    run.show.clear();
    let drawn = run.metrics.flush(&run.title());
    let interrupted = outcome?;
    drawn?;
    run.conclude(common, interrupted)
}

/// What a run reads: its batches, and what it is measured on.
struct Texts {
    batches: Batches,
    trained: usize,
    held: TokenView,
}

impl Texts {
    /// Judges the text before a device is opened.
    fn of(start: &Start) -> Result<Texts, Failure> {
        let Routine { whole, batch, context, .. } = start.plan.routine;
        let data = TextDataset::from_bytes(&start.text, start.tokenizer.build().as_ref());
        let data = data.explain("cannot use this text")?;
        let (train, held) = match whole {
            true => (data.whole(), data.whole()),
            false => (data.train(), data.validation()),
        };
        let batches = train.batches(batch, context, start.plan.cursor);
        let batches = batches.explain("cannot train on this text")?;
        held.batches(1, context, DataCursor::shuffled(0))
            .explain("cannot validate on the last tenth of this text")?;
        Ok(Texts { batches, trained: train.tokens().len(), held })
    }
}

/// The session, brought to where the checkpoint was.
fn session<'a>(
    engine: &Engine,
    optimizer: &'a mut AdamW,
    start: &Start,
) -> Result<ItTraining<'a>, Failure> {
    let mut training = match start.plan.routine.mode {
        Mode::Captured => ItTraining::new_captured(engine, optimizer, start.plan.training),
        Mode::Eager => ItTraining::new_eager(engine, optimizer, start.plan.training),
    }
    .explain(PREPARING)?;
    if let Some(state) = start.state() {
        training.resume(state).explain(PREPARING)?;
    }
    Ok(training)
}

/// The model with its first weights, or those of the checkpoint.
fn model(engine: &Engine, start: &Start) -> Result<Model, Failure> {
    let sentence = "cannot build the model";
    let model = start.plan.model.build(engine, start.plan.training.seed).explain(sentence)?;
    if let Some((_, checkpoint)) = &start.from {
        model.load(checkpoint).explain(sentence)?;
    }
    Ok(model)
}

/// Says what is about to happen.
fn introduce(
    show: &Show,
    engine: &Engine,
    model: &Model,
    start: &Start,
    texts: &Texts,
) -> Result<(), Failure> {
    let (plan, device) = (&start.plan, engine.device());
    let (parameters, steps) = (model.config().parameter_count() as u64, plan.training.total_steps);
    let from = start.from.as_ref().map(|(file, _)| file);
    show.event(&json!({
        "event": "start",
        "device": device.name,
        "driver": device.driver_info,
        "architecture": model.config().architecture(),
        "parameters": parameters,
        "tokenizer": start.tokenizer.kind(),
        "vocabulary": start.tokenizer.vocab(),
        "tokens": { "train": texts.trained, "validation": texts.held.tokens().len() },
        "steps": steps,
        "out": start.out,
        "resumed_from": from,
    }))?;
    let text = match &plan.routine.data {
        Some(path) => path.display().to_string(),
        None => "the built-in corpus".into(),
    };
    show.say(&format!("device  {} ({})", device.name, device.kind))?;
    show.say(&format!(
        "model   {}, {} parameters",
        model.config().architecture(),
        output::count(parameters)
    ))?;
    show.say(&format!(
        "data    {text}: {} tokens to train on, {} to validate on",
        output::count(texts.trained as u64),
        output::count(texts.held.tokens().len() as u64)
    ))?;
    show.say(&format!(
        "tokens  {}, {} token ids",
        start.tokenizer.kind(),
        output::count(start.tokenizer.vocab() as u64)
    ))?;
    let (batch, context) = (plan.routine.batch, plan.routine.context);
    show.say(&format!(
        "run     {} steps of {batch} x {context} tokens into {}",
        output::count(steps),
        start.out.display()
    ))?;
    if let Some(file) = from {
        show.say(&format!("resumed from {}", file.display()))?;
    }
    Ok(())
}

/// A run on its way.
struct Run<'a> {
    plan: &'a Plan,
    start: &'a Start,
    model: &'a Model,
    training: ItTraining<'a>,
    texts: Texts,
    folder: CheckpointFolder,
    metrics: Metrics,
    show: Show,
    pace: Pace,
    tokens_a_step: u64,
    validation_loss: Option<f32>,
    best: Option<f32>,
    elapsed_before: f64,
    began: Instant,
    /// The last checkpoint and its step.
    saved: Option<(u64, PathBuf)>,
}

impl Run<'_> {
    /// Steps until the run is over; true when it was interrupted instead.
    fn go(&mut self, interrupt: &Interrupt) -> Result<bool, Failure> {
        let total = self.plan.training.total_steps;
        let (rows, sequence) = (self.texts.batches.rows(), self.texts.batches.sequence());
        let parts = self.plan.training.accumulation as usize;
        let mut parts = vec![Batch::zeroed(rows, sequence); parts];
        self.pace.skip();
        while !interrupt.asked() && self.training.begin_step().explain(STOPPED)? {
            parts.iter_mut().for_each(|part| self.texts.batches.fill(part));
            let model = self.model;
            self.training.step(&parts, &mut |inputs| inputs.loss(model)).explain(STOPPED)?;
            self.pace.step();
            self.report()?;
            let step = self.training.steps_done();
            let due = |every: u64| step == total || (every > 0 && step.is_multiple_of(every));
            if due(self.plan.routine.eval_every) {
                self.evaluate(step)?;
            }
            if due(self.plan.routine.checkpoint_every) {
                self.save(step)?;
            }
        }
        let step = self.training.steps_done();
        if self.saved.as_ref().is_none_or(|(saved, _)| *saved != step) {
            self.save(step)?;
        }
        Ok(step < total)
    }

    /// Passes on the steps whose loss is known by now.
    fn report(&mut self) -> Result<(), Failure> {
        while let Some(report) = self.training.take_report() {
            let tokens = (report.step + 1) * self.tokens_a_step;
            let rate = self.pace.tokens_per_second();
            self.metrics.step(&report, tokens, rate, self.elapsed())?;
            self.show.step(&report, &self.pace)?;
        }
        Ok(())
    }

    fn evaluate(&mut self, step: u64) -> Result<(), Failure> {
        self.training.finish().explain(STOPPED)?;
        self.report()?;
        let (rows, sequence) = (self.texts.batches.rows(), self.texts.batches.sequence());
        let count = self.plan.routine.eval_batches;
        let quiet = ProgressBar::hidden();
        let measured = eval::windows(self.model, &self.texts.held, rows, sequence, count, quiet)?;
        let loss = measured.loss as f32;
        self.validation_loss = Some(loss);
        self.best = Some(self.best.map_or(loss, |best| best.min(loss)));
        self.metrics.evaluation(step, &measured)?;
        self.show.evaluation(step, &measured)?;
        self.metrics.flush(&self.title())?;
        self.pace.skip();
        Ok(())
    }

    fn save(&mut self, step: u64) -> Result<(), Failure> {
        let identity = RunIdentity {
            model: self.model,
            tokenizer: &self.start.tokenizer,
            cursor: self.texts.batches.cursor(),
            sampled: 0,
            validation_loss: self.validation_loss,
            best_validation_loss: self.best,
            elapsed_seconds: self.elapsed(),
            metadata: &self.start.metadata,
        };
        let checkpoint = self.training.checkpoint(&identity).explain(STOPPED)?;
        self.report()?;
        self.metrics.flush(&self.title())?;
        let file = self.folder.save(&checkpoint)?;
        self.show.checkpoint(step, &file)?;
        self.saved = Some((step, file));
        self.pace.skip();
        Ok(())
    }

    fn elapsed(&self) -> f64 {
        self.elapsed_before + self.began.elapsed().as_secs_f64()
    }

    fn title(&self) -> String {
        let config = self.model.config();
        let parameters = output::count(config.parameter_count() as u64);
        format!("{}, {parameters} parameters", config.architecture())
    }

    /// Says how it ended and what can be done now.
    fn conclude(&self, common: &Common, interrupted: bool) -> Result<(), Failure> {
        let (step, file) = self.saved.as_ref().expect("a run saves before it ends");
        let device = common.device.as_ref().map(|device| format!(" --device {device}"));
        let device = device.unwrap_or_default();
        let resume = format!("oa train --resume {}{device}", self.start.out.display());
        self.show.event(&json!({
            "event": if interrupted { "interrupted" } else { "done" },
            "step": step,
            "file": file,
            "validation_loss": self.validation_loss,
            "best_validation_loss": self.best,
            "tokens_per_second": self.pace.tokens_per_second(),
            "elapsed_seconds": self.elapsed(),
            "resume": interrupted.then_some(&resume),
        }))?;
        if interrupted {
            self.show.say(&format!("interrupted after step {step}; continue with:\n  {resume}"))?;
            return Ok(());
        }
        let loss = self.validation_loss.map_or("unknown".into(), |loss| format!("{loss:.4} nats"));
        self.show.say(&format!(
            "done: {step} steps in {}, validation loss {loss}",
            indicatif::HumanDuration(std::time::Duration::from_secs_f64(self.elapsed()))
        ))?;
        let out = self.start.out.display();
        self.show.say(&format!("try it with:\n  oa generate {out}{device}"))?;
        Ok(())
    }
}
