//! Reads and judges header and section table before anything is believed.
//!
//! The order of the questions decides which error a damaged file gives: is it ours, can it be
//! read, is it whole, is it unchanged, is it well-formed. Nothing here allocates more than one
//! table of [`limits::SECTIONS`] rows.

use crate::error::{Broken, Fault};
use crate::layout::{
    self, CHECK_AT, HEADER_BYTES, Header, Kind, MAGIC, ROW_BYTES, SECTION_ALIGN, Section, VERSION,
};
use crate::limits;
use std::io::Read;

/// Reads header and table from the beginning of a file of `actual` bytes.
pub(crate) fn read(source: &mut impl Read, actual: u64) -> Result<(Header, Vec<Section>), Broken> {
    let mut bytes = vec![0; HEADER_BYTES];
    let known = actual.min(HEADER_BYTES as u64) as usize;
    source.read_exact(&mut bytes[..known])?;
    if known < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC {
        return Err(Fault::Magic.into());
    }
    if known < HEADER_BYTES {
        return Err(Fault::Truncated { declared: HEADER_BYTES as u64, actual }.into());
    }
    let header = header(&bytes, actual)?;
    let table_bytes = header.sections as usize * ROW_BYTES;
    if actual < (HEADER_BYTES + table_bytes) as u64 {
        let declared = (HEADER_BYTES + table_bytes) as u64;
        return Err(Fault::Truncated { declared, actual }.into());
    }
    bytes.resize(HEADER_BYTES + table_bytes, 0);
    source.read_exact(&mut bytes[HEADER_BYTES..])?;
    if layout::u64_at(&bytes, CHECK_AT) != layout::check(&bytes) {
        return Err(Fault::Checksum { part: crate::error::Part::Header }.into());
    }
    let sections = sections(&header, &bytes[HEADER_BYTES..])?;
    Ok((header, sections))
}

fn header(bytes: &[u8], actual: u64) -> Result<Header, Fault> {
    let version = layout::u32_at(bytes, 4);
    if version != VERSION {
        return Err(Fault::Version { found: version, readable: VERSION });
    }
    let header = Header {
        sections: layout::u32_at(bytes, 8),
        file_bytes: layout::u64_at(bytes, 16),
        manifest: layout::digest_at(bytes, 24),
    };
    let found = u64::from(header.sections);
    if found > limits::SECTIONS {
        return Err(Fault::Limit { what: "sections", found, limit: limits::SECTIONS });
    }
    zeros(bytes, 12..16, 0)?;
    let declared = header.file_bytes;
    match declared.cmp(&actual) {
        std::cmp::Ordering::Greater => Err(Fault::Truncated { declared, actual }),
        std::cmp::Ordering::Less => Err(Fault::Trailing { declared, actual }),
        std::cmp::Ordering::Equal => Ok(header),
    }
}

fn sections(header: &Header, table: &[u8]) -> Result<Vec<Section>, Fault> {
    let mut sections: Vec<Section> = Vec::with_capacity(header.sections as usize);
    let mut end = (HEADER_BYTES + table.len()) as u64;
    for (index, row) in table.chunks_exact(ROW_BYTES).enumerate() {
        let index = index as u32;
        let at = HEADER_BYTES + index as usize * ROW_BYTES;
        zeros(row, 4..8, at as u64)?;
        zeros(row, 24..32, at as u64)?;
        let code = layout::u32_at(row, 0);
        let kind = Kind::of_code(code).ok_or(Fault::SectionKind { index, kind: code })?;
        if sections.last().is_some_and(|last| last.kind >= kind) {
            return Err(Fault::SectionKind { index, kind: code });
        }
        let section = Section {
            kind,
            offset: layout::u64_at(row, 8),
            length: layout::u64_at(row, 16),
            digest: layout::digest_at(row, 32),
        };
        let expected = layout::align_up(end, SECTION_ALIGN).unwrap_or(u64::MAX);
        if section.offset != expected {
            return Err(Fault::SectionPlace { index, found: section.offset, expected });
        }
        end = section.end().filter(|&end| end <= header.file_bytes).ok_or(Fault::SectionRange {
            index,
            offset: section.offset,
            length: section.length,
            file: header.file_bytes,
        })?;
        sections.push(section);
    }
    if end != header.file_bytes {
        return Err(Fault::Trailing { declared: end, actual: header.file_bytes });
    }
    Ok(sections)
}

/// Checks that a range of `bytes` is zero; `base` is where `bytes` lies in the file.
fn zeros(bytes: &[u8], range: std::ops::Range<usize>, base: u64) -> Result<(), Fault> {
    match bytes[range.clone()].iter().position(|&byte| byte != 0) {
        Some(at) => Err(Fault::Reserved { at: base + (range.start + at) as u64 }),
        None => Ok(()),
    }
}
