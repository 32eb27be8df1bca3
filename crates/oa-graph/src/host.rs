//! Values on the host, in double precision: what the f64 reference computes with.

use crate::shape::Shape;
use oa_kernels::DType;

/// Shape and element type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Dimensions.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Spec {
    /// A value of 32-bit floats.
    pub fn f32(shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), dtype: DType::F32 }
    }

    /// A value of unsigned 32-bit integers.
    pub fn u32(shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), dtype: DType::U32 }
    }

    /// A value of signed 32-bit integers.
    pub fn i32(shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), dtype: DType::I32 }
    }

    /// Bytes of the value in a buffer.
    pub fn len_bytes(&self) -> u64 {
        (self.shape.elems() * self.dtype.len_bytes()) as u64
    }
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// A host value in double precision; integers are held exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Shape and the element type it stands for.
    pub spec: Spec,
    /// Row-major elements.
    pub data: Vec<f64>,
}

impl HostTensor {
    /// A value from its elements.
    pub fn new(spec: Spec, data: Vec<f64>) -> HostTensor {
        assert_eq!(
            spec.shape.elems(),
            data.len(),
            "a host value has as many elements as its shape"
        );
        HostTensor { spec, data }
    }

    /// A value of 32-bit floats from its elements.
    pub fn f32(shape: impl Into<Shape>, data: Vec<f64>) -> HostTensor {
        HostTensor::new(Spec::f32(shape), data)
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.spec.shape
    }

    /// The elements as the bytes a device buffer holds.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.data.len() * 4);
        for &value in &self.data {
            match self.spec.dtype {
                DType::F32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
                DType::U32 => bytes.extend_from_slice(&(value as u32).to_le_bytes()),
                DType::I32 => bytes.extend_from_slice(&(value as i32).to_le_bytes()),
            }
        }
        bytes
    }

    /// The inverse of [`HostTensor::to_bytes`].
    pub fn from_bytes(spec: Spec, bytes: &[u8]) -> HostTensor {
        let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        let data = match spec.dtype {
            DType::F32 => words.map(|b| f64::from(f32::from_le_bytes(b))).collect(),
            DType::U32 => words.map(|b| f64::from(u32::from_le_bytes(b))).collect(),
            DType::I32 => words.map(|b| f64::from(i32::from_le_bytes(b))).collect(),
        };
        HostTensor::new(spec, data)
    }
}
