//! From settings to a plan: defaults by architecture, and refusal of what has no use.

use super::limits::{check_least, check_step};
use super::{Arch, Fall, OptimizerKind, Order, Rate, Rope, ScheduleKind, Settings};
use crate::failure::{Explain, Failure};
use oa::graph::ops::attention::MAX_HEAD_DIM;
use oa::ml::data::{DataCursor, SourceConfig};
use oa::ml::model::{
    ContractMamba3Config, ContractMoeConfig, ContractTransformerConfig, DecayStyle, Mamba3LmConfig,
    MoeLmConfig, RnnLmConfig, RopeStyle, TransformerConfig,
};
use oa::ml::{
    AdamWConfig, DecayShape, ItTrainingConfig, ModelConfig, MuonConfig, OptimizerConfig, Schedule,
    SgdConfig,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Token ids of the byte tokenizer.
const BYTES: usize = 256;

/// How the steps of a run execute. Both ways give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One captured plan, replayed.
    #[default]
    Captured,
    /// Recorded anew each time.
    Eager,
}

/// What a run does beside its arithmetic: the part of a plan that a checkpoint keeps as metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Routine {
    /// The text; the built-in corpus when there is none.
    pub data: Option<PathBuf>,
    /// Whether all of the text trains and evaluates.
    pub whole: bool,
    /// Sequences of a batch.
    pub batch: usize,
    /// Tokens of a sequence.
    pub context: usize,
    /// Steps between checkpoints; 0 for one at the end only.
    pub checkpoint_every: u64,
    /// Checkpoints to keep.
    pub keep: usize,
    /// Steps between evaluations; 0 for one at the end only.
    pub eval_every: u64,
    /// Batches of an evaluation.
    pub eval_batches: usize,
    /// How steps execute.
    pub mode: Mode,
    /// Evaluations without a lower loss that end the run.
    #[serde(default)]
    pub patience: Option<u32>,
    /// What counts as lower, in nats.
    #[serde(default)]
    pub min_delta: f64,
    /// How documents are read, when the text is streamed.
    #[serde(default)]
    pub streamed: Option<Streamed>,
}

/// How the documents of a streamed text are found and split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Streamed {
    /// Endings of the files of a folder.
    pub extensions: Vec<String>,
    /// Field of a JSONL object that is the document.
    pub field: String,
    /// Whether bad lines are left out.
    pub skip_bad_lines: bool,
    /// A token that follows each document.
    pub separator: Option<u32>,
    /// Whether the first token of a document is predicted.
    pub across: bool,
    /// Of this many documents one validates.
    pub validate_one_in: u64,
}

/// Settings that only a streamed text has a use for.
const STREAMED: &[&str] =
    &["extensions", "field", "skip-bad-lines", "separator", "across", "validate-one-in"];

/// Settings that a streamed text has no use for.
const WINDOWS: &[&str] = &["whole", "order"];

/// A run, with every setting decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The model.
    pub model: ModelConfig,
    /// Settings of the session.
    pub training: ItTrainingConfig,
    /// Settings of the optimizer.
    pub optimizer: OptimizerConfig,
    /// Patterns of the parameters that do not train from the first step on; a resumed run has the
    /// frozen ones of its checkpoint.
    pub freeze: Vec<String>,
    /// Where the data order starts.
    pub cursor: DataCursor,
    /// The rest.
    pub routine: Routine,
}

/// Settings that only some architectures have a use for.
const SIZES: &[&str] = &[
    "width",
    "layers",
    "hidden",
    "heads",
    "kv-heads",
    "head-dim",
    "ff",
    "rope",
    "rope-base",
    "qk-norm",
    "tied",
    "dropout",
    "context",
    "experts",
    "top-k",
    "state",
    "groups",
    "rank",
    "decay-rate",
    "out-norm",
];

