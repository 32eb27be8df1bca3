//! What the command says when it fails: a sentence, the cause, what to do, and an exit code.
//!
//! Errors of the library become one of these exactly once, where the command knows what it was
//! doing.

use serde_json::json;
use std::fmt;
use std::io;
use std::path::Path;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It failed.
    Failed = 1,
    /// It was called wrongly.
    Usage = 2,
    /// There is no such device.
    NoDevice = 3,
    /// Nobody reads the output any more: not a failure of ours.
    Unread = 0,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    end: End,
    sentence: String,
    cause: String,
    remedy: String,
}

impl Failure {
    /// A failure with its three parts, each without a full stop.
    pub fn new(
        end: End,
        sentence: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Failure {
        let (sentence, cause, remedy) = (sentence.into(), cause.into(), remedy.into());
        Failure { end, sentence, cause, remedy }
    }

    /// A wrong call.
    pub fn usage(
        sentence: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Failure {
        Failure::new(End::Usage, sentence, cause, remedy)
    }

    /// A call that is none, from the text that says so: its first line is the sentence.
    pub fn call(text: &str) -> Failure {
        let text = text.trim().trim_start_matches("error: ");
        let (sentence, rest) = text.split_once('\n').unwrap_or((text, ""));
        Failure::usage(sentence, rest.trim(), "see `oa --help` for the tasks and their flags")
    }

    /// A failure that `oa doctor` tells: its remedies do not send to `oa doctor` again.
    pub fn told_by_doctor(mut self) -> Failure {
        if let Some(first) = self.remedy.strip_suffix(", then run `oa doctor`") {
            self.remedy = first.to_owned();
        } else if self.remedy.contains("`oa doctor`") {
            self.remedy = "install or update the Vulkan driver of the device (mesa-vulkan-drivers \
                           has one for the processor too), or choose another with --device"
                .to_owned();
        }
        self
    }

    /// A file that the system refused.
    pub fn file(verb: &str, path: &Path, error: &io::Error) -> Failure {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "check who may use this file and its folder",
            io::ErrorKind::StorageFull => "free some space or choose another folder",
            io::ErrorKind::IsADirectory => "give a file of this folder",
            _ => "check the file and its disk",
        };
        let sentence = format!("cannot {verb} {}", path.display());
        Failure::new(End::Failed, sentence, error.to_string(), remedy)
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.end as u8
    }

    /// True when there is nobody to tell.
    pub fn is_silent(&self) -> bool {
        self.end == End::Unread
    }

    /// The failure for programs.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "event": "error",
            "exit_code": self.code(),
            "error": self.sentence,
            "cause": self.cause,
            "remedy": self.remedy,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.sentence)?;
        writeln!(f, "cause: {}", self.cause)?;
        writeln!(f, "to do: {}", self.remedy)
    }
}

impl From<oa::io::Error> for Failure {
    fn from(error: oa::io::Error) -> Failure {
        Failure::new(End::Failed, error.subject(), error.cause(), error.advice())
    }
}

/// A write to the output: a reader that went away ends the command quietly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let end = if error.kind() == io::ErrorKind::BrokenPipe { End::Unread } else { End::Failed };
        let remedy = "check where the output goes";
        Failure::new(end, "cannot write the output", error.to_string(), remedy)
    }
}

/// Adds what the command was doing to an error of the library.
pub trait Explain<T> {
    /// Turns an error into a failure; `sentence` says what could not be done.
    fn explain(self, sentence: &str) -> Result<T, Failure>;
}

impl<T> Explain<T> for oa::ml::Result<T> {
    fn explain(self, sentence: &str) -> Result<T, Failure> {
        self.map_err(|error| match error {
            oa::ml::Error::Graph(error) => graph_failure(sentence, &error),
            oa::ml::Error::Data(fault) => data_failure(sentence, &fault),
            error => {
                let (end, remedy) = model_remedy(&error);
                Failure::new(end, sentence, error.to_string(), remedy)
            }
        })
    }
}

impl<T> Explain<T> for oa::graph::Result<T> {
    fn explain(self, sentence: &str) -> Result<T, Failure> {
        self.map_err(|error| graph_failure(sentence, &error))
    }
}

impl<T> Explain<T> for oa_vk::Result<T> {
    fn explain(self, sentence: &str) -> Result<T, Failure> {
        self.map_err(|error| device_failure(sentence, &error))
    }
}

/// What ends a run that is on its way.
impl From<oa::ml::Error> for Failure {
    fn from(error: oa::ml::Error) -> Failure {
        match Err::<(), _>(error).explain("the training stopped") {
            Err(failure) => failure,
            Ok(()) => unreachable!("an error was explained"),
        }
    }
}

