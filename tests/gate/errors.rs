//! Suite `errors`: bad input, each with its exact message.
//!
//! A fault of the world says its numbers and what to do, a fault of the caller the caller's line.
//! These go through the crates; `command` provokes those that a user meets at the `oa` command.

use crate::command;
use crate::context::{Context, Outcome, trial};
use crate::learn::{Mode, corpus, forward, train, workload};
use crate::process::Scratch;
use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use oa_ml::checkpoint::Checkpoint;
use oa_ml::contract::{ROWS, SEED, SEQUENCE};
use oa_ml::data::{ByteTokenizer, DataCursor, TextDataset};
use oa_ml::generate::{Generator, Sampling};
use oa_ml::optim::adamw::AdamW;
use oa_ml::train::{ItTraining, ItTrainingConfig};
use oa_tests::case::Checks;
use oa_vk::{DeviceRequest, Gpu};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Provokes one kind of error.
type Body = fn(&Context, &mut Checks) -> Result<()>;

/// One trial an error.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let cases: [(&str, Body); 10] = [
        ("no_loader", no_loader),
        ("unknown_device", unknown_device),
        ("shape_mismatch", shape_mismatch),
        ("token_out_of_range", token_out_of_range),
        ("corpus", corpus_too_short),
        ("unwritable_folder", unwritable_folder),
        ("damaged_file", damaged_file),
        ("other_model", other_model),
        ("loss_is_no_number", loss_is_no_number),
        ("two_engines", two_engines),
    ];
    let trials = cases.into_iter().map(|(name, body)| {
        trial(context, format!("errors/{name}"), move |context, checks| {
            body(context, checks)?;
            Ok(Outcome::Checked)
        })
    });
    trials.chain(command::trials(context)).collect()
}

/// Compares a message with the exact text it must have.
pub fn says(checks: &mut Checks, name: &str, found: impl Display, wanted: impl Display) {
    let (found, wanted) = (found.to_string(), wanted.to_string());
    if found != wanted {
        eprintln!("    {name}\n      says   {found:?}\n      should {wanted:?}");
    }
    checks.exact("messages", name, found.as_bytes(), wanted.as_bytes());
}

/// The error of something that must fail.
fn error_of<T, E>(result: std::result::Result<T, E>) -> Result<E> {
    result.err().context("it succeeded where it must fail")
}

fn no_loader(_: &Context, checks: &mut Checks) -> Result<()> {
    let library = PathBuf::from("/nowhere/libvulkan.so.1");
    let request = DeviceRequest { library: Some(library), ..Default::default() };
    let error = error_of(Gpu::open(&request))?;
    says(
        checks,
        "no loader",
        error,
        "no Vulkan loader: install libvulkan1 (Debian, Ubuntu), vulkan-loader (Fedora) or \
         vulkan-icd-loader (Arch); tried /nowhere/libvulkan.so.1",
    );
    Ok(())
}

fn unknown_device(context: &Context, checks: &mut Checks) -> Result<()> {
    let selector = Some("no such device".to_owned());
    let request = DeviceRequest { selector, ..context.lab.request() };
    let text = error_of(Gpu::open(&request))?.to_string();
    let first = "no Vulkan device matches \"no such device\"; there are:";
    says(checks, "first line", text.lines().next().unwrap_or_default(), first);
    let used = context.engine()?.device().name.to_string();
    ensure!(text.contains(&used), "the message does not list {used}: {text}");
    Ok(())
}

fn shape_mismatch(context: &Context, checks: &mut Checks) -> Result<()> {
    let engine = context.engine()?;
    let (a, b) = (engine.zeros([2, 3])?, engine.zeros([4, 5])?);
    let (line, result) = (line!(), a.matmul(&b, false, false));
    let text = error_of(result)?.to_string();
    let (place, rest) = text.split_once(": ").context("a message with a place")?;
    let (site, _column) = place.rsplit_once(':').context("a place with a column")?;
    says(checks, "place", site, format!("matmul at {}:{line}", file!()));
    ensure!(rest.starts_with("needs "), "it does not say what it needs: {text}");
    ensure!(rest.ends_with("got f32[2, 3] and f32[4, 5]"), "it does not say what it got: {text}");
    Ok(())
}

