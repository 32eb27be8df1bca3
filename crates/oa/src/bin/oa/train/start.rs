//! Where a run starts: from settings, or from a checkpoint.

use super::texts::{Text, packed_text};
use super::tokenizer::Choice;
use crate::failure::{End, Explain, Failure};
use crate::flags::TrainFlags;
use crate::open;
use crate::settings::{Arch, Mode, Plan, Routine, Settings, resolve};
use oa::io::CheckpointFolder;
use oa::ml::checkpoint::TrainingState;
use oa::ml::data::TokenizerConfig;
use oa::ml::{Checkpoint, ItTrainingConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Metadata entry with the routine of the run, as JSON.
const ROUTINE: &str = "oa.train";
/// Metadata entry with the BLAKE3 of the text, or the fingerprint of its documents.
const TEXT: &str = "oa.text";
/// Metadata entry with the release that wrote the file.
const RELEASE: &str = "oa.release";

/// Settings that a resumed run may be given anew: none of them decides a bit, but `steps`, which
/// makes the run longer or shorter, as does the patience. A tokenizer must be the one that the run
/// began with.
const FREE: &[&str] = &[
    "data",
    "out",
    "steps",
    "checkpoint-every",
    "keep",
    "eval-every",
    "eval-batches",
    "patience",
    "min-delta",
    "mode",
    "tokenizer",
];

/// Bytes of a streamed text that a tokenizer is learned from.
const LEARNED_BYTES: usize = 64 << 20;

/// A run that is ready to go.
pub struct Start {
    /// Every setting.
    pub plan: Plan,
    /// Folder of the run.
    pub out: PathBuf,
    /// The text.
    pub text: Text,
    /// How the text becomes tokens.
    pub tokenizer: TokenizerConfig,
    /// The checkpoint it goes on from, and its file.
    pub from: Option<(PathBuf, Checkpoint)>,
    /// What its checkpoints keep beside the state.
    pub metadata: BTreeMap<String, String>,
    /// The settings as they were given, for the record.
    pub record: Option<String>,
}

impl Start {
    /// The state that the run goes on from.
    pub fn state(&self) -> Option<&TrainingState> {
        self.from.as_ref().and_then(|(_, checkpoint)| checkpoint.training.as_ref())
    }
}

/// A run from its settings.
pub fn fresh(flags: &TrainFlags) -> Result<Start, Failure> {
    let mut settings = given(flags);
    if let Some(file) = &flags.config {
        let below = Settings::from_file(file)?;
        below.check_numbers()?;
        settings = settings.over(&below);
    }
    let mut plan = resolve(&settings)?;
    let choice = choice(&settings)?.unwrap_or_default();
    let text = text(&plan.routine)?;
    let tokenizer = tokenizer(&choice, &text, &plan.routine)?;
    plan.model = plan.model.with_vocab(tokenizer.vocab());
    let out = match &settings.out {
        Some(folder) => folder.clone(),
        None => unused_folder(settings.arch.unwrap_or_default()),
    };
    refuse_used(&out)?;
    let record = Settings { out: None, ..settings };
    let record = toml::to_string(&record).expect("settings are a table of plain values");
    let metadata = metadata(&plan.routine, &text);
    Ok(Start { plan, out, text, tokenizer, from: None, metadata, record: Some(record) })
}

/// A run on from a checkpoint.
pub fn resume(flags: &TrainFlags, place: Option<&Path>) -> Result<Start, Failure> {
    let settings = given(flags);
    refuse_decided(flags, &settings)?;
    let (file, out) = find(place, &settings)?;
    let mut checkpoint = open::load(&file)?;
    let cannot = |cause: &str, remedy: &str| {
        Failure::new(End::Failed, format!("cannot resume from {}", file.display()), cause, remedy)
    };
    let Some(state) = &mut checkpoint.training else {
        let cause = "it holds a model without a training run";
        return Err(cannot(cause, "give a checkpoint of a run"));
    };
    if let Some(steps) = settings.steps {
        if steps < state.step {
            let cause = format!("it has done {} steps, --steps is {steps}", state.step);
            return Err(cannot(&cause, "give at least as many"));
        }
        state.config.total_steps = steps;
    }
    let state = &*state;
    let Some(kept) = routine(&checkpoint.metadata) else {
        let cause = "it was not written by `oa train`, so its batches are not known";
        return Err(cannot(cause, "resume it with the program that wrote it"));
    };
    let routine = again(&kept, &settings);
    let text = text(&routine)?;
    if checkpoint.metadata.get(TEXT) != Some(&text.identity()) {
        let cause = match &routine.data {
            Some(path) => format!("{} is not the text that the run began with", path.display()),
            None => "the built-in corpus is not the text that the run began with".into(),
        };
        return Err(cannot(&cause, "give that text with --data, or start a new run"));
    }
    let training = ItTrainingConfig {
        total_steps: state.config.total_steps,
        schedule: state.schedule,
        max_norm: state.config.max_norm,
        accumulation: state.config.accumulation,
        seed: state.seed,
    };
    let plan = Plan {
        model: checkpoint.model,
        training,
        optimizer: state.optimizer.config,
        freeze: Vec::new(),
        cursor: state.data,
        routine,
    };
    let began = checkpoint.tokenizer.clone();
    if let Some(choice) = choice(&settings)? {
        let given = tokenizer(&choice, &text, &plan.routine)?;
        let sentence = format!("cannot resume from {}", file.display());
        plan.model.check_tokenizer(&given).explain(&sentence)?;
        if given != began {
            let cause = "--tokenizer is another tokenizer than the run began with";
            return Err(cannot(cause, "leave it out, or start a new run without --resume"));
        }
    }
    let mut notes = checkpoint.metadata.clone();
    notes.extend(metadata(&plan.routine, &text));
    let from = Some((file, checkpoint));
    Ok(Start { plan, out, text, tokenizer: began, from, metadata: notes, record: None })
}

/// The tokenizer that is asked for.
fn choice(settings: &Settings) -> Result<Option<Choice>, Failure> {
    settings.tokenizer.as_deref().map(Choice::parse).transpose()
}

/// Builds a tokenizer, learned from the text if it must be. Of a streamed text pieces are learned
/// from the documents that train, characters from all, and 64 MiB of either at most.
fn tokenizer(choice: &Choice, text: &Text, routine: &Routine) -> Result<TokenizerConfig, Failure> {
    let (documents, streamed) = match (text, &routine.streamed) {
        (Text::Streamed(documents), Some(streamed)) => (documents, streamed),
        (Text::Whole(text), _) => return choice.build(text, routine.whole),
        (Text::Streamed(_), None) => unreachable!("a text is streamed by a routine that says so"),
    };
    let all = match choice {
        Choice::Byte | Choice::File(_) => return choice.build(&[], true),
        Choice::Char => true,
        Choice::Bpe(_) => false,
    };
    let text = packed_text(documents, TokenizerConfig::Byte.build().into(), streamed, all)?;
    choice.build(&text.sample(LEARNED_BYTES).explain("cannot learn the tokenizer")?, true)
}

/// The settings of the flags, the way of execution among them.
fn given(flags: &TrainFlags) -> Settings {
    let mode = match (flags.captured, flags.eager) {
        (true, _) => Some(Mode::Captured),
        (_, true) => Some(Mode::Eager),
        _ => None,
    };
    Settings { mode, ..flags.settings.clone() }
}

fn refuse_decided(flags: &TrainFlags, settings: &Settings) -> Result<(), Failure> {
    let sentence = "cannot resume with these flags";
    let remedy = "leave it out, or start a new run without --resume";
    if flags.config.is_some() {
        let cause = "the checkpoint holds all settings, --config would change them";
        return Err(Failure::usage(sentence, cause, remedy));
    }
    let given = settings.given();
    match given.keys().find(|key| !FREE.contains(&key.as_str())) {
        Some(key) => {
            let cause = format!("the checkpoint decides --{key}");
            Err(Failure::usage(sentence, cause, remedy))
        }
        None => Ok(()),
    }
}

/// The file to go on from, and the folder to go on in.
fn find(place: Option<&Path>, settings: &Settings) -> Result<(PathBuf, PathBuf), Failure> {
    let Some(place) = place.or(settings.out.as_deref()) else {
        let cause = "neither --resume nor --out names a run";
        let remedy = "give the run's folder: `oa train --resume FOLDER`";
        return Err(Failure::usage("cannot resume", cause, remedy));
    };
    let file = open::model_file(place)?;
    let home = if place.is_dir() { Some(place) } else { place.parent() };
    let home = home.filter(|home| !home.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(out) = &settings.out else { return Ok((file, home.to_owned())) };
    let [there, here] = [out.as_path(), home].map(|folder| folder.canonicalize().ok());
    if there != here {
        refuse_used(out)?;
    }
    Ok((file, out.clone()))
}

/// The routine of the checkpoint with what is given anew.
fn again(kept: &Routine, settings: &Settings) -> Routine {
    Routine {
        data: settings.data.clone().or_else(|| kept.data.clone()),
        checkpoint_every: settings.checkpoint_every.unwrap_or(kept.checkpoint_every),
        keep: settings.keep.unwrap_or(kept.keep),
        eval_every: settings.eval_every.unwrap_or(kept.eval_every),
        eval_batches: settings.eval_batches.unwrap_or(kept.eval_batches),
        patience: settings.patience.or(kept.patience),
        min_delta: settings.min_delta.unwrap_or(kept.min_delta),
        mode: settings.mode.unwrap_or(kept.mode),
        ..kept.clone()
    }
}

/// The routine that a checkpoint's metadata hold.
pub fn routine(metadata: &BTreeMap<String, String>) -> Option<Routine> {
    metadata.get(ROUTINE).and_then(|text| serde_json::from_str(text).ok())
}

/// The text that a routine names.
fn text(routine: &Routine) -> Result<Text, Failure> {
    match (&routine.data, &routine.streamed) {
        (Some(path), Some(streamed)) => Text::stream(path, streamed),
        (data, _) => Ok(Text::Whole(open::corpus(data.as_deref())?)),
    }
}

fn metadata(routine: &Routine, text: &Text) -> BTreeMap<String, String> {
    let mut routine = routine.clone();
    // A resumed run may start in another folder.
    routine.data = routine.data.map(|path| std::path::absolute(&path).unwrap_or(path));
    let routine = serde_json::to_string(&routine).expect("a routine is plain values");
    let entries = [
        (ROUTINE, routine),
        (TEXT, text.identity()),
        (RELEASE, env!("CARGO_PKG_VERSION").to_owned()),
    ];
    entries.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

/// The first of `runs/ARCH-1`, `runs/ARCH-2`, .. that does not exist.
fn unused_folder(arch: Arch) -> PathBuf {
    let name = |number: u32| PathBuf::from(format!("runs/{}-{number}", arch.name()));
    (1..).map(name).find(|folder| !folder.exists()).expect("numbers outlast folders")
}

/// Files that a run writes beside its checkpoints.
const WRITTEN: [&str; 4] = ["settings.toml", "metrics.csv", "best", "loss.svg"];

/// Refuses a folder that holds a run, or files that a run would replace.
pub(super) fn refuse_used(out: &Path) -> Result<(), Failure> {
    if !out.exists() {
        return Ok(());
    }
    let sentence = format!("cannot start a run in {}", out.display());
    match CheckpointFolder::newest(out) {
        Ok(file) => {
            let cause = format!("it holds a run: {}", file.display());
            let remedy = format!(
                "continue it with `oa train --resume {}`, or choose another --out",
                out.display()
            );
            Err(Failure::usage(sentence, cause, remedy))
        }
        Err(oa::io::Error::NoCheckpoint { .. }) => {
            let there = |name: &&str| out.join(name).symlink_metadata().is_ok();
            let Some(name) = WRITTEN.into_iter().find(there) else { return Ok(()) };
            let cause = format!("it holds {name} and no checkpoint; the run would replace that");
            Err(Failure::usage(sentence, cause, "move it away, or choose another --out"))
        }
        Err(error) => Err(error.into()),
    }
}
