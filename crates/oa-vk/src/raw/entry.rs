//! The Vulkan loader library, loaded when it is first needed.
//!
//! Building OA needs no Vulkan SDK and running `oa --help` no loader: the library is opened here,
//! by name or by the path that the request gives.

use super::failed;
use crate::error::{Error, Result};
use ash::vk;
use std::ffi::CStr;
use std::path::Path;

/// The loaded library and its global functions.
pub(crate) struct Entry {
    pub(super) handle: ash::Entry,
}

impl Entry {
    /// Loads the system's Vulkan loader, or the one at `path`.
    pub(crate) fn load(path: Option<&Path>) -> Result<Entry> {
        let loaded = match path {
            // SAFETY: the library is a Vulkan loader: that is what the caller names it for, and
            // loading any library runs its initialisers; H4 keeps it loaded.
            Some(path) => unsafe { ash::Entry::load_from(path) },
            // SAFETY: the system's library of this name is the Vulkan loader; H4.
            None => unsafe { ash::Entry::load() },
        };
        let library = || path.map_or(SYSTEM_LOADER.into(), |path| path.to_string_lossy().into());
        let handle = loaded.map_err(|source| Error::NoLoader { library: library(), source })?;
        Ok(Entry { handle })
    }

    /// The Vulkan version of the loader.
    pub(crate) fn version(&self) -> Result<u32> {
        // SAFETY: H4: the library is loaded.
        let version = unsafe { self.handle.try_enumerate_instance_version() };
        let version = version.map_err(failed("vkEnumerateInstanceVersion"))?;
        Ok(version.unwrap_or(vk::API_VERSION_1_0))
    }

    /// The Vulkan version that a layer of this name was made for, if it is installed.
    pub(crate) fn layer_version(&self, name: &CStr) -> Result<Option<u32>> {
        // SAFETY: H4: the library is loaded.
        let layers = unsafe { self.handle.enumerate_instance_layer_properties() };
        let layers = layers.map_err(failed("vkEnumerateInstanceLayerProperties"))?;
        let layer = layers.iter().find(|layer| layer.layer_name_as_c_str() == Ok(name));
        Ok(layer.map(|layer| layer.spec_version))
    }

    /// The instance extensions of the loader and its drivers, or of one layer.
    pub(crate) fn extensions(&self, layer: Option<&CStr>) -> Result<Vec<vk::ExtensionProperties>> {
        // SAFETY: H4: the library is loaded.
        let found = unsafe { self.handle.enumerate_instance_extension_properties(layer) };
        found.map_err(failed("vkEnumerateInstanceExtensionProperties"))
    }
}

/// True when `name` is among the extensions.
pub(super) fn names(extensions: &[vk::ExtensionProperties], name: &CStr) -> bool {
    extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
}

const SYSTEM_LOADER: &str = if cfg!(windows) {
    "vulkan-1.dll"
} else if cfg!(target_vendor = "apple") {
    "libvulkan.dylib"
} else if cfg!(target_os = "android") {
    "libvulkan.so"
} else {
    "libvulkan.so.1"
};
