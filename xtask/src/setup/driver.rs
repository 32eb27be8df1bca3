//! Vulkan drivers and layers: what the machine has, and what set-up unpacks beside it.
//!
//! Exists so that tests run on the same drivers everywhere: lavapipe (Mesa 25 where the distribution
//! offers it: the same kernel runs about eight times faster than on Mesa 22.3), SwiftShader as the
//! second opinion, and a recent validation layer. A driver is chosen for child processes by
//! environment variables; the system's own configuration is never edited.

use super::apt;
use super::cache;
use super::source;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest Mesa whose lavapipe is fast enough to be preferred over a backport.
const FAST_MESA: u32 = 25;

/// Where the loader looks for driver manifests, in its own order.
const MANIFESTS: [&str; 3] =
    ["/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d"];

/// A driver that child processes can be pointed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Name for messages.
    pub name: String,
    /// Its manifest.
    pub manifest: PathBuf,
}

/// The manifest of the system's lavapipe.
pub fn system_lavapipe() -> Option<Driver> {
    let manifest = manifests().into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("lvp_icd")
    })?;
    let version = apt::installed_version("mesa-vulkan-drivers");
    let version = version.map_or(String::new(), |text| format!(", Mesa {}", short(&text)));
    Some(Driver { name: format!("lavapipe (system{version})"), manifest })
}

/// Every driver manifest of the system, sorted within each folder.
pub fn manifests() -> Vec<PathBuf> {
    let listed = |folder: &&str| {
        let entries = std::fs::read_dir(folder).ok()?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        Some(paths)
    };
    MANIFESTS.iter().filter_map(listed).flatten().collect()
}

/// True when the machine shows a graphics device node, so that a hardware driver may find a GPU.
pub fn hardware() -> bool {
    let fixed = ["/dev/nvidia0", "/dev/kgsl-3d0", "/dev/mali0", "/dev/dxg"];
    let render =
        |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("renderD");
    fixed.iter().any(|node| Path::new(node).exists())
        || std::fs::read_dir("/dev/dri").is_ok_and(|nodes| nodes.flatten().any(render))
}

/// True when a shared library of this name lies where the loader of the system looks.
pub fn library(name: &str) -> bool {
    let mut folders: Vec<PathBuf> = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
        .iter()
        .map(PathBuf::from)
        .collect();
    for base in ["/lib", "/usr/lib"] {
        let triplets = std::fs::read_dir(base).into_iter().flatten().flatten();
        folders.extend(triplets.map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-"))
        }));
    }
    if let Some(more) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&more));
    }
    folders.iter().any(|folder| folder.join(name).exists())
}

/// The newer lavapipe from the distribution's backports, unpacked beside the system's.
///
/// `Ok(None)` where the system's is new enough or this is not Debian.
pub fn newer_lavapipe(cache: &Path) -> Result<Option<Driver>> {
    let major = apt::installed_version("mesa-vulkan-drivers").and_then(|text| major(&text));
    let Some((id, codename)) = apt::release() else { return Ok(None) };
    if id != "debian" || major.is_none_or(|major| major >= FAST_MESA) {
        return Ok(None);
    }
    let place = cache::entry(cache, "lavapipe-1", |scratch, built| {
        println!("set-up unpacks a newer Mesa from {codename}-backports into the cache");
        let sources = apt::sources();
        let from = source::backports(&sources, &codename)
            .with_context(|| format!("apt lists no source of {codename}"))?;
        let package = format!("mesa-vulkan-drivers/{}", source::backports_suite(&codename));
        let unpacked = apt::unpack(&package, &[from], scratch)?;
        keep(&unpacked, built, "libvulkan_lvp.so", "lvp_icd.json", "1.3.302")
    })?;
    let name = "lavapipe (Mesa of the backports)".to_string();
    Ok(Some(Driver { name, manifest: place.join("lvp_icd.json") }))
}

/// SwiftShader and a recent validation layer, both unpacked from the distribution's Chromium.
///
/// Returns the driver and the folder with the layer's manifest.
pub fn swiftshader(cache: &Path) -> Result<(Driver, PathBuf)> {
    let (_, codename) = apt::release().context("the distribution does not name its release")?;
    let place = cache::entry(cache, "swiftshader-2", |scratch, built| {
        println!("set-up unpacks SwiftShader and the validation layer from chromium-common");
        let unpacked = chromium(&codename, scratch)?;
        keep(&unpacked, built, "libvk_swiftshader.so", "swiftshader_icd.json", "1.3.0")?;
        let library = copy(&unpacked, built, "libVkLayer_khronos_validation.so")?;
        let layers = built.join("layers");
        std::fs::create_dir_all(&layers)?;
        Ok(std::fs::write(
            layers.join("VkLayer_khronos_validation.json"),
            layer_manifest(&library),
        )?)
    })?;
    let driver =
        Driver { name: "SwiftShader".to_string(), manifest: place.join("swiftshader_icd.json") };
    Ok((driver, place.join("layers")))
}

