//! Brings blobs, lock and registry up to date with the sources.
//!
//! Only rows whose source hash changed, or whose blob is not the locked one, are compiled. A kernel
//! that does not compile keeps its old blob, and everything else is still written: one broken
//! shader must not hold up the others. The lock then shows the old source hash, so the drift test
//! fails until the shader is repaired.

use std::collections::BTreeMap;
use std::path::Path;

use oa_shader_catalog::lock::Locked;
use oa_shader_catalog::tree::files_below;
use oa_shader_catalog::{
    Refusal, Row, Tree, compiler_line, drift, reflect, short_hash, source, table,
};

use crate::compile::Compiler;
use crate::validate::Validator;

/// What a run did.
#[derive(Debug, Default)]
pub struct Summary {
    /// Kernels compiled.
    pub compiled: usize,
    /// Kernels that were up to date.
    pub fresh: usize,
    /// Files written or removed.
    pub changed: usize,
    /// What still has to be repaired.
    pub refusals: Vec<Refusal>,
}

/// Compiles what is stale and writes everything that follows from it.
pub fn bless(
    tree: &Tree,
    compiler: &Compiler,
    validator: &Validator,
    scratch: &Path,
) -> Result<Summary, Refusal> {
    let rows = table::read(tree)?;
    let locked = match std::fs::read_to_string(tree.lock()) {
        Ok(text) => Locked::parse(&text),
        Err(_) => Locked::default(),
    };
    let mut summary = Summary::default();
    let mut failed = BTreeMap::new();
    for row in &rows {
        if is_fresh(tree, row, &locked) {
            summary.fresh += 1;
            continue;
        }
        match compile_row(tree, row, compiler, validator, scratch) {
            Ok(bytes) => {
                summary.compiled += 1;
                summary.changed += usize::from(write(&tree.blob(&row.name), &bytes)?);
            }
            Err(refusal) => {
                failed.insert(row.name.clone(), refusal);
            }
        }
    }
    write_texts(tree, &rows, &locked, &failed, &mut summary)?;
    let broken: Vec<String> = failed.keys().cloned().collect();
    summary.refusals = failed.into_values().collect();
    let drift = drift::check(tree);
    // Whatever is wrong with a kernel that does not compile was said above.
    let news = drift.into_iter().filter(|refusal| {
        let text = refusal.to_string();
        !broken.iter().any(|name| text.starts_with(&format!("{name}:")))
    });
    summary.refusals.extend(news);
    Ok(summary)
}

fn is_fresh(tree: &Tree, row: &Row, locked: &Locked) -> bool {
    let Ok(closure) = source::closure(tree, &row.file) else { return false };
    let src = source::hash(&compiler_line(), row, &closure);
    let Ok(bytes) = std::fs::read(tree.blob(&row.name)) else { return false };
    locked.column(&row.name, "src") == Some(&src)
        && locked.column(&row.name, "spv") == Some(&short_hash(&bytes))
}

/// Compiles, reflects and validates one kernel.
pub fn compile_row(
    tree: &Tree,
    row: &Row,
    compiler: &Compiler,
    validator: &Validator,
    scratch: &Path,
) -> Result<Vec<u8>, Refusal> {
    let bytes = compiler.compile(tree, row)?;
    let file = scratch.join(format!("{}.spv", row.name));
    write(&file, &bytes)?;
    let facts = reflect::reflect(row, &bytes)?;
    validator.validate(row, &facts, &file)?;
    Ok(bytes)
}

fn write_texts(
    tree: &Tree,
    rows: &[Row],
    locked: &Locked,
    failed: &BTreeMap<String, Refusal>,
    summary: &mut Summary,
) -> Result<(), Refusal> {
    let (mut lines, _) = drift::lines(tree, rows, compiler_line());
    for name in failed.keys() {
        // The old blob stays, under the source hash it was made from.
        if let (Some(line), Some(src)) = (lines.get_mut(name), locked.column(name, "src")) {
            line.src = src.to_owned();
        }
    }
    let listed: Vec<Row> =
        rows.iter().filter(|row| lines.contains_key(&row.name)).cloned().collect();
    let texts = drift::texts(&listed, &lines);
    summary.changed += usize::from(write(&tree.lock(), texts.lock.as_bytes())?);
    for (file, text) in &texts.generated {
        summary.changed += usize::from(write(&tree.generated().join(file), text.as_bytes())?);
    }
    for file in below(&tree.generated())? {
        if !texts.generated.contains_key(&file) {
            summary.changed += usize::from(remove(&tree.generated().join(file))?);
        }
    }
    for file in below(&tree.spv())? {
        if !rows.iter().any(|row| file == format!("{}.spv", row.name)) {
            summary.changed += usize::from(remove(&tree.spv().join(file))?);
        }
    }
    Ok(())
}

fn below(folder: &Path) -> Result<Vec<String>, Refusal> {
    files_below(folder, "").map_err(|error| Refusal::io(folder, error))
}

fn remove(path: &Path) -> Result<bool, Refusal> {
    std::fs::remove_file(path).map_err(|error| Refusal::io(path, error))?;
    Ok(true)
}

/// Replaces a file as a whole, and only when its contents change; true when they did.
pub fn write(path: &Path, bytes: &[u8]) -> Result<bool, Refusal> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let fault = |error| Refusal::io(path, error);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fault)?;
    }
    let part = path.with_extension("part");
    std::fs::write(&part, bytes).map_err(fault)?;
    std::fs::rename(&part, path).map_err(fault)?;
    Ok(true)
}