/// Settings that only some optimizers have a use for.
const MOMENTS: &[(&str, &[OptimizerKind])] = &[
    ("momentum", &[OptimizerKind::Sgd, OptimizerKind::Muon]),
    ("beta1", &[OptimizerKind::Adamw, OptimizerKind::Muon]),
    ("beta2", &[OptimizerKind::Adamw, OptimizerKind::Muon]),
    ("eps", &[OptimizerKind::Adamw, OptimizerKind::Muon]),
];

impl OptimizerKind {
    /// Its name as a flag.
    fn name(self) -> &'static str {
        match self {
            OptimizerKind::Adamw => "adamw",
            OptimizerKind::Sgd => "sgd",
            OptimizerKind::Muon => "muon",
        }
    }
}

impl Arch {
    /// Its name as a flag.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Transformer => "transformer",
            Arch::Rnn => "rnn",
            Arch::Gru => "gru",
            Arch::ContractTransformer => "contract-transformer",
            Arch::ContractRnn => "contract-rnn",
            Arch::Moe => "moe",
            Arch::ContractMoe => "contract-moe",
            Arch::ContractGru => "contract-gru",
            Arch::Mamba3 => "mamba3",
            Arch::ContractMamba3 => "contract-mamba3",
        }
    }

    /// The settings of [`SIZES`] that it has a use for.
    fn sizes(self) -> &'static [&'static str] {
        match self {
            Arch::Transformer => &[
                "width",
                "layers",
                "heads",
                "kv-heads",
                "head-dim",
                "ff",
                "rope",
                "rope-base",
                "qk-norm",
                "tied",
                "dropout",
                "context",
            ],
            Arch::Rnn | Arch::Gru => &["width", "layers", "hidden", "context"],
            Arch::Moe => &[
                "width",
                "layers",
                "heads",
                "kv-heads",
                "head-dim",
                "ff",
                "rope",
                "rope-base",
                "context",
                "experts",
                "top-k",
            ],
            Arch::Mamba3 => &[
                "width",
                "layers",
                "heads",
                "head-dim",
                "ff",
                "state",
                "groups",
                "rank",
                "rope",
                "decay-rate",
                "out-norm",
                "context",
            ],
            Arch::ContractTransformer
            | Arch::ContractRnn
            | Arch::ContractGru
            | Arch::ContractMoe
            | Arch::ContractMamba3 => &[],
        }
    }

    fn defaults(self) -> Defaults {
        match self {
            Arch::ContractTransformer
            | Arch::ContractRnn
            | Arch::ContractGru
            | Arch::ContractMoe
            | Arch::ContractMamba3 => Defaults {
                context: 16,
                batch: 64,
                steps: 300,
                lr: if self == Arch::ContractMamba3 { 0.003 } else { 0.01 },
                warmup: 0,
                seed: 20_260_714,
            },
            Arch::Transformer | Arch::Rnn | Arch::Gru | Arch::Moe | Arch::Mamba3 => {
                Defaults { context: 64, batch: 12, steps: 200, lr: 0.001, warmup: 20, seed: 0 }
            }
        }
    }
}

/// The settings whose defaults depend on the architecture.
struct Defaults {
    context: usize,
    batch: usize,
    steps: u64,
    lr: f64,
    warmup: u64,
    seed: u64,
}

