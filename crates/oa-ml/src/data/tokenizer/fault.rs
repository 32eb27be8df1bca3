//! Why a table describes no tokenizer: one variant per broken rule, each with its numbers.

/// A broken rule of an alphabet or of a table of tokens and merges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableFault {
    /// An alphabet without a character.
    #[error("the alphabet has no character")]
    EmptyAlphabet,
    /// A character stands in an alphabet twice.
    #[error("the character {character:?} is in the alphabet twice")]
    DuplicateCharacter {
        /// The character.
        character: char,
    },
    /// More of something than a table may have.
    #[error("{found} {what} are more than the {limit} that a tokenizer may have")]
    TooMany {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A vocabulary that is to be learned has no room.
    #[error(
        "a vocabulary of {vocab} tokens has no room for 256 bytes and the special tokens: at least {least}"
    )]
    SmallVocabulary {
        /// Tokens asked for.
        vocab: usize,
        /// Fewest tokens that would do.
        least: usize,
    },
    /// A byte has no token of its own, so some texts could not be said.
    #[error("the byte {byte:#04x} has no token of its own")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// A token stands for no byte.
    #[error("token {id} is empty")]
    EmptyToken {
        /// Its id.
        id: usize,
    },
    /// A token is longer than any text makes sense of.
    #[error("token {id} has {bytes} bytes, more than the {limit} that a token may have")]
    LongToken {
        /// Its id.
        id: usize,
        /// Its bytes.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// Two tokens of the vocabulary stand for the same bytes.
    #[error("tokens {first} and {second} are the same")]
    DuplicateToken {
        /// The lower id.
        first: usize,
        /// The higher id.
        second: usize,
    },
    /// An added token whose id is not in the table, or is there twice.
    #[error("added token {id} is there twice or not below the {tokens} tokens there are")]
    AddedId {
        /// Its id.
        id: u32,
        /// Tokens of the table.
        tokens: usize,
    },
    /// An added token that is no text.
    #[error("added token {id} is not UTF-8")]
    AddedText {
        /// Its id.
        id: u32,
    },
    /// A merge names a token that the vocabulary does not have.
    #[error("merge {rank} names token {id}, which the vocabulary does not have")]
    MergeToken {
        /// Place of the merge, counted from 0.
        rank: usize,
        /// The id.
        id: u32,
    },
    /// A merge gives bytes that no token stands for.
    #[error("merge {rank} of tokens {left} and {right} gives no token of the vocabulary")]
    MergeResult {
        /// Place of the merge, counted from 0.
        rank: usize,
        /// Left id.
        left: u32,
        /// Right id.
        right: u32,
    },
    /// A pair of tokens merges twice.
    #[error("merge {rank} repeats merge {first}")]
    DuplicateMerge {
        /// Place of the later one, counted from 0.
        rank: usize,
        /// Place of the earlier one.
        first: usize,
    },
}
