//! Named fields of plain data, told once for both directions.
//!
//! A function that visits the fields of a structure serves writing and reading alike, so a key
//! cannot be spelled in two ways. Unknown keys are refused: what a newer release found worth
//! storing may decide a bit.

use crate::error::Fault;
use crate::index;
use crate::limits;
use crate::manifest::{Attribute, List, Text, Value};
use std::collections::BTreeMap;

/// A direction: into a file or out of it.
pub(crate) trait Fields {
    /// Visits a field that is always there.
    fn field<T: Scalar>(&mut self, key: &str, value: &mut T) -> Result<(), Fault>;

    /// Visits a field that may be absent.
    fn optional<T: Scalar + Default>(
        &mut self,
        key: &str,
        value: &mut Option<T>,
    ) -> Result<(), Fault>;

    /// Visits a choice by name; the first name that stands for the value is the one written.
    fn choice<T: Clone + PartialEq>(
        &mut self,
        key: &str,
        what: &'static str,
        value: &mut T,
        choices: &[(&'static str, T)],
    ) -> Result<(), Fault> {
        let name = choices.iter().find(|(_, choice)| choice == value).map(|(name, _)| *name);
        let mut name = name.unwrap_or_default().to_owned();
        self.field(key, &mut name)?;
        match choices.iter().find(|(known, _)| *known == name) {
            Some((_, choice)) => *value = choice.clone(),
            None => return Err(Fault::Identity { what, name: name.into() }),
        }
        Ok(())
    }
}

/// A value that one field holds.
pub(crate) trait Scalar: Sized {
    /// What it is, for messages.
    const EXPECTED: &'static str;

    /// The value as it is stored.
    fn store(&self) -> Value;

    /// The value that was stored, if it is one of this kind.
    fn restore(value: Value) -> Option<Self>;
}

impl Scalar for bool {
    const EXPECTED: &'static str = "true or false";

    fn store(&self) -> Value {
        Value::Bool(*self)
    }

    fn restore(value: Value) -> Option<bool> {
        if let Value::Bool(value) = value { Some(value) } else { None }
    }
}

impl Scalar for u64 {
    const EXPECTED: &'static str = "a count";

    fn store(&self) -> Value {
        Value::Count(*self)
    }

    fn restore(value: Value) -> Option<u64> {
        if let Value::Count(value) = value { Some(value) } else { None }
    }
}

impl Scalar for u32 {
    const EXPECTED: &'static str = "a count of 32 bits";

    fn store(&self) -> Value {
        Value::Count(u64::from(*self))
    }

    fn restore(value: Value) -> Option<u32> {
        u64::restore(value)?.try_into().ok()
    }
}

impl Scalar for usize {
    const EXPECTED: &'static str = "a count that this machine can address";

    fn store(&self) -> Value {
        Value::Count(*self as u64)
    }

    fn restore(value: Value) -> Option<usize> {
        u64::restore(value)?.try_into().ok()
    }
}

impl Scalar for f32 {
    const EXPECTED: &'static str = "a 32-bit float";

    fn store(&self) -> Value {
        Value::F32(*self)
    }

    fn restore(value: Value) -> Option<f32> {
        if let Value::F32(value) = value { Some(value) } else { None }
    }
}

impl Scalar for f64 {
    const EXPECTED: &'static str = "a 64-bit float";

    fn store(&self) -> Value {
        Value::F64(*self)
    }

    fn restore(value: Value) -> Option<f64> {
        if let Value::F64(value) = value { Some(value) } else { None }
    }
}

impl Scalar for String {
    const EXPECTED: &'static str = "a text";

    fn store(&self) -> Value {
        Value::Text(Text(self.clone()))
    }

    fn restore(value: Value) -> Option<String> {
        if let Value::Text(Text(value)) = value { Some(value) } else { None }
    }
}

/// Into a file.
#[derive(Default)]
pub(crate) struct Put {
    attributes: Vec<Attribute>,
}

impl Put {
    /// The fields that were visited, in order.
    pub(crate) fn finish(self) -> Result<List<Attribute>, Fault> {
        index::within("fields", self.attributes.len() as u64, limits::ATTRIBUTES)?;
        Ok(List(self.attributes))
    }
}

impl Fields for Put {
    fn field<T: Scalar>(&mut self, key: &str, value: &mut T) -> Result<(), Fault> {
        let value = value.store();
        if let Value::Text(Text(text)) = &value {
            index::within("bytes of text", text.len() as u64, limits::TEXT_BYTES)?;
        }
        self.attributes.push(Attribute { key: key.into(), value });
        Ok(())
    }

    fn optional<T: Scalar + Default>(
        &mut self,
        key: &str,
        value: &mut Option<T>,
    ) -> Result<(), Fault> {
        value.as_mut().map_or(Ok(()), |value| self.field(key, value))
    }
}

/// Out of a file.
pub(crate) struct Take {
    left: BTreeMap<String, Value>,
}

impl Take {
    /// Takes fields from a list, each key of which must be there once.
    pub(crate) fn new(attributes: &List<Attribute>) -> Result<Take, Fault> {
        index::names(attributes.0.iter().map(|attribute| attribute.key.0.as_str()))?;
        let pairs = attributes.0.iter().map(|attribute| {
            let Attribute { key, value } = attribute.clone();
            (key.0, value)
        });
        Ok(Take { left: pairs.collect() })
    }

    /// Refuses fields that were not asked for.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        match self.left.into_keys().next() {
            Some(key) => Err(Fault::FieldUnknown { key: key.into() }),
            None => Ok(()),
        }
    }
}

impl Fields for Take {
    fn field<T: Scalar>(&mut self, key: &str, value: &mut T) -> Result<(), Fault> {
        let mut found = None;
        self.take(key, &mut found)?;
        *value = found.ok_or(Fault::FieldMissing { key: key.into() })?;
        Ok(())
    }

    fn optional<T: Scalar + Default>(
        &mut self,
        key: &str,
        value: &mut Option<T>,
    ) -> Result<(), Fault> {
        self.take(key, value)
    }
}

impl Take {
    fn take<T: Scalar>(&mut self, key: &str, value: &mut Option<T>) -> Result<(), Fault> {
        let wrong = Fault::FieldValue { key: key.into(), expected: T::EXPECTED };
        *value = match self.left.remove(key) {
            Some(stored) => Some(T::restore(stored).ok_or(wrong)?),
            None => None,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(key: &str, value: Value) -> Attribute {
        Attribute { key: key.into(), value }
    }

    fn check(attributes: Vec<Attribute>, expected: &str) {
        let verdict = Take::new(&List(attributes)).and_then(|mut take| {
            let (mut width, mut rate) = (0u32, None::<f64>);
            take.field("width", &mut width)?;
            take.optional("rate", &mut rate)?;
            take.finish()
        });
        assert_eq!(verdict.map_or_else(|fault| fault.to_string(), |()| "whole".into()), expected);
    }

    #[test]
    fn fields_are_judged() {
        let width = || attribute("width", Value::Count(3));
        check(vec![width()], "whole");
        check(vec![width(), attribute("rate", Value::F64(0.5))], "whole");
        check(vec![], "the field `width` is missing");
        check(vec![width(), width()], "`width` is there twice");
        check(
            vec![width(), attribute("new", Value::Bool(true))],
            "the field `new` is unknown to this release",
        );
        check(
            vec![attribute("width", Value::Count(1 << 32))],
            "the field `width` does not hold a count of 32 bits",
        );
        check(
            vec![width(), attribute("rate", Value::F32(0.5))],
            "the field `rate` does not hold a 64-bit float",
        );
    }
}
