//! First light: a Transformer learns a text, continues it, is saved and comes back.
//!
//! The smallest program that uses the whole of OA, top to bottom in the order things happen:
//! data, model, training, evaluation, generation, file. `cargo xtask demo` runs it twice: `train`
//! does all of that and leaves the model and its text in a folder, `reload` is a fresh process that
//! loads the file and must generate the same bytes. Each check that fails ends the program with
//! exit code 1.

use oa::ml::contract::{
    ACCURACY, ROWS, SEED, SEQUENCE, STEPS, continuation, expected_continuation,
};
use oa::ml::data::{ByteTokenizer, DataCursor, TextDataset, Tokenizer, contract_corpus};
use oa::ml::model::ContractTransformerConfig;
use oa::ml::train::RunIdentity;
use oa::{Engine, io, ml, picture};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Learning rate of the teaching contract's Transformer.
const LEARNING_RATE: f64 = 0.01;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["train", folder] => train(Path::new(folder)),
        ["reload", folder] => reload(Path::new(folder)),
        _ => {
            eprintln!("usage: first_light train|reload FOLDER");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Trains, evaluates, generates and saves; leaves model, text and loss picture in the folder.
fn train(folder: &Path) -> Outcome<()> {
    let started = Instant::now();
    let engine = Engine::new()?;
    println!("device: {}", engine.device().name);
    let corpus = contract_corpus();
    let text = TextDataset::from_bytes(&corpus, &ByteTokenizer)?.whole();
    let config = ContractTransformerConfig::contract(ByteTokenizer.vocab());
    let model = ml::ModelConfig::ContractTransformer(config).build(&engine, SEED)?;
    println!("model: {} parameters", model.parameters().layout().count());

    let mut batches = text.batches(ROWS, SEQUENCE, DataCursor::CONTRACT)?;
    let mut optimizer = ml::AdamW::new(model.all_parameters()?, LEARNING_RATE)?;
    let mut training = ml::ItTraining::new_captured(
        &engine,
        &mut optimizer,
        ml::ItTrainingConfig { total_steps: STEPS, seed: SEED, ..Default::default() },
    )?;
    let mut losses = Vec::new();
    let training_started = Instant::now();
    while training.begin_step()? {
        let batch = batches.next_batch();
        training.step(&[batch], &mut |inputs| {
            let logits = model.forward_training(&inputs.tokens, inputs.dropout())?;
            inputs.cross_entropy(&logits)
        })?;
        note(&mut training, &mut losses);
    }
    note(&mut training, &mut losses);
    let milliseconds = training_started.elapsed().as_secs_f64() * 1e3;
    println!("trained {STEPS} steps, {:.2} ms each", milliseconds / STEPS as f64);

    let measured = ml::evaluate(&model, text.pass(ROWS, SEQUENCE)?)?;
    println!("evaluation: loss {:.4} nats, accuracy {:.3}", measured.loss, measured.accuracy);
    let continued = continuation(&model, &ByteTokenizer.config())?;
    println!("generated: {:?}", String::from_utf8_lossy(&continued));

    let metadata = BTreeMap::from([("example".to_string(), "first_light".to_string())]);
    let run = RunIdentity {
        model: &model,
        tokenizer: &ByteTokenizer.config(),
        cursor: batches.cursor(),
        sampled: 0,
        validation_loss: None,
        best_validation_loss: None,
        elapsed_seconds: started.elapsed().as_secs_f64(),
        metadata: &metadata,
    };
    let bytes = io::save(model_file(folder), &training.checkpoint(&run)?)?;
    std::fs::write(text_file(folder), &continued)?;
    picture::loss_svg(folder.join("loss.svg"), "first light", &losses, &[])?;
    println!("saved {bytes} bytes to {}", model_file(folder).display());

    check(measured.accuracy >= ACCURACY, "the model did not learn its text")?;
    let expected = expected_continuation(&ByteTokenizer.config())?;
    check(continued == expected, "the generated text does not continue the corpus")
}

/// Loads the file in this fresh process and generates again.
fn reload(folder: &Path) -> Outcome<()> {
    let engine = Engine::new()?;
    let checkpoint = io::load(model_file(folder))?;
    let model = checkpoint.model.build(&engine, 0)?;
    model.load(&checkpoint)?;
    let again = continuation(&model, &checkpoint.tokenizer)?;
    let before = std::fs::read(text_file(folder))?;
    check(again == before, "the reloaded model generates another text")?;
    println!("a fresh process reloaded the model and generated the same {} bytes", again.len());
    Ok(())
}

/// Takes over the losses that have been read, and prints one in fifty.
fn note(training: &mut ml::ItTraining, losses: &mut Vec<(f64, f64)>) {
    while let Some(report) = training.take_report() {
        if report.step % 50 == 0 || report.step + 1 == STEPS {
            println!("step {:>3}  loss {:.4}", report.step, report.loss);
        }
        losses.push((report.step as f64, f64::from(report.loss)));
    }
}

fn check(holds: bool, otherwise: &'static str) -> Outcome<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn model_file(folder: &Path) -> PathBuf {
    folder.join("model.oam")
}

fn text_file(folder: &Path) -> PathBuf {
    folder.join("text.bin")
}
