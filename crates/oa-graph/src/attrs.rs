//! Op attributes as plain data.
//!
//! Each op says in its docstring which slots it uses. Fixed slots keep a node `Copy`-cheap and make
//! a fingerprint a matter of hashing words.

/// Attributes of one op: eight integers and four floats; unused slots are zero.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Attrs {
    /// Integer attributes.
    pub int: [u32; 8],
    /// Float attributes.
    pub float: [f32; 4],
}

impl Attrs {
    /// No attributes.
    pub const NONE: Attrs = Attrs { int: [0; 8], float: [0.0; 4] };

    /// Integer attributes in slot order.
    pub fn ints(values: &[u32]) -> Attrs {
        let mut attrs = Attrs::NONE;
        attrs.int[..values.len()].copy_from_slice(values);
        attrs
    }

    /// Float attributes in slot order.
    pub fn floats(values: &[f32]) -> Attrs {
        Attrs::NONE.with_floats(values)
    }

    /// The same integers with these floats.
    pub fn with_floats(mut self, values: &[f32]) -> Attrs {
        self.float[..values.len()].copy_from_slice(values);
        self
    }

    /// The bits, for fingerprints and dumps.
    pub fn words(&self) -> [u32; 12] {
        let mut words = [0; 12];
        words[..8].copy_from_slice(&self.int);
        for (word, float) in words[8..].iter_mut().zip(self.float) {
            *word = float.to_bits();
        }
        words
    }
}
