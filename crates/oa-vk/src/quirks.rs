//! Driver faults that are known, as a table: what matches, what goes wrong, what is done.
//!
//! A row is applied once, to the capabilities of a device when it is probed; nothing later asks
//! which driver it runs on. Rows describe faults of drivers; limits that a driver reports honestly
//! need none. Any row can be left off (`OA_IGNORE_QUIRKS`), to see whether it is still needed.

use crate::caps::{Capabilities, Caps};
use crate::choose::DeviceInfo;

/// One known fault.
#[derive(Debug)]
pub struct Quirk {
    /// Name of the row, for reports and for leaving it off.
    pub id: &'static str,
    /// Which devices it concerns.
    pub applies: Match,
    /// What goes wrong.
    pub symptom: &'static str,
    /// What is done about it.
    pub action: Action,
    /// Where it was reported or read.
    pub evidence: &'static str,
}

/// Which devices a row concerns: every condition that is set must hold.
#[derive(Debug)]
pub struct Match {
    /// `VkDriverId` of the driver.
    pub driver_id: Option<u32>,
    /// Vendor number.
    pub vendor_id: Option<u32>,
    /// Parts of the device's name of which one must occur; empty matches every name.
    pub names: &'static [&'static str],
    /// Parts of the driver's description of which one must occur; empty matches every text.
    pub drivers: &'static [&'static str],
    /// Driver versions below this one, in Vulkan's packing.
    pub driver_below: Option<u32>,
    /// Vulkan versions below this one, in Vulkan's packing.
    pub api_below: Option<u32>,
    /// A condition on the capabilities.
    pub when: Option<fn(&Capabilities) -> bool>,
}

/// What a row changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Takes abilities away.
    Disable(Caps),
    /// Lowers the largest storage-buffer range, bytes.
    StorageRange(u64),
    /// Lowers the largest allocation, bytes.
    Allocation(u64),
    /// Bounds the turns that all loops of one invocation take together.
    LoopTurns(u32),
    /// Takes the device only when there is no other.
    TakeLast,
}

impl Quirk {
    /// True when the row puts a device behind all others that are no software devices.
    pub fn demotes(&self) -> bool {
        self.action == Action::TakeLast
    }

    fn concerns(&self, info: &DeviceInfo, capabilities: &Capabilities) -> bool {
        let rule = &self.applies;
        let occurs = |parts: &[&str], text: &str| {
            parts.is_empty() || parts.iter().any(|part| text.contains(part))
        };
        rule.driver_id.is_none_or(|id| id == info.driver_id)
            && rule.vendor_id.is_none_or(|id| id == info.vendor_id)
            && occurs(rule.names, &info.name)
            && occurs(rule.drivers, &info.driver_info)
            && rule.driver_below.is_none_or(|version| info.driver_version < version)
            && rule.api_below.is_none_or(|version| info.api_version < version)
            && rule.when.is_none_or(|when| when(capabilities))
    }

    fn apply(&self, capabilities: &mut Capabilities) {
        let limits = &mut capabilities.limits;
        match self.action {
            Action::Disable(caps) => capabilities.caps = capabilities.caps.without(caps),
            Action::StorageRange(most) => {
                limits.storage_range_bytes = limits.storage_range_bytes.min(most);
            }
            Action::Allocation(most) => limits.allocation_bytes = limits.allocation_bytes.min(most),
            Action::LoopTurns(most) => limits.loop_turns = limits.loop_turns.min(most),
            Action::TakeLast => {}
        }
    }
}

/// Applies every row that concerns a device and is not in `ignore`, in the order of the table.
/// Returns those rows.
pub fn apply(
    info: &DeviceInfo,
    capabilities: &mut Capabilities,
    ignore: &[String],
) -> Vec<&'static Quirk> {
    let ignored = |quirk: &Quirk| ignore.iter().any(|id| id == "all" || id == quirk.id);
    let mut applied = Vec::new();
    for quirk in QUIRKS {
        if !ignored(quirk) && quirk.concerns(info, capabilities) {
            quirk.apply(capabilities);
            applied.push(quirk);
        }
    }
    applied
}

const ANY: Match = Match {
    driver_id: None,
    vendor_id: None,
    names: &[],
    drivers: &[],
    driver_below: None,
    api_below: None,
    when: None,
};

