//! The manifest: what the file holds, in bincode 2 with fixed-width integers.
//!
//! Its texts and lists decode themselves: each looks at the bytes that are left before it asks for
//! memory, so a manifest never allocates more than a small multiple of its own length.

use crate::error::Fault;
use crate::limits;
use bincode::de::Decoder;
use bincode::de::read::Reader;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

/// The whole manifest.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub(crate) struct Manifest {
    /// Identity of the architecture.
    pub(crate) architecture: Text,
    /// Configuration of the model.
    pub(crate) model: List<Attribute>,
    /// Identity and configuration of the tokenizer.
    pub(crate) tokenizer: List<Attribute>,
    /// The training run; empty without one.
    pub(crate) training: List<Attribute>,
    /// Weights, in declaration order.
    pub(crate) weights: List<Entry>,
    /// Tensor lists of the optimizer; empty without a training run.
    pub(crate) slots: List<Slot>,
    /// Free metadata, sorted by name.
    pub(crate) metadata: List<Note>,
}

/// One tensor list of the optimizer, such as the first moments.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Slot {
    /// Its name: `m` or `v`.
    pub(crate) name: Text,
    /// Its tensors, by parameter name.
    pub(crate) tensors: List<Entry>,
}

/// One stored tensor.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Entry {
    /// Dotted parameter name.
    pub(crate) name: Text,
    /// Wire code of its elements.
    pub(crate) encoding: u32,
    /// Logical dimensions, outermost first.
    pub(crate) shape: List<u64>,
    /// Where it begins in its section.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) length: u64,
    /// Where its scales begin in its section; 0 without scales of their own.
    pub(crate) scale_offset: u64,
    /// Bytes of its scales; 0 without scales of their own.
    pub(crate) scale_length: u64,
    /// Elements that share a scale; 0 for dense elements.
    pub(crate) group: u32,
}

/// One field: a dotted key and a value.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Attribute {
    /// Key.
    pub(crate) key: Text,
    /// Value.
    pub(crate) value: Value,
}

/// One entry of the metadata.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Note {
    /// Name.
    pub(crate) name: Text,
    /// Text.
    pub(crate) text: Text,
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Value {
    /// True or false.
    Bool(bool),
    /// A count.
    Count(u64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A text.
    Text(Text),
}

/// A text of at most [`limits::TEXT_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(pub(crate) String);

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.to_owned())
    }
}

impl Encode for Text {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.0.encode(encoder)
    }
}

impl<C> Decode<C> for Text {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Text, DecodeError> {
        let length = believable(decoder, 1, limits::TEXT_BYTES)?;
        let bytes = decoder.reader().peek_read(length).expect("the length was believable");
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        decoder.reader().consume(length);
        text.map(Text).map_err(|inner| DecodeError::Utf8 { inner })
    }
}

bincode::impl_borrow_decode!(Text);

/// A list whose length was held against the bytes that are left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

impl<T: Encode + 'static> Encode for List<T> {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.0.encode(encoder)
    }
}

impl<C, T: Listed + Decode<C>> Decode<C> for List<T> {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<List<T>, DecodeError> {
        let length = believable(decoder, T::LEAST_BYTES, T::LIMIT)?;
        let mut items = Vec::with_capacity(length);
        for _ in 0..length {
            items.push(T::decode(decoder)?);
        }
        Ok(List(items))
    }
}

impl<'de, C, T: Listed + Decode<C>> bincode::BorrowDecode<'de, C> for List<T> {
    fn borrow_decode<D: bincode::de::BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<List<T>, DecodeError> {
        List::decode(decoder)
    }
}

/// What a list must know of its items.
pub(crate) trait Listed {
    /// Bytes that the shortest item takes.
    const LEAST_BYTES: usize;
    /// Most items of a list.
    const LIMIT: u64;
}

impl Listed for u64 {
    const LEAST_BYTES: usize = 8;
    const LIMIT: u64 = limits::DIMENSIONS;
}

impl Listed for Entry {
    const LEAST_BYTES: usize = 8 + 4 + 8 + 4 * 8 + 4;
    const LIMIT: u64 = limits::TENSORS;
}

