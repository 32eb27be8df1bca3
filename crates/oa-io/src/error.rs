//! What can go wrong between a checkpoint and a file: one variant per broken rule.
//!
//! Every error names the file, the cause with its numbers, and what to do about it.

use crate::checksum::Digest;
use crate::import::ImportFault;
use oa_ml::data::tokenizer::TableFault;
use std::fmt;
use std::io;
use std::path::Path;

/// Result of an oa-io call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What was being done to a file when the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opening a file for reading.
    Open,
    /// Reading a file.
    Read,
    /// Writing a file; the file of that name is as it was before.
    Write,
    /// Listing a folder.
    List,
    /// Making a folder.
    CreateFolder,
    /// Removing an old checkpoint.
    Remove,
}

/// Any error of oa-io.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    Io {
        /// What was being done.
        action: Action,
        /// To which file or folder.
        path: Box<Path>,
        /// Why it was refused.
        source: io::Error,
    },
    /// The file breaks a rule of its format.
    Format {
        /// The file.
        path: Box<Path>,
        /// The broken rule.
        fault: Box<Fault>,
    },
    /// The checkpoint cannot be stored: it breaks a rule of the format.
    Unstorable {
        /// The file that was to be written; it is as it was before.
        path: Box<Path>,
        /// The rule it would break.
        fault: Box<Fault>,
    },
    /// The file holds another model than asked for.
    Architecture {
        /// The file.
        path: Box<Path>,
        /// Architecture asked for.
        expected: Box<str>,
        /// Architecture in the file.
        found: Box<str>,
    },
    /// A folder has no checkpoint.
    NoCheckpoint {
        /// The folder.
        folder: Box<Path>,
    },
}

impl Error {
    pub(crate) fn io(action: Action, path: &Path, source: io::Error) -> Error {
        Error::Io { action, path: path.into(), source }
    }

    /// What was attempted and did not work, as a clause: `cannot read a.oam`.
    pub fn subject(&self) -> String {
        match self {
            Error::Io { action, path, .. } => {
                let verb = match action {
                    Action::Open => "cannot open",
                    Action::Read => "cannot read",
                    Action::Write => "cannot save to",
                    Action::List => "cannot list the folder",
                    Action::CreateFolder => "cannot make the folder",
                    Action::Remove => "cannot remove the old checkpoint",
                };
                format!("{verb} {}", path.display())
            }
            Error::Format { path, .. } | Error::Architecture { path, .. } => {
                format!("cannot load {}", path.display())
            }
            Error::Unstorable { path, .. } => format!("cannot save to {}", path.display()),
            Error::NoCheckpoint { folder } => {
                format!("cannot find a checkpoint in {}", folder.display())
            }
        }
    }

    /// Why it did not work, as a clause with numbers.
    pub fn cause(&self) -> String {
        match self {
            Error::Io { source, .. } => source.to_string(),
            Error::Format { fault, .. } | Error::Unstorable { fault, .. } => fault.to_string(),
            Error::Architecture { expected, found, .. } => {
                format!("it holds a `{found}` model, `{expected}` was expected")
            }
            Error::NoCheckpoint { .. } => "the folder holds no .oam file".into(),
        }
    }

    /// What to do about it, as a clause.
    pub fn advice(&self) -> &'static str {
        match self {
            Error::Io { action, source, .. } => io_advice(*action, source.kind()),
            Error::Format { fault, .. } => fault.advice(),
            Error::Unstorable { .. } => "change what is saved; the file of that name is as it was",
            Error::Architecture { .. } => {
                "give the file of the right model, or leave the architecture to the file"
            }
            Error::NoCheckpoint { .. } => "give the folder of a run, or a file",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.subject(), self.cause(), self.advice())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Format { fault, .. } | Error::Unstorable { fault, .. } => Some(fault.as_ref()),
            _ => None,
        }
    }
}

fn io_advice(action: Action, kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind as Kind;
    match (action, kind) {
        (Action::Write, Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge) => {
            "free some space or save elsewhere; the file of that name is as it was"
        }
        (Action::Write, Kind::PermissionDenied | Kind::ReadOnlyFilesystem) => {
            "make the folder writable or save elsewhere; the file of that name is as it was"
        }
        (Action::Write, Kind::NotFound | Kind::NotADirectory) => {
            "make the folder first or save elsewhere"
        }
        (Action::Write, _) => {
            "check the disk or save elsewhere; the file of that name is as it was"
        }
        (Action::CreateFolder, _) => "choose a folder that can be written",
        (_, Kind::NotFound | Kind::NotADirectory) => "check the path",
        (_, Kind::PermissionDenied) => "make it readable for this user",
        (_, Kind::IsADirectory) => "give a file of this folder",
        (_, _) => "check the disk, or use another copy of the file",
    }
}

