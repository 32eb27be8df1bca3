//! The committed kernels belong together: sources, blobs, lock and registry, without a compiler.
//!
//! The first test is the guard itself. The others spoil a copy of the kernel set in every way that
//! has to be noticed, and read the refusal.

use std::path::{Path, PathBuf};

use oa_shader_catalog::lock::Locked;
use oa_shader_catalog::{Tree, compiler_line, drift, short_hash, source, table};

fn tree() -> Tree {
    Tree::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn sources_blobs_lock_and_registry_belong_together() {
    let list = refusals(&tree());
    assert!(list.is_empty(), "run `{}`:\n{}", oa_shader_catalog::COMMAND, list.join("\n"));
}

#[test]
fn the_registry_says_what_the_lock_says() {
    let text = std::fs::read_to_string(tree().lock()).unwrap();
    assert_eq!(crate::LOCK_HASH, short_hash(text.as_bytes()));
    let locked = Locked::parse(&text);
    assert_eq!(locked.rows.len(), crate::registry().len());
    for variant in crate::registry() {
        let column = |column| locked.column(variant.name, column).unwrap_or_default();
        let hash = short_hash(variant.spirv);
        assert_eq!(column("spv"), hash, "{}: embedded blob", variant.name);
        assert_eq!(variant.spv_hash, hash, "{}", variant.name);
        // The lock prints abilities with the catalog's names, the registry with those of oa-vk.
        assert_eq!(column("needs"), variant.needs.to_string(), "{}", variant.name);
        assert_eq!(column("push"), variant.push_bytes.to_string(), "{}", variant.name);
    }
}

fn refusals(tree: &Tree) -> Vec<String> {
    drift::check(tree).iter().map(ToString::to_string).collect()
}

/// A copy of the kernel set that a test may spoil; removed when dropped.
struct Copy {
    tree: Tree,
    /// What was wrong before the test spoiled anything: the first test reports that.
    before: Vec<String>,
}

impl Copy {
    fn new(name: &str) -> Copy {
        let place = std::env::temp_dir().join(format!("oa-drift-{name}-{}", std::process::id()));
        let (from, tree) = (tree(), Tree::new(&place));
        copy_folder(&from.shaders(), &tree.shaders());
        copy_folder(&from.spv(), &tree.spv());
        copy_folder(&from.generated(), &tree.generated());
        let before = refusals(&tree);
        Copy { tree, before }
    }

    /// What is refused now and was not before.
    fn refusals(&self) -> Vec<String> {
        let mut now = refusals(&self.tree);
        now.retain(|refusal| !self.before.contains(refusal));
        now
    }

    /// Changes a text file and returns what is refused afterwards.
    fn after(&self, path: PathBuf, edit: impl Fn(&str) -> String) -> Vec<String> {
        let old = std::fs::read_to_string(&path).unwrap();
        let new = edit(&old);
        assert_ne!(old, new, "{} was to be changed", path.display());
        std::fs::write(path, new).unwrap();
        self.refusals()
    }

    /// A kernel that imports a module, and that module's path below `shaders/`.
    fn importer(&self) -> (String, String) {
        let rows = table::read(&self.tree).unwrap();
        let mut found = rows.iter().filter_map(|row| {
            let closure = source::closure(&self.tree, &row.file).unwrap();
            let module = closure.into_keys().find(|file| file.starts_with("lib/"))?;
            Some((row.name.clone(), module))
        });
        found.next().expect("some kernel imports a module")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.tree.root());
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &place),
            false => drop(std::fs::copy(entry.path(), place).unwrap()),
        }
    }
}

#[track_caller]
fn contains(refusals: &[String], parts: &[&str]) {
    let hit = refusals.iter().any(|refusal| parts.iter().all(|part| refusal.contains(part)));
    assert!(hit, "nothing says {parts:?} in\n{}", refusals.join("\n"));
}

#[test]
fn a_changed_import_is_refused() {
    let copy = Copy::new("import");
    let (name, module) = copy.importer();
    let path = copy.tree.shaders().join(module);
    let refusals = copy.after(path, |text| format!("{text}// a remark\n"));
    contains(&refusals, &[&format!("{name}: "), "kernels.lock says src="]);
    assert!(refusals.iter().all(|refusal| refusal.contains(" src=") || refusal.contains("writes")));
}

