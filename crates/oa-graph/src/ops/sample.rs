//! Sample inputs: what gradient checks and device tests feed an op.

use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;

/// One set of inputs for an op.
pub struct Sample {
    /// Inputs in op order.
    pub inputs: Vec<HostTensor>,
    /// Attributes.
    pub attrs: Attrs,
    /// True when the sample is too large for finite differences and for slow drivers.
    pub large: bool,
}

impl Sample {
    /// A small sample.
    pub fn new(inputs: Vec<HostTensor>, attrs: Attrs) -> Sample {
        Sample { inputs, attrs, large: false }
    }

    /// The same sample, marked as large: no finite differences, device tests only where asked.
    pub fn large(mut self) -> Sample {
        self.large = true;
        self
    }
}

/// A small deterministic generator (SplitMix64), so that samples are the same on every machine.
pub struct Source(u64);

impl Source {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Source {
        Source(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform number in `[low, high)`, exactly representable in f32.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.bits() >> 40) as f64 / (1u64 << 24) as f64;
        f64::from((low + unit * (high - low)) as f32)
    }
}

/// Uniform f32 values in `[low, high)`.
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, seed: u64) -> HostTensor {
    let (shape, mut source) = (shape.into(), Source::new(seed));
    let data = (0..shape.elems()).map(|_| source.uniform(low, high)).collect();
    HostTensor::new(Spec::f32(shape), data)
}

/// Values in `[-1, 1)`.
pub fn signed(shape: impl Into<Shape>, seed: u64) -> HostTensor {
    uniform(shape, -1.0, 1.0, seed)
}

/// Unsigned integers in `0..below`.
pub fn ids(shape: impl Into<Shape>, below: u32, seed: u64) -> HostTensor {
    let (shape, mut source) = (shape.into(), Source::new(seed));
    let data = (0..shape.elems()).map(|_| (source.bits() % u64::from(below)) as f64).collect();
    HostTensor::new(Spec::u32(shape), data)
}