/// Part of a file, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Header and section table.
    Header,
    /// The manifest.
    Manifest,
    /// Weights of the model.
    Weights,
    /// State of the optimizer.
    Optimizer,
    /// Tables of the tokenizer.
    Tokenizer,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Header => "header and section table",
            Part::Manifest => "manifest",
            Part::Weights => "weights",
            Part::Optimizer => "optimizer state",
            Part::Tokenizer => "tables of a tokenizer",
        })
    }
}

/// A broken rule of the format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file does not begin with the magic.
    #[error("it does not begin with the bytes of an .oam file")]
    Magic,
    /// The file was written in another version of the format.
    #[error("it is version {found} of the format, this release reads version {readable}")]
    Version {
        /// Version in the file.
        found: u32,
        /// Version that this release reads.
        readable: u32,
    },
    /// The file is shorter than it says.
    #[error("it ends after {actual} bytes of {declared}")]
    Truncated {
        /// Bytes that the file says it has, or that its header alone takes.
        declared: u64,
        /// Bytes that are there.
        actual: u64,
    },
    /// The file is longer than it says.
    #[error("it goes on after its {declared} bytes, up to {actual}")]
    Trailing {
        /// Bytes that the file says it has.
        declared: u64,
        /// Bytes that are there.
        actual: u64,
    },
    /// A count or a size is above its cap.
    #[error("{found} {what} are more than the {limit} that the format allows")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The count.
        found: u64,
        /// The cap.
        limit: u64,
    },
    /// Bytes that must be zero are not.
    #[error("the reserved byte at {at} is not zero")]
    Reserved {
        /// Where in the file.
        at: u64,
    },
    /// A digest does not match its bytes.
    #[error("the {part} changed after it was written: its checksum does not match")]
    Checksum {
        /// Which part.
        part: Part,
    },
    /// The header and the table disagree about the manifest.
    #[error("the header names manifest {header}, the section table {table}")]
    ManifestIdentity {
        /// Digest in the header.
        header: Digest,
        /// Digest in the table.
        table: Digest,
    },
    /// A section of an unknown kind, or out of order, or twice.
    #[error("section {index} has kind {kind}, which is unknown here, out of order or there twice")]
    SectionKind {
        /// Which section.
        index: u32,
        /// Its kind.
        kind: u32,
    },
    /// A section is not where it has to be: it overlaps another, leaves a hole or is unaligned.
    #[error("section {index} begins at {found} instead of {expected}")]
    SectionPlace {
        /// Which section.
        index: u32,
        /// Where it says to begin.
        found: u64,
        /// Where the section before it makes it begin.
        expected: u64,
    },
    /// A section reaches over the end of the file.
    #[error(
        "section {index} of {length} bytes at {offset} reaches over the {file} bytes there are"
    )]
    SectionRange {
        /// Which section.
        index: u32,
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// Bytes of the file.
        file: u64,
    },
    /// A section is missing.
    #[error("it has no {part}")]
    Missing {
        /// Which one.
        part: Part,
    },
    /// A section that nothing refers to.
    #[error("it has {part} that its manifest has no use for")]
    Unused {
        /// Which one.
        part: Part,
    },
    /// The tables of the tokenizer do not fill their section, or reach over its end.
    #[error("the tables of the tokenizer take {expected} bytes of a section of {found}")]
    TokenizerLength {
        /// Bytes of the section.
        found: u64,
        /// Bytes that the counts and lengths ask for.
        expected: u64,
    },
    /// An added token has flags that this release does not know.
    #[error("the added token {id} has the flags {flags:#x}, of which some are unknown")]
    TokenFlags {
        /// Its id.
        id: u32,
        /// Its flags.
        flags: u32,
    },
    /// The tables describe no tokenizer.
    #[error("its tokenizer is none: {0}")]
    Table(#[from] TableFault),
    /// A tokenizer file describes no tokenizer that this release has.
    #[error(transparent)]
    Import(#[from] ImportFault),
    /// The manifest is not a manifest.
    #[error("its manifest does not decode: {}", decode_cause(.0))]
    Decode(#[source] Box<bincode::error::DecodeError>),
    /// Bytes are left after the manifest.
    #[error("{unread} bytes are left after its manifest")]
    ManifestTrailing {
        /// How many.
        unread: u64,
    },
    /// A name is empty, too long or has control characters.
    #[error("a name of {length} bytes is empty, too long or has control characters: {name:?}")]
    Name {
        /// The name, shortened.
        name: Box<str>,
        /// Its bytes.
        length: u64,
    },
    /// Two tensors or attributes share a name.
    #[error("`{name}` is there twice")]
    Duplicate {
        /// The name.
        name: Box<str>,
    },
    /// A tensor is encoded in a way that later releases will read.
    #[error("tensor `{tensor}` is stored as {name}, which this release does not read")]
    ReservedEncoding {
        /// The tensor.
        tensor: Box<str>,
        /// The encoding.
        name: &'static str,
    },
    /// A tensor is encoded in an unknown way.
    #[error("tensor `{tensor}` has the unknown encoding {code}")]
    UnknownEncoding {
        /// The tensor.
        tensor: Box<str>,
        /// Its code.
        code: u32,
    },
    /// The dimensions of a tensor are too many or multiply to too much.
    #[error("the dimensions {shape:?} of tensor `{tensor}` are too many or too large")]
    Shape {
        /// The tensor.
        tensor: Box<str>,
        /// Its dimensions.
        shape: Box<[u64]>,
    },
    /// A tensor is not where it has to be: it overlaps another, leaves a hole or is unaligned.
    #[error("tensor `{tensor}` begins at {found} of its section instead of {expected}")]
    TensorPlace {
        /// The tensor.
        tensor: Box<str>,
        /// Where it says to begin.
        found: u64,
        /// Where the tensor before it makes it begin.
        expected: u64,
    },
    /// A tensor does not have the bytes of its shape.
    #[error("tensor `{tensor}` takes {found} bytes instead of the {expected} of its shape")]
    TensorLength {
        /// The tensor.
        tensor: Box<str>,
        /// Bytes or elements it has.
        found: u64,
        /// Bytes or elements of its shape.
        expected: u64,
    },
    /// The tensors of a section do not fill it, or reach over its end.
    #[error("the tensors of the {part} take {found} bytes of a section of {expected}")]
    TensorTotal {
        /// Which section.
        part: Part,
        /// Bytes of the tensors.
        found: u64,
        /// Bytes of the section.
        expected: u64,
    },
    /// A field that this release needs is missing.
    #[error("the field `{key}` is missing")]
    FieldMissing {
        /// The field.
        key: Box<str>,
    },
    /// A field holds another kind of value.
    #[error("the field `{key}` does not hold {expected}")]
    FieldValue {
        /// The field.
        key: Box<str>,
        /// What it should hold.
        expected: &'static str,
    },
    /// A field that this release does not know.
    #[error("the field `{key}` is unknown to this release")]
    FieldUnknown {
        /// The field.
        key: Box<str>,
    },
    /// The identity of the model, the optimizer or the tokenizer is unknown.
    #[error("`{name}` is no {what} that this release knows")]
    Identity {
        /// What kind of identity.
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
}

fn decode_cause(error: &bincode::error::DecodeError) -> &'static str {
    use bincode::error::DecodeError as Cause;
    match error {
        Cause::UnexpectedEnd { .. } => "it ends too early",
        Cause::LimitExceeded => "a length is above its cap",
        Cause::Utf8 { .. } => "a text is not UTF-8",
        Cause::InvalidBooleanValue(_) => "a truth value is neither 0 nor 1",
        Cause::UnexpectedVariant { .. } => "a value is of an unknown kind",
        _ => "it is not well-formed",
    }
}

impl Fault {
    /// What to do about it, as a clause.
    pub fn advice(&self) -> &'static str {
        match self {
            Fault::Magic => "give a file that was saved by OA",
            Fault::Version { found, readable } if found > readable => "update OA to read it",
            Fault::Version { .. } => "save it again with a release that reads it",
            Fault::ReservedEncoding { .. }
            | Fault::UnknownEncoding { .. }
            | Fault::FieldUnknown { .. }
            | Fault::TokenFlags { .. }
            | Fault::Identity { .. }
            | Fault::SectionKind { .. } => "update OA, or use another copy of the file",
            Fault::Import(fault) => fault.advice(),
            _ => "use another copy of the file or an earlier checkpoint",
        }
    }
}

/// A fault before it has the path of its file.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The system refused.
    Io(io::Error),
    /// The contents break a rule.
    Fault(Fault),
}

impl Broken {
    pub(crate) fn reading(self, path: &Path) -> Error {
        match self {
            Broken::Io(source) => Error::io(Action::Read, path, source),
            Broken::Fault(fault) => Error::Format { path: path.into(), fault: Box::new(fault) },
        }
    }

    pub(crate) fn writing(self, path: &Path) -> Error {
        match self {
            Broken::Io(source) => Error::io(Action::Write, path, source),
            Broken::Fault(fault) => Error::Unstorable { path: path.into(), fault: Box::new(fault) },
        }
    }
}

impl From<io::Error> for Broken {
    fn from(source: io::Error) -> Broken {
        Broken::Io(source)
    }
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Broken {
        Broken::Fault(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_small_and_say_path_cause_and_advice() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(
            Error::io(Action::Write, Path::new("runs/a.oam"), full).to_string(),
            "cannot save to runs/a.oam: no storage space; \
             free some space or save elsewhere; the file of that name is as it was"
        );
        let newer = Fault::Version { found: 4, readable: 3 };
        assert_eq!(
            Broken::Fault(newer).reading(Path::new("a.oam")).to_string(),
            "cannot load a.oam: it is version 4 of the format, this release reads version 3; \
             update OA to read it"
        );
    }
}
