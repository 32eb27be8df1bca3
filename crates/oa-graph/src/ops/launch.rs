//! Launch geometry that several families share.
//!
//! A kernel's push constants begin with the sizes that decide which element, row or column a
//! workgroup works on; the functions here compute those sizes and the number of workgroups from the
//! same numbers, so the two cannot disagree. What an op adds follows as `rest`.

use super::Launch;
use oa_kernels::{Class, Variant};

/// Lanes of a portable workgroup: what a team is split from.
const LANES: usize = 128;

/// Columns that a workgroup of a column kernel covers.
const COLUMNS: usize = 8;

/// Longest row that one lane or one subgroup works on. Longer ones need more lanes, also because
/// older lavapipe leaves the loops of an invocation after 65,535 turns.
const SHORT_ROW: usize = 1024;

/// The family for rows of `cols` elements: `short`, which has cpu and subgroup variants, or `long`.
pub fn by_row_length(cols: usize, short: &'static str, long: &'static str) -> &'static str {
    if cols <= SHORT_ROW { short } else { long }
}

/// One lane per element, several elements per lane: `push` is the element count, then `rest`.
/// `tile[0]` is the number of elements of a workgroup.
pub fn elements(count: usize, rest: &[u32], variant: &Variant) -> Launch {
    let mut push = vec![count as u32];
    push.extend(rest);
    Launch { groups: count.div_ceil(variant.tile[0] as usize) as u64, push, spec: Vec::new() }
}

/// One team of lanes per row: `push` is rows, columns and lanes of a team, then `rest`.
/// A cpu or subgroup workgroup covers `tile[0]` rows, a portable one as many as it has teams.
pub fn rows(rows: usize, cols: usize, rest: &[u32], variant: &Variant) -> Launch {
    let team = team(cols);
    let covered = match variant.class {
        Class::Cpu | Class::Subgroup => variant.tile[0] as usize,
        Class::Portable => LANES / team,
    };
    let mut push = vec![rows as u32, cols as u32, team as u32];
    push.extend(rest);
    Launch { groups: rows.div_ceil(covered) as u64, push, spec: Vec::new() }
}

/// Lanes for a row: a power of two, each with at least two elements where the row is long enough.
fn team(cols: usize) -> usize {
    cols.div_ceil(2).next_power_of_two().min(LANES)
}

/// One workgroup per eight columns and per part of `chunk` rows: `push` is rows, columns and chunk,
/// then `rest`.
pub fn columns(rows: usize, cols: usize, chunk: usize, rest: &[u32]) -> Launch {
    let groups = cols.div_ceil(COLUMNS) as u64 * rows.div_ceil(chunk) as u64;
    let mut push = vec![rows as u32, cols as u32, chunk as u32];
    push.extend(rest);
    Launch { groups, push, spec: Vec::new() }
}

/// One workgroup that does everything.
pub fn single(push: Vec<u32>) -> Launch {
    Launch { groups: 1, push, spec: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_are_powers_of_two_that_fit_a_workgroup() {
        for (cols, lanes) in
            [(1, 1), (2, 1), (3, 2), (32, 16), (127, 64), (256, 128), (50_257, 128)]
        {
            assert_eq!(team(cols), lanes, "{cols} columns");
        }
    }
}
