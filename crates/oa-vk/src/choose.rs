//! Which device to take: a pure function of the candidates and the request.
//!
//! Devices are scored by kind, then by memory, then by their order, and a device that lacks the
//! required profile is refused with every reason rather than the first. Probing is elsewhere, so
//! that all of this is tested without a device.

use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::quirks::Quirk;
use crate::request::DeviceRequest;
use std::fmt;

/// The kind of a device, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A card with its own memory.
    Discrete,
    /// Part of the processor's package.
    Integrated,
    /// A device of the host, seen from a virtual machine.
    Virtual,
    /// Something else.
    Other,
    /// A software driver.
    Software,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Virtual => "virtual",
            DeviceKind::Other => "other",
            DeviceKind::Software => "software",
        })
    }
}

/// What a driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the device.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The `VkDriverId` of the driver; 0 when it does not say.
    pub driver_id: u32,
    /// Name of the driver.
    pub driver_name: String,
    /// The driver's own description, often with its version.
    pub driver_info: String,
    /// The driver's version, in the vendor's own packing.
    pub driver_version: u32,
    /// The Vulkan version of the device, in Vulkan's packing.
    pub api_version: u32,
    /// UUID of the device with this driver.
    pub uuid: [u8; 16],
    /// PCI vendor, or a Khronos vendor number.
    pub vendor_id: u32,
    /// The vendor's number of the device.
    pub device_id: u32,
    /// Size of the largest device-local heap, bytes.
    pub memory_bytes: u64,
}

impl DeviceInfo {
    /// The UUID as 32 hexadecimal digits in the usual five groups.
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// How a device can be named: its index, name or UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// Position among the devices that the loader lists.
    pub index: u32,
    /// Name of the device.
    pub name: Box<str>,
    /// Its UUID.
    pub uuid: [u8; 16],
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.index, self.name, uuid_text(&self.uuid))
    }
}

/// A reason not to take a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The device's Vulkan version is too old.
    ApiVersion {
        /// Its version, in Vulkan's packing.
        found: u32,
    },
    /// A feature of the required profile is missing.
    Missing {
        /// Vulkan's name of the feature.
        feature: &'static str,
    },
    /// A limit of the required profile is not met.
    TooSmall {
        /// The limit and its unit.
        what: &'static str,
        /// What OA needs.
        needs: u64,
        /// What the device has.
        has: u64,
    },
    /// A software device, and the request does not allow one.
    Software,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refusal::ApiVersion { found } => {
                write!(f, "needs Vulkan 1.1: has {}.{}", found >> 22 & 0x7f, found >> 12 & 0x3ff)
            }
            Refusal::Missing { feature } => write!(f, "needs {feature}: missing"),
            Refusal::TooSmall { what, needs, has } => write!(f, "needs {needs} {what}: has {has}"),
            Refusal::Software => f.write_str("is a software device, which the request forbids"),
        }
    }
}

/// A refused device with every reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The device.
    pub name: DeviceName,
    /// Why it cannot be taken; never empty.
    pub reasons: Vec<Refusal>,
}

/// Everything known of one device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Position among the devices that the loader lists.
    pub index: u32,
    /// What the driver says.
    pub info: DeviceInfo,
    /// What the device can do after the quirks and the request were applied.
    pub capabilities: Capabilities,
    /// Why the device cannot be used; empty when it can.
    pub refused: Vec<Refusal>,
    /// The quirks that were applied.
    pub quirks: Vec<&'static Quirk>,
}

impl DeviceReport {
    /// How the device can be named.
    pub fn name(&self) -> DeviceName {
        DeviceName { index: self.index, name: self.info.name.as_str().into(), uuid: self.info.uuid }
    }

    fn reject(&self, extra: Option<Refusal>) -> Rejected {
        let mut reasons = self.refused.clone();
        reasons.extend(extra);
        Rejected { name: self.name(), reasons }
    }
}

/// The floor of the required profile that is a number: what it is, the least of it, and what a
/// device has of it.
pub(crate) fn too_small(capabilities: &Capabilities) -> Vec<Refusal> {
    let limits = &capabilities.limits;
    let floor = [
        ("B of shared memory", 16 << 10, u64::from(limits.shared_bytes)),
        ("invocations in a workgroup", 128, u64::from(limits.invocations)),
        ("invocations along x", 128, u64::from(limits.local_size[0])),
        ("B of push constants", 128, u64::from(limits.push_bytes)),
    ];
    let short = floor.into_iter().filter(|(_, needs, has)| has < needs);
    short.map(|(what, needs, has)| Refusal::TooSmall { what, needs, has }).collect()
}

/// The position of the device to take among `reports`.
///
/// # Errors
///
/// When no device is usable, or the selector names none or more than one.
pub(crate) fn choose(reports: &[DeviceReport], request: &DeviceRequest) -> Result<usize> {
    if let Some(selector) = &request.selector {
        let position = select(reports, selector)?;
        let report = &reports[position];
        if !report.refused.is_empty() {
            return Err(Error::NoDevice { rejected: [report.reject(None)].into() });
        }
        return Ok(position);
    }
    let forbidden = |report: &DeviceReport| {
        let software = report.info.kind == DeviceKind::Software;
        (software && !request.allow_software).then_some(Refusal::Software)
    };
    let usable = |report: &&DeviceReport| report.refused.is_empty() && forbidden(report).is_none();
    let best = reports.iter().filter(usable).min_by_key(|report| rank(report));
    match best {
        Some(best) => Ok(reports.iter().position(|r| r.index == best.index).expect("it is one")),
        None => {
            let rejected = reports.iter().map(|report| report.reject(forbidden(report)));
            Err(Error::NoDevice { rejected: rejected.collect() })
        }
    }
}

/// Sorts the best device first.
fn rank(report: &DeviceReport) -> (DeviceKind, std::cmp::Reverse<u64>, u32) {
    let demoted = report.quirks.iter().any(|quirk| quirk.demotes());
    let kind = if demoted { report.info.kind.max(DeviceKind::Other) } else { report.info.kind };
    (kind, std::cmp::Reverse(report.info.memory_bytes), report.index)
}

/// The device that a selector names: an index, else a UUID, else a part of one name.
fn select(reports: &[DeviceReport], selector: &str) -> Result<usize> {
    let wanted = selector.trim();
    let names = |positions: &[usize]| positions.iter().map(|&at| reports[at].name()).collect();
    let matches = |test: &dyn Fn(&DeviceReport) -> bool| -> Vec<usize> {
        (0..reports.len()).filter(|&at| test(&reports[at])).collect()
    };
    let index = wanted.parse::<u32>().ok();
    let mut found = matches(&|report| Some(report.index) == index);
    if found.is_empty() {
        let digits = wanted.replace('-', "").to_ascii_lowercase();
        found = matches(&|report| report.info.uuid_text().replace('-', "") == digits);
        // Copies of one card share a UUID on some drivers: the first is as good as the others.
        found.truncate(1);
    }
    if found.is_empty() && !wanted.is_empty() {
        let part = wanted.to_lowercase();
        found = matches(&|report| report.info.name.to_lowercase().contains(&part));
    }
    match found[..] {
        [position] => Ok(position),
        [] => {
            let all: Vec<usize> = (0..reports.len()).collect();
            Err(Error::UnknownDevice { selector: selector.into(), names: names(&all) })
        }
        _ => Err(Error::AmbiguousDevice { selector: selector.into(), names: names(&found) }),
    }
}

#[cfg(test)]
mod tests;
