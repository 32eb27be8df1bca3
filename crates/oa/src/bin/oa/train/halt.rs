//! What ends a run in the middle.

use crate::failure::{End, Failure};
use oa::io::CheckpointFolder;
use oa::ml::Error;
use std::path::Path;

/// An error of the loop, until it is known what the run leaves behind.
pub enum Halt {
    /// Of the library.
    Library(Error),
    /// Of the command: what it writes, where it saves.
    Command(Failure),
}

impl Halt {
    /// The failure of a run in a folder.
    pub fn explain(self, folder: &Path) -> Failure {
        match self {
            Halt::Library(error @ (Error::NonFinite { .. } | Error::Stopped { .. }))
                if CheckpointFolder::newest(folder).is_err() =>
            {
                let remedy = "lower --lr or raise --warmup, and start again with another --out: \
                              no checkpoint was saved";
                Failure::new(End::Failed, "the training stopped", error.to_string(), remedy)
            }
            Halt::Library(error) => error.into(),
            Halt::Command(failure) => failure,
        }
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Library(error)
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Command(failure)
    }
}

impl From<oa::io::Error> for Halt {
    fn from(error: oa::io::Error) -> Halt {
        Halt::Command(error.into())
    }
}
