//! Settings of a run: as flags, as a file, and resolved.
//!
//! Every setting is optional until it is resolved, so that "not given" and "given with the default"
//! are told apart: a setting that the chosen architecture, schedule or order has no use for is an
//! error, not ignored.

pub mod limits;
mod resolve;
#[cfg(test)]
mod tests;

pub use resolve::{Mode, Plan, Routine, Streamed, must_stream, resolve};

use crate::failure::{End, Failure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A family of models with its defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// Pre-norm decoder: RMSNorm, rotary positions, SwiGLU.
    #[default]
    Transformer,
    /// Elman network.
    Rnn,
    /// Gated recurrent units.
    Gru,
    /// The teaching contract's Transformer, with its fixed sizes.
    ContractTransformer,
    /// The teaching contract's recurrent network, with its fixed sizes.
    ContractRnn,
    /// Pre-norm decoder whose feed-forward layers are mixtures of SwiGLU experts.
    Moe,
    /// The teaching contract's mixture of experts, with its fixed sizes.
    ContractMoe,
    /// The teaching contract's network of gated recurrent units, with its fixed sizes.
    ContractGru,
    /// State-space mixers with rotating states, each with a SwiGLU.
    Mamba3,
    /// The teaching contract's Mamba-3, with its fixed sizes.
    ContractMamba3,
}

/// How the learning rate moves after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// It stays.
    #[default]
    Constant,
    /// A cosine down to --min-ratio.
    Cosine,
    /// A line down to --min-ratio.
    Linear,
    /// It stays, then falls to --min-ratio over the last --decay steps.
    Wsd,
}

/// Shape of the fall at the end of a `wsd` schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fall {
    /// A line.
    #[default]
    Linear,
    /// One minus the square root.
    Sqrt,
}

/// Which pairs of channels rotary positions turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rope {
    /// Channel i with channel i + d/2.
    #[default]
    Half,
    /// Channel 2i with channel 2i + 1.
    Pair,
}

/// How the rate of decay of a state is made positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    /// 1 + x above zero and 1 / (1 - x) below.
    #[default]
    HeavyTail,
    /// log(1 + e^x).
    Softplus,
}

/// In which order windows of the text are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Random windows.
    Shuffled,
    /// The windows of the teaching contract.
    Contract,
}

/// How gradients become updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Adaptive moments, decoupled weight decay.
    #[default]
    Adamw,
    /// Gradient descent with momentum.
    Sgd,
    /// Orthogonalised momentum for hidden matrices, AdamW at a rate of 0.001 for the rest.
    Muon,
}

