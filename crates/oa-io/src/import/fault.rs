//! Why a tokenizer file gives no tokenizer.

/// A tokenizer file that is broken, or asks for what this release does not have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportFault {
    /// It is no JSON, or not of the shape of a tokenizer file.
    #[error("it is no tokenizer file: {0}")]
    Json(#[source] serde_json::Error),
    /// A part of it is of a kind that this release does not have.
    #[error("its {part} is `{name}`, which this release does not have")]
    Unsupported {
        /// Which part.
        part: &'static str,
        /// What it is, shortened.
        name: Box<str>,
    },
    /// A token of the vocabulary is not written in the byte alphabet.
    #[error("the token `{token}` is not written in the alphabet of byte-level tokenizers")]
    NotByteLevel {
        /// The token, shortened.
        token: Box<str>,
    },
    /// A token stands in the vocabulary twice.
    #[error("the token `{token}` is in the vocabulary twice")]
    TokenTwice {
        /// The token, shortened.
        token: Box<str>,
    },
    /// Two tokens have one id.
    #[error("the tokens `{first}` and `{second}` both have the id {id}")]
    IdTwice {
        /// The id.
        id: u32,
        /// One token, shortened.
        first: Box<str>,
        /// The other, shortened.
        second: Box<str>,
    },
    /// Ids have holes.
    #[error("the token `{token}` has the id {id}, but there are {tokens} tokens: ids have holes")]
    IdHole {
        /// The id.
        id: u32,
        /// The token, shortened.
        token: Box<str>,
        /// Tokens of the file.
        tokens: usize,
    },
    /// An added token has another id in the vocabulary.
    #[error("the added token `{token}` has the id {id}, in the vocabulary {vocabulary}")]
    AddedElsewhere {
        /// The token, shortened.
        token: Box<str>,
        /// Its id as an added token.
        id: u32,
        /// Its id in the vocabulary.
        vocabulary: u32,
    },
    /// A merge is not two tokens.
    #[error("merge {rank} is not two tokens with one space between: `{text}`")]
    Merge {
        /// Its place, counted from 0.
        rank: usize,
        /// What it is, shortened.
        text: Box<str>,
    },
    /// A merge names a token that the vocabulary does not have.
    #[error("merge {rank} names the token `{token}`, which the vocabulary does not have")]
    MergeToken {
        /// Its place, counted from 0.
        rank: usize,
        /// The token, shortened.
        token: Box<str>,
    },
}

impl ImportFault {
    /// What to do about it, as a clause.
    pub fn advice(&self) -> &'static str {
        match self {
            ImportFault::Unsupported { .. } | ImportFault::NotByteLevel { .. } => {
                "give the tokenizer.json of a byte-level BPE of the GPT-2, Qwen2 or Llama 3 kind"
            }
            _ => "use another copy of the file",
        }
    }
}

/// A name short enough for a message.
pub(super) fn short(text: &str) -> Box<str> {
    let safe = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    text.chars().take(60).map(safe).collect::<String>().into()
}
