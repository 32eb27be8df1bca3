//! Activations by name, for layers whose configuration chooses one.

use crate::error::Result;
use oa_graph::Tensor;
use std::str::FromStr;

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Activation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x Phi(x)`, exact.
    Gelu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// `x sigmoid(x)`.
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

/// Every activation and its name.
const NAMES: [(&str, Activation); 6] = [
    ("relu", Activation::Relu),
    ("gelu", Activation::Gelu),
    ("gelu_tanh", Activation::GeluTanh),
    ("silu", Activation::Silu),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
];

/// A name that no activation has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no activation `{name}`; there are relu, gelu, gelu_tanh, silu, tanh and sigmoid")]
pub struct UnknownActivation {
    /// The name.
    pub name: Box<str>,
}

impl Activation {
    /// The name that [`Activation::from_str`] understands.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, activation)| *activation == self);
        found.expect("every activation has a name").0
    }

    /// Applies it to every element.
    ///
    /// # Errors
    ///
    /// When the element type is not f32.
    #[track_caller]
    pub fn forward(self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Activation::Relu => x.relu()?,
            Activation::Gelu => x.gelu()?,
            Activation::GeluTanh => x.gelu_tanh()?,
            Activation::Silu => x.silu()?,
            Activation::Tanh => x.tanh()?,
            Activation::Sigmoid => x.sigmoid()?,
        })
    }
}

impl FromStr for Activation {
    type Err = UnknownActivation;

    fn from_str(name: &str) -> Result<Activation, UnknownActivation> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, activation)| *activation)
            .ok_or_else(|| UnknownActivation { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for (name, activation) in NAMES {
            assert_eq!(activation.name().parse(), Ok(activation));
            assert_eq!(activation.name(), name);
        }
        let message = "swish".parse::<Activation>().unwrap_err().to_string();
        assert!(message.starts_with("there is no activation `swish`; there are"), "{message}");
    }
}
