//! Recompiles every kernel and compares the bytes with the committed ones.
//!
//! Nothing below the sources is written; the recompiled modules lie in the scratch folder.

use std::path::Path;

use oa_shader_catalog::{Refusal, Tree, drift, short_hash, table};

use crate::bless::compile_row;
use crate::compile::Compiler;
use crate::validate::Validator;

/// Everything that does not fit; empty when the committed set is what the sources give.
pub fn check(
    tree: &Tree,
    compiler: &Compiler,
    validator: &Validator,
    scratch: &Path,
) -> Vec<Refusal> {
    let mut refusals = drift::check(tree);
    let rows = match table::read(tree) {
        Ok(rows) => rows,
        Err(_) => return refusals,
    };
    for row in &rows {
        let compiled = match compile_row(tree, row, compiler, validator, scratch) {
            Ok(bytes) => short_hash(&bytes),
            Err(refusal) => {
                refusals.push(refusal);
                continue;
            }
        };
        // A missing blob is among the drift already.
        let Ok(committed) = std::fs::read(tree.blob(&row.name)) else { continue };
        let committed = short_hash(&committed);
        if compiled != committed {
            refusals.push(Refusal::Bytes { name: row.name.clone(), found: compiled, committed });
        }
    }
    refusals
}
