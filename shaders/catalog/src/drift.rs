//! Do sources, blobs, lock and registry belong together? Answered without a compiler.
//!
//! Everything is recomputed from the table, the sources and the blobs, and compared with the lock
//! and the generated files as whole texts. What does not belong to the set is refused as well: a
//! blob without a row, a shader that no row uses, an entry point that no row compiles.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Refusal;
use crate::lock::{self, Line, Locked};
use crate::table::Row;
use crate::tree::{Tree, files_below};
use crate::{emit, reflect, source, table};

/// The texts that belong to the sources and blobs of a tree.
#[derive(Debug)]
pub struct Texts {
    /// Text of `kernels.lock`.
    pub lock: String,
    /// Text of each generated file, by name relative to `generated/`.
    pub generated: BTreeMap<String, String>,
}

/// Every way in which the tree does not belong together; empty when all is well.
pub fn check(tree: &Tree) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    match table::read(tree) {
        Ok(rows) => check_rows(tree, &rows, &mut refusals),
        Err(refusal) => refusals.push(refusal),
    }
    refusals
}

fn check_rows(tree: &Tree, rows: &[Row], refusals: &mut Vec<Refusal>) {
    let (lines, mut faults) = lines(tree, rows, crate::compiler_line());
    refusals.append(&mut faults);
    strays(tree, rows, refusals);
    let locked = match std::fs::read_to_string(tree.lock()) {
        Ok(text) => text,
        Err(error) => return refusals.push(Refusal::io(tree.lock(), error)),
    };
    let before = refusals.len();
    compare_lock(&Locked::parse(&locked), &lines, refusals);
    let every_column_fits = refusals.len() == before;
    if lines.len() < rows.len() {
        return;
    }
    let texts = texts(rows, &lines);
    if every_column_fits && texts.lock != locked {
        let line = first_difference(&texts.lock, &locked);
        refusals.push(Refusal::Text { path: tree.lock(), line });
    }
    compare_generated(tree, &texts, refusals);
}

/// Refuses a compiler other than the pinned one, and a lock that another one wrote, unless the lock
/// is about to be written anew.
pub fn same_compiler(tree: &Tree, running: &str, writes_anew: bool) -> Result<(), Refusal> {
    let pinned = crate::compiler_line();
    if running != pinned {
        return Err(Refusal::Compiler { found: running.to_owned(), pinned });
    }
    let Ok(text) = std::fs::read_to_string(tree.lock()) else { return Ok(()) };
    let found = Locked::parse(&text).compiler_line;
    if found != pinned && !writes_anew {
        return Err(Refusal::LockCompiler { found, pinned });
    }
    Ok(())
}

/// Recomputes the lock line of every row that has a blob.
pub fn lines(
    tree: &Tree,
    rows: &[Row],
    compiler_line: String,
) -> (BTreeMap<String, Line>, Vec<Refusal>) {
    let mut lines = BTreeMap::new();
    let mut refusals = Vec::new();
    for row in rows {
        match line(tree, row, &compiler_line) {
            Ok(line) => {
                lines.insert(row.name.clone(), line);
            }
            Err(refusal) => refusals.push(refusal),
        }
    }
    refusals.extend(family_faults(rows, &lines));
    (lines, refusals)
}

fn line(tree: &Tree, row: &Row, compiler_line: &str) -> Result<Line, Refusal> {
    let path = tree.blob(&row.name);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Refusal::NoBlob { name: row.name.clone(), path });
        }
        Err(error) => return Err(Refusal::io(path, error)),
    };
    let closure = source::closure(tree, &row.file)?;
    Ok(Line {
        src: source::hash(compiler_line, row, &closure),
        spv: crate::short_hash(&bytes),
        reflection: reflect::reflect(row, &bytes)?,
    })
}

/// Lock and registry for complete lines.
pub fn texts(rows: &[Row], lines: &BTreeMap<String, Line>) -> Texts {
    let lock = lock::text(&crate::compiler_line(), lines);
    let generated = emit::registry(rows, lines, &lock);
    Texts { lock, generated }
}

