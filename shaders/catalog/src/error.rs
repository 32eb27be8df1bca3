//! Why a kernel set is refused.
//!
//! A [`Refusal`] is one broken rule with the names it concerns. Checks collect all of them, so that
//! one run shows everything that has to be repaired.

use std::path::PathBuf;

/// One broken rule of the kernel set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `kernels.toml` is no table of kernels.
    #[error("kernels.toml: {0}")]
    Table(#[from] toml::de::Error),
    /// A row of the table breaks a rule.
    #[error("kernels.toml, {name}: {rule}")]
    Row {
        /// Name of the row.
        name: String,
        /// What is wrong.
        rule: &'static str,
    },
    /// A shader imports a module that does not exist.
    #[error("shaders/{file} imports {module}, and shaders/{path} does not exist")]
    Import {
        /// The importing file, relative to `shaders/`.
        file: String,
        /// The module as written.
        module: String,
        /// Where it should lie.
        path: String,
    },
    /// A shader uses something the import closure cannot follow.
    #[error("shaders/{file}:{line}: {what} is not used in OA's shaders")]
    Preprocessor {
        /// The file, relative to `shaders/`.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What was found.
        what: &'static str,
    },
    /// The compiler read other files than the import scan found.
    #[error("{name}: the compiler read {compiler:?}, the import scan found {scan:?}")]
    Closure {
        /// Name of the kernel.
        name: String,
        /// Files the compiler read.
        compiler: Vec<String>,
        /// Files of the scan.
        scan: Vec<String>,
    },
    /// The bytes are no SPIR-V module.
    #[error("{name}: no readable SPIR-V: {problem}")]
    Parse {
        /// Name of the kernel.
        name: String,
        /// What the reader stumbled over.
        problem: String,
    },
    /// A module breaks the kernel convention.
    #[error("{name}: {problem}")]
    Module {
        /// Name of the kernel.
        name: String,
        /// What is wrong.
        problem: crate::reflect::Problem,
    },
    /// Variants of one family do not take the same arguments.
    #[error("{name} and {other} are of family {family} and differ in {what}")]
    Family {
        /// The family.
        family: String,
        /// First variant.
        name: String,
        /// The variant that differs from it.
        other: String,
        /// Which argument differs.
        what: &'static str,
    },
    /// A row has no blob.
    #[error("{name}: listed in kernels.toml, but {} does not exist", path.display())]
    NoBlob {
        /// Name of the kernel.
        name: String,
        /// Where its blob should lie.
        path: PathBuf,
    },
    /// A blob belongs to no row.
    #[error("orphan blob spv/{file}: no row of kernels.toml names it")]
    OrphanBlob {
        /// The blob, relative to `spv/`.
        file: String,
    },
    /// A shader or module that no kernel uses.
    #[error("orphan shader shaders/{file}: no row of kernels.toml uses it")]
    OrphanShader {
        /// The file, relative to `shaders/`.
        file: String,
    },
    /// An entry point that no row compiles.
    #[error("shaders/{file}: entry point {entry} has no row in kernels.toml")]
    UnlistedEntry {
        /// The file, relative to `shaders/`.
        file: String,
        /// The entry point.
        entry: String,
    },
    /// A generated file that is no longer generated.
    #[error("orphan generated file {file}")]
    OrphanGenerated {
        /// The file, relative to `generated/`.
        file: String,
    },
    /// The compiler that runs is not the pinned one.
    #[error("the running compiler is `{found}`, the pinned one is `{pinned}`")]
    Compiler {
        /// The compiler line of the running compiler.
        found: String,
        /// The pinned compiler line.
        pinned: String,
    },
    /// The lock was written by a compiler other than the pinned one.
    #[error(
        "kernels.lock was written by `{found}`, the pinned compiler is `{pinned}`: needs --bless"
    )]
    LockCompiler {
        /// The compiler line of the lock.
        found: String,
        /// The pinned compiler line.
        pinned: String,
    },
    /// A row is missing in the lock.
    #[error("{name}: no line in kernels.lock")]
    NotLocked {
        /// Name of the kernel.
        name: String,
    },
    /// The lock has a line that no row explains.
    #[error("kernels.lock lists {name}, kernels.toml does not")]
    Unlisted {
        /// Name of the line.
        name: String,
    },
    /// A column of the lock does not fit what is on disk.
    #[error("{name}: kernels.lock says {column}={locked}, the files say {column}={found}")]
    Column {
        /// Name of the kernel.
        name: String,
        /// Which column.
        column: &'static str,
        /// Value in the lock.
        locked: String,
        /// Value recomputed.
        found: String,
    },
    /// A generated file differs from its recomputed text.
    #[error("{} is not what `{}` writes (first difference in line {line})", path.display(), crate::COMMAND)]
    Text {
        /// The file.
        path: PathBuf,
        /// First line that differs, from 1.
        line: usize,
    },
    /// Recompiling gave other bytes than the committed ones.
    #[error("{name}: recompiled to {found}, the committed blob is {committed}")]
    Bytes {
        /// Name of the kernel.
        name: String,
        /// Hash of the recompiled bytes.
        found: String,
        /// Hash of the committed bytes.
        committed: String,
    },
    /// The compiler or the validator refused a kernel.
    #[error("{name}: {stage}:\n{message}")]
    Tool {
        /// Name of the kernel.
        name: String,
        /// Which tool.
        stage: &'static str,
        /// Its own words.
        message: String,
    },
}

impl Refusal {
    /// An input or output fault at `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Refusal {
        Refusal::Io { path: path.into(), source }
    }
}