const AMD_PROPRIETARY: Option<u32> = Some(1);
const INTEL_MESA: Option<u32> = Some(6);
const IMAGINATION: Option<u32> = Some(7);
const QUALCOMM: Option<u32> = Some(8);
const ARM: Option<u32> = Some(9);
const LAVAPIPE: Option<u32> = Some(13);
const MOLTENVK: Option<u32> = Some(14);
const TURNIP: Option<u32> = Some(18);
const SAMSUNG: Option<u32> = Some(21);
const DOZEN: Option<u32> = Some(23);
const KOSMICKRISP: Option<u32> = Some(28);

const SUBGROUPS: Caps = Caps::SUBGROUP_BASIC
    .union(Caps::SUBGROUP_ARITHMETIC)
    .union(Caps::SUBGROUP_SHUFFLE)
    .union(Caps::SUBGROUP_BALLOT);

/// The largest multiple of 4 below 2 GiB.
const SIGNED_RANGE: u64 = (1 << 31) - 4;

/// The table, in the order in which rows are applied.
pub static QUIRKS: &[Quirk] = &[
    Quirk {
        id: "adreno-allocation",
        applies: Match { driver_id: QUALCOMM, ..ANY },
        symptom: "a single allocation fails near 1 GiB although memory is free",
        action: Action::Allocation(512 << 20),
        evidence: "llama.cpp#5186, llama.cpp#8743",
    },
    Quirk {
        id: "adreno-coopmat",
        applies: Match { driver_id: QUALCOMM, ..ANY },
        symptom: "cooperative matrices of 8xx parts miscompute sizes and indices",
        action: Action::Disable(Caps::COOPERATIVE_MATRIX),
        evidence: "ncnn#6972",
    },
    Quirk {
        id: "adreno-shuffle",
        applies: Match { driver_id: QUALCOMM, ..ANY },
        symptom: "a matrix product by subgroup shuffles is wrong on 640 and 840",
        action: Action::Disable(Caps::SUBGROUP_SHUFFLE),
        evidence: "ncnn#6778",
    },
    Quirk {
        id: "turnip-shuffle",
        applies: Match { driver_id: TURNIP, ..ANY },
        symptom: "a matrix product by subgroup shuffles is wrong on 640",
        action: Action::Disable(Caps::SUBGROUP_SHUFFLE),
        evidence: "ncnn#6778",
    },
    Quirk {
        id: "adreno-830-reduce",
        applies: Match { driver_id: QUALCOMM, names: &["Adreno (TM) 830"], ..ANY },
        symptom: "kernels that reduce by subgroups alone are refused with VK_ERROR_UNKNOWN",
        action: Action::Disable(Caps::SUBGROUP_ARITHMETIC),
        evidence: "llama.cpp#28635, llama.cpp#12421",
    },
    Quirk {
        id: "adreno-f16",
        applies: Match {
            driver_id: QUALCOMM,
            when: Some(|c| !c.caps.covers(Caps::F16_STORAGE)),
            ..ANY
        },
        symptom: "half arithmetic is wrong on drivers without half storage",
        action: Action::Disable(Caps::F16_ARITHMETIC),
        evidence: "ncnn src/gpu.cpp",
    },
    Quirk {
        id: "mali-range",
        applies: Match { driver_id: ARM, ..ANY },
        symptom: "storage buffers above 256 MiB misbehave on job-manager parts",
        action: Action::StorageRange(256 << 20),
        evidence: "angle vk_renderer.cpp",
    },
    Quirk {
        id: "xclipse-coopmat",
        applies: Match { driver_id: SAMSUNG, ..ANY },
        symptom: "cooperative-matrix loops crash or miscompile",
        action: Action::Disable(Caps::COOPERATIVE_MATRIX),
        evidence: "executorch linear_qw_coopmat.glsl",
    },
    Quirk {
        id: "maleoon-f16",
        applies: Match { vendor_id: Some(0x19e5), ..ANY },
        symptom: "16-bit values in private storage are miscompiled",
        action: Action::Disable(Caps::F16_ARITHMETIC),
        evidence: "dawn PhysicalDeviceVk.cpp, crbug 519984285",
    },
    Quirk {
        id: "powervr-subgroups",
        applies: Match { driver_id: IMAGINATION, ..ANY },
        symptom: "subgroup reductions are wrong with two or more columns",
        action: Action::Disable(SUBGROUPS),
        evidence: "llama.cpp#20565, llama.cpp#28341",
    },
    Quirk {
        id: "intel-coopmat",
        applies: Match { driver_id: INTEL_MESA, driver_below: Some(25 << 22 | 2 << 12), ..ANY },
        symptom: "cooperative matrices start with wrong contents before Mesa 25.2",
        action: Action::Disable(Caps::COOPERATIVE_MATRIX),
        evidence: "dawn PhysicalDeviceVk.cpp, crbug 415828149",
    },
    Quirk {
        id: "amd-coopmat",
        applies: Match { driver_id: AMD_PROPRIETARY, names: &["RX 5", "860M"], ..ANY },
        symptom: "cooperative matrices are announced without the hardware, or crash when listed",
        action: Action::Disable(Caps::COOPERATIVE_MATRIX),
        evidence: "llama.cpp#22750, ggml-vulkan.cpp",
    },
    Quirk {
        id: "amd-subgroup-size",
        applies: Match {
            driver_id: AMD_PROPRIETARY,
            api_below: Some(1 << 22 | 2 << 12 | 140),
            ..ANY
        },
        symptom: "a required subgroup size of 32 is accepted and not granted",
        action: Action::Disable(Caps::SUBGROUP_SIZE_CONTROL),
        evidence: "ggml#1619, llama.cpp#12087",
    },
    Quirk {
        id: "moltenvk-amd-subgroups",
        applies: Match { driver_id: MOLTENVK, vendor_id: Some(0x1002), ..ANY },
        symptom: "subgroup operations are wrong at a width of 64",
        action: Action::Disable(SUBGROUPS),
        evidence: "llama.cpp#15846, llama.cpp#15886",
    },
    Quirk {
        id: "kosmickrisp-reduce",
        applies: Match { driver_id: KOSMICKRISP, ..ANY },
        symptom: "sums by subgroups are wrong for 256 or more terms",
        action: Action::Disable(Caps::SUBGROUP_ARITHMETIC),
        evidence: "vllm-vulkan#22",
    },
    Quirk {
        id: "dozen-last",
        applies: Match { driver_id: DOZEN, ..ANY },
        symptom: "a translation layer, slower than the real driver beside it",
        action: Action::TakeLast,
        evidence: "whisper.cpp#3777",
    },
    Quirk {
        id: "lavapipe-coopmat",
        applies: Match { driver_id: LAVAPIPE, ..ANY },
        symptom: "cooperative matrices are emulated on the processor and slow",
        action: Action::Disable(Caps::COOPERATIVE_MATRIX),
        evidence: "VP_LUNARG_desktop device reports",
    },
    Quirk {
        id: "lavapipe-loops",
        applies: Match {
            driver_id: LAVAPIPE,
            drivers: &["Mesa 20.", "Mesa 21.", "Mesa 22.", "Mesa 23.", "Mesa 24."],
            ..ANY
        },
        symptom: "every loop ends once the loops of an invocation took 65,535 turns together",
        action: Action::LoopTurns(65_000),
        evidence: "measured on Mesa 22.3.6 (2 x 40,000 turns stop at 65,533); 25.0.7 has it not; \
                   versions between are taken as old",
    },
    Quirk {
        id: "tiny-subgroups",
        applies: Match { when: Some(|c| c.limits.subgroup_size < 4), ..ANY },
        symptom: "subgroups of one or two invocations make subgroup kernels slower than none",
        action: Action::Disable(SUBGROUPS),
        evidence: "dawn PhysicalDeviceVk.cpp",
    },
    Quirk {
        id: "signed-range",
        applies: Match { when: Some(|c| c.limits.storage_range_bytes > SIGNED_RANGE), ..ANY },
        symptom: "drivers count the bytes of a binding in 32 signed bits; array lengths read 0 from 2 GiB",
        action: Action::StorageRange(SIGNED_RANGE),
        evidence: "wgpu-hal adapter.rs, crbug 435684920",
    },
    Quirk {
        id: "android-address",
        applies: Match { when: Some(|_| cfg!(target_os = "android")), ..ANY },
        symptom: "buffer device addresses crash on some phones",
        action: Action::Disable(Caps::BUFFER_ADDRESS),
        evidence: "whisper.cpp#3590",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::DeviceKind;

    fn device(driver_id: u32, name: &str) -> DeviceInfo {
        DeviceInfo {
            name: name.to_owned(),
            kind: DeviceKind::Integrated,
            driver_id,
            driver_name: String::new(),
            driver_info: String::new(),
            driver_version: 25 << 22,
            api_version: 1 << 22 | 3 << 12,
            uuid: [0; 16],
            vendor_id: 0,
            device_id: 0,
            memory_bytes: 1 << 30,
        }
    }

    fn able() -> Capabilities {
        let mut able = Capabilities::floor();
        able.caps = Caps(u64::MAX);
        able.limits.subgroup_size = 32;
        able.limits.loop_turns = u32::MAX;
        able
    }

    fn check(info: &DeviceInfo, ignore: &[&str], ids: &[&str]) -> Capabilities {
        let mut capabilities = able();
        let ignore: Vec<String> = ignore.iter().map(|id| (*id).to_owned()).collect();
        let applied = apply(info, &mut capabilities, &ignore);
        assert_eq!(applied.iter().map(|quirk| quirk.id).collect::<Vec<_>>(), ids);
        capabilities
    }

    #[test]
    fn rows_change_what_they_name_and_nothing_else() {
        assert_eq!(check(&device(4, "a card"), &[], &[]), able());
        let lavapipe = check(&device(13, "llvmpipe"), &[], &["lavapipe-coopmat"]);
        assert_eq!(lavapipe.caps, able().caps.without(Caps::COOPERATIVE_MATRIX));
        let old = check(&device(6, "Iris Xe"), &[], &["intel-coopmat"]);
        assert!(!old.caps.covers(Caps::COOPERATIVE_MATRIX));
        let mut new = device(6, "Iris Xe");
        new.driver_version = 25 << 22 | 3 << 12;
        check(&new, &[], &[]);
    }

    #[test]
    fn conditions_are_all_needed() {
        check(&device(1, "Radeon RX 7900"), &[], &[]);
        check(&device(1, "Radeon RX 5700 XT"), &[], &["amd-coopmat"]);
        let mut apple = device(14, "Apple M2");
        check(&apple, &[], &[]);
        apple.vendor_id = 0x1002;
        check(&apple, &[], &["moltenvk-amd-subgroups"]);
        let adreno = ["adreno-allocation", "adreno-coopmat", "adreno-shuffle"];
        let capabilities = check(&device(8, "Adreno (TM) 740"), &[], &adreno);
        assert_eq!(capabilities.limits.allocation_bytes, 512 << 20);
    }

    #[test]
    fn old_lavapipe_bounds_loops() {
        let mut old = device(13, "llvmpipe (LLVM 15.0.6, 256 bits)");
        old.driver_info = "Mesa 22.3.6 (LLVM 15.0.6)".to_owned();
        let found = check(&old, &[], &["lavapipe-coopmat", "lavapipe-loops"]);
        assert_eq!(found.limits.loop_turns, 65_000);
        old.driver_info = "Mesa 25.0.7 (LLVM 15.0.6)".to_owned();
        let found = check(&old, &[], &["lavapipe-coopmat"]);
        assert_eq!(found.limits.loop_turns, u32::MAX);
    }

    #[test]
    fn rows_can_be_left_off() {
        let lavapipe = device(13, "llvmpipe");
        check(&lavapipe, &["lavapipe-coopmat"], &[]);
        check(&lavapipe, &["all"], &[]);
        check(&lavapipe, &["another"], &["lavapipe-coopmat"]);
    }

    #[test]
    fn limits_only_shrink_and_ids_are_unique() {
        let mut large = able();
        large.limits.storage_range_bytes = u64::MAX;
        large.limits.subgroup_size = 1;
        let applied = apply(&device(4, "a card"), &mut large, &[]);
        let ids: Vec<&str> = applied.iter().map(|quirk| quirk.id).collect();
        assert_eq!(ids, ["tiny-subgroups", "signed-range"]);
        assert_eq!(large.limits.storage_range_bytes, SIGNED_RANGE);
        let mut ids: Vec<&str> = QUIRKS.iter().map(|quirk| quirk.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), QUIRKS.len());
    }
}