/// Decides every setting that was not given, and refuses those without a use.
pub fn resolve(settings: &Settings) -> Result<Plan, Failure> {
    let arch = settings.arch.unwrap_or_default();
    refuse_useless(settings, arch)?;
    let defaults = arch.defaults();
    let context = settings.context.unwrap_or(defaults.context);
    settings.check_counts()?;
    refuse_uneven(settings, arch)?;
    let model = model(settings, arch, context);
    model.validate().explain("cannot build that model")?;
    let steps = settings.steps.unwrap_or(defaults.steps);
    let seed = settings.seed.unwrap_or(defaults.seed);
    let built_in = settings.data.is_none();
    let streamed = streamed(settings)?;
    let order = match settings.order {
        Some(order) => order,
        None if built_in => Order::Contract,
        None => Order::Shuffled,
    };
    let routine = Routine {
        data: settings.data.clone(),
        whole: settings.whole.unwrap_or(built_in),
        batch: settings.batch.unwrap_or(defaults.batch),
        context,
        checkpoint_every: settings.checkpoint_every.unwrap_or(50),
        keep: settings.keep.unwrap_or(3),
        eval_every: settings.eval_every.unwrap_or(100),
        eval_batches: settings.eval_batches.unwrap_or(20),
        mode: settings.mode.unwrap_or_default(),
        patience: settings.patience,
        min_delta: settings.min_delta.unwrap_or(0.0),
        streamed,
    };
    positive("patience", u64::from(routine.patience.unwrap_or(1)))?;
    if settings.min_delta.is_some() && routine.patience.is_none() {
        let remedy = "leave it out, or give --patience";
        return Err(useless("min-delta", "a run without --patience", remedy.into()));
    }
    positive("steps", steps)?;
    positive("keep", routine.keep as u64)?;
    positive("eval-batches", routine.eval_batches as u64)?;
    let accumulation = settings.accumulation.unwrap_or(1);
    positive("accumulation", u64::from(accumulation))?;
    check_step(routine.batch, routine.context, accumulation)?;
    Ok(Plan {
        model,
        training: ItTrainingConfig {
            total_steps: steps,
            schedule: schedule(settings, defaults.warmup, steps)?,
            max_norm: clip(settings)?,
            accumulation,
            seed,
        },
        optimizer: optimizer(settings, defaults.lr)?,
        freeze: settings.freeze.clone().unwrap_or_default(),
        cursor: match order {
            _ if routine.streamed.is_some() => DataCursor::packed(seed),
            Order::Contract => DataCursor::CONTRACT,
            Order::Shuffled => DataCursor::shuffled(seed),
        },
        routine,
    })
}

fn refuse_useless(settings: &Settings, arch: Arch) -> Result<(), Failure> {
    let schedule = settings.schedule.unwrap_or_default();
    let falls: &[&str] = match schedule {
        ScheduleKind::Constant => &[],
        ScheduleKind::Cosine | ScheduleKind::Linear => &["min-ratio"],
        ScheduleKind::Wsd => &["min-ratio", "decay", "fall"],
    };
    let schedule_name = match schedule {
        ScheduleKind::Constant => "constant",
        ScheduleKind::Cosine => "cosine",
        ScheduleKind::Linear => "linear",
        ScheduleKind::Wsd => "wsd",
    };
    let kind = settings.optimizer.unwrap_or_default();
    for key in settings.given().keys() {
        let key = key.as_str();
        if let Some((_, only)) = MOMENTS.iter().find(|(name, _)| *name == key)
            && !only.contains(&kind)
        {
            let names: Vec<&str> = only.iter().map(|kind| kind.name()).collect();
            let remedy = format!("leave it out, or choose --optimizer {}", names.join(" or "));
            return Err(useless(key, &format!("--optimizer {}", kind.name()), remedy));
        }
        if SIZES.contains(&key) && !arch.sizes().contains(&key) {
            let remedy = match arch.sizes() {
                [] => format!(
                    "leave it out: the sizes of {} are fixed; `--arch {}` has free ones",
                    arch.name(),
                    arch.name().trim_start_matches("contract-")
                ),
                sizes => format!("leave it out; its sizes are --{}", sizes.join(", --")),
            };
            return Err(useless(key, &format!("--arch {}", arch.name()), remedy));
        }
        if ["min-ratio", "decay", "fall"].contains(&key) && !falls.contains(&key) {
            let remedy = match key {
                "min-ratio" => "leave it out, or choose --schedule cosine, linear or wsd",
                _ => "leave it out, or choose --schedule wsd",
            };
            return Err(useless(key, &format!("--schedule {schedule_name}"), remedy.into()));
        }
    }
    Ok(())
}

/// Whether a text can only be read document by document.
pub fn must_stream(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|end| end == "jsonl" || end == "ndjson")
}

