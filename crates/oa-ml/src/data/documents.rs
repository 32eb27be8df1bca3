//! Documents of files, folders and JSONL, found once and read one at a time.
//!
//! Opening a source reads it from front to back and keeps 16 bytes a document: where it is. So a
//! bad line is known before a step is trained, memory does not grow with the text, and any document
//! can be read again without those before it. What the documents mean as tokens is not known here.

use super::fault::{DataFault, LineFault};
use super::lines;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// What some programs put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Longest line of a JSONL file, in bytes: such a line is in memory as a whole.
pub const LINE_BYTES: u64 = 64 << 20;

/// How a source is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Endings, without the dot and in lower case, of the files of a folder that are read; those of
    /// any other ending, and names that begin with a dot, are not. A file that is named itself is
    /// always read.
    pub extensions: Vec<String>,
    /// Field of a JSONL object that is the document.
    pub field: String,
    /// Leave out lines of JSONL that hold no document, and count them, instead of refusing the file.
    pub skip_bad_lines: bool,
    /// A text file is one document; one that is longer than this many bytes is cut into documents
    /// of at most this length, at ends of lines or words where there are any.
    pub piece_bytes: usize,
}

impl Default for SourceConfig {
    /// Folders give `txt`, `md`, `jsonl` and `ndjson`; the field is `text`; a bad line is an error;
    /// texts are cut every 64 KiB.
    fn default() -> SourceConfig {
        SourceConfig {
            extensions: ["txt", "md", "jsonl", "ndjson"].map(String::from).to_vec(),
            field: "text".into(),
            skip_bad_lines: false,
            piece_bytes: 64 << 10,
        }
    }
}

/// Where a document is.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u32,
    file: u32,
}

/// A file and how it is read.
#[derive(Debug)]
struct SourceFile {
    path: PathBuf,
    lines: bool,
}

/// Every document of a source.
#[derive(Debug)]
pub struct Documents {
    files: Vec<SourceFile>,
    places: Vec<Place>,
    config: SourceConfig,
    bytes: u64,
    skipped: u64,
    fingerprint: u64,
}

impl Documents {
    /// Finds the documents of a file or of a folder, whose files are read in the order of their
    /// paths. Files that end in `jsonl` or `ndjson` hold a document a line, any other file is one
    /// text. Empty files and blank lines are no documents, and neither is the byte order mark that
    /// such a file of lines may begin with. Folders are searched to the bottom; links
    /// to folders are not followed.
    ///
    /// # Errors
    ///
    /// [`DataFault`] when something cannot be read, a folder has no file of the chosen endings, or a
    /// line of JSONL is bad; [`Error::EmptyCorpus`] when there is no
    /// document.
    pub fn open(path: &Path, config: &SourceConfig) -> Result<Documents> {
        if config.piece_bytes < 16 {
            let (value, least) = (config.piece_bytes as u64, 16);
            return Err(Error::Setting { name: "the length of a piece", value, least });
        }
        let mut paths = Vec::new();
        let kind = path.metadata().map_err(|error| file("open", path, error))?;
        if kind.is_dir() {
            gather(path, &config.extensions, &mut paths)?;
            if paths.is_empty() {
                let (path, extensions) = (path.to_owned(), config.extensions.clone());
                return Err(DataFault::EmptyFolder { path, extensions }.into());
            }
            paths.sort();
        } else if kind.is_file() {
            paths.push(path.to_owned());
        } else {
            return Err(DataFault::NotAFile { path: path.to_owned() }.into());
        }
        let mut documents = Documents {
            files: Vec::new(),
            places: Vec::new(),
            config: config.clone(),
            bytes: 0,
            skipped: 0,
            fingerprint: FINGERPRINT,
        };
        for path in paths {
            documents.index(path)?;
        }
        match (documents.places.is_empty(), documents.skipped) {
            (true, 0) => Err(Error::EmptyCorpus),
            (true, skipped) => Err(DataFault::OnlyBadLines { skipped }.into()),
            (false, _) => Ok(documents),
        }
    }

    /// Number of documents.
    pub fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// Bytes of the documents, in their files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Lines of JSONL that were left out because they hold no document.
    pub fn skipped_lines(&self) -> u64 {
        self.skipped
    }

    /// A number that tells this text from another: it covers every byte of every file, in order,
    /// but not where the files are. It is no proof against somebody who wants to deceive.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Finds the documents of one file.
    fn index(&mut self, path: PathBuf) -> Result<(), DataFault> {
        let number = u32::try_from(self.files.len()).expect("a disk has fewer files than that");
        let open = File::open(&path).map_err(|error| file("open", &path, error))?;
        let lines = ending(&path).is_some_and(|ending| ending == "jsonl" || ending == "ndjson");
        if lines {
            self.index_lines(open, &path, number)?;
        } else {
            self.index_text(open, &path, number)?;
        }
        // The length of a file is part of what is told apart: two files are not one.
        self.fingerprint = mix(self.fingerprint, &self.bytes.to_le_bytes());
        self.files.push(SourceFile { path, lines });
        Ok(())
    }

