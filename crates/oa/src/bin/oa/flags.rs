//! The flags of every task, as clap reads them.
//!
//! The settings of a run are beside, because a file may give them too.

use crate::settings::Settings;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Trains and runs small models on any Vulkan device.
#[derive(Debug, Parser)]
#[command(name = "oa", version, about, max_term_width = 100)]
pub struct Arguments {
    /// What every task takes.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// Flags of every task.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Write JSON for programs instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// The device: its number, a part of its name, or its UUID. `oa devices` lists them; the
    /// default is OA_DEVICE, else the best one.
    #[arg(long, global = true, value_name = "DEVICE")]
    pub device: Option<String>,
}

/// The tasks.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// List every Vulkan device, what it can do, and why it would be refused.
    Devices,
    /// Check driver, device and layers, and compute something.
    Doctor,
    /// Train a model on a text; without --data, on the built-in corpus.
    #[command(allow_negative_numbers = true)]
    Train(Box<TrainFlags>),
    /// Measure a model on a text.
    #[command(allow_negative_numbers = true)]
    Eval(EvalFlags),
    /// Continue a text with a model, streamed as it comes.
    #[command(allow_negative_numbers = true)]
    Generate(GenerateFlags),
    /// Say what a file holds.
    Inspect(InspectFlags),
    /// Cut a text into tokens.
    Tokenize(TokenizeFlags),
    /// Say what a training step executes here, kernel by kernel, and how long each takes.
    #[command(allow_negative_numbers = true)]
    Plan(PlanFlags),
    /// Look at execution reports that `oa plan` wrote.
    #[command(subcommand)]
    Report(ReportTask),
    /// Train, measure, generate, save and reload the workloads of the teaching contract.
    Contract(ContractFlags),
}

/// Flags of `oa train`.
#[derive(Args, Clone, Debug, Default)]
pub struct TrainFlags {
    /// Settings from a TOML file, whose keys are these flags; flags win over the file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Continue a run from a checkpoint, or from the newest one of a run's folder (the default is
    /// --out). The checkpoint holds all settings; --steps makes the run longer.
    #[arg(long, value_name = "FILE|FOLDER", num_args = 0..=1)]
    pub resume: Option<Option<PathBuf>>,
    /// Replay each step as one captured plan (the default).
    #[arg(long, conflicts_with = "eager")]
    pub captured: bool,
    /// Record each step anew.
    #[arg(long)]
    pub eager: bool,
    /// The settings of the run.
    #[command(flatten)]
    pub settings: Settings,
}

/// Which part of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The first nine tenths.
    Train,
    /// The last tenth.
    #[default]
    Validation,
    /// All of it.
    Whole,
}

/// Flags of `oa eval`.
#[derive(Args, Clone, Debug)]
pub struct EvalFlags {
    /// A checkpoint, or the folder of a run.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The text; without it, the built-in corpus. Folders, JSONL and the texts of a run that
    /// streamed are read document by document, as the run did it.
    #[arg(long, value_name = "FILE|FOLDER")]
    pub data: Option<PathBuf>,
    /// Which part of the text; the default is `validation`, or `whole` for the built-in corpus.
    #[arg(long, value_enum)]
    pub part: Option<Part>,
    /// Sequences computed at a time.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub batch: usize,
    /// Tokens of a sequence; the default is the model's context.
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Only this many batches of random windows, the same each time; the default is one pass over
    /// the whole part.
    #[arg(long, value_name = "N")]
    pub batches: Option<usize>,
}

/// Flags of `oa generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateFlags {
    /// A checkpoint, or the folder of a run.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The text to continue.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file", default_value = "\n")]
    pub prompt: String,
    /// A file that holds the text to continue.
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// A file with a text to continue on each line; they are computed side by side and shown one
    /// after the other. Line n draws with the seed plus n, counted from 0.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_file"])]
    pub prompts: Option<PathBuf>,
    /// --prompts: texts computed at a time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub batch: usize,
    /// Tokens to generate at most.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub tokens: usize,
    /// End a text where this comes, which is cut off; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Keep what ended the text.
    #[arg(long)]
    pub keep_stop: bool,
    /// How freely tokens are chosen; 0 always takes the likeliest.
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub temperature: f32,
    /// Choose among the N likeliest tokens only; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top_k: u32,
    /// Choose among the likeliest tokens that together reach this probability.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub top_p: f32,
    /// Seed of the choices.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Leave the prompt out of the output.
    #[arg(long)]
    pub no_echo: bool,
}

/// Flags of `oa tokenize`.
#[derive(Args, Clone, Debug)]
pub struct TokenizeFlags {
    /// A checkpoint, the folder of a run, or a tokenizer.json.
    #[arg(value_name = "MODEL|FILE")]
    pub tokenizer: PathBuf,
    /// The text.
    #[arg(value_name = "TEXT")]
    pub text: String,
}

/// Flags of `oa inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectFlags {
    /// A checkpoint, or the folder of a run.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Check every byte of the file too.
    #[arg(long)]
    pub verify: bool,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
}

/// Flags of `oa plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanFlags {
    /// A family of the teaching contract.
    #[arg(value_name = "FAMILY", conflicts_with = "model")]
    pub family: Option<String>,
    /// A checkpoint, or the folder of a run, instead.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Sequences of a batch; the default is the contract's 64.
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Tokens of a sequence; the default is the contract's 16.
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Replays to time; 0 only looks.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub profile: u32,
    /// Write the report as a page with pictures.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// What to do with reports.
#[derive(Clone, Debug, Subcommand)]
pub enum ReportTask {
    /// Say what differs between two reports.
    Diff {
        /// The older report.
        before: PathBuf,
        /// The newer report.
        after: PathBuf,
    },
    /// Print a report as text.
    Show {
        /// The report.
        file: PathBuf,
    },
    /// Write a report as a page with pictures.
    Html {
        /// The report.
        file: PathBuf,
        /// The page.
        page: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn resume_takes_a_place_or_none() {
        let resume = |arguments: &[&str]| {
            let arguments = ["oa", "train"].iter().chain(arguments);
            match Arguments::try_parse_from(arguments).unwrap().task {
                Task::Train(flags) => flags.resume,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(resume(&[]), None);
        assert_eq!(resume(&["--resume"]), Some(None));
        assert_eq!(resume(&["--resume", "runs/a", "--json"]), Some(Some("runs/a".into())));
        assert_eq!(resume(&["--resume", "--out", "runs/a"]), Some(None));
    }

    #[test]
    fn wrong_calls_are_refused() {
        let refuse = |arguments: &[&str]| {
            let error = Arguments::try_parse_from(arguments).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        };
        refuse(&["oa", "train", "--eager", "--captured"]);
        refuse(&["oa", "train", "--layers", "many"]);
        refuse(&["oa", "train", "--hiden", "3"]);
        refuse(&["oa", "generate"]);
        refuse(&["oa", "dance"]);
    }
}

/// Flags of `oa contract`.
#[derive(Args, Clone, Debug)]
pub struct ContractFlags {
    /// Families to run; the default is all.
    #[arg(value_name = "FAMILY")]
    pub families: Vec<String>,
    /// Tokenizers to run them with: byte, char, bpe, with commas between; the default is all.
    #[arg(long, value_name = "TOKENIZER", value_delimiter = ',')]
    pub tokenizer: Vec<String>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The commit that the report belongs to; also OA_COMMIT.
    #[arg(long, value_name = "COMMIT", env = "OA_COMMIT")]
    pub commit: Option<String>,
}