impl Default for Streamed {
    fn default() -> Streamed {
        let SourceConfig { extensions, field, skip_bad_lines, .. } = SourceConfig::default();
        let (separator, across, validate_one_in) = (None, false, 10);
        Streamed { extensions, field, skip_bad_lines, separator, across, validate_one_in }
    }
}

/// How documents are read, if they are; refuses the settings of the other way.
fn streamed(settings: &Settings) -> Result<Option<Streamed>, Failure> {
    let needed = settings.data.as_deref().is_some_and(must_stream);
    let wanted = settings.stream.unwrap_or(needed);
    if needed && !wanted {
        return Err(useless("stream=false", "a folder or JSONL", "leave it out".into()));
    }
    if wanted && settings.data.is_none() {
        let remedy = "leave it out, or give a text with --data";
        return Err(useless("stream", "the built-in corpus", remedy.into()));
    }
    let (others, who, remedy) = match wanted {
        true => (WINDOWS, "a streamed text", "leave it out"),
        false => (STREAMED, "a text in memory", "leave it out, or add --stream"),
    };
    let given = settings.given();
    if let Some(key) = others.iter().find(|key| given.contains_key(**key)) {
        return Err(useless(key, who, remedy.into()));
    }
    let defaults = Streamed::default();
    let one_in = settings.validate_one_in.unwrap_or(defaults.validate_one_in);
    if one_in < 2 {
        return Err(out_of_range("validate-one-in", one_in as f64, "at least 2"));
    }
    Ok(wanted.then(|| Streamed {
        extensions: settings.extensions.clone().unwrap_or(defaults.extensions),
        field: settings.field.clone().unwrap_or(defaults.field),
        skip_bad_lines: settings.skip_bad_lines.unwrap_or(false),
        separator: settings.separator,
        across: settings.across.unwrap_or(false),
        validate_one_in: one_in,
    }))
}

fn useless(key: &str, choice: &str, remedy: String) -> Failure {
    let cause = format!("{choice} has no use for --{key}");
    Failure::usage("cannot start this run", cause, remedy)
}

/// Refuses sizes that others cannot be derived from.
fn refuse_uneven(settings: &Settings, arch: Arch) -> Result<(), Failure> {
    let (usual, channels, times) = match arch {
        Arch::Transformer | Arch::Moe => (TransformerConfig::default().heads, 1, ""),
        Arch::Mamba3 => (Mamba3LmConfig::default().heads, 2, "twice "),
        _ => return Ok(()),
    };
    if arch == Arch::Mamba3 && settings.state.is_some_and(|state| state < 4) {
        let state = settings.state.unwrap_or_default();
        return Err(out_of_range("state", state as f64, "at least 4: half of its rows turn"));
    }
    let width = settings.width.unwrap_or(TransformerConfig::default().width);
    let heads = settings.heads.unwrap_or(usual);
    if settings.head_dim.is_some() || heads == 0 {
        return Ok(());
    }
    let dim = channels * width / heads;
    if (channels * width).is_multiple_of(heads) {
        if arch == Arch::Mamba3 || dim <= MAX_HEAD_DIM {
            return Ok(());
        }
        let cause = format!("--heads {heads} share a --width of {width}: {dim} channels each");
        let remedy = format!("a head has at most {MAX_HEAD_DIM}: use more heads or --head-dim");
        return Err(Failure::usage("cannot build that model", cause, remedy));
    }
    let cause = format!("--heads {heads} cannot share {times}the --width of {width} evenly");
    let remedy = "choose heads that divide it, or give --head-dim";
    Err(Failure::usage("cannot build that model", cause, remedy))
}