impl Listed for Slot {
    const LEAST_BYTES: usize = 8 + 8;
    const LIMIT: u64 = limits::SLOTS;
}

impl Listed for Attribute {
    const LEAST_BYTES: usize = 8 + 4 + 1;
    const LIMIT: u64 = limits::ATTRIBUTES;
}

impl Listed for Note {
    const LEAST_BYTES: usize = 8 + 8;
    const LIMIT: u64 = limits::ATTRIBUTES;
}

/// Reads a length and believes it only within `limit` and within the bytes that are left.
fn believable<D: Decoder>(
    decoder: &mut D,
    least_bytes: usize,
    limit: u64,
) -> Result<usize, DecodeError> {
    let length: u64 = u64::decode(&mut decoder.with_context(()))?;
    if length > limit {
        return Err(DecodeError::LimitExceeded);
    }
    let bytes = length as usize * least_bytes;
    match decoder.reader().peek_read(bytes) {
        Some(_) => Ok(length as usize),
        None => Err(DecodeError::UnexpectedEnd { additional: bytes }),
    }
}

const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<{ limits::MANIFEST_BYTES as usize }>,
> = bincode::config::standard()
    .with_little_endian()
    .with_fixed_int_encoding()
    .with_limit::<{ limits::MANIFEST_BYTES as usize }>();

impl Manifest {
    /// The manifest as bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Fault> {
        let bytes = bincode::encode_to_vec(self, CONFIG).expect("encoding to memory cannot fail");
        let found = bytes.len() as u64;
        if found > limits::MANIFEST_BYTES {
            let limit = limits::MANIFEST_BYTES;
            return Err(Fault::Limit { what: "bytes of manifest", found, limit });
        }
        Ok(bytes)
    }

    /// The manifest in some bytes, all of which it must take.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, Fault> {
        let (manifest, read) = bincode::decode_from_slice::<Manifest, _>(bytes, CONFIG)
            .map_err(|error| Fault::Decode(Box::new(error)))?;
        match bytes.len() - read {
            0 => Ok(manifest),
            unread => Err(Fault::ManifestTrailing { unread: unread as u64 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_texts_believe_no_length_that_is_not_there() {
        let refuse = |bytes: &[u8]| match Manifest::decode(bytes) {
            Err(Fault::Decode(error)) => *error,
            other => panic!("{other:?}"),
        };
        let mut bytes = Manifest::default().encode().unwrap();
        assert_eq!(bytes.len(), 7 * 8);
        bytes[0..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(refuse(&bytes), DecodeError::LimitExceeded));
        bytes[0..8].copy_from_slice(&1000u64.to_le_bytes());
        assert!(matches!(refuse(&bytes), DecodeError::UnexpectedEnd { .. }));
        bytes[0..8].copy_from_slice(&0u64.to_le_bytes());
        bytes[32..40].copy_from_slice(&(1u64 << 20).to_le_bytes());
        assert!(matches!(refuse(&bytes), DecodeError::UnexpectedEnd { .. }));
        assert!(matches!(refuse(&[]), DecodeError::UnexpectedEnd { .. }));
    }

    #[test]
    fn shortest_items_are_as_short_as_declared() {
        let bytes = |list: &dyn Fn(&mut Manifest)| {
            let mut manifest = Manifest::default();
            list(&mut manifest);
            manifest.encode().unwrap().len() - 7 * 8
        };
        let text = Text::default;
        let entry = Entry {
            name: text(),
            encoding: 1,
            shape: List::default(),
            offset: 0,
            length: 0,
            scale_offset: 0,
            scale_length: 0,
            group: 0,
        };
        let slot = Slot { name: text(), tensors: List::default() };
        let attribute = Attribute { key: text(), value: Value::Bool(true) };
        let note = Note { name: text(), text: text() };
        assert_eq!(bytes(&|m| m.weights.0.push(entry.clone())), Entry::LEAST_BYTES);
        assert_eq!(bytes(&|m| m.slots.0.push(slot.clone())), Slot::LEAST_BYTES);
        assert_eq!(bytes(&|m| m.model.0.push(attribute.clone())), Attribute::LEAST_BYTES);
        assert_eq!(bytes(&|m| m.metadata.0.push(note.clone())), Note::LEAST_BYTES);
    }
}
