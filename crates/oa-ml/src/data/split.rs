//! Which documents train and which validate.
//!
//! The split is by document, a pure function of a document's number, and needs no list. Nothing of
//! a held document is ever trained on.

use super::fault::DataFault;
use crate::error::{Error, Result};
use crate::philox::Stream;

/// Stream id of the choice of held documents.
const SPLIT_STREAM: u32 = 0xDA7A_0002;

/// How documents are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Every document trains.
    #[default]
    None,
    /// Of each run of this many documents one validates, a random one; always the same.
    Every(u64),
    /// The last one of this many parts validates: 10 holds back the last tenth, rounded up.
    LastOf(u64),
}

/// A split of a number of documents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    split: Split,
    documents: u64,
}

impl Split {
    /// The split of that many documents.
    ///
    /// # Errors
    ///
    /// When one side would be empty, or a part is less than two documents.
    pub(super) fn of(self, documents: u64) -> Result<Parts> {
        if let Split::Every(parts) | Split::LastOf(parts) = self
            && parts < 2
        {
            return Err(Error::Setting { name: "the validation split", value: parts, least: 2 });
        }
        let parts = Parts { split: self, documents };
        let held = parts.held();
        if self != Split::None && (held == 0 || held == documents) {
            return Err(DataFault::Split { documents, held }.into());
        }
        Ok(parts)
    }
}

impl Parts {
    /// Documents that validate.
    pub(super) fn held(&self) -> u64 {
        match self.split {
            Split::None => 0,
            Split::Every(run) => {
                let (whole, rest) = (self.documents / run, self.documents % run);
                whole + u64::from(place(whole, run) < rest)
            }
            Split::LastOf(parts) => self.documents.div_ceil(parts),
        }
    }

    /// Documents that train.
    pub(super) fn trained(&self) -> u64 {
        self.documents - self.held()
    }

    /// Number of a training document; `index` is below [`Parts::trained`].
    pub(super) fn train(&self, index: u64) -> u64 {
        let Split::Every(run) = self.split else { return index };
        let whole = self.documents / run;
        let group = (index / (run - 1)).min(whole);
        let rest = index - group * (run - 1);
        group * run + rest + u64::from(rest >= place(group, run))
    }

    /// Number of a held document; `index` is below [`Parts::held`].
    pub(super) fn validation(&self, index: u64) -> u64 {
        match self.split {
            Split::Every(run) => index * run + place(index, run),
            _ => self.trained() + index,
        }
    }
}

/// Which document of a run validates.
fn place(group: u64, run: u64) -> u64 {
    Stream { seed: 0, stream: SPLIT_STREAM, step: 0 }.below(group, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(split: Split, documents: u64) -> (Vec<u64>, Vec<u64>) {
        let parts = split.of(documents).unwrap();
        let train: Vec<u64> = (0..parts.trained()).map(|index| parts.train(index)).collect();
        let held: Vec<u64> = (0..parts.held()).map(|index| parts.validation(index)).collect();
        let mut all = [train.clone(), held.clone()].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..documents), "{split:?} of {documents}");
        (train, held)
    }

    #[test]
    fn every_document_is_on_one_side() {
        for documents in 1..40 {
            assert!(check(Split::None, documents).1.is_empty());
        }
        for documents in [20, 21, 25, 29, 30, 99, 100, 101] {
            for run in [2, 3, 10] {
                let (_, held) = check(Split::Every(run), documents);
                for (group, document) in held.iter().enumerate() {
                    assert_eq!(document / run, group as u64, "one of each run");
                }
            }
        }
        let (_, held) = check(Split::Every(10), 100);
        assert!(
            held.iter().any(|document| document % 10 != held[0] % 10),
            "a random one: {held:?}"
        );
        assert_eq!(check(Split::LastOf(10), 25).1, [22, 23, 24]);
        assert_eq!(check(Split::LastOf(10), 2).1, [1]);
    }

    #[test]
    fn an_empty_side_is_refused() {
        let refuse = |split: Split, documents| split.of(documents).unwrap_err().to_string();
        let both = "both sides need one";
        assert_eq!(
            refuse(Split::LastOf(10), 1),
            format!("of 1 documents 1 are held back for validation; {both}")
        );
        assert!(refuse(Split::Every(1_000_000), 3).ends_with(both));
        assert_eq!(refuse(Split::Every(1), 9), "the validation split is 1, it must be at least 2");
    }
}