fn model(settings: &Settings, arch: Arch, context: usize) -> ModelConfig {
    match arch {
        Arch::Transformer => {
            let defaults = TransformerConfig::default();
            let width = settings.width.unwrap_or(defaults.width);
            let heads = settings.heads.unwrap_or(defaults.heads);
            ModelConfig::Transformer(TransformerConfig {
                vocab: BYTES,
                width,
                layers: settings.layers.unwrap_or(defaults.layers),
                heads,
                kv_heads: settings.kv_heads.unwrap_or(heads),
                head_dim: settings.head_dim.unwrap_or(width / heads.max(1)),
                ff: settings.ff.unwrap_or((width * 8).div_ceil(3).next_multiple_of(8)),
                context,
                rope: match settings.rope.unwrap_or_default() {
                    Rope::Half => RopeStyle::Half,
                    Rope::Pair => RopeStyle::Pair,
                },
                rope_base: settings.rope_base.unwrap_or(defaults.rope_base),
                qk_norm: settings.qk_norm.unwrap_or(defaults.qk_norm),
                tied: settings.tied.unwrap_or(defaults.tied),
                dropout: settings.dropout.unwrap_or(defaults.dropout),
                ..defaults
            })
        }
        Arch::Rnn => ModelConfig::Rnn(recurrent(settings)),
        Arch::Gru => ModelConfig::Gru(recurrent(settings)),
        Arch::ContractTransformer => {
            ModelConfig::ContractTransformer(ContractTransformerConfig::contract(BYTES))
        }
        Arch::ContractRnn => ModelConfig::Rnn(RnnLmConfig::contract(BYTES)),
        Arch::ContractGru => ModelConfig::Gru(RnnLmConfig::contract(BYTES)),
        Arch::Moe => ModelConfig::Moe(moe(settings, context)),
        Arch::ContractMoe => ModelConfig::ContractMoe(ContractMoeConfig::contract(BYTES)),
        Arch::Mamba3 => ModelConfig::Mamba3(mamba3(settings)),
        Arch::ContractMamba3 => ModelConfig::ContractMamba3(ContractMamba3Config::contract(BYTES)),
    }
}

fn moe(settings: &Settings, context: usize) -> MoeLmConfig {
    let defaults = MoeLmConfig::default();
    let width = settings.width.unwrap_or(defaults.width);
    let heads = settings.heads.unwrap_or(defaults.heads);
    MoeLmConfig {
        vocab: BYTES,
        width,
        layers: settings.layers.unwrap_or(defaults.layers),
        heads,
        kv_heads: settings.kv_heads.unwrap_or(heads),
        head_dim: settings.head_dim.unwrap_or(width / heads.max(1)),
        experts: settings.experts.unwrap_or(defaults.experts),
        top_k: settings.top_k.unwrap_or(defaults.top_k),
        ff: settings.ff.unwrap_or((width * 2 / 3).next_multiple_of(4)),
        context,
        rope: match settings.rope.unwrap_or_default() {
            Rope::Half => RopeStyle::Half,
            Rope::Pair => RopeStyle::Pair,
        },
        rope_base: settings.rope_base.unwrap_or(defaults.rope_base),
        ..defaults
    }
}

fn mamba3(settings: &Settings) -> Mamba3LmConfig {
    let defaults = Mamba3LmConfig::default();
    let width = settings.width.unwrap_or(defaults.width);
    let heads = settings.heads.unwrap_or(defaults.heads);
    let state = settings.state.unwrap_or(defaults.state);
    Mamba3LmConfig {
        vocab: BYTES,
        width,
        layers: settings.layers.unwrap_or(defaults.layers),
        heads,
        head_dim: settings.head_dim.unwrap_or(2 * width / heads.max(1)),
        state,
        groups: settings.groups.unwrap_or(defaults.groups),
        rank: settings.rank.unwrap_or(defaults.rank),
        mimo: settings.rank.is_some(),
        angles: Mamba3LmConfig::half_of(state),
        rope: match settings.rope.unwrap_or(Rope::Pair) {
            Rope::Half => RopeStyle::Half,
            Rope::Pair => RopeStyle::Pair,
        },
        decay: match settings.decay_rate.unwrap_or_default() {
            Rate::HeavyTail => DecayStyle::HeavyTail,
            Rate::Softplus => DecayStyle::Softplus,
        },
        out_norm: settings.out_norm.unwrap_or(defaults.out_norm),
        ff: settings.ff.unwrap_or((width * 3).div_ceil(2).next_multiple_of(8)),
        ..defaults
    }
}