    fn index_text(&mut self, mut from: File, path: &Path, file: u32) -> Result<(), DataFault> {
        let piece = self.config.piece_bytes.min(u32::MAX as usize);
        let mut window = Vec::with_capacity(piece);
        let mut offset = 0;
        loop {
            let space = (piece - window.len()) as u64;
            let read = (&mut from).take(space).read_to_end(&mut window);
            let read = read.map_err(|error| self::file("read", path, error))?;
            let fresh = window.len() - read;
            self.fingerprint = mix(self.fingerprint, &window[fresh..]);
            if window.is_empty() {
                return Ok(());
            }
            let length = if window.len() < piece { window.len() } else { cut(&window) };
            self.push(Place { offset, bytes: length as u32, file });
            offset += length as u64;
            window.drain(..length);
        }
    }

    fn index_lines(&mut self, from: File, path: &Path, file: u32) -> Result<(), DataFault> {
        let mut from = BufReader::with_capacity(1 << 16, from);
        let (mut line, mut offset) = (Vec::new(), 0);
        for number in 1.. {
            line.clear();
            let read = (&mut from).take(LINE_BYTES + 1).read_until(b'\n', &mut line);
            let mut bytes = read.map_err(|error| self::file("read", path, error))? as u64;
            self.fingerprint = mix(self.fingerprint, &line);
            if bytes == 0 {
                break;
            }
            if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
                offset += BYTE_ORDER_MARK.len() as u64;
                bytes -= BYTE_ORDER_MARK.len() as u64;
            }
            let checked = if bytes > LINE_BYTES && line.last() != Some(&b'\n') {
                let rest = from.skip_until(b'\n');
                bytes += rest.map_err(|error| self::file("read", path, error))? as u64;
                Err(LineFault::TooLong { limit: LINE_BYTES })
            } else if line.iter().all(u8::is_ascii_whitespace) {
                Ok(String::new())
            } else {
                lines::text_of(&line, &self.config.field)
            };
            match checked {
                Ok(text) if text.is_empty() => {}
                Ok(_) => self.push(Place { offset, bytes: bytes as u32, file }),
                Err(_) if self.config.skip_bad_lines => self.skipped += 1,
                Err(fault) => {
                    return Err(DataFault::Line { path: path.to_owned(), line: number, fault });
                }
            }
            offset += bytes;
        }
        Ok(())
    }

    fn push(&mut self, place: Place) {
        self.bytes += u64::from(place.bytes);
        self.places.push(place);
    }
}

/// Reads documents; the file of the last one stays open.
#[derive(Debug, Default)]
pub struct DocumentReader {
    open: Option<(u32, File)>,
}

impl DocumentReader {
    /// The bytes of a document, in place of what is in `text`. `number` is below the count.
    ///
    /// # Errors
    ///
    /// When the file cannot be read any more, or changed.
    pub fn read(
        &mut self,
        documents: &Documents,
        number: u64,
        text: &mut Vec<u8>,
    ) -> Result<(), DataFault> {
        let place = documents.places[number as usize];
        let source = &documents.files[place.file as usize];
        let path = &source.path;
        let open = match self.open.take() {
            Some((file, open)) if file == place.file => open,
            _ => File::open(path).map_err(|error| file("open", path, error))?,
        };
        let (_, open) = self.open.insert((place.file, open));
        text.resize(place.bytes as usize, 0);
        let read = open.seek(SeekFrom::Start(place.offset)).and_then(|_| open.read_exact(text));
        let changed = || DataFault::Changed { path: path.clone(), offset: place.offset };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(),
            _ => file("read", path, error),
        })?;
        if source.lines {
            let field = &documents.config.field;
            *text = lines::text_of(text, field).map_err(|_| changed())?.into_bytes();
        }
        Ok(())
    }
}

/// Start of a fingerprint, and what it is multiplied by: FNV-1a.
const FINGERPRINT: u64 = 0xCBF2_9CE4_8422_2325;

fn mix(fingerprint: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(fingerprint, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Where a text that goes on is cut: after the last line, else the last word, that ends in the
/// second half; else before a character that is not whole.
fn cut(window: &[u8]) -> usize {
    let half = window.len() / 2;
    let after =
        |ends: fn(&u8) -> bool| window[half..].iter().rposition(ends).map(|at| half + at + 1);
    after(|&byte| byte == b'\n').or_else(|| after(u8::is_ascii_whitespace)).unwrap_or_else(|| {
        let begins = |byte: &u8| *byte & 0xC0 != 0x80;
        let last = window.iter().rposition(begins).unwrap_or(0);
        let whole = std::str::from_utf8(&window[last..]).is_ok();
        if whole || last < half { window.len() } else { last }
    })
}

/// The files below a folder that end in one of the endings.
fn gather(folder: &Path, endings: &[String], paths: &mut Vec<PathBuf>) -> Result<(), DataFault> {
    let fail = |error| file("list", folder, error);
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(fail)?);
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            gather(&path, endings, paths)?;
        } else if ending(&path).is_some_and(|ending| endings.contains(&ending)) {
            let target = path.metadata().map_err(|error| file("open", &path, error))?;
            if target.is_file() {
                paths.push(path);
            }
        }
    }
    Ok(())
}

/// The ending of a name, in lower case.
fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase())
}

fn file(verb: &'static str, path: &Path, source: io::Error) -> DataFault {
    DataFault::File { verb, path: path.to_owned(), source }
}
