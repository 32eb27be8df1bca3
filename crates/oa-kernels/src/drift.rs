//! The committed kernels belong together: sources, blobs, lock and registry, without a compiler.

use oa_shader_catalog::lock::Locked;
use oa_shader_catalog::{Tree, drift};

fn tree() -> Tree {
    Tree::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn sources_blobs_lock_and_registry_belong_together() {
    let refusals = drift::check(&tree());
    let list: Vec<String> = refusals.iter().map(|refusal| format!("\n  {refusal}")).collect();
    assert!(list.is_empty(), "run `{}`:{}", oa_shader_catalog::COMMAND, list.concat());
}

#[test]
fn the_registry_says_what_the_lock_says() {
    let text = std::fs::read_to_string(tree().lock()).unwrap();
    assert_eq!(crate::LOCK_HASH, oa_shader_catalog::short_hash(text.as_bytes()));
    let locked = Locked::parse(&text);
    assert_eq!(locked.rows.len(), crate::registry().len());
    for variant in crate::registry() {
        let column = |column| locked.column(variant.name, column).unwrap_or_default();
        let hash = oa_shader_catalog::short_hash(variant.spirv);
        assert_eq!(column("spv"), hash, "{}: embedded blob", variant.name);
        assert_eq!(variant.spv_hash, hash, "{}", variant.name);
        // The lock prints abilities with the names of the catalog, the registry with those of oa-vk.
        assert_eq!(column("needs"), variant.needs.to_string(), "{}", variant.name);
        assert_eq!(column("push"), variant.push_bytes.to_string(), "{}", variant.name);
    }
}