fn recurrent(settings: &Settings) -> RnnLmConfig {
    let width = settings.width.unwrap_or(128);
    RnnLmConfig {
        vocab: BYTES,
        width,
        hidden: settings.hidden.unwrap_or(width),
        layers: settings.layers.unwrap_or(1),
    }
}

fn optimizer(settings: &Settings, lr: f64) -> Result<OptimizerConfig, Failure> {
    let adamw = AdamWConfig::default();
    let beta1 = settings.beta1.unwrap_or(adamw.beta1);
    let beta2 = settings.beta2.unwrap_or(adamw.beta2);
    let eps = settings.eps.unwrap_or(adamw.eps);
    let decay = |usual: f64| settings.weight_decay.unwrap_or(usual);
    let momentum = |usual: f64| settings.momentum.unwrap_or(usual);
    let rate = |usual: f64| settings.lr.unwrap_or(usual);
    let config = match settings.optimizer.unwrap_or_default() {
        OptimizerKind::Adamw => {
            let weight_decay = decay(adamw.weight_decay);
            OptimizerConfig::AdamW(AdamWConfig { lr: rate(lr), beta1, beta2, eps, weight_decay })
        }
        OptimizerKind::Sgd => {
            let usual = SgdConfig::default();
            OptimizerConfig::Sgd(SgdConfig {
                lr: rate(usual.lr),
                momentum: momentum(usual.momentum),
                weight_decay: decay(usual.weight_decay),
                ..usual
            })
        }
        OptimizerKind::Muon => {
            let usual = MuonConfig::default();
            OptimizerConfig::Muon(MuonConfig {
                lr: rate(usual.lr),
                momentum: momentum(usual.momentum),
                weight_decay: decay(usual.weight_decay),
                beta1,
                beta2,
                eps,
                ..usual
            })
        }
    };
    config.check().explain("cannot start this run")?;
    Ok(config)
}

fn schedule(settings: &Settings, warmup: u64, steps: u64) -> Result<Schedule, Failure> {
    let warmup = settings.warmup.unwrap_or(warmup);
    let min_ratio = settings.min_ratio.unwrap_or(0.1);
    if !(0.0..=1.0).contains(&min_ratio) {
        return Err(out_of_range("min-ratio", min_ratio, "between 0 and 1"));
    }
    Ok(match settings.schedule.unwrap_or_default() {
        ScheduleKind::Constant => Schedule::Constant { warmup },
        ScheduleKind::Cosine => Schedule::Cosine { warmup, min_ratio },
        ScheduleKind::Linear => Schedule::linear(warmup, steps, min_ratio),
        ScheduleKind::Wsd => Schedule::WarmupStableDecay {
            warmup,
            decay: settings.decay.unwrap_or(steps.div_ceil(5)),
            min_ratio,
            shape: match settings.fall.unwrap_or_default() {
                Fall::Linear => DecayShape::Linear,
                Fall::Sqrt => DecayShape::Sqrt,
            },
        },
    })
}

fn clip(settings: &Settings) -> Result<f32, Failure> {
    let clip = settings.clip.unwrap_or(1.0);
    if clip >= 0.0 && clip.is_finite() {
        return Ok(clip);
    }
    Err(out_of_range("clip", f64::from(clip), "a number that is not negative"))
}

fn positive(key: &str, value: u64) -> Result<(), Failure> {
    check_least("cannot start this run", key, value)
}

fn out_of_range(key: &str, value: f64, allowed: &str) -> Failure {
    let cause = format!("--{key} is {value}");
    Failure::usage("cannot start this run", cause, format!("it must be {allowed}"))
}
