//! Reads a file: header and manifest when it is opened, tensors when they are asked for.
//!
//! By the time a tensor is read, every length was held against the length of the file, so what is
//! allocated is never more than what is there. No memory map: a file that shrinks under the reader
//! is an ordinary error.

use crate::checksum::{Digest, Stream};
use crate::error::{Broken, Fault, Part};
use crate::header;
use crate::index;
use crate::layout::{self, HEADER_BYTES, Kind, ROW_BYTES, SECTION_ALIGN, Section};
use crate::limits;
use crate::manifest::{Entry, List, Manifest};
use crate::state;
use oa_ml::checkpoint::MomentSlot;
use oa_ml::{Checkpoint, NamedTensor};
use std::io::{Read, Seek, SeekFrom};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// An open file whose header, table and manifest were judged.
pub(crate) struct Reader<R> {
    source: R,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
    /// The section table.
    pub(crate) sections: Vec<Section>,
    /// The manifest.
    pub(crate) manifest: Manifest,
}

impl<R: Read + Seek> Reader<R> {
    /// Opens a file and judges everything but its tensor data.
    pub(crate) fn open(mut source: R) -> Result<Reader<R>, Broken> {
        let actual = source.seek(SeekFrom::End(0))?;
        source.seek(SeekFrom::Start(0))?;
        let (header, sections) = header::read(&mut source, actual)?;
        padding(&mut source, &sections)?;
        let first = sections.first().filter(|first| first.kind == Kind::Manifest);
        let first = *first.ok_or(Fault::Missing { part: Part::Manifest })?;
        if first.digest != header.manifest {
            let (header, table) = (header.manifest, first.digest);
            return Err(Fault::ManifestIdentity { header, table }.into());
        }
        index::within("bytes of manifest", first.length, limits::MANIFEST_BYTES)?;
        let mut bytes = vec![0; first.length as usize];
        source.seek(SeekFrom::Start(first.offset))?;
        source.read_exact(&mut bytes)?;
        if Digest::of(&bytes) != first.digest {
            return Err(Fault::Checksum { part: Part::Manifest }.into());
        }
        let manifest = Manifest::decode(&bytes)?;
        let reader = Reader { source, file_bytes: actual, sections, manifest };
        reader.judge()?;
        Ok(reader)
    }

    /// Holds the tensor index against the sections.
    fn judge(&self) -> Result<(), Fault> {
        let weights = self.section(Kind::Weights)?;
        index::judge(Part::Weights, [&self.manifest.weights].into_iter(), weights.length)?;
        let slots = &self.manifest.slots.0;
        let optimizer = self.sections.iter().find(|section| section.kind == Kind::Optimizer);
        match (slots.is_empty(), optimizer) {
            (true, None) => Ok(()),
            (false, None) => Err(Fault::Missing { part: Part::Optimizer }),
            (_, Some(section)) => {
                let lists = slots.iter().map(|slot| &slot.tensors);
                index::judge(Part::Optimizer, lists, section.length)
            }
        }
    }

    fn section(&self, kind: Kind) -> Result<Section, Fault> {
        let found = self.sections.iter().find(|section| section.kind == kind);
        found.copied().ok_or(Fault::Missing { part: kind.part() })
    }

    /// The whole checkpoint; every byte of the file was checked when it returns.
    pub(crate) fn checkpoint(&mut self) -> Result<Checkpoint, Broken> {
        let tables = self.tables()?;
        let mut checkpoint = state::restore(&self.manifest, tables.as_deref())?;
        let weights = self.manifest.weights.clone();
        checkpoint.tensors = self.tensors(Kind::Weights, &[&weights])?.remove(0);
        if let Some(training) = &mut checkpoint.training {
            let slots = self.manifest.slots.clone();
            let lists: Vec<_> = slots.0.iter().map(|slot| &slot.tensors).collect();
            let moments = self.tensors(Kind::Optimizer, &lists)?;
            let names = slots.0.iter().map(|slot| slot.name.0.clone());
            let named = names.zip(moments).map(|(name, tensors)| MomentSlot { name, tensors });
            training.optimizer.slots = named.collect();
        }
        Ok(checkpoint)
    }

