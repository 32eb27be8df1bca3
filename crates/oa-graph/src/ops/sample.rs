//! Sample inputs: what gradient checks and device tests feed an op.

use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

/// Inputs and attributes for an op.
pub struct Case {
    /// Inputs in op order.
    pub inputs: Vec<HostTensor>,
    /// Attributes.
    pub attrs: Attrs,
}

/// One case for an op. A large one is made when it is first looked at, so that walking the op table
/// costs nothing for the samples that are passed over.
pub struct Sample {
    /// True when the sample is too large for finite differences and for slow drivers.
    pub large: bool,
    case: LazyLock<Case, Box<dyn FnOnce() -> Case + Send>>,
}

impl Sample {
    /// A small sample.
    pub fn new(inputs: Vec<HostTensor>, attrs: Attrs) -> Sample {
        Sample::of(false, move || Case { inputs, attrs })
    }

    /// The same sample, marked as large: no finite differences, device tests only where asked.
    pub fn large(mut self) -> Sample {
        self.large = true;
        self
    }

    /// A large sample that `make` makes once somebody looks at it.
    pub fn later(make: impl FnOnce() -> Sample + Send + 'static) -> Sample {
        Sample::of(true, move || make().into_case())
    }

    /// The same sample with other inputs, made from its own.
    pub fn map(
        self,
        change: impl FnOnce(Vec<HostTensor>, &Attrs) -> Vec<HostTensor> + Send + 'static,
    ) -> Sample {
        Sample::of(self.large, move || {
            let Case { inputs, attrs } = self.into_case();
            Case { inputs: change(inputs, &attrs), attrs }
        })
    }

    fn of(large: bool, make: impl FnOnce() -> Case + Send + 'static) -> Sample {
        Sample { large, case: LazyLock::new(Box::new(make)) }
    }

    fn into_case(mut self) -> Case {
        let none = Case { inputs: Vec::new(), attrs: Attrs::NONE };
        std::mem::replace(&mut *self, none)
    }
}

impl Deref for Sample {
    type Target = Case;

    fn deref(&self) -> &Case {
        &self.case
    }
}

impl DerefMut for Sample {
    fn deref_mut(&mut self) -> &mut Case {
        LazyLock::force_mut(&mut self.case)
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

/// Elements after which the values of a long sample repeat: copying is what keeps samples of
/// millions of elements cheap. A prime, so that no kernel's tiles are alike.
const PERIOD: usize = 1_048_573;

/// Uniform f32 values in `[low, high)`.
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, seed: u64) -> HostTensor {
    let (shape, mut source) = (shape.into(), Source::new(seed));
    let count = shape.elems();
    let mut data = Vec::with_capacity(count);
    data.extend((0..count.min(PERIOD)).map(|_| source.uniform(low, high)));
    while data.len() < count {
        data.extend_from_within(..PERIOD.min(count - data.len()));
    }
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

/// The shapes every elementwise op is tested with: around the sizes of workgroups, and odd rows.
pub fn ragged() -> [Shape; 6] {
    [Shape::SCALAR, [1].into(), [127].into(), [129].into(), [3, 5, 7].into(), [2, 1, 3, 43].into()]
}

/// A shape with more elements than a 32-bit float counts exactly: 2^24 + 1.
pub fn elements_past_f32() -> Shape {
    [16_777_217].into()
}

/// Values in `(-3, -0.25]` and `[0.25, 3)`: no finite difference crosses a kink at zero.
pub fn away_from_zero(shape: impl Into<Shape>, seed: u64) -> HostTensor {
    let mut x = uniform(shape, -2.75, 2.75, seed);
    // Rounded, so that a device sees the same numbers.
    let push = |x: f64| f64::from((x + 0.25f64.copysign(x)) as f32);
    x.data.iter_mut().for_each(|x| *x = push(*x));
    x
}