fn two_engines(context: &Context, checks: &mut Checks) -> Result<()> {
    let other = context.lab.open()?;
    let (a, b) = (context.engine()?.zeros([3])?, other.zeros([3])?);
    let (line, result) = (line!(), a.add(&b));
    let text = error_of(result)?.to_string();
    let (place, rest) = text.split_once(": ").context("a message with a place")?;
    let (site, _column) = place.rsplit_once(':').context("a place with a column")?;
    says(checks, "place", site, format!("add at {}:{line}", file!()));
    says(
        checks,
        "text",
        rest,
        "the inputs belong to different engines; keep a computation on one engine or copy the \
         value through the host",
    );
    Ok(())
}

fn token_out_of_range(context: &Context, checks: &mut Checks) -> Result<()> {
    let wanted = "token 256 at position 2 is out of range: the vocabulary has 256 tokens";
    let model = workload("rnn")?.config.build(&context.engine()?, SEED)?;
    let mut generator = Generator::new(&model)?;
    let go_on = |_| ControlFlow::Continue(());
    let refused = generator.generate(&[1, 2, 256], 1, &Sampling::default(), go_on);
    says(checks, "in a prompt", error_of(refused)?, wanted);
    let refused = TextDataset::from_tokens(&[1, 2, 256], 256);
    says(checks, "in a corpus", error_of(refused)?, wanted);
    let refused = generator.generate(&[], 1, &Sampling::default(), go_on);
    let empty = "the prompt is empty: generation needs at least one token to start from";
    says(checks, "no prompt", error_of(refused)?, empty);
    Ok(())
}

fn corpus_too_short(_: &Context, checks: &mut Checks) -> Result<()> {
    let refused = TextDataset::from_bytes(b"", &ByteTokenizer);
    let empty = "the corpus is empty: it has no token";
    says(checks, "no token", error_of(refused)?, empty);
    let view = TextDataset::from_bytes(b"sixteen letters.", &ByteTokenizer)?.whole();
    let refused = view.batches(4, 16, DataCursor::shuffled(1));
    let short = "the corpus has 16 tokens, but a sequence length of 16 needs at least 17";
    says(checks, "too few tokens", error_of(refused)?, short);
    Ok(())
}

/// A checkpoint of a model that has learned nothing.
fn fresh_checkpoint(context: &Context) -> Result<Checkpoint> {
    let (engine, workload) = (context.engine()?, workload("rnn")?);
    Ok(train(&engine, &workload, Mode::Eager, (None, 1), &mut |_| Ok(()))?.checkpoint)
}

fn unwritable_folder(context: &Context, checks: &mut Checks) -> Result<()> {
    let scratch = Scratch::new("unwritable")?;
    let file = scratch.join("file");
    std::fs::write(&file, "text")?;
    let path = file.join("model.oam");
    let refused = oa_io::save(&path, &fresh_checkpoint(context)?);
    let wanted = format!(
        "cannot save to {}: Not a directory (os error 20); make the folder first or save elsewhere",
        path.display()
    );
    says(checks, "below a file", error_of(refused)?, wanted);
    Ok(())
}