    /// The bytes of the tokenizer's section.
    fn tables(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let Ok(section) = self.section(Kind::Tokenizer) else { return Ok(None) };
        let what = "bytes of a tokenizer's tables";
        index::within(what, section.length, limits::TOKENIZER_BYTES)?;
        let mut bytes = vec![0; section.length as usize];
        self.source.seek(SeekFrom::Start(section.offset))?;
        self.source.read_exact(&mut bytes)?;
        if Digest::of(&bytes) != section.digest {
            return Err(Fault::Checksum { part: Part::Tokenizer }.into());
        }
        Ok(Some(bytes))
    }

    /// Checks the digest of every section without keeping its data.
    pub(crate) fn verify(&mut self) -> Result<(), Broken> {
        let mut buffer = vec![0; CHUNK_BYTES];
        for section in self.sections.clone() {
            self.source.seek(SeekFrom::Start(section.offset))?;
            let (mut left, mut digest) = (section.length, Stream::default());
            while left > 0 {
                let chunk = &mut buffer[..left.min(CHUNK_BYTES as u64) as usize];
                self.source.read_exact(chunk)?;
                digest.update(chunk);
                left -= chunk.len() as u64;
            }
            if digest.finish() != section.digest {
                return Err(Fault::Checksum { part: section.kind.part() }.into());
            }
        }
        Ok(())
    }

    /// Reads the tensor lists of a section in one pass that also checks its digest.
    fn tensors(
        &mut self,
        kind: Kind,
        lists: &[&List<Entry>],
    ) -> Result<Vec<Vec<NamedTensor>>, Broken> {
        let section = self.section(kind)?;
        self.source.seek(SeekFrom::Start(section.offset))?;
        let mut pass = Pass {
            source: &mut self.source,
            digest: Stream::default(),
            buffer: vec![0; CHUNK_BYTES],
            at: 0,
        };
        let mut out = Vec::with_capacity(lists.len());
        for list in lists {
            out.push(list.0.iter().map(|entry| pass.tensor(entry)).collect::<Result<_, _>>()?);
        }
        if pass.digest.finish() != section.digest {
            return Err(Fault::Checksum { part: kind.part() }.into());
        }
        Ok(out)
    }
}

/// One pass over a section, in order.
struct Pass<'a, R> {
    source: &'a mut R,
    digest: Stream,
    buffer: Vec<u8>,
    at: u64,
}

impl<R: Read> Pass<'_, R> {
    fn tensor(&mut self, entry: &Entry) -> Result<NamedTensor, Broken> {
        let padding = (entry.offset - self.at) as usize;
        self.source.read_exact(&mut self.buffer[..padding])?;
        self.digest.update(&self.buffer[..padding]);
        let mut data = Vec::with_capacity((entry.length / 4) as usize);
        let mut left = entry.length as usize;
        while left > 0 {
            let chunk = &mut self.buffer[..left.min(CHUNK_BYTES)];
            self.source.read_exact(chunk)?;
            self.digest.update(chunk);
            let words = chunk.chunks_exact(4);
            data.extend(
                words
                    .map(|word| f32::from_le_bytes(word.try_into().expect("chunks of four bytes"))),
            );
            left -= chunk.len();
        }
        self.at = entry.offset + entry.length;
        let shape = entry.shape.0.iter().map(|&dim| dim as usize).collect();
        Ok(NamedTensor { name: entry.name.0.clone(), shape, data })
    }
}

/// Checks that the bytes before each section are zero.
fn padding(source: &mut (impl Read + Seek), sections: &[Section]) -> Result<(), Broken> {
    let mut end = (HEADER_BYTES + sections.len() * ROW_BYTES) as u64;
    let mut buffer = [0; SECTION_ALIGN as usize];
    for section in sections {
        debug_assert_eq!(layout::align_up(end, SECTION_ALIGN), Some(section.offset));
        let gap = &mut buffer[..(section.offset - end) as usize];
        source.seek(SeekFrom::Start(end))?;
        source.read_exact(gap)?;
        if let Some(at) = gap.iter().position(|&byte| byte != 0) {
            return Err(Fault::Reserved { at: end + at as u64 }.into());
        }
        end = section.offset + section.length;
    }
    Ok(())
}
