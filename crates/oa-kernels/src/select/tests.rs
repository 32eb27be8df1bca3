//! Selection on a table made for it: floors, clamps, software devices and forced variants.

use super::*;

const fn row(family: &'static str, name: &'static str, class: Class) -> Variant {
    Variant {
        family,
        name,
        class,
        spirv: &[],
        spv_hash: "",
        needs: Caps::NONE,
        shared_bytes: 0,
        local_size: [64, 1, 1],
        buffers: 2,
        writes: 0b10,
        push_bytes: 16,
        spec_ids: &[],
        tile: [64, 1, 1],
    }
}

static TABLE: [Variant; 8] = [
    Variant {
        needs: Caps::COOPERATIVE_MATRIX.union(Caps::SUBGROUP_BASIC),
        ..row("matmul", "matmul/coopmat", Class::Subgroup)
    },
    Variant { needs: Caps::SUBGROUP_BASIC, ..row("matmul", "matmul/lanes", Class::Subgroup) },
    Variant { shared_bytes: 16 << 10, ..row("matmul", "matmul/tiled", Class::Portable) },
    row("matmul", "matmul/plain", Class::Portable),
    Variant { local_size: [8, 1, 1], ..row("matmul", "matmul/cpu", Class::Cpu) },
    Variant { local_size: [256, 1, 1], ..row("wide", "wide/subgroup", Class::Subgroup) },
    Variant { local_size: [1, 1, 128], ..row("wide", "wide/deep", Class::Portable) },
    Variant { shared_bytes: 32 << 10, ..row("wide", "wide/shared", Class::Portable) },
];

fn device(caps: Caps, software: bool) -> Capabilities {
    Capabilities { caps, software, ..Capabilities::floor() }
}

/// Selects from the table; the answer is the taken name and the refusals as text.
fn check(family: &'static str, device: &Capabilities, taken: &str, rejected: &[&str]) {
    let selection = select_among(&TABLE, family, device).unwrap();
    assert_eq!(selection.variant.name, taken);
    let texts: Vec<String> = selection.rejected.iter().map(Rejected::to_string).collect();
    assert_eq!(texts, rejected);
}

#[test]
fn the_floor_takes_the_first_portable_variant_and_explains_the_rest() {
    check(
        "matmul",
        &device(Caps::NONE, false),
        "matmul/tiled",
        &[
            "matmul/coopmat: needs subgroup-basic+cooperative-matrix",
            "matmul/lanes: needs subgroup-basic",
            "matmul/plain: fits, but matmul/tiled comes first",
            "matmul/cpu: is for software drivers",
        ],
    );
}

#[test]
fn abilities_select_the_faster_variant() {
    let both = Caps::COOPERATIVE_MATRIX.union(Caps::SUBGROUP_BASIC);
    let name = |caps| select_among(&TABLE, "matmul", &device(caps, false)).unwrap().variant.name;
    assert_eq!(name(both), "matmul/coopmat");
    assert_eq!(name(Caps::SUBGROUP_BASIC), "matmul/lanes");
    assert_eq!(name(Caps::COOPERATIVE_MATRIX), "matmul/tiled");
}

#[test]
fn a_software_device_prefers_cpu_variants() {
    check(
        "matmul",
        &device(Caps::SUBGROUP_BASIC, true),
        "matmul/cpu",
        &[
            "matmul/coopmat: needs cooperative-matrix",
            "matmul/lanes: fits, but matmul/cpu comes first",
            "matmul/tiled: fits, but matmul/cpu comes first",
            "matmul/plain: fits, but matmul/cpu comes first",
        ],
    );
}

#[test]
fn clamped_limits_change_the_choice() {
    let mut small = device(Caps::NONE, false);
    small.limits.shared_bytes = (16 << 10) - 1;
    let selection = select_among(&TABLE, "matmul", &small).unwrap();
    assert_eq!(selection.variant.name, "matmul/plain");
    let reason = Reason::Shared { needs: 16_384, has: 16_383 };
    assert!(selection.rejected.contains(&Rejected { name: "matmul/tiled", reason }));
}

#[test]
fn nothing_that_fits_is_an_error_with_every_reason() {
    let error = select_among(&TABLE, "wide", &device(Caps::NONE, false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no kernel of family wide fits this device:\n  \
         wide/subgroup: needs 256 invocations in a workgroup, the device takes 128\n  \
         wide/deep: needs a workgroup of [1, 1, 128], the device takes [128, 128, 64]\n  \
         wide/shared: needs 32768 bytes of shared memory, the device has 16384"
    );
}

#[test]
fn push_constants_are_checked() {
    let mut small = device(Caps::NONE, false);
    small.limits.push_bytes = 8;
    let reason = misfit(&TABLE[3], &small);
    assert_eq!(reason, Some(Reason::Push { needs: 16, has: 8 }));
}

#[test]
fn an_unknown_family_is_named() {
    let error = select_among(&TABLE, "fft", &device(Caps::NONE, false)).unwrap_err();
    assert_eq!(error.to_string(), "no kernel family named fft");
    assert_eq!(select("fft", &device(Caps::NONE, false)).unwrap_err(), error);
}

#[test]
fn every_variant_can_be_forced_by_name_on_any_device() {
    for variant in crate::registry() {
        let forced = select_named(variant.name).map(|found| found.name);
        assert_eq!(forced, Some(variant.name));
    }
    assert!(select_named("matmul/none").is_none());
}

#[test]
fn the_floor_device_runs_every_family_of_the_registry() {
    let floor = device(Caps::NONE, false);
    for variant in crate::registry() {
        let found = select(variant.family, &floor);
        assert!(found.is_ok(), "{}: {}", variant.family, found.unwrap_err());
    }
}

#[test]
fn errors_stay_small() {
    assert!(size_of::<Error>() <= 64);
}
