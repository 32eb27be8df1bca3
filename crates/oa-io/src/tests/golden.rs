//! Files of released versions: they stay readable, and version 3 is still written the same.
//!
//! `OA_BLESS=1` writes files that are missing; it never replaces one.

use super::fixture::{self, bits, file_of, load};
use oa_ml::Checkpoint;
use std::path::Path;

fn check(name: &str, checkpoint: &Checkpoint) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/oam").join(name);
    if !path.exists() && std::env::var_os("OA_BLESS").is_some() {
        crate::save(&path, checkpoint).unwrap();
    }
    let golden = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("golden file {name}: {error}; OA_BLESS=1 writes it"));
    let loaded = load(&golden).unwrap();
    assert_eq!(bits(&loaded), bits(checkpoint));
    assert_eq!(format!("{loaded:?}"), format!("{checkpoint:?}"));
    assert_eq!(file_of(checkpoint), golden, "version 3 is written as it was released");
}

#[test]
fn golden_files_of_version_3_load_and_are_written_again_byte_for_byte() {
    check("v3_rnn_training.oam", &fixture::rnn());
    check("v3_transformer_training.oam", &fixture::transformer());
    check("v3_contract_transformer.oam", &fixture::bare());
    check("v3_char_gru.oam", &fixture::character());
    check("v3_bpe_contract_transformer.oam", &fixture::bpe());
}
