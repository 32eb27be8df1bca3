//! `oa inspect`: what a file holds, from its header and manifest.

use crate::failure::Failure;
use crate::flags::{Common, InspectFlags};
use crate::{open, output};
use oa::io::{Field, Summary};
use std::fmt::Write;

/// Runs `oa inspect`.
pub fn run(common: &Common, flags: &InspectFlags) -> Result<(), Failure> {
    let file = open::model_file(&flags.file)?;
    let summary = if flags.verify { oa::io::verify(&file)? } else { oa::io::inspect(&file)? };
    if common.json {
        output::json_document(&summary)?;
        return Ok(());
    }
    let mut text = format!("{}\n", file.display());
    describe(&mut text, &summary, flags).expect("writing to a string cannot fail");
    output::text(&text)?;
    Ok(())
}

fn describe(text: &mut String, summary: &Summary, flags: &InspectFlags) -> std::fmt::Result {
    let checked = if flags.verify { ", every byte checked" } else { "" };
    let bytes = output::bytes(summary.file_bytes);
    writeln!(text, "format      .oam version {}, {bytes}{checked}", summary.version)?;
    writeln!(
        text,
        "model       {}, {} parameters in {} tensors",
        summary.architecture,
        output::count(summary.parameters),
        summary.tensors.len()
    )?;
    fields(text, &summary.model)?;
    writeln!(text, "tokenizer")?;
    fields(text, &summary.tokenizer)?;
    if !summary.training.is_empty() {
        writeln!(text, "training")?;
        fields(text, &summary.training)?;
    }
    if !summary.metadata.is_empty() {
        writeln!(text, "metadata")?;
        for (name, value) in &summary.metadata {
            writeln!(text, "  {name:<29}{value}")?;
        }
    }
    writeln!(text, "sections")?;
    for section in &summary.sections {
        let (kind, bytes) = (format!("{:?}", section.kind), output::bytes(section.length));
        writeln!(text, "  {kind:<12}{bytes:>12}  BLAKE3 {}", section.digest)?;
    }
    if flags.tensors {
        writeln!(text, "tensors")?;
        for tensor in &summary.tensors {
            let encoding = tensor.encoding.name();
            writeln!(text, "  {:<28}{encoding:<6}{:?}", tensor.name, tensor.shape)?;
        }
    }
    Ok(())
}

fn fields(text: &mut String, fields: &[Field]) -> std::fmt::Result {
    // An alphabet may hold line ends, and whatever else would steer a terminal.
    let safe = |text: String| match text.chars().any(char::is_control) {
        true => text.escape_debug().to_string(),
        false => text,
    };
    fields.iter().try_for_each(|Field { key, value }| {
        writeln!(text, "  {key:<29}{}", safe(value.to_string()))
    })
}
