//! Wire codes: how the elements of a stored tensor are encoded.
//!
//! A code is a promise to every file ever written: it is never reused and never renumbered. This
//! release writes and reads `f32`; the other codes are reserved, so that a file that uses them is
//! refused by name.

use crate::error::Fault;

/// Encoding of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// 32-bit IEEE floats, little-endian.
    F32,
    /// 16-bit IEEE floats, little-endian; reserved.
    F16,
    /// The upper halves of 32-bit floats, little-endian; reserved.
    Bf16,
    /// Blocks of 8-bit integers with a scale; reserved.
    Q8,
    /// Blocks of 4-bit integers with a scale; reserved.
    Q4,
}

impl Encoding {
    /// The number that stands for it in a file.
    pub fn code(self) -> u32 {
        match self {
            Encoding::F32 => 1,
            Encoding::F16 => 2,
            Encoding::Bf16 => 3,
            Encoding::Q8 => 4,
            Encoding::Q4 => 5,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::F32 => "f32",
            Encoding::F16 => "f16",
            Encoding::Bf16 => "bf16",
            Encoding::Q8 => "q8",
            Encoding::Q4 => "q4",
        }
    }

    /// The encoding of a code that this release reads.
    pub(crate) fn readable(code: u32, tensor: &str) -> Result<Encoding, Fault> {
        let all = [Encoding::F32, Encoding::F16, Encoding::Bf16, Encoding::Q8, Encoding::Q4];
        match all.into_iter().find(|encoding| encoding.code() == code) {
            Some(Encoding::F32) => Ok(Encoding::F32),
            Some(reserved) => {
                Err(Fault::ReservedEncoding { tensor: tensor.into(), name: reserved.name() })
            }
            None => Err(Fault::UnknownEncoding { tensor: tensor.into(), code }),
        }
    }
}