#[test]
fn a_hand_edited_blob_is_refused() {
    let copy = Copy::new("blob");
    let (name, _) = copy.importer();
    let path = copy.tree.blob(&name);
    let sound = std::fs::read(&path).unwrap();
    for at in [9, sound.len() / 2, sound.len() - 1] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        contains(&copy.refusals(), &[&name]);
    }
    std::fs::remove_file(&path).unwrap();
    contains(&copy.refusals(), &[&name, "does not exist"]);
}

#[test]
fn an_orphan_file_is_refused() {
    let copy = Copy::new("orphan");
    let row = table::read(&copy.tree).unwrap().remove(0);
    std::fs::copy(copy.tree.blob(&row.name), copy.tree.blob("left/over")).unwrap_err();
    std::fs::create_dir_all(copy.tree.spv().join("left")).unwrap();
    std::fs::copy(copy.tree.blob(&row.name), copy.tree.blob("left/over")).unwrap();
    std::fs::write(copy.tree.shaders().join("lib/stray.slang"), "module stray;\n").unwrap();
    std::fs::write(copy.tree.generated().join("stray.rs"), "").unwrap();
    let refusals = copy.refusals();
    contains(&refusals, &["orphan blob spv/left/over.spv"]);
    contains(&refusals, &["orphan shader shaders/lib/stray.slang"]);
    contains(&refusals, &["orphan generated file stray.rs"]);
    assert_eq!(refusals.len(), 3, "{refusals:?}");
}

#[test]
fn a_missing_row_is_refused() {
    let copy = Copy::new("row");
    let row = table::read(&copy.tree).unwrap().remove(0);
    let without_first = |text: &str| {
        let (head, tail) = text.split_once("[[kernel]]").unwrap();
        let rest = tail.split_once("[[kernel]]").map_or("", |(_, rest)| rest);
        format!("{head}[[kernel]]{rest}")
    };
    let refusals = copy.after(copy.tree.table(), without_first);
    contains(&refusals, &[&format!("kernels.lock lists {}", row.name)]);
    contains(&refusals, &[&format!("orphan blob spv/{}.spv", row.name)]);
    contains(&refusals, &[&format!("shaders/{}", row.file), "no row"]);
}

#[test]
fn a_missing_line_or_a_changed_column_of_the_lock_is_refused() {
    let copy = Copy::new("line");
    let name = table::read(&copy.tree).unwrap().remove(0).name;
    let lock = std::fs::read_to_string(copy.tree.lock()).unwrap();
    let line = lock.lines().find(|line| line.starts_with(&name)).unwrap();
    let refusals = copy.after(copy.tree.lock(), |text| text.replace(&format!("{line}\n"), ""));
    contains(&refusals, &[&format!("{name}: no line in kernels.lock")]);
    let edited = line.replacen("  shared=", "  shared=9", 1);
    std::fs::write(copy.tree.lock(), lock.replace(line, &edited)).unwrap();
    contains(&copy.refusals(), &[&name, "shared=9"]);
    std::fs::write(copy.tree.lock(), lock.replace(line, &format!("{line} "))).unwrap();
    contains(&copy.refusals(), &["kernels.lock is not what"]);
}

#[test]
fn another_compiler_version_is_refused() {
    let copy = Copy::new("compiler");
    let other = compiler_line().replace("slang 2", "slang 1");
    let running = drift::same_compiler(&copy.tree, &other, true).unwrap_err().to_string();
    contains(&[running], &["the running compiler is", &other]);
    assert!(drift::same_compiler(&copy.tree, &compiler_line(), false).is_ok());
    let refusals = copy.after(copy.tree.lock(), |text| text.replace(&compiler_line(), &other));
    contains(&refusals, &["kernels.lock was written by", &other, "needs --bless"]);
    let check = drift::same_compiler(&copy.tree, &compiler_line(), false).unwrap_err().to_string();
    contains(&[check], &["kernels.lock was written by", &other]);
    assert!(drift::same_compiler(&copy.tree, &compiler_line(), true).is_ok());
}

#[test]
fn an_edited_registry_is_refused() {
    let copy = Copy::new("registry");
    let path = copy.tree.generated().join("mod.rs");
    let refusals = copy.after(path, |text| text.replace("LOCK_HASH", "LOCK_SUM"));
    contains(&refusals, &["mod.rs is not what", "first difference in line"]);
    assert_eq!(refusals.len(), 1, "{refusals:?}");
}