fn damaged_file(context: &Context, checks: &mut Checks) -> Result<()> {
    let scratch = Scratch::new("damaged")?;
    let path = scratch.join("model.oam");
    oa_io::save(&path, &fresh_checkpoint(context)?)?;
    let whole = std::fs::read(&path)?;
    let load = |bytes: &[u8]| -> Result<String> {
        std::fs::write(&path, bytes)?;
        Ok(error_of(oa_io::load(&path))?.to_string())
    };
    let cannot = format!("cannot load {}", path.display());
    let advice = "use another copy of the file or an earlier checkpoint";
    let half = whole.len() / 2;
    let wanted = format!("{cannot}: it ends after {half} bytes of {}; {advice}", whole.len());
    says(checks, "cut", load(&whole[..half])?, wanted);
    let mut flipped = whole.clone();
    *flipped.last_mut().context("a file has bytes")? ^= 1;
    let changed = "changed after it was written: its checksum does not match";
    let wanted = format!("{cannot}: the optimizer state {changed}; {advice}");
    says(checks, "flipped", load(&flipped)?, wanted);
    let wanted = format!(
        "{cannot}: it does not begin with the bytes of an .oam file; give a file that was saved by \
         OA"
    );
    says(checks, "no model", load(&vec![b'x'; 10_000])?, wanted);
    // Any single bit, wherever it is, is found.
    for index in (0..whole.len()).step_by(whole.len() / 61) {
        let mut flipped = whole.clone();
        flipped[index] ^= 0x10;
        load(&flipped).with_context(|| format!("bit 4 of byte {index} was flipped"))?;
    }
    Ok(())
}

fn other_model(context: &Context, checks: &mut Checks) -> Result<()> {
    let scratch = Scratch::new("other")?;
    let path = scratch.join("rnn.oam");
    let checkpoint = fresh_checkpoint(context)?;
    oa_io::save(&path, &checkpoint)?;
    let refused = oa_io::load_expecting(&path, "contract_transformer");
    let wanted = format!(
        "cannot load {}: it holds a `rnn` model, `contract_transformer` was expected; give the file \
         of the right model, or leave the architecture to the file",
        path.display()
    );
    says(checks, "file", error_of(refused)?, wanted);
    let config = workload("transformer")?.config;
    let model = config.build(&context.engine()?, SEED)?;
    let before = model.parameters().to_host()?;
    let text = error_of(model.load(&checkpoint))?.to_string();
    let (found, expected) = (&checkpoint.model, &config);
    let wanted = format!("the checkpoint holds another model: {found:?}, this one is {expected:?}");
    says(checks, "model", text, wanted);
    checks.exact("unchanged", "parameters", &[model.parameters().to_host()?], &[before]);
    Ok(())
}

/// A weight that is no number: training stops, names it, and leaves the other weights alone.
fn loss_is_no_number(context: &Context, checks: &mut Checks) -> Result<()> {
    let engine = context.engine()?;
    let workload = workload("transformer")?;
    let model = workload.config.build(&engine, SEED)?;
    let mut optimizer = AdamW::new(model.all_parameters()?, workload.rate)?;
    let settings = ItTrainingConfig { total_steps: 10, ..Default::default() };
    let mut session = ItTraining::new_captured(&engine, &mut optimizer, settings)?;
    let mut batches = corpus()?.whole().batches(ROWS, SEQUENCE, DataCursor::CONTRACT)?;
    let mut forward = forward(&model);
    let mut stopped = None;
    let mut poisoned = Vec::new();
    for step in 0..10 {
        if step == 3 {
            session.finish()?;
            poisoned = model.parameters().to_host()?;
            let bad = poisoned.iter_mut().find(|tensor| tensor.name == "ffn.w1");
            bad.context("the contract's Transformer has ffn.w1")?.data[5] = f32::NAN;
            model.parameters().load(&poisoned)?;
        }
        let went =
            session.begin_step().and_then(|_| session.step(&[batches.next_batch()], &mut forward));
        if let Err(error) = went {
            stopped = Some(error);
            break;
        }
    }
    let wanted = "training stopped: parameter `ffn.w1` is NaN at step 3; the weights were not \
                  updated by it";
    says(checks, "first", stopped.context("training went on with a NaN")?, wanted);
    let again = error_of(session.begin_step())?;
    let wanted = "training stopped at step 3 because of a value that is no number; resume from a \
                  checkpoint";
    says(checks, "afterwards", again, wanted);
    let words = crate::learn::bits(&model.parameters().to_host()?);
    checks.exact("unchanged", "parameters", &words, &crate::learn::bits(&poisoned));
    Ok(())
}
