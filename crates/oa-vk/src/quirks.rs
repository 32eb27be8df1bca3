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
    /// Driver versions below this one, in Vulkan's packing.
    pub driver_below: Option<u32>,
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
        rule.driver_id.is_none_or(|id| id == info.driver_id)
            && rule.vendor_id.is_none_or(|id| id == info.vendor_id)
            && (rule.names.is_empty() || rule.names.iter().any(|part| info.name.contains(part)))
            && rule.driver_below.is_none_or(|version| info.driver_version < version)
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

const ANY: Match =
    Match { driver_id: None, vendor_id: None, names: &[], driver_below: None, when: None };

const RADV: Option<u32> = Some(3);
const AMD_PROPRIETARY: Option<u32> = Some(1);
const NVIDIA: Option<u32> = Some(4);
const IMAGINATION: Option<u32> = Some(7);
const QUALCOMM: Option<u32> = Some(8);
const ARM: Option<u32> = Some(9);
const SWIFTSHADER: Option<u32> = Some(10);
const LAVAPIPE: Option<u32> = Some(13);
const MOLTENVK: Option<u32> = Some(14);
const SAMSUNG: Option<u32> = Some(21);
const DOZEN: Option<u32> = Some(23);

const SUBGROUPS: Caps = Caps::SUBGROUP_BASIC
    .union(Caps::SUBGROUP_ARITHMETIC)
    .union(Caps::SUBGROUP_SHUFFLE)
    .union(Caps::SUBGROUP_BALLOT);

/// The table.
pub static QUIRKS: &[Quirk] = &[Quirk {
    id: "dozen-last",
    applies: Match { driver_id: DOZEN, ..ANY },
    symptom: "a translation layer that is slower than the real driver beside it",
    action: Action::TakeLast,
    evidence: "whisper.cpp#3777",
}];
