//! `shaders/kernels.toml`: the list of all kernels in order of priority.
//!
//! A row says where a kernel comes from and what it is for. What a kernel needs of a device is not
//! here: that is reflected from its module.

use serde::Deserialize;

use crate::error::Refusal;
use crate::tree::Tree;

/// Which devices a variant is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Few, fat workgroups without shared memory: for software drivers.
    Cpu,
    /// Uses subgroup operations.
    Subgroup,
    /// Runs on the minimum profile.
    Portable,
}

impl Class {
    /// Name of the variant of `oa_kernels::Class`.
    pub fn rust_name(self) -> &'static str {
        match self {
            Class::Cpu => "Cpu",
            Class::Subgroup => "Subgroup",
            Class::Portable => "Portable",
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Unique name `folder/variant`; the blob lies at `spv/<name>.spv`.
    pub name: String,
    /// What the kernel computes; all variants of a family take the same arguments.
    pub family: String,
    /// Which devices it is written for.
    pub class: Class,
    /// Source file, relative to `shaders/`.
    pub file: String,
    /// Entry point in that file.
    pub entry: String,
    /// What one workgroup covers on each problem axis; the family says which axes these are.
    pub tile: [u32; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    kernel: Vec<Row>,
}

/// Reads the table of `tree`; the order of rows is the order of priority.
pub fn read(tree: &Tree) -> Result<Vec<Row>, Refusal> {
    let path = tree.table();
    let text = std::fs::read_to_string(&path).map_err(|error| Refusal::io(path, error))?;
    parse(&text)
}

/// Parses the text of a table and checks its rules.
pub fn parse(text: &str) -> Result<Vec<Row>, Refusal> {
    let rows = toml::from_str::<Document>(text)?.kernel;
    for (index, row) in rows.iter().enumerate() {
        let broken = broken_rule(row).or_else(|| {
            let seen = rows[..index].iter().any(|other| other.name == row.name);
            seen.then_some("the name is used twice")
        });
        if let Some(rule) = broken {
            return Err(Refusal::Row { name: row.name.clone(), rule });
        }
    }
    Ok(rows)
}

fn broken_rule(row: &Row) -> Option<&'static str> {
    let word = |text: &str| {
        let lead = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        lead && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let parts: Vec<&str> = row.name.split('/').collect();
    if parts.len() != 2 || !parts.iter().all(|part| word(part)) || parts[0] == "mod" {
        return Some("a name is folder/variant in lower case letters, digits and underscores");
    }
    if !word(&row.family) {
        return Some("a family is written in lower case letters, digits and underscores");
    }
    let stem = row.file.strip_suffix(".slang");
    if !stem.is_some_and(|stem| stem.split('/').all(word)) || row.file.starts_with("lib/") {
        return Some("file is the path of a .slang file below shaders/, outside lib/");
    }
    if row.entry.is_empty() || !row.entry.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Some("entry is the name of a function");
    }
    if row.tile.contains(&0) {
        return Some("tile has no zero");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[kernel]]\nname = \"pointwise/gelu\"\nfamily = \"gelu\"\n\
        class = \"portable\"\nfile = \"pointwise/unary.slang\"\nentry = \"gelu\"\ntile = [64, 1, 1]\n";

    #[test]
    fn reads_a_row() {
        let rows = parse(GOOD).expect("a good table");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].class, Class::Portable);
        assert_eq!(rows[0].tile, [64, 1, 1]);
    }

    #[test]
    fn refuses_bad_rows() {
        let cases = [
            (GOOD.replace("pointwise/gelu", "gelu"), "folder/variant"),
            (GOOD.replace("pointwise/gelu", "../gelu"), "folder/variant"),
            (GOOD.replace("unary.slang", "unary.glsl"), ".slang"),
            (GOOD.replace("pointwise/unary", "../unary"), ".slang"),
            (GOOD.replace("[64, 1, 1]", "[0, 1, 1]"), "zero"),
            (GOOD.replace("portable", "fast"), "unknown variant"),
            (GOOD.replace("tile", "needs = \"f16\"\ntile"), "unknown field"),
            (format!("{GOOD}{GOOD}"), "twice"),
        ];
        for (text, expected) in cases {
            let message = parse(&text).expect_err("a bad table").to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