/// Variants of one family are interchangeable, so they take the same arguments.
fn family_faults(rows: &[Row], lines: &BTreeMap<String, Line>) -> Vec<Refusal> {
    let mut first: BTreeMap<&str, &Row> = BTreeMap::new();
    let mut faults = Vec::new();
    for row in rows {
        let Some(line) = lines.get(&row.name) else { continue };
        let lead = *first.entry(&row.family).or_insert(row);
        let (a, b) = (&lines[&lead.name].reflection, &line.reflection);
        let what = if a.buffers != b.buffers {
            "the number of buffers"
        } else if a.writes != b.writes {
            "the buffers they write"
        } else if a.push_bytes != b.push_bytes {
            "the size of the push constants"
        } else {
            continue;
        };
        faults.push(Refusal::Family {
            family: row.family.clone(),
            name: lead.name.clone(),
            other: row.name.clone(),
            what,
        });
    }
    faults
}

/// Files and entry points that no row accounts for.
fn strays(tree: &Tree, rows: &[Row], refusals: &mut Vec<Refusal>) {
    let used: BTreeSet<String> = rows
        .iter()
        .filter_map(|row| source::closure(tree, &row.file).ok())
        .flat_map(|closure| closure.into_keys())
        .collect();
    match files_below(&tree.shaders(), ".slang") {
        Ok(files) => {
            for file in files {
                if used.contains(&file) {
                    unlisted_entries(tree, rows, &file, refusals);
                } else {
                    refusals.push(Refusal::OrphanShader { file });
                }
            }
        }
        Err(error) => refusals.push(Refusal::io(tree.shaders(), error)),
    }
    match files_below(&tree.spv(), "") {
        Ok(files) => {
            let names: BTreeSet<String> =
                rows.iter().map(|row| format!("{}.spv", row.name)).collect();
            let orphans = files.into_iter().filter(|file| !names.contains(file));
            refusals.extend(orphans.map(|file| Refusal::OrphanBlob { file }));
        }
        Err(error) => refusals.push(Refusal::io(tree.spv(), error)),
    }
}

fn unlisted_entries(tree: &Tree, rows: &[Row], file: &str, refusals: &mut Vec<Refusal>) {
    let path = tree.shaders().join(file);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return refusals.push(Refusal::io(path, error)),
    };
    for entry in source::entry_points(&text) {
        if !rows.iter().any(|row| row.file == file && row.entry == entry) {
            refusals.push(Refusal::UnlistedEntry { file: file.to_owned(), entry });
        }
    }
}

fn compare_lock(locked: &Locked, lines: &BTreeMap<String, Line>, refusals: &mut Vec<Refusal>) {
    let pinned = crate::compiler_line();
    if locked.compiler_line != pinned {
        refusals.push(Refusal::LockCompiler { found: locked.compiler_line.clone(), pinned });
    }
    for name in locked.rows.keys().filter(|name| !lines.contains_key(*name)) {
        refusals.push(Refusal::Unlisted { name: name.clone() });
    }
    for (name, line) in lines {
        if !locked.rows.contains_key(name) {
            refusals.push(Refusal::NotLocked { name: name.clone() });
            continue;
        }
        for (column, found) in lock::columns(line) {
            let locked = locked.column(name, column).unwrap_or_default();
            if locked != found {
                let (name, locked) = (name.clone(), locked.to_owned());
                refusals.push(Refusal::Column { name, column, locked, found });
            }
        }
    }
}

fn compare_generated(tree: &Tree, texts: &Texts, refusals: &mut Vec<Refusal>) {
    for (file, expected) in &texts.generated {
        let path = tree.generated().join(file);
        match std::fs::read_to_string(&path) {
            Ok(found) if found == *expected => {}
            Ok(found) => {
                let line = first_difference(expected, &found);
                refusals.push(Refusal::Text { path, line });
            }
            Err(error) => refusals.push(Refusal::io(path, error)),
        }
    }
    match files_below(&tree.generated(), "") {
        Ok(files) => {
            let orphans = files.into_iter().filter(|file| !texts.generated.contains_key(file));
            refusals.extend(orphans.map(|file| Refusal::OrphanGenerated { file }));
        }
        Err(error) => refusals.push(Refusal::io(tree.generated(), error)),
    }
}

fn first_difference(a: &str, b: &str) -> usize {
    a.lines().zip(b.lines()).take_while(|(a, b)| a == b).count() + 1
}