/// Chromium's shared files: the security suite first, whose list is short, then the release itself.
fn chromium(codename: &str, scratch: &Path) -> Result<PathBuf> {
    let sources = apt::sources();
    let mut last = anyhow::anyhow!("apt lists no source of {codename}");
    for suite in [format!("{codename}-security"), codename.to_string()] {
        let Some(from) = source::of_suite(&sources, &suite).into_iter().next() else { continue };
        match apt::unpack("chromium-common", &[from], &scratch.join(&suite)) {
            Ok(unpacked) => return Ok(unpacked),
            Err(error) => last = error.context(format!("chromium-common from {suite}")),
        }
    }
    Err(last)
}

/// Copies a driver library out of an unpacked package and writes its manifest beside it.
fn keep(unpacked: &Path, built: &Path, file: &str, manifest: &str, api: &str) -> Result<()> {
    let library = copy(unpacked, built, file)?;
    let text = format!(
        "{{\n  \"file_format_version\": \"1.0.0\",\n  \"ICD\": {{\n    \"library_path\": \
         \"./{library}\",\n    \"api_version\": \"{api}\"\n  }}\n}}\n"
    );
    Ok(std::fs::write(built.join(manifest), text)?)
}

fn copy(unpacked: &Path, built: &Path, file: &str) -> Result<String> {
    let from = cache::find(unpacked, file)
        .with_context(|| format!("the package does not hold {file} any more"))?;
    let to = built.join(file);
    std::fs::copy(&from, &to)?;
    let missing = missing_libraries(&to);
    if !missing.is_empty() {
        bail!("{file} needs libraries that the system lacks: {}", missing.join(", "));
    }
    Ok(file.to_string())
}

/// The extensions must stand in the manifest: the loader refuses one that only the library names.
fn layer_manifest(library: &str) -> String {
    let extension = |name: &str| format!("{{ \"name\": \"{name}\", \"spec_version\": \"1\" }}");
    let extensions = [
        extension("VK_EXT_debug_report"),
        extension("VK_EXT_debug_utils"),
        extension("VK_EXT_validation_features"),
        extension("VK_EXT_layer_settings"),
    ]
    .join(", ");
    format!(
        "{{\n  \"file_format_version\": \"1.2.0\",\n  \"layer\": {{\n    \"name\": \
         \"VK_LAYER_KHRONOS_validation\",\n    \"type\": \"GLOBAL\",\n    \"library_path\": \
         \"../{library}\",\n    \"api_version\": \"1.4.300\",\n    \"implementation_version\": \"1\",\n    \
         \"description\": \"Khronos validation layer\",\n    \"instance_extensions\": [{extensions}]\n  \
         }}\n}}\n"
    )
}

/// Shared libraries that a library needs and the system lacks.
fn missing_libraries(library: &Path) -> Vec<String> {
    shell::capture(Command::new("ldd").arg(library)).map_or(Vec::new(), |text| unresolved(&text))
}

fn unresolved(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.trim().strip_suffix("=> not found"));
    lines.map(|name| name.trim().to_string()).collect()
}

/// `22` of `22.3.6-1+deb12u2`, with or without an epoch.
fn major(version: &str) -> Option<u32> {
    short(version).split('.').next()?.parse().ok()
}

fn short(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.split('-').next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_epoch_and_revision() {
        assert_eq!(major("22.3.6-1+deb12u2"), Some(22));
        assert_eq!(major("2:25.0.7-2~bpo12+1"), Some(25));
        assert_eq!(major("unknown"), None);
        assert_eq!(short("1:25.0.7-2"), "25.0.7");
    }

    #[test]
    fn missing_libraries_are_read_from_the_linkers_listing() {
        let text = "\tlinux-vdso.so.1 (0x0)\n\tlibLLVM-15.so.1 => not found\n\tlibz.so.1 => \
                    /lib/libz.so.1 (0x0)\n\tlibxcb.so.1 => not found\n";
        assert_eq!(unresolved(text), ["libLLVM-15.so.1", "libxcb.so.1"]);
    }

    #[test]
    fn the_layer_manifest_is_json_and_points_beside_its_folder() {
        let value: serde_json::Value = serde_json::from_str(&layer_manifest("libx.so")).unwrap();
        assert_eq!(value["layer"]["library_path"], "../libx.so");
        assert_eq!(value["layer"]["name"], "VK_LAYER_KHRONOS_validation");
    }

    #[test]
    fn a_library_that_cannot_exist_is_not_found() {
        assert!(library("libc.so.6"));
        assert!(!library("libno-such-thing-here.so.9"));
    }
}
