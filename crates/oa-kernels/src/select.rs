//! Which variant of a family runs on a device, and why the others do not.
//!
//! Choosing is a table lookup: variants are tried class by class, in the order of the table, and
//! the first that fits is taken. A software driver prefers `cpu` variants; on hardware those are
//! refused unless they are forced by name.

use std::fmt;

use oa_vk::{Capabilities, Caps};

use crate::error::{Error, Result};
use crate::variant::{Class, Variant};

/// Why a variant was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The device lacks abilities.
    Needs(Caps),
    /// It wants more shared memory than there is, in bytes.
    Shared {
        /// Bytes the variant declares.
        needs: u32,
        /// Bytes the device has.
        has: u32,
    },
    /// Its workgroup has more invocations than the device takes.
    Invocations {
        /// Invocations of the variant.
        needs: u32,
        /// Invocations the device takes.
        has: u32,
    },
    /// Its workgroup is longer in one direction than the device takes.
    LocalSize {
        /// Workgroup size of the variant.
        needs: [u32; 3],
        /// Largest size in each direction.
        has: [u32; 3],
    },
    /// Its push constants are larger than the device takes, in bytes.
    Push {
        /// Bytes the variant declares.
        needs: u32,
        /// Bytes the device takes.
        has: u32,
    },
    /// A variant for software drivers, and the device is none.
    ForSoftware,
    /// It fits, but another variant comes first.
    After(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Needs(missing) => write!(f, "needs {missing}"),
            Reason::Shared { needs, has } => {
                write!(f, "needs {needs} bytes of shared memory, the device has {has}")
            }
            Reason::Invocations { needs, has } => {
                write!(f, "needs {needs} invocations in a workgroup, the device takes {has}")
            }
            Reason::LocalSize { needs, has } => {
                write!(f, "needs a workgroup of {needs:?}, the device takes {has:?}")
            }
            Reason::Push { needs, has } => {
                write!(f, "needs {needs} bytes of push constants, the device takes {has}")
            }
            Reason::ForSoftware => f.write_str("is for software drivers"),
            Reason::After(name) => write!(f, "fits, but {name} comes first"),
        }
    }
}

/// A variant that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Name of the variant.
    pub name: &'static str,
    /// Why it was not taken.
    pub reason: Reason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The variant that runs, and those that do not.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The variant to run.
    pub variant: &'static Variant,
    /// Every other variant of the family with its reason, in the order they were tried.
    pub rejected: Vec<Rejected>,
}

/// The variant of `family` for a device, out of the registry.
///
/// Fails with [`Error::NoFamily`] for an unknown family, and with [`Error::NoVariant`] and every
/// refusal when nothing fits.
pub fn select(family: &'static str, device: &Capabilities) -> Result<Selection> {
    select_among(crate::registry(), family, device)
}

/// The variant called `name`, whatever device it is for.
///
/// The caller forces it, so nothing is checked; [`misfit`] tells whether a device could run it.
pub fn select_named(name: &str) -> Option<&'static Variant> {
    crate::registry().iter().find(|variant| variant.name == name)
}

/// Like [`select`], out of any table.
pub fn select_among(
    table: &'static [Variant],
    family: &'static str,
    device: &Capabilities,
) -> Result<Selection> {
    let mut taken: Option<&'static Variant> = None;
    let mut rejected = Vec::new();
    for class in preference(device.software) {
        for variant in table {
            if variant.family != family || variant.class != class {
                continue;
            }
            let wrong_home = variant.class == Class::Cpu && !device.software;
            let reason =
                if wrong_home { Some(Reason::ForSoftware) } else { misfit(variant, device) };
            match (reason, taken) {
                (None, None) => taken = Some(variant),
                (None, Some(first)) => rejected
                    .push(Rejected { name: variant.name, reason: Reason::After(first.name) }),
                (Some(reason), _) => rejected.push(Rejected { name: variant.name, reason }),
            }
        }
    }
    match taken {
        Some(variant) => Ok(Selection { variant, rejected }),
        None if rejected.is_empty() => Err(Error::NoFamily(family)),
        None => Err(Error::NoVariant { family, rejected }),
    }
}

/// What keeps a device from running a variant; `None` when it can.
pub fn misfit(variant: &Variant, device: &Capabilities) -> Option<Reason> {
    let limits = &device.limits;
    let missing = device.caps.missing(variant.needs);
    if !missing.is_empty() {
        return Some(Reason::Needs(missing));
    }
    if variant.shared_bytes > limits.shared_bytes {
        let (needs, has) = (variant.shared_bytes, limits.shared_bytes);
        return Some(Reason::Shared { needs, has });
    }
    let invocations: u32 = variant.local_size.iter().product();
    if invocations > limits.invocations {
        return Some(Reason::Invocations { needs: invocations, has: limits.invocations });
    }
    if variant.local_size.iter().zip(&limits.local_size).any(|(needs, has)| needs > has) {
        let (needs, has) = (variant.local_size, limits.local_size);
        return Some(Reason::LocalSize { needs, has });
    }
    if variant.push_bytes > limits.push_bytes {
        return Some(Reason::Push { needs: variant.push_bytes, has: limits.push_bytes });
    }
    None
}

/// Classes in the order they are tried.
fn preference(software: bool) -> [Class; 3] {
    match software {
        true => [Class::Cpu, Class::Subgroup, Class::Portable],
        false => [Class::Subgroup, Class::Portable, Class::Cpu],
    }
}

#[cfg(test)]
mod tests;
