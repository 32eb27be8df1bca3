//! What can be wrong with files of text, and with the thread that reads them.
//!
//! Each fault names the file, the line where there is one, and what was found.

use std::io;
use std::path::PathBuf;

/// Why a line of a JSONL file is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// It is not text.
    #[error("byte {at} of the line is not UTF-8")]
    NotUtf8 {
        /// The first bad byte, counted from 1.
        at: usize,
    },
    /// It is not JSON.
    #[error("the line is not JSON from column {column} on")]
    NotJson {
        /// Where the parser gave up, counted from 1.
        column: usize,
    },
    /// It is JSON, but no object.
    #[error("the line is JSON, but not an object")]
    NotAnObject,
    /// The object has no such field.
    #[error("the object has no field `{field}`")]
    NoField {
        /// The field.
        field: Box<str>,
    },
    /// The field is no text.
    #[error("the field `{field}` holds {found}, not a text")]
    NotText {
        /// The field.
        field: Box<str>,
        /// What it holds.
        found: &'static str,
    },
    /// It is longer than a document may be.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// Longest line.
        limit: u64,
    },
}

/// Why a text could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataFault {
    /// The system refused.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was being done.
        verb: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// Why it was refused.
        source: io::Error,
    },
    /// A path leads to something that is neither a file nor a folder.
    #[error("{} is a device, a pipe or a socket, not a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A folder without a text.
    #[error("the folder {} holds no file that ends in .{}", path.display(), extensions.join(", ."))]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
        /// Endings that were looked for.
        extensions: Vec<String>,
    },
    /// A bad line of a JSONL file.
    #[error("{}, line {line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        fault: LineFault,
    },
    /// Every line of JSONL was left out.
    #[error("no document is left: {skipped} bad lines are left out")]
    OnlyBadLines {
        /// Lines that were left out.
        skipped: u64,
    },
    /// A file is not what it was when it was indexed.
    #[error("{} changed while it was in use: byte {offset} no longer begins the document that it did", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Where the document began.
        offset: u64,
    },
    /// The split leaves nothing on one side.
    #[error("of {documents} documents {held} are held back for validation; both sides need one")]
    Split {
        /// Documents in all.
        documents: u64,
        /// Documents held back.
        held: u64,
    },
    /// A cursor of another order, or of another text.
    #[error("the cursor {cursor:?} does not belong to this order of this text")]
    Cursor {
        /// The cursor.
        cursor: super::DataCursor,
    },
    /// The system gave no thread.
    #[error("cannot start the thread that prepares batches: {source}")]
    NoThread {
        /// Why not.
        source: io::Error,
    },
    /// The thread that prepares batches panicked.
    #[error("the thread that prepares batches panicked: {message}")]
    Panicked {
        /// What it said.
        message: Box<str>,
    },
    /// A batch was asked for after the order ended with an error.
    #[error("no more batches: the order of data ended with an error before")]
    Ended,
}

impl From<DataFault> for crate::Error {
    fn from(fault: DataFault) -> crate::Error {
        crate::Error::Data(Box::new(fault))
    }
}
