//! Shape rules that several ops share.

use super::OpCall;
use crate::error::ShapeError;
use crate::host::Spec;
use crate::shape::Shape;
use oa_kernels::DType;

/// What an `infer` function returns.
pub type Inferred = std::result::Result<Vec<Spec>, ShapeError>;

/// The error of a rule that expected something else.
pub fn refuse(call: &OpCall, expected: &'static str) -> Inferred {
    Err(ShapeError::new(expected, call.inputs))
}

/// One f32 value in, the same shape out.
pub fn same1(call: &OpCall) -> Inferred {
    match call.inputs {
        [x] if x.dtype == DType::F32 => Ok(vec![*x]),
        _ => refuse(call, "one f32 value"),
    }
}

/// Two f32 values of one shape in, that shape out.
pub fn same2(call: &OpCall) -> Inferred {
    match call.inputs {
        [a, b] if a == b && a.dtype == DType::F32 => Ok(vec![*a]),
        _ => refuse(call, "two f32 values of one shape"),
    }
}

/// Three f32 values of one shape in, that shape out.
pub fn same3(call: &OpCall) -> Inferred {
    match call.inputs {
        [a, b, c] if a == b && b == c && a.dtype == DType::F32 => Ok(vec![*a]),
        _ => refuse(call, "three f32 values of one shape"),
    }
}

/// True when `suffix` is what is left of `shape` without some of its leading axes.
pub fn is_suffix(suffix: Shape, shape: Shape) -> bool {
    shape.dims().ends_with(suffix.dims())
}
