//! Hard caps of the format, each with its reason.
//!
//! A count in a file is a claim. Every claim is first held against these caps and against the bytes
//! that are really there; only then is memory asked for. Raising a cap is a change of the format.

/// Sections of a file. Three kinds exist; the rest is room for later versions. The header and the
/// table of this many sections fit before the first aligned section.
pub const SECTIONS: u64 = 16;

/// Bytes of the manifest. A million tensors of 60 bytes each fit; an index larger than that is an
/// attack or a mistake.
pub const MANIFEST_BYTES: u64 = 64 << 20;

/// Tensors of one list. The largest published models have a few thousand.
pub const TENSORS: u64 = 1 << 20;

/// Bytes of a tensor name or an attribute key.
pub const NAME_BYTES: u64 = 255;

/// Bytes of any other text, such as a metadata value or a tokenizer's vocabulary entry.
pub const TEXT_BYTES: u64 = 1 << 20;

/// Bytes of a tokenizer's tables. A million tokens of 16 bytes with two million merges fit.
pub const TOKENIZER_BYTES: u64 = 64 << 20;

/// Tokens of a tokenizer, and added ones among them.
pub const TOKENS: u64 = oa_ml::data::tokenizer::TOKENS as u64;

/// Merges of a tokenizer.
pub const MERGES: u64 = oa_ml::data::tokenizer::MERGES as u64;

/// Bytes of a `tokenizer.json`. The largest published ones have 35 MB.
pub const TOKENIZER_JSON_BYTES: u64 = 64 << 20;

/// Dimensions of a tensor. The engine computes with four.
pub const DIMENSIONS: u64 = 8;

/// Attributes of one list, and entries of the metadata.
pub const ATTRIBUTES: u64 = 4096;

/// Tensor lists that an optimizer keeps. AdamW keeps two.
pub const SLOTS: u64 = 8;