/// Every setting that flags or a file may give.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// The text to learn; without it, the built-in corpus. A folder, and JSONL with a document a
    /// line, are streamed.
    #[arg(long, value_name = "FILE|FOLDER", help_heading = "Data")]
    pub data: Option<PathBuf>,
    /// Read a text document by document instead of all at once, for texts that do not fit in memory.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Data")]
    pub stream: Option<bool>,
    /// streamed: endings of the files of a folder [default: txt,md,jsonl,ndjson].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Data")]
    pub extensions: Option<Vec<String>>,
    /// streamed: field of a JSONL object that is the document [default: text].
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub field: Option<String>,
    /// streamed: leave out lines of JSONL that hold no document, and say how many.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Data")]
    pub skip_bad_lines: Option<bool>,
    /// streamed: a token that follows each document [default: none].
    #[arg(long, value_name = "TOKEN", help_heading = "Data")]
    pub separator: Option<u32>,
    /// streamed: predict the first token of a document from the one before.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Data")]
    pub across: Option<bool>,
    /// streamed: of each N documents one validates [default: 10].
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub validate_one_in: Option<u64>,
    /// Train and evaluate on all of the text, for texts to be learned by heart. Otherwise the last
    /// tenth validates.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Data")]
    pub whole: Option<bool>,
    /// How the text becomes tokens: `byte`, `char` (the characters of the text), `bpe` or `bpe:N`
    /// (N tokens that the text teaches; 1024), a tokenizer.json, or the .oam file of a model
    /// [default: byte].
    #[arg(long, value_name = "byte|char|bpe[:N]|FILE", help_heading = "Data")]
    pub tokenizer: Option<String>,
    /// Order of the windows [default: shuffled; contract with the built-in corpus].
    #[arg(long, value_enum, help_heading = "Data")]
    pub order: Option<Order>,
    /// Sequences of a batch [default: 12; contract: 64].
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub batch: Option<usize>,
    /// Tokens of a sequence [default: 64; contract: 16, fixed].
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub context: Option<usize>,

    /// The architecture [default: transformer].
    #[arg(long, value_enum, help_heading = "Model")]
    pub arch: Option<Arch>,
    /// Width of the residual stream or the embedding [default: 128].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub width: Option<usize>,
    /// Blocks or recurrent layers [default: transformer, moe and mamba3 4, rnn and gru 1].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub layers: Option<usize>,
    /// rnn, gru: width of the hidden state [default: the width].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub hidden: Option<usize>,
    /// transformer, moe: attention heads [default: 4]; mamba3: heads of a mixer [default: 8].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub heads: Option<usize>,
    /// transformer, moe: key-value heads [default: as many as heads].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub kv_heads: Option<usize>,
    /// Channels of a head [default: transformer and moe width / heads, mamba3 2 width / heads].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub head_dim: Option<usize>,
    /// transformer: width of the feed-forward layer [default: 8/3 of the width, rounded up to 8];
    /// moe: width of an expert [default: 2/3 of the width, rounded up to 4]; mamba3: width of the
    /// feed-forward layer [default: 3/2 of the width, rounded up to 8].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub ff: Option<usize>,
    /// moe: experts of a block [default: 4].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub experts: Option<usize>,
    /// moe: experts that a token goes to [default: 2].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub top_k: Option<usize>,
    /// Channels that rotary positions, or the angles of mamba3, pair [default: transformer and moe
    /// half, mamba3 pair].
    #[arg(long, value_enum, help_heading = "Model")]
    pub rope: Option<Rope>,
    /// mamba3: rows of a head's state, half of which turn [default: 64].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub state: Option<usize>,
    /// mamba3: groups of heads that share keys and queries [default: 1].
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub groups: Option<usize>,
    /// mamba3: channels through which a head reads and writes its state, with weights of their own
    /// (MIMO); without it there is one without weights.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub rank: Option<usize>,
    /// mamba3: how the rate of decay is made positive [default: heavy-tail].
    #[arg(long, value_enum, help_heading = "Model")]
    pub decay_rate: Option<Rate>,
    /// mamba3: normalise the values of a head before the gate.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Model")]
    pub out_norm: Option<bool>,
    /// transformer: base of the rotary angles [default: 10000].
    #[arg(long, value_name = "X", help_heading = "Model")]
    pub rope_base: Option<f64>,
    /// transformer: normalise queries and keys per head.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Model")]
    pub qk_norm: Option<bool>,
    /// transformer: use the embedding as the head too.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    #[arg(value_name = "BOOL", help_heading = "Model")]
    pub tied: Option<bool>,
    /// transformer: share of residual elements dropped while training [default: 0].
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub dropout: Option<f32>,

    /// Optimizer steps of the whole run [default: 200; contract: 300].
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub steps: Option<u64>,
    /// Batches that make one step [default: 1].
    #[arg(long, value_name = "N", help_heading = "Training")]
    #[arg(value_parser = limits::read_accumulation)]
    pub accumulation: Option<u32>,
    /// The optimizer [default: adamw].
    #[arg(long, value_enum, help_heading = "Training")]
    pub optimizer: Option<OptimizerKind>,
    /// Learning rate [default: adamw 0.001, contract 0.01, contract-mamba3 0.003; sgd 0.1; muon 0.02].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub lr: Option<f64>,
    /// Steps in which the rate rises to --lr [default: 20; contract: 0].
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub warmup: Option<u64>,
    /// How the rate moves then [default: constant].
    #[arg(long, value_enum, help_heading = "Training")]
    pub schedule: Option<ScheduleKind>,
    /// cosine, linear, wsd: last rate over --lr [default: 0.1].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub min_ratio: Option<f64>,
    /// wsd: steps of the fall [default: a fifth of the run].
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub decay: Option<u64>,
    /// wsd: shape of the fall [default: linear].
    #[arg(long, value_enum, help_heading = "Training")]
    pub fall: Option<Fall>,
    /// Largest gradient norm; 0 for no clipping [default: 1].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub clip: Option<f32>,
    /// Parameters that do not train: names, modules, or names with `*` for any characters.
    #[arg(long, value_name = "PATTERN", num_args = 1.., help_heading = "Training")]
    pub freeze: Option<Vec<String>>,
    /// Weight decay of matrices [default: adamw 0.1, sgd 0, muon 0.01].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub weight_decay: Option<f64>,
    /// sgd, muon: momentum [default: sgd 0.9, muon 0.95].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub momentum: Option<f64>,
    /// adamw, muon: decay of the first moment [default: 0.9].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub beta1: Option<f64>,
    /// adamw, muon: decay of the second moment [default: 0.95].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub beta2: Option<f64>,
    /// adamw, muon: added to the root of the second moment [default: 1e-8].
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub eps: Option<f64>,
    /// Seed of weights, order and dropout [default: 0; contract: 20260714].
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub seed: Option<u64>,

    /// Folder of the run [default: runs/ARCH-1, -2, ..].
    #[arg(long, value_name = "FOLDER", help_heading = "Run")]
    pub out: Option<PathBuf>,
    /// Steps between checkpoints; 0 for one at the end only [default: 50].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub checkpoint_every: Option<u64>,
    /// Checkpoints to keep [default: 3].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub keep: Option<usize>,
    /// Steps between evaluations; 0 for one at the end only [default: 100].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub eval_every: Option<u64>,
    /// Batches of an evaluation, the same random windows each time [default: 20].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub eval_batches: Option<usize>,
    /// End the run at the Nth evaluation in a row without a lower loss [default: never].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub patience: Option<u32>,
    /// What counts as lower for --patience, in nats [default: 0].
    #[arg(long, value_name = "X", help_heading = "Run")]
    pub min_delta: Option<f64>,
    /// How steps execute; the flags are --captured and --eager.
    #[arg(skip)]
    pub mode: Option<Mode>,
}

