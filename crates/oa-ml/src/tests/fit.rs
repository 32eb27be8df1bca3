//! The loop of a run: who is told what and when, packed texts, and going on where one left off.

use super::*;
use crate::checkpoint::Checkpoint;
use crate::data::{
    BatchSource, Documents, PackedConfig, PackedText, Prefetch, SourceConfig, Split, Tokenizer,
};
use crate::train::{CsvLog, EarlyStop, Ending, Fit, Fitted, Moment, Periodic};
use crate::{
    AdamW, Callback, Error, Evaluation, Flow, ItTraining, ItTrainingConfig, StepReport, evaluate,
    evaluate_read, evaluate_until,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Writes down what it is told.
#[derive(Default)]
struct Diary {
    lines: Vec<String>,
    stop_at: Option<u64>,
}

impl Callback for Diary {
    fn on_start(&mut self, now: &Moment, _notes: &BTreeMap<String, String>) -> Result<()> {
        self.lines.push(format!("start {}", now.step));
        Ok(())
    }

    fn on_step(&mut self, now: &Moment, report: &StepReport) -> Result<Flow> {
        assert_eq!(now.step, report.step + 1);
        self.lines.push(format!("step {}", now.step));
        Ok(if self.stop_at == Some(now.step) { Flow::Stop } else { Flow::Continue })
    }

    fn on_evaluation(&mut self, now: &Moment, _measured: &Evaluation) -> Result<Flow> {
        self.lines.push(format!("evaluation {}", now.step));
        Ok(Flow::Continue)
    }

    fn on_checkpoint(&mut self, now: &Moment, saved: &Checkpoint) -> Result<Flow> {
        assert_eq!(saved.training.as_ref().unwrap().step, now.step);
        self.lines.push(format!("checkpoint {}", now.step));
        Ok(Flow::Continue)
    }

    fn on_end(&mut self, now: &Moment, ending: Ending) -> Result<()> {
        self.lines.push(format!("end {} {ending:?}", now.step));
        Ok(())
    }
}

/// What a run of some steps on the built-in corpus tells, with the given evaluation losses.
fn diary(steps: u64, losses: &[f64], stop_at: Option<u64>, asked_after: usize) -> (String, Fitted) {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let settings = ItTrainingConfig { total_steps: steps, ..Default::default() };
    let mut training = ItTraining::new_captured(&engine, &mut optimizer, settings).unwrap();
    let (mut data, mut saved) = (batches(2, 6), Vec::new());
    let mut diary = Diary { stop_at, ..Default::default() };
    let mut losses = losses.iter();
    let looked = std::cell::Cell::new(0);
    let asked = || looked.replace(looked.get() + 1) >= asked_after;
    let mut fit: Fit<'_> = Fit::new(&model, &mut data, ByteTokenizer.config());
    let measure = |_: &Model| {
        let loss = *losses.next().expect("no more evaluations than losses");
        Ok(Some(Evaluation { loss, accuracy: 0.5, predictions: 4 }))
    };
    fit.evaluation = Some(Periodic { every: 2, run: Box::new(measure) });
    let save = |checkpoint: &Checkpoint| {
        saved.push(checkpoint.training.as_ref().unwrap().metrics.validation_loss);
        Ok(())
    };
    fit.saving = Some(Periodic { every: 5, run: Box::new(save) });
    fit.callbacks.push(&mut diary);
    fit.asked = Some(&asked);
    let fitted = fit.run(&mut training).unwrap();
    drop(fit);
    assert_eq!(saved.len(), diary.lines.iter().filter(|line| line.starts_with("check")).count());
    (diary.lines.join(", "), fitted)
}

#[test]
fn callbacks_are_told_in_order_and_the_best_is_saved() {
    let (told, fitted) = diary(5, &[3.0, 4.0, 2.0], None, usize::MAX);
    assert_eq!(
        told,
        "start 0, step 1, step 2, evaluation 2, checkpoint 2, step 3, step 4, evaluation 4, \
         step 5, evaluation 5, checkpoint 5, end 5 Finished"
    );
    assert_eq!((fitted.validation_loss, fitted.best_validation_loss), (Some(2.0), Some(2.0)));
}

#[test]
fn a_callback_or_a_wish_ends_the_run_with_a_checkpoint() {
    let (told, fitted) = diary(50, &[3.0; 20], Some(3), usize::MAX);
    assert_eq!(
        told,
        "start 0, step 1, step 2, evaluation 2, checkpoint 2, step 3, step 4, evaluation 4, \
         checkpoint 4, end 4 Stopped",
        "the loss of step 3 was read late, with step 4 already submitted"
    );
    assert_eq!(fitted.ending, Ending::Stopped);
    let (told, fitted) = diary(50, &[3.0, 3.5], None, 3);
    assert_eq!(
        told,
        "start 0, step 1, step 2, evaluation 2, checkpoint 2, step 3, checkpoint 3, end 3 Asked"
    );
    assert_eq!((fitted.ending, fitted.now.step), (Ending::Asked, 3));
}

/// A folder of documents that is removed at the end.
struct Library(PathBuf);

impl Library {
    fn new(name: &str) -> Library {
        let path = std::env::temp_dir().join(format!("oa-ml-fit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let lines = |number: usize| {
            let words = contract_corpus();
            let text =
                String::from_utf8_lossy(&words[number..number + 9 + number % 7]).into_owned();
            format!("{{\"text\": \"{text}\"}}\n")
        };
        std::fs::write(path.join("a.jsonl"), (0..50).map(lines).collect::<String>()).unwrap();
        Library(path)
    }

    fn text(&self) -> PackedText {
        let documents = Documents::open(&self.0, &SourceConfig::default()).unwrap();
        let split = Split::Every(5);
        let config = PackedConfig { split, gathered: 8, separator: Some(10), ..Default::default() };
        PackedText::new(Arc::new(documents), Arc::new(ByteTokenizer), config).unwrap()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _litter = std::fs::remove_dir_all(&self.0);
    }
}

/// Trains on packed documents up to `stop`, ahead or not, on from a checkpoint if there is one.
fn leg(
    config: ModelConfig,
    text: &PackedText,
    from: Option<&Checkpoint>,
    (stop, captured, ahead): (u64, bool, bool),
) -> Checkpoint {
    let engine = engine();
    let model = config.build(&engine, 11 + stop).unwrap();
    if from.is_none() {
        // Legs without a past begin with the same weights.
        let first = config.build(&engine, 3).unwrap();
        model.parameters().load(&first.parameters().to_host().unwrap()).unwrap();
    }
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let settings =
        ItTrainingConfig { total_steps: stop, accumulation: 2, seed: 5, ..Default::default() };
    let new = if captured { ItTraining::new_captured } else { ItTraining::new_eager };
    let mut training = new(&engine, &mut optimizer, settings).unwrap();
    let mut cursor = DataCursor::packed(8);
    if let Some(checkpoint) = from {
        let mut state = checkpoint.training.clone().unwrap();
        model.load(checkpoint).unwrap();
        cursor = state.data;
        state.config.total_steps = stop;
        training.resume(&state).unwrap();
    }
    let batches: Box<dyn BatchSource> = Box::new(text.batches(3, 10, cursor).unwrap());
    let mut data = if ahead { Box::new(Prefetch::new(batches, 3).unwrap()) } else { batches };
    let mut saved = None;
    let mut fit: Fit<'_> = Fit::new(&model, data.as_mut(), ByteTokenizer.config());
    let save = |checkpoint: &Checkpoint| {
        saved = Some(checkpoint.clone());
        Ok(())
    };
    fit.saving = Some(Periodic { every: 0, run: Box::new(save) });
    fit.run(&mut training).unwrap();
    drop(fit);
    let mut saved = saved.unwrap();
    saved.training.as_mut().unwrap().metrics.elapsed_seconds = 0.0;
    saved
}

#[test]
fn packed_runs_are_the_same_eager_captured_ahead_and_resumed_in_the_middle_of_an_epoch() {
    let library = Library::new("same");
    let text = library.text();
    for config in small_models() {
        let straight = leg(config, &text, None, (9, true, true));
        assert_eq!(leg(config, &text, None, (9, false, false)), straight, "{config:?}");
        let half = leg(config, &text, None, (4, true, true));
        let place = half.training.as_ref().unwrap().data;
        assert!(
            matches!(place, DataCursor::Packed { document: 1.., gathering: 3, .. }),
            "{place:?}"
        );
        let resumed = leg(config, &text, Some(&half), (9, true, true));
        assert_eq!(resumed, straight, "{config:?}");
        assert_ne!(resumed.tensors, half.tensors);
    }
}

#[test]
fn a_short_program_trains_validates_logs_and_stops_early() {
    let library = Library::new("short");
    let text = library.text();
    let engine = engine();
    let [.., gru] = small_models();
    let model = gru.build(&engine, 1).unwrap();
    let held = || text.validation(4, 10);
    let before = evaluate_read(&model, held().unwrap()).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.02).unwrap();
    let settings = ItTrainingConfig { total_steps: 200, ..Default::default() };
    let mut training = ItTraining::new_captured(&engine, &mut optimizer, settings).unwrap();
    let mut data = text.batches(8, 10, DataCursor::packed(1)).unwrap();
    let mut csv = CsvLog::open(library.0.join("metrics.csv"), 0).unwrap();
    let mut early = EarlyStop::new(2, 0.5).unwrap();
    let mut fit: Fit<'_> = Fit::new(&model, &mut data, ByteTokenizer.config());
    let measure = |model: &Model| evaluate_read(model, held()?).map(Some);
    fit.evaluation = Some(Periodic { every: 10, run: Box::new(measure) });
    fit.callbacks = vec![&mut csv, &mut early];
    let fitted = fit.run(&mut training).unwrap();
    drop(fit);
    assert_eq!(fitted.ending, Ending::Stopped, "it cannot gain half a nat each ten steps for long");
    let best = fitted.best_validation_loss.unwrap();
    assert!(f64::from(best) < 0.8 * before.loss, "{before:?} became {fitted:?}");
    let log = CsvLog::open(library.0.join("metrics.csv"), u64::MAX).unwrap();
    let rows = log.earlier();
    assert_eq!((rows.len() as u64, rows[0].step), (fitted.now.step, 1));
    let validated = rows.iter().filter(|row| row.validation_loss.is_some()).count() as u64;
    assert_eq!(validated, fitted.now.step / 10);
}

#[test]
fn an_evaluation_is_broken_off_between_batches_and_the_run_is_saved() {
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.02).unwrap();
    let settings = ItTrainingConfig { total_steps: 9, ..Default::default() };
    let mut training = ItTraining::new_eager(&engine, &mut optimizer, settings).unwrap();
    let (mut data, mut diary) = (batches(2, 10), Diary::default());
    let (read, mut saved) = (std::cell::Cell::new(0), Vec::new());
    let asked = || read.get() > 5;
    let measure = |model: &Model| {
        let mut held = batches(2, 10);
        let next = std::iter::repeat_with(|| {
            read.set(read.get() + 1);
            Ok(held.next_batch())
        });
        evaluate_until(model, next.take(4), &asked)
    };
    let mut fit: Fit<'_> = Fit::new(&model, &mut data, ByteTokenizer.config());
    fit.evaluation = Some(Periodic { every: 2, run: Box::new(measure) });
    let save = |checkpoint: &Checkpoint| {
        saved.push(checkpoint.training.as_ref().unwrap().metrics.validation_loss);
        Ok(())
    };
    fit.saving = Some(Periodic { every: 0, run: Box::new(save) });
    fit.callbacks.push(&mut diary);
    fit.asked = Some(&asked);
    let fitted = fit.run(&mut training).unwrap();
    drop(fit);
    assert_eq!((fitted.ending, fitted.now.step), (Ending::Asked, 4));
    assert_eq!(read.get(), 6, "the second evaluation ends at its second batch");
    let told = ["evaluation 2", "checkpoint 2", "step 3", "step 4", "checkpoint 4", "end 4 Asked"];
    assert_eq!(diary.lines[3..], told);
    assert_eq!(saved, [fitted.validation_loss; 2], "half an evaluation is none");
}

