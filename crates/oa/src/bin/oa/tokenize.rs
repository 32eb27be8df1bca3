//! `oa tokenize`: the ids of a text and the bytes that each stands for.

use crate::failure::{Explain, Failure};
use crate::flags::{Common, TokenizeFlags};
use crate::{open, output};
use serde_json::json;
use std::fmt::Write;

/// Runs `oa tokenize`.
pub fn run(common: &Common, flags: &TokenizeFlags) -> Result<(), Failure> {
    let config = open::tokenizer(&flags.tokenizer)?;
    let tokenizer = config.build();
    let ids = tokenizer.encode(flags.text.as_bytes()).explain("cannot cut this text")?;
    let piece = |&id: &u32| {
        let bytes = tokenizer.token(id).expect("ids of a tokenizer are its tokens");
        bytes.escape_ascii().to_string()
    };
    let pieces: Vec<String> = ids.iter().map(piece).collect();
    if common.json {
        output::json(&json!({
            "event": "tokens",
            "tokenizer": config.kind(),
            "vocabulary": config.vocab(),
            "ids": ids,
            "pieces": pieces,
        }))?;
        return Ok(());
    }
    let mut text = String::new();
    for (id, piece) in ids.iter().zip(&pieces) {
        writeln!(text, "{id:>8}  \"{piece}\"").expect("writing to a string cannot fail");
    }
    let (count, vocab) = (output::count(ids.len() as u64), output::count(config.vocab() as u64));
    output::text(&format!("{text}{count} tokens, {} of {vocab} token ids\n", config.kind()))?;
    Ok(())
}
