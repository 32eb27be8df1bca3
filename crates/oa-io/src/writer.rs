//! Writes a checkpoint as one pass over its tensors; header and table come last.
//!
//! It writes to anything that can seek and knows no paths; durability is the business of `replace`.

use crate::checksum::{Digest, Stream};
use crate::error::{Broken, Fault};
use crate::layout::{self, HEADER_BYTES, Header, Kind, ROW_BYTES, SECTION_ALIGN, Section};
use crate::layout::{TENSOR_ALIGN, align_up};
use crate::{index, limits, state, tokenizer};
use oa_ml::{Checkpoint, NamedTensor};
use std::io::{Seek, SeekFrom, Write};

/// Floats that are converted at a time.
const CHUNK_ELEMS: usize = 16 << 10;

/// Writes a whole file and returns its bytes. The same checkpoint gives the same bytes.
pub(crate) fn write(out: &mut (impl Write + Seek), checkpoint: &Checkpoint) -> Result<u64, Broken> {
    let manifest = state::describe(checkpoint)?.encode()?;
    let moments = checkpoint.training.as_ref().map(|training| &training.optimizer);
    let tables = tokenizer::section(&checkpoint.tokenizer);
    let found = tables.as_ref().map_or(0, |tables| tables.len() as u64);
    index::within("bytes of a tokenizer's tables", found, limits::TOKENIZER_BYTES)?;
    let count = 2 + usize::from(moments.is_some()) + usize::from(tables.is_some());
    let mut file = Counted { out, at: 0 };
    file.zeros((HEADER_BYTES + count * ROW_BYTES) as u64)?;
    let mut sections = Vec::with_capacity(count);
    sections.push(file.section(Kind::Manifest, |file| file.bytes(&manifest))?);
    sections.push(file.section(Kind::Weights, |file| tensors(file, checkpoint.tensors.iter()))?);
    if let Some(moments) = moments {
        sections.push(file.section(Kind::Optimizer, |file| {
            tensors(file, moments.slots.iter().flat_map(|slot| &slot.tensors))
        })?);
    }
    if let Some(tables) = tables {
        sections.push(file.section(Kind::Tokenizer, |file| file.bytes(&tables))?);
    }
    let header =
        Header { sections: count as u32, file_bytes: file.at, manifest: sections[0].digest };
    let bytes = file.at;
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&layout::encode(&header, &sections))?;
    Ok(bytes)
}

/// Writes the tensors of one section and digests what it writes, padding included.
fn tensors<'a>(
    file: &mut Counted<'_, impl Write>,
    tensors: impl Iterator<Item = &'a NamedTensor>,
) -> Result<Digest, Broken> {
    let (start, mut digest) = (file.at, Stream::default());
    let mut bytes = Vec::with_capacity(CHUNK_ELEMS * 4);
    for tensor in tensors {
        let end = file.at - start;
        let padding = align_up(end, TENSOR_ALIGN).expect("files end before 2^64") - end;
        digest.update(&ZEROS[..padding as usize]);
        file.zeros(padding)?;
        for chunk in tensor.data.chunks(CHUNK_ELEMS) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|element| element.to_le_bytes()));
            digest.update(&bytes);
            file.out.write_all(&bytes)?;
            file.at += bytes.len() as u64;
        }
    }
    Ok(digest.finish())
}

const ZEROS: [u8; SECTION_ALIGN as usize] = [0; SECTION_ALIGN as usize];

/// A destination that knows how far it was written.
struct Counted<'a, W> {
    out: &'a mut W,
    at: u64,
}

impl<W: Write> Counted<'_, W> {
    fn zeros(&mut self, count: u64) -> Result<(), Broken> {
        self.out.write_all(&ZEROS[..count as usize])?;
        self.at += count;
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<Digest, Broken> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(Digest::of(bytes))
    }

    fn section(
        &mut self,
        kind: Kind,
        contents: impl FnOnce(&mut Self) -> Result<Digest, Broken>,
    ) -> Result<Section, Broken> {
        let too_long = Fault::Limit { what: "bytes", found: self.at, limit: u64::MAX };
        let offset = align_up(self.at, SECTION_ALIGN).ok_or(too_long)?;
        self.zeros(offset - self.at)?;
        let digest = contents(self)?;
        Ok(Section { kind, offset, length: self.at - offset, digest })
    }
}
