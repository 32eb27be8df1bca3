//! A run with its display, from the first step to the last word.
//!
//! The loop itself is the library's: this file says what the run reads, where it saves, who listens
//! and how it ends.

use super::drawing::Drawing;
use super::halt::Halt;
use super::lock::RunLock;
use super::show::Show;
use super::start::{self, Start};
use super::texts::Texts;
use crate::failure::{End, Explain, Failure};
use crate::flags::Common;
use crate::interrupt::Interrupt;
use crate::settings::Mode;
use crate::{open, output};
use oa::Engine;
use oa::io::CheckpointFolder;
use oa::ml::train::{CsvLog, EarlyStop, Ending, Fit, Fitted, Periodic};
use oa::ml::{ItTraining, Model, Optimizer};
use serde_json::json;
use std::path::PathBuf;

/// What an error before the loop could not do.
const PREPARING: &str = "cannot prepare the training";

/// Runs a run to its end, to the first Ctrl-C, or until nobody reads its output.
pub fn run(common: &Common, start: Start) -> Result<(), Failure> {
    let mut texts = Texts::of(&start)?;
    let engine = open::engine(common)?;
    let model = model(&engine, &start)?;
    model.parameters().freeze(&start.plan.freeze).explain("cannot start this run")?;
    let folder = CheckpointFolder::create(&start.out, start.plan.routine.keep)?;
    let _alone = RunLock::take(&start.out)?;
    if let Some(record) = &start.record {
        // It may have been used since the settings were judged.
        start::refuse_used(&start.out)?;
        let path = start.out.join("settings.toml");
        std::fs::write(&path, record).map_err(|error| Failure::file("write", &path, &error))?;
    }
    let parameters = model.all_parameters().explain(PREPARING)?;
    let mut optimizer = start.plan.optimizer.build(parameters).explain(PREPARING)?;
    let mut training = session(&engine, &mut *optimizer, &start)?;
    let (total, done) = (start.plan.training.total_steps, training.steps_done());
    let mut show = Show::new(common.json, total, done, folder.clone());
    introduce(&show, &engine, &model, &start, &texts);
    let fitted = fit(&start, &model, &mut texts, &mut training, &folder, &mut show);
    let fitted = fitted.map_err(|halt| halt.explain(&start.out))?;
    conclude(&show, common, &start, &folder, &fitted)
}

/// Trains, measures, saves and tells.
fn fit(
    start: &Start,
    model: &Model,
    texts: &mut Texts,
    training: &mut ItTraining<'_>,
    folder: &CheckpointFolder,
    show: &mut Show,
) -> Result<Fitted, Halt> {
    let routine = &start.plan.routine;
    let sizes = [routine.batch, routine.context, routine.eval_batches];
    let mut csv = CsvLog::open(start.out.join("metrics.csv"), training.steps_done())?;
    let mut drawing = Drawing::new(&start.out, title(model), csv.earlier());
    let early = routine.patience.map(|patience| EarlyStop::new(patience, routine.min_delta));
    let mut early = early.transpose().explain(PREPARING)?;
    let interrupt = Interrupt::listen()?;
    let lost = show.lost();
    let (held, asked) = (&texts.held, || interrupt.asked() || lost.borrow().is_some());
    let mut fit = Fit::new(model, &mut texts.batches, start.tokenizer.clone());
    fit.evaluation = Some(Periodic {
        every: routine.eval_every,
        run: Box::new(|model| held.measure(model, sizes, &asked)),
    });
    fit.saving = Some(Periodic {
        every: routine.checkpoint_every,
        run: Box::new(|checkpoint| Ok(folder.save(checkpoint).map(drop)?)),
    });
    fit.callbacks = vec![&mut csv, show, &mut drawing];
    if let Some(early) = &mut early {
        fit.callbacks.push(early);
    }
    fit.asked = Some(&asked);
    fit.metadata = start.metadata.clone();
    fit.before = start.state().map(|state| state.metrics).unwrap_or_default();
    fit.run(training)
}

/// The session, brought to where the checkpoint was.
fn session<'a>(
    engine: &Engine,
    optimizer: &'a mut dyn Optimizer,
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

fn title(model: &Model) -> String {
    let config = model.config();
    let parameters = output::count(config.parameter_count() as u64);
    format!("{}, {parameters} parameters", config.architecture())
}