impl Settings {
    /// The settings of a TOML file.
    pub fn from_file(path: &Path) -> Result<Settings, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::file("read the settings", path, &error))?;
        toml::from_str(&text).map_err(|error| {
            let sentence = format!("cannot use the settings in {}", path.display());
            let cause = error.to_string().trim_end().to_owned();
            Failure::new(End::Usage, sentence, cause, "see `oa train --help` for the settings")
        })
    }

    /// These settings, and where they say nothing those of `below`.
    pub fn over(&self, below: &Settings) -> Settings {
        let mut merged = below.given();
        merged.extend(self.given());
        let value = Value::Object(merged);
        serde_json::from_value(value).expect("what settings wrote is settings")
    }

    /// Refuses numbers that are none or beyond every limit, and names that no file could record.
    pub fn check_numbers(&self) -> Result<(), Failure> {
        self.check_names()?;
        self.check_counts()?;
        self.check_finite()
    }

    /// Refuses paths that are not UTF-8: runs and checkpoints record them as text.
    fn check_names(&self) -> Result<(), Failure> {
        let names = [("data", &self.data), ("out", &self.out)];
        for (key, path) in names {
            let Some(path) = path.as_deref().filter(|path| path.to_str().is_none()) else {
                continue;
            };
            let cause = format!("--{key} is {}, a name that is not UTF-8", path.display());
            let remedy = "give it a name of UTF-8, which the run can record";
            return Err(Failure::usage("cannot start this run", cause, remedy));
        }
        Ok(())
    }

    fn check_finite(&self) -> Result<(), Failure> {
        let small = |x: Option<f32>| x.map(f64::from);
        let numbers = [
            ("rope-base", self.rope_base),
            ("dropout", small(self.dropout)),
            ("lr", self.lr),
            ("min-ratio", self.min_ratio),
            ("clip", small(self.clip)),
            ("weight-decay", self.weight_decay),
            ("momentum", self.momentum),
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("eps", self.eps),
            ("min-delta", self.min_delta),
        ];
        match numbers.into_iter().find(|(_, number)| number.is_some_and(|x| !x.is_finite())) {
            Some((key, number)) => {
                let cause = format!("--{key} is {}", number.unwrap_or_default());
                Err(Failure::usage("cannot start this run", cause, "it must be a finite number"))
            }
            None => Ok(()),
        }
    }

    /// The settings that are given, by name.
    pub fn given(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(all)) => all.into_iter().filter(|(_, v)| !v.is_null()).collect(),
            _ => unreachable!("settings are an object of plain values"),
        }
    }
}
