//! Examples of device choice and of the texts that a refusal shows.

use super::*;

fn report(index: u32, name: &str, kind: DeviceKind, memory_bytes: u64) -> DeviceReport {
    let info = DeviceInfo {
        name: name.to_owned(),
        kind,
        driver_id: 0,
        driver_name: String::new(),
        driver_info: String::new(),
        driver_version: 1,
        api_version: 1 << 22 | 3 << 12,
        uuid: [index as u8 + 0xa0; 16],
        vendor_id: 1,
        device_id: 2,
        memory_bytes,
    };
    let capabilities = Capabilities::floor();
    DeviceReport { index, info, capabilities, refused: Vec::new(), quirks: Vec::new() }
}

fn laptop() -> Vec<DeviceReport> {
    vec![
        report(0, "llvmpipe (LLVM 15.0.6, 256 bits)", DeviceKind::Software, 64 << 30),
        report(1, "Iris Xe Graphics", DeviceKind::Integrated, 16 << 30),
        report(2, "Radeon Small", DeviceKind::Discrete, 4 << 30),
        report(3, "Radeon Large", DeviceKind::Discrete, 8 << 30),
    ]
}

fn ask(selector: Option<&str>) -> DeviceRequest {
    DeviceRequest { selector: selector.map(str::to_owned), ..Default::default() }
}

fn check(reports: &[DeviceReport], selector: Option<&str>, index: u32) {
    let chosen = choose(reports, &ask(selector)).expect("one is usable");
    assert_eq!(reports[chosen].index, index);
}

#[test]
fn kind_counts_before_memory_before_order() {
    check(&laptop(), None, 3);
    check(&laptop()[..3], None, 2);
    check(&laptop()[..2], None, 1);
    check(&laptop()[..1], None, 0);
    let twins = [report(0, "a", DeviceKind::Discrete, 1), report(1, "b", DeviceKind::Discrete, 1)];
    check(&twins, None, 0);
}

#[test]
fn selectors_name_by_index_uuid_or_part() {
    check(&laptop(), Some("0"), 0);
    check(&laptop(), Some("large"), 3);
    check(&laptop(), Some(" IRIS "), 1);
    check(&laptop(), Some("a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2"), 2);
    check(&laptop(), Some("A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2"), 2);
}

#[test]
fn an_unknown_name_lists_the_names_there_are() {
    let error = choose(&laptop()[..2], &ask(Some("geforce"))).expect_err("there is none");
    assert_eq!(
        error.to_string(),
        "no Vulkan device matches \"geforce\"; there are:\
         \n  0: llvmpipe (LLVM 15.0.6, 256 bits) (a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0)\
         \n  1: Iris Xe Graphics (a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1)"
    );
    let error = choose(&[], &ask(Some("0"))).expect_err("there is none");
    assert_eq!(error.to_string(), "no Vulkan device matches \"0\"; there are: none");
}

#[test]
fn an_ambiguous_part_lists_the_matches() {
    let error = choose(&laptop(), &ask(Some("radeon"))).expect_err("two match");
    assert_eq!(
        error.to_string(),
        "\"radeon\" matches more than one Vulkan device:\
         \n  2: Radeon Small (a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2)\
         \n  3: Radeon Large (a3a3a3a3-a3a3-a3a3-a3a3-a3a3a3a3a3a3)"
    );
}

#[test]
fn refusals_list_every_candidate_and_reason() {
    let mut reports = laptop()[..2].to_vec();
    reports[1].capabilities.limits.shared_bytes = 8 << 10;
    reports[1].refused = vec![
        Refusal::ApiVersion { found: 1 << 22 },
        Refusal::Missing { feature: "timelineSemaphore" },
    ];
    let small = too_small(&reports[1].capabilities);
    reports[1].refused.extend(small);
    check(&reports, None, 0);
    let request = DeviceRequest { allow_software: false, ..Default::default() };
    let error = choose(&reports, &request).expect_err("nothing is left");
    assert_eq!(
        error.to_string(),
        "no Vulkan device that OA can use:\
         \n  0: llvmpipe (LLVM 15.0.6, 256 bits) (a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0)\
         \n    is a software device, which the request forbids\
         \n  1: Iris Xe Graphics (a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1)\
         \n    needs Vulkan 1.1: has 1.0\
         \n    needs timelineSemaphore: missing\
         \n    needs 16384 B of shared memory: has 8192"
    );
    let error = choose(&reports, &ask(Some("iris"))).expect_err("the named one is refused");
    assert!(error.to_string().contains("needs timelineSemaphore: missing"), "{error}");
    let software = DeviceRequest { allow_software: false, ..ask(Some("llvmpipe")) };
    assert_eq!(choose(&reports, &software).expect("it was asked for"), 0);
    assert!(choose(&[], &ask(None)).expect_err("none").to_string().contains("no driver"));
}

#[test]
fn the_floor_itself_is_accepted() {
    assert_eq!(too_small(&Capabilities::floor()), []);
}