/// Says what is about to happen.
fn introduce(show: &Show, engine: &Engine, model: &Model, start: &Start, texts: &Texts) {
    let (plan, device) = (&start.plan, engine.device());
    let (parameters, steps) = (model.config().parameter_count() as u64, plan.training.total_steps);
    let from = start.from.as_ref().map(|(file, _)| file);
    let mut event = json!({
        "event": "start",
        "device": device.name,
        "driver": device.driver_info,
        "architecture": model.config().architecture(),
        "parameters": parameters,
        "tokenizer": start.tokenizer.kind(),
        "vocabulary": start.tokenizer.vocab(),
        "steps": steps,
        "out": start.out,
        "resumed_from": from,
    });
    if let (Some(event), Some(counts)) = (event.as_object_mut(), texts.counts.as_object()) {
        event.extend(counts.clone());
    }
    show.event(&event);
    let text = match &plan.routine.data {
        Some(path) => path.display().to_string(),
        None => "the built-in corpus".into(),
    };
    show.say(&format!("device  {} ({})", device.name, device.kind));
    show.say(&format!("model   {}", title(model)));
    show.say(&format!("data    {text}: {}", texts.sizes));
    if plan.routine.streamed.is_some() && !model.config().resets_at_starts() {
        show.say("        documents of a row are read as one text: this model has no boundaries");
    }
    show.say(&format!(
        "tokens  {}, {} token ids",
        start.tokenizer.kind(),
        output::count(start.tokenizer.vocab() as u64)
    ));
    let (batch, context) = (plan.routine.batch, plan.routine.context);
    show.say(&format!(
        "run     {} steps of {batch} x {context} tokens into {}",
        output::count(steps),
        start.out.display()
    ));
    let frozen = model.parameters().frozen();
    if !frozen.is_empty() {
        show.say(&format!("frozen  {}", frozen.join(", ")));
    }
    if let Some(file) = from {
        show.say(&format!("resumed from {}", file.display()));
    }
}

/// Says how it ended and what can be done now.
fn conclude(
    show: &Show,
    common: &Common,
    start: &Start,
    folder: &CheckpointFolder,
    fitted: &Fitted,
) -> Result<(), Failure> {
    let step = fitted.now.step;
    let best = CheckpointFolder::best(folder.path())?;
    let device = common.device.as_ref().map(|device| format!(" --device {device}"));
    let device = device.unwrap_or_default();
    let resume = format!("oa train --resume {}{device}", start.out.display());
    let interrupted = fitted.ending == Ending::Asked && step < fitted.now.total_steps;
    let stopped = fitted.ending == Ending::Stopped;
    show.event(&json!({
        "event": if interrupted { "interrupted" } else { "done" },
        "step": step,
        "stopped_early": stopped,
        "file": folder.file_of(step),
        "best_file": best.as_ref().map(|(file, _)| file),
        "validation_loss": fitted.validation_loss,
        "best_validation_loss": fitted.best_validation_loss,
        "tokens_per_second": fitted.now.tokens_per_second,
        "elapsed_seconds": fitted.now.elapsed_seconds,
        "resume": interrupted.then_some(&resume),
    }));
    if interrupted {
        show.say(&format!("interrupted after step {step}; continue with:\n  {resume}"));
    } else {
        congratulate(show, start, folder, fitted, best, &device);
    }
    match show.take_lost() {
        Some(error) if interrupted => {
            let remedy = format!("the run is saved after step {step}; continue with `{resume}`");
            let sentence = "cannot write the output";
            Err(Failure::new(End::Failed, sentence, error.to_string(), remedy))
        }
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Says what a run that is done gave.
fn congratulate(
    show: &Show,
    start: &Start,
    folder: &CheckpointFolder,
    fitted: &Fitted,
    best: Option<(PathBuf, f32)>,
    device: &str,
) {
    let (step, stopped) = (fitted.now.step, fitted.ending == Ending::Stopped);
    let loss = fitted.validation_loss.map_or("unknown".into(), |loss| format!("{loss:.4} nats"));
    let early = if stopped { ", stopped early: the validation loss no longer falls" } else { "" };
    show.say(&format!(
        "done: {step} steps in {}, validation loss {loss}{early}",
        indicatif::HumanDuration(std::time::Duration::from_secs_f64(fitted.now.elapsed_seconds))
    ));
    if let Some((file, loss)) = best.filter(|(file, _)| *file != folder.file_of(step)) {
        show.say(&format!("best: validation loss {loss:.4} nats in {}", file.display()));
    }
    let out = start.out.display();
    show.say(&format!("try it with:\n  oa generate {out}{device}"));
}
