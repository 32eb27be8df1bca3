//! Which pre-tokenizer and normaliser the steps of a file are.

use super::fault::{ImportFault, short};
use super::file::{Pattern, Step};
use oa_ml::data::tokenizer::{Normalizer, PreTokenizer};

/// The expressions that are known, and what they are.
const KNOWN: [(&str, PreTokenizer); 4] = [
    (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        PreTokenizer::Gpt2,
    ),
    (
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        PreTokenizer::Gpt2,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        PreTokenizer::Qwen2,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        PreTokenizer::Llama3,
    ),
];

/// The pre-tokenizer of a file: one that ends at bytes.
pub(super) fn pre_tokenizer(step: Option<Step>) -> Result<PreTokenizer, ImportFault> {
    let refuse = |name: &str| ImportFault::Unsupported { part: "pre-tokenizer", name: short(name) };
    let mut steps = Vec::new();
    flatten(step.ok_or_else(|| refuse("none"))?, |step| step.pretokenizers.take(), &mut steps);
    let (split, bytes) = match steps.as_slice() {
        [bytes] => (None, bytes),
        [split, bytes] => (Some(split), bytes),
        steps => {
            let names: Vec<&str> = steps.iter().map(|step| step.kind.as_str()).collect();
            return Err(refuse(&names.join(", ")));
        }
    };
    if bytes.kind != "ByteLevel" {
        return Err(refuse(&bytes.kind));
    }
    if bytes.add_prefix_space {
        return Err(refuse("ByteLevel with add_prefix_space"));
    }
    match (split, bytes.use_regex.unwrap_or(true)) {
        (None, true) => Ok(PreTokenizer::Gpt2),
        (None, false) => Ok(PreTokenizer::Whole),
        (Some(split), false) if split.kind == "Split" => expression(split),
        (Some(split), false) => Err(refuse(&split.kind)),
        (Some(_), true) => Err(refuse("ByteLevel with use_regex after another step")),
    }
}

/// The pre-tokenizer of a step that cuts by an expression.
fn expression(split: &Step) -> Result<PreTokenizer, ImportFault> {
    let refuse = |part, name: &str| ImportFault::Unsupported { part, name: short(name) };
    let behavior = split.behavior.as_deref().unwrap_or_default();
    // The expressions match everything, so keeping the matches is cutting at them.
    if !matches!((behavior, split.invert), ("Isolated", false) | ("Removed", true)) {
        return Err(refuse("behaviour of a cut", behavior));
    }
    let pattern = match &split.pattern {
        Some(Pattern::Regex(pattern)) => pattern.as_str(),
        Some(Pattern::String(text)) => return Err(refuse("text to cut by", text)),
        None => return Err(refuse("expression to cut by", "none")),
    };
    let known = KNOWN.iter().find(|(known, _)| *known == pattern);
    known.map(|(_, cut)| *cut).ok_or_else(|| refuse("expression to cut by", pattern))
}

/// The normaliser of a file.
pub(super) fn normalizer(step: Option<Step>) -> Result<Normalizer, ImportFault> {
    let Some(step) = step else { return Ok(Normalizer::None) };
    let mut steps = Vec::new();
    flatten(step, |step| step.normalizers.take(), &mut steps);
    match steps.iter().find(|step| step.kind != "NFC") {
        Some(step) => Err(ImportFault::Unsupported { part: "normaliser", name: short(&step.kind) }),
        None if steps.is_empty() => Ok(Normalizer::None),
        None => Ok(Normalizer::Nfc),
    }
}

/// The steps of nested sequences, in order. A parser of JSON bounds how deep they nest.
fn flatten(mut step: Step, inner: fn(&mut Step) -> Option<Vec<Step>>, out: &mut Vec<Step>) {
    match inner(&mut step) {
        Some(steps) if step.kind == "Sequence" => {
            steps.into_iter().for_each(|step| flatten(step, inner, out));
        }
        _ => out.push(step),
    }
}
