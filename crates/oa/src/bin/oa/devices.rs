//! `oa devices`: every Vulkan device, what it can do, and why it would be refused.

use crate::failure::{Explain, Failure};
use crate::flags::Common;
use crate::{open, output};
use oa_vk::{Capabilities, DeviceReport, Limits};
use serde_json::{Value, json};
use std::fmt::Write;

/// Runs `oa devices`.
pub fn run(common: &Common) -> Result<(), Failure> {
    let request = open::request(common);
    let reports = oa::devices(&request).explain("cannot list the Vulkan devices")?;
    let chosen = chosen(common, &reports);
    if common.json {
        let devices: Vec<Value> =
            reports.iter().map(|report| to_json(report, chosen == Some(report.index))).collect();
        output::json_document(&json!({ "devices": devices }))?;
        return Ok(());
    }
    let mut text = String::new();
    for report in &reports {
        describe(&mut text, report, chosen == Some(report.index));
    }
    if reports.is_empty() {
        text.push_str("no Vulkan device; `oa doctor` says what to install\n");
    }
    output::text(&text)?;
    Ok(())
}

/// The number of the device that a task would take.
fn chosen(common: &Common, reports: &[DeviceReport]) -> Option<u32> {
    let mut usable = reports.iter().filter(|report| report.refused.is_empty());
    if common.device.is_none() && open::request(common).selector.is_none() {
        let first = usable.next()?;
        if usable.next().is_none() {
            return Some(first.index);
        }
    }
    let engine = open::engine(common).ok()?;
    let uuid = engine.device().uuid;
    reports.iter().find(|report| report.info.uuid == uuid).map(|report| report.index)
}

/// A Vulkan version out of its packing.
pub fn version(packed: u32) -> String {
    format!("{}.{}.{}", packed >> 22 & 0x7f, packed >> 12 & 0x3ff, packed & 0xfff)
}

fn describe(text: &mut String, report: &DeviceReport, chosen: bool) {
    let (info, capabilities) = (&report.info, &report.capabilities);
    let limits = &capabilities.limits;
    let mark = if chosen { "  (the one that is taken)" } else { "" };
    let mut line = |words: std::fmt::Arguments<'_>| {
        writeln!(text, "{words}").expect("writing to a string cannot fail");
    };
    line(format_args!("{}: {}{mark}", report.index, info.name));
    line(format_args!(
        "   {}, {}, Vulkan {}, driver {} {}",
        info.kind,
        output::bytes(info.memory_bytes),
        version(info.api_version),
        info.driver_name,
        info.driver_info
    ));
    line(format_args!("   uuid {}", info.uuid_text()));
    line(format_args!("   can {}", capabilities.caps));
    line(format_args!(
        "   {} invocations, {} shared, {} a storage range, subgroups of {}",
        limits.invocations,
        output::bytes(u64::from(limits.shared_bytes)),
        output::bytes(limits.storage_range_bytes),
        subgroups(limits)
    ));
    for quirk in &report.quirks {
        line(format_args!("   quirk {}: {}", quirk.id, quirk.symptom));
    }
    for refusal in &report.refused {
        line(format_args!("   refused: {refusal}"));
    }
}

fn subgroups(limits: &Limits) -> String {
    if limits.subgroup_min == limits.subgroup_max {
        limits.subgroup_size.to_string()
    } else {
        format!("{} ({} to {})", limits.subgroup_size, limits.subgroup_min, limits.subgroup_max)
    }
}

fn to_json(report: &DeviceReport, chosen: bool) -> Value {
    let info = &report.info;
    let refused: Vec<String> = report.refused.iter().map(ToString::to_string).collect();
    let quirks: Vec<Value> = report
        .quirks
        .iter()
        .map(
            |quirk| json!({ "id": quirk.id, "symptom": quirk.symptom, "evidence": quirk.evidence }),
        )
        .collect();
    json!({
        "index": report.index,
        "chosen": chosen,
        "name": info.name,
        "kind": info.kind.to_string(),
        "uuid": info.uuid_text(),
        "vendor_id": info.vendor_id,
        "device_id": info.device_id,
        "driver": { "name": info.driver_name, "info": info.driver_info, "version": info.driver_version },
        "vulkan": version(info.api_version),
        "memory_bytes": info.memory_bytes,
        "capabilities": capabilities_json(&report.capabilities),
        "usable": refused.is_empty(),
        "refused": refused,
        "quirks": quirks,
    })
}

fn capabilities_json(capabilities: &Capabilities) -> Value {
    let limits = &capabilities.limits;
    json!({
        "caps": capabilities.caps.names().collect::<Vec<_>>(),
        "software": capabilities.software,
        "unified_memory": capabilities.unified_memory,
        "limits": {
            "storage_range_bytes": limits.storage_range_bytes,
            "storage_align_bytes": limits.storage_align_bytes,
            "allocation_bytes": limits.allocation_bytes,
            "groups": limits.groups,
            "invocations": limits.invocations,
            "local_size": limits.local_size,
            "shared_bytes": limits.shared_bytes,
            "push_bytes": limits.push_bytes,
            "subgroup_size": limits.subgroup_size,
            "subgroup_min": limits.subgroup_min,
            "subgroup_max": limits.subgroup_max,
            "timestamp_period_ns": limits.timestamp_period_ns,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_unpacked() {
        assert_eq!(version(1 << 22 | 3 << 12 | 275), "1.3.275");
    }
}
