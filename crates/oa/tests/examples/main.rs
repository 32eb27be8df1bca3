//! The classifier examples, with fewer steps: they learn, and what has not learned is found out.
//!
//! They need a device and say so loudly where there is none, unless `OA_REQUIRE_DEVICE` is set, as
//! it is where a driver was prepared: then its absence fails them.
#![expect(clippy::unwrap_used, reason = "everything here is test code")]

#[path = "../../examples/image_classifier.rs"]
#[expect(dead_code, reason = "the example's own main is not called here")]
mod image_classifier;
#[path = "../../examples/mlp_classifier.rs"]
#[expect(dead_code, reason = "the example's own main is not called here")]
mod mlp_classifier;

use oa::Engine;

fn engine() -> Option<Engine> {
    match Engine::new() {
        Err(error) if std::env::var_os("OA_REQUIRE_DEVICE").is_none() => {
            eprintln!("SKIPPED: no Vulkan device: {error}");
            None
        }
        engine => Some(engine.unwrap()),
    }
}

#[test]
fn a_network_tells_spirals_apart_once_it_has_learned() {
    let Some(engine) = engine() else { return };
    let chance = mlp_classifier::learn(&engine, 0).unwrap();
    assert!(chance < 0.75, "a fresh network is right in {chance} of all cases");
    let learned = mlp_classifier::learn(&engine, 400).unwrap();
    assert!(learned > 0.95, "after 400 steps it is right in {learned} of all cases");
}

#[test]
fn a_convolutional_network_reads_digits_once_it_has_learned() {
    let Some(engine) = engine() else { return };
    let fresh = image_classifier::learn(&engine, 0).unwrap();
    assert!(fresh.accuracy < 0.4, "a fresh network reads {} of the digits", fresh.accuracy);
    let learned = image_classifier::learn(&engine, 60).unwrap();
    assert!(learned.accuracy > 0.85, "after 60 steps it reads {} of them", learned.accuracy);
    assert!(fresh.reloads && learned.reloads, "a saved network must give the same answers");
}