#[test]
fn errors_of_the_data_end_the_run_and_are_told() {
    struct Broken;
    impl BatchSource for Broken {
        fn rows(&self) -> usize {
            2
        }
        fn sequence(&self) -> usize {
            5
        }
        fn cursor(&self) -> DataCursor {
            DataCursor::CONTRACT
        }
        fn read(&mut self, _batch: &mut Batch) -> Result<()> {
            Err(Error::EmptyCorpus)
        }
    }
    let engine = engine();
    let [rnn, ..] = small_models();
    let model = rnn.build(&engine, 1).unwrap();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.02).unwrap();
    let mut training = ItTraining::new_eager(&engine, &mut optimizer, Default::default()).unwrap();
    let (mut data, mut diary) = (Prefetch::new(Box::new(Broken), 2).unwrap(), Diary::default());
    let mut fit: Fit<'_> = Fit::new(&model, &mut data, ByteTokenizer.config());
    fit.callbacks.push(&mut diary);
    assert!(matches!(fit.run(&mut training), Err(Error::EmptyCorpus)));
    drop(fit);
    assert_eq!(diary.lines, ["start 0", "end 0 Failed"]);
}

#[test]
fn a_sequence_beyond_the_positions_ends_a_run_at_its_first_step() {
    let engine = engine();
    for config in small_models().into_iter().filter(|config| config.context().is_some()) {
        let model = config.build(&engine, 1).unwrap();
        let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.02).unwrap();
        let mut training =
            ItTraining::new_captured(&engine, &mut optimizer, Default::default()).unwrap();
        let mut data = batches(2, 13);
        let mut fit: Fit<'_> = Fit::new(&model, &mut data, ByteTokenizer.config());
        let error = fit.run(&mut training).unwrap_err();
        assert!(matches!(error, Error::Context { sequence: 13, context: 12, .. }), "{error}");
        let measured = evaluate(&model, [batches(2, 13).next_batch()]);
        assert!(matches!(measured, Err(Error::Context { .. })));
    }
}
