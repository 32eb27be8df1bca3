//! Where things lie: the header, the section table and the alignment rules, as plain data.
//!
//! Everything is little-endian and has one place: sections follow one another at the next multiple
//! of 4,096, tensors at the next multiple of 64, and the bytes between are zero. So two files with
//! the same contents are the same bytes, and overlap and holes need no search.

use crate::checksum::Digest;
use crate::error::Part;

/// The first four bytes.
pub const MAGIC: [u8; 4] = *b"OAM\0";

/// The version that this release writes.
pub const VERSION: u32 = 3;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;

/// Bytes of one row of the section table.
pub const ROW_BYTES: usize = 64;

/// Alignment of a section, so that it can be mapped.
pub const SECTION_ALIGN: u64 = 4096;

/// Alignment of a tensor in its section.
pub const TENSOR_ALIGN: u64 = 64;

const _: () = {
    let table = HEADER_BYTES as u64 + crate::limits::SECTIONS * ROW_BYTES as u64;
    assert!(table <= SECTION_ALIGN, "the largest table ends before the first section");
    assert!(SECTION_ALIGN.is_multiple_of(TENSOR_ALIGN), "aligned sections align their tensors");
};

/// The next multiple of `align`, a power of two; `None` when it does not fit.
pub fn align_up(offset: u64, align: u64) -> Option<u64> {
    Some(offset.checked_add(align - 1)? & !(align - 1))
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The manifest.
    Manifest,
    /// Weights of the model.
    Weights,
    /// State of the optimizer.
    Optimizer,
    /// Tables of the tokenizer.
    Tokenizer,
}

impl Kind {
    /// The number that stands for it in a file.
    pub fn code(self) -> u32 {
        match self {
            Kind::Manifest => 1,
            Kind::Weights => 2,
            Kind::Optimizer => 3,
            Kind::Tokenizer => 4,
        }
    }

    pub(crate) fn of_code(code: u32) -> Option<Kind> {
        let all = [Kind::Manifest, Kind::Weights, Kind::Optimizer, Kind::Tokenizer];
        all.into_iter().find(|kind| kind.code() == code)
    }

    pub(crate) fn part(self) -> Part {
        match self {
            Kind::Manifest => Part::Manifest,
            Kind::Weights => Part::Weights,
            Kind::Optimizer => Part::Optimizer,
            Kind::Tokenizer => Part::Tokenizer,
        }
    }
}

/// The header's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sections: u32,
    pub(crate) file_bytes: u64,
    pub(crate) manifest: Digest,
}

/// One row of the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Section {
    /// What it holds.
    pub kind: Kind,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes, without the padding after it.
    pub length: u64,
    /// BLAKE3 of those bytes.
    pub digest: Digest,
}

impl Section {
    /// Where it ends in the file.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }
}

/// Header and section table as bytes, the short check included.
pub(crate) fn encode(header: &Header, sections: &[Section]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + sections.len() * ROW_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(header.sections.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(header.file_bytes.to_le_bytes());
    bytes.extend(header.manifest.0);
    bytes.extend(0u64.to_le_bytes());
    for section in sections {
        bytes.extend(section.kind.code().to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(section.offset.to_le_bytes());
        bytes.extend(section.length.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(section.digest.0);
    }
    let check = check(&bytes);
    bytes[CHECK_AT..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Where the short check lies in the header.
pub(crate) const CHECK_AT: usize = 56;

/// The short check of a header and its table: the digest of both without the check itself.
pub(crate) fn check(bytes: &[u8]) -> u64 {
    let mut stream = crate::checksum::Stream::default();
    stream.update(&bytes[..CHECK_AT]);
    stream.update(&bytes[HEADER_BYTES..]);
    stream.finish().short()
}

/// Reads a little-endian `u32` of a table whose length was checked.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a slice of four bytes"))
}

/// Reads a little-endian `u64` of a table whose length was checked.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of eight bytes"))
}

/// Reads a digest of a table whose length was checked.
pub(crate) fn digest_at(bytes: &[u8], at: usize) -> Digest {
    Digest(bytes[at..at + 32].try_into().expect("a slice of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_rows_have_their_documented_bytes() {
        let section =
            Section { kind: Kind::Weights, offset: 4096, length: 0x0102, digest: Digest([7; 32]) };
        let header = Header { sections: 1, file_bytes: 0x1122_3344, manifest: Digest([9; 32]) };
        let bytes = encode(&header, &[section]);
        assert_eq!(bytes.len(), HEADER_BYTES + ROW_BYTES);
        assert_eq!(&bytes[..16], b"OAM\0\x03\0\0\0\x01\0\0\0\0\0\0\0");
        assert_eq!(u64_at(&bytes, 16), 0x1122_3344);
        assert_eq!(digest_at(&bytes, 24), Digest([9; 32]));
        assert_eq!(u64_at(&bytes, CHECK_AT), check(&bytes));
        assert_eq!(&bytes[64..72], b"\x02\0\0\0\0\0\0\0");
        assert_eq!((u64_at(&bytes, 72), u64_at(&bytes, 80)), (4096, 0x0102));
        assert_eq!(digest_at(&bytes, 96), Digest([7; 32]));
    }

    #[test]
    fn alignment_is_checked_arithmetic() {
        assert_eq!(align_up(0, 64), Some(0));
        assert_eq!(align_up(1, 64), Some(64));
        assert_eq!(align_up(64, 64), Some(64));
        assert_eq!(align_up(u64::MAX, 64), None);
    }
}