fn data_failure(sentence: &str, fault: &oa::ml::data::DataFault) -> Failure {
    use oa::ml::data::DataFault as Cause;
    let (end, remedy) = match fault {
        Cause::File { verb, path, source } => return Failure::file(verb, path, source),
        Cause::NotAFile { .. } => (End::Failed, "give a file or a folder with --data"),
        Cause::EmptyFolder { .. } => (End::Failed, "name other endings with --extensions"),
        Cause::Line { .. } => (
            End::Failed,
            "mend that line, name the --field, or leave such lines out with --skip-bad-lines",
        ),
        Cause::Changed { .. } => (End::Failed, "leave the text as it is while it is in use"),
        Cause::Split { .. } => {
            (End::Failed, "give more documents with --data, or a smaller --validate-one-in")
        }
        Cause::Cursor { .. } => (End::Failed, "give the text that the run began with"),
        _ => (End::Failed, "this is a fault of OA: please report it with this text"),
    };
    Failure::new(end, sentence, fault.to_string(), remedy)
}

fn graph_failure(sentence: &str, error: &oa::graph::Error) -> Failure {
    match error {
        oa::graph::Error::Device(error) => device_failure(sentence, error),
        error => {
            let remedy = "change the sizes that the cause names; if it names none of yours, this \
                          is a fault of OA: please report it with this text";
            Failure::new(End::Failed, sentence, error.to_string(), remedy)
        }
    }
}

fn device_failure(sentence: &str, error: &oa_vk::Error) -> Failure {
    use oa_vk::Error as Cause;
    let (end, remedy) = match error {
        Cause::NoLoader { .. } => (End::NoDevice, "install it, then run `oa doctor`"),
        Cause::NoDevice { .. } => (End::NoDevice, "run `oa doctor` to see what is there"),
        Cause::UnknownDevice { .. } | Cause::AmbiguousDevice { .. } => {
            (End::NoDevice, "name one device of the list by its number, name or UUID")
        }
        Cause::OutOfMemory { .. } | Cause::OverLimit { .. } => {
            (End::Failed, "use a smaller batch, context or model")
        }
        Cause::Timeout { .. } | Cause::DeviceLost { .. } => (
            End::Failed,
            "resume from the last checkpoint; try a smaller batch, or OA_CRUMBS=1 \
                           to learn which kernel it was",
        ),
        _ => (End::Failed, "run `oa doctor`; it says what is known about this driver"),
    };
    Failure::new(end, sentence, error.to_string(), remedy)
}

fn model_remedy(error: &oa::ml::Error) -> (End, &'static str) {
    use oa::ml::Error as Cause;
    match error {
        Cause::Config { .. } => (End::Usage, "change the sizes of the model"),
        Cause::EmptyCorpus => (End::Failed, "give a text that is not empty with --data"),
        Cause::CorpusTooShort { .. } => (
            End::Failed,
            "give a longer text with --data, a smaller --context, or --whole to use all of the \
             text for training and evaluation",
        ),
        Cause::Optimizer { .. } | Cause::Setting { .. } | Cause::TooMany { .. } => {
            (End::Usage, "change that setting")
        }
        Cause::Pattern { .. } => {
            (End::Usage, "`oa inspect --tensors` lists the parameters of a saved run")
        }
        Cause::AllFrozen { .. } => (End::Usage, "leave some parameters out of --freeze"),
        Cause::Sampling { .. } => (End::Usage, "change that flag"),
        Cause::EmptyPrompt => {
            (End::Usage, "give at least one character with --prompt or --prompt-file")
        }
        Cause::EmptyStop { .. } => (End::Usage, "give the text to stop at with --stop"),
        Cause::UnknownCharacter { .. } | Cause::NotUtf8 { .. } => (
            End::Failed,
            "use a text of these characters, or a model of --tokenizer byte or bpe, which take \
             anything",
        ),
        Cause::Vocabulary { .. } => {
            (End::Failed, "use the tokenizer that the model was trained with")
        }
        Cause::Tokenizer(_) => (End::Usage, "change --tokenizer"),
        Cause::TokenOutOfRange { .. } => (End::Failed, "use a text of the model's tokenizer"),
        Cause::Context { .. } => (End::Usage, "use a smaller --context"),
        Cause::NonFinite { .. } | Cause::Stopped { .. } => {
            (End::Failed, "lower --lr or raise --warmup; the last checkpoint is still good")
        }
        Cause::OtherModel { .. }
        | Cause::UnknownTensor { .. }
        | Cause::MissingTensor { .. }
        | Cause::TensorShape { .. } => {
            (End::Failed, "use a file whose tensors fit its own configuration")
        }
        _ => (End::Failed, "this is a fault of OA: please report it with this text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_sentence_a_cause_and_a_remedy() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        let failure = Failure::file("read", Path::new("a.txt"), &error);
        let text = "error: cannot read a.txt\ncause: entity not found\nto do: check the path\n";
        assert_eq!(failure.to_string(), text);
        assert_eq!(failure.code(), 1);
        assert_eq!(failure.to_json()["remedy"], "check the path");
    }

    #[test]
    fn exit_codes_are_told_apart() {
        let code = |end| Failure::new(end, "", "", "").code();
        assert_eq!([End::Failed, End::Usage, End::NoDevice].map(code), [1, 2, 3]);
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(closed.is_silent());
        let no_device = oa_vk::Error::NoDevice { rejected: [].into() };
        assert_eq!(device_failure("", &no_device).code(), 3);
    }
}
