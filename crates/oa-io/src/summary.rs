//! What a file says about itself, for people and for programs.
//!
//! A summary is read from header and manifest alone; it holds no tensor data.

use crate::dtype::Encoding;
use crate::error::Fault;
use crate::layout::{Section, VERSION};
use crate::manifest::{Attribute, Entry, List, Manifest, Value};
use crate::reader::Reader;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// A field of a file and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Field {
    /// Dotted key.
    pub key: String,
    /// Value.
    pub value: FieldValue,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// True or false.
    Bool(bool),
    /// A count.
    Count(u64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Bool(value) => write!(f, "{value}"),
            FieldValue::Count(value) => write!(f, "{value}"),
            FieldValue::F32(value) => write!(f, "{value}"),
            FieldValue::F64(value) => write!(f, "{value}"),
            FieldValue::Text(value) => f.write_str(value),
        }
    }
}

/// A stored tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorSummary {
    /// Dotted parameter name.
    pub name: String,
    /// Encoding of the elements.
    pub encoding: Encoding,
    /// Logical dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Version of the format.
    pub version: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Identity of the architecture.
    pub architecture: String,
    /// Configuration of the model.
    #[serde(serialize_with = "as_map")]
    pub model: Vec<Field>,
    /// Tokenizer.
    #[serde(serialize_with = "as_map")]
    pub tokenizer: Vec<Field>,
    /// The training run; empty without one.
    #[serde(serialize_with = "as_map")]
    pub training: Vec<Field>,
    /// Elements of all weights.
    pub parameters: u64,
    /// Weights, in declaration order.
    pub tensors: Vec<TensorSummary>,
    /// Free metadata.
    pub metadata: BTreeMap<String, String>,
    /// The section table.
    pub sections: Vec<Section>,
}

impl Summary {
    /// The step of the training run; `None` without one.
    pub fn step(&self) -> Option<u64> {
        let field = self.training.iter().find(|field| field.key == "step")?;
        if let FieldValue::Count(step) = field.value { Some(step) } else { None }
    }

    pub(crate) fn of<R>(reader: &Reader<R>) -> Result<Summary, Fault> {
        let Manifest { architecture, model, tokenizer, training, weights, slots: _, metadata } =
            &reader.manifest;
        let weights_at = reader
            .sections
            .iter()
            .find(|section| section.kind == crate::layout::Kind::Weights)
            .map_or(0, |section| section.offset);
        let tensors = weights.0.iter().map(|entry| tensor(entry, weights_at));
        let tensors = tensors.collect::<Result<Vec<_>, Fault>>()?;
        let elements = |tensor: &TensorSummary| tensor.shape.iter().product::<u64>();
        Ok(Summary {
            version: VERSION,
            file_bytes: reader.file_bytes,
            architecture: architecture.0.clone(),
            model: fields(model),
            tokenizer: fields(tokenizer),
            training: fields(training),
            parameters: tensors.iter().map(elements).sum(),
            tensors,
            metadata: metadata.0.iter().map(|n| (n.name.0.clone(), n.text.0.clone())).collect(),
            sections: reader.sections.clone(),
        })
    }
}

fn tensor(entry: &Entry, section_at: u64) -> Result<TensorSummary, Fault> {
    Ok(TensorSummary {
        name: entry.name.0.clone(),
        encoding: Encoding::readable(entry.encoding, &entry.name.0)?,
        shape: entry.shape.0.clone(),
        offset: section_at + entry.offset,
        bytes: entry.length,
    })
}

fn fields(attributes: &List<Attribute>) -> Vec<Field> {
    let field = |attribute: &Attribute| Field {
        key: attribute.key.0.clone(),
        value: match &attribute.value {
            Value::Bool(value) => FieldValue::Bool(*value),
            Value::Count(value) => FieldValue::Count(*value),
            Value::F32(value) => FieldValue::F32(*value),
            Value::F64(value) => FieldValue::F64(*value),
            Value::Text(value) => FieldValue::Text(value.0.clone()),
        },
    };
    attributes.0.iter().map(field).collect()
}

fn as_map<S: Serializer>(fields: &[Field], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|field| (&field.key, &field.value)))
}
