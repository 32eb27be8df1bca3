//! Shapes: up to four dimensions, row-major.
//!
//! A shape is a small `Copy` value so that recording an op allocates nothing for it.

use std::fmt;

/// Most dimensions a value may have.
pub const MAX_DIMS: usize = 4;

/// The dimensions of a value, outermost first. A scalar has no dimensions and one element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: [usize; MAX_DIMS],
    rank: u8,
}

impl Shape {
    /// A scalar: no dimensions, one element.
    pub const SCALAR: Shape = Shape { dims: [1; MAX_DIMS], rank: 0 };

    /// A shape from its dimensions; `None` with more than [`MAX_DIMS`] of them or when the
    /// number of elements does not fit in a `usize`.
    pub fn try_new(dims: &[usize]) -> Option<Shape> {
        if dims.len() > MAX_DIMS {
            return None;
        }
        dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
        let mut shape = Shape { dims: [1; MAX_DIMS], rank: dims.len() as u8 };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Some(shape)
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.dims().iter().product()
    }

    /// The innermost dimension; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// Number of rows when the value is seen as `[rows, last]`.
    pub fn rows(&self) -> usize {
        self.dims().iter().rev().skip(1).product()
    }

    /// This shape with its innermost dimension replaced.
    pub fn with_last(mut self, last: usize) -> Shape {
        assert!(self.rank > 0, "with_last needs at least one dimension");
        self.dims[self.rank as usize - 1] = last;
        self
    }
}

/// Builds a shape from dimensions known to be at most [`MAX_DIMS`].
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        const { assert!(N <= MAX_DIMS, "a shape has at most four dimensions") };
        Shape::try_new(&dims).expect("the number of elements fits in a usize")
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dim) in self.dims().iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
