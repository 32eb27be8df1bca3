//! Reads the published test vectors (safetensors files) for the unit tests of this crate.
//!
//! Test code only: the file reader proper is a crate above. A missing folder is a failure.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The tensors of one vector file.
pub(crate) struct Vectors {
    header: serde_json::Value,
    data: Vec<u8>,
}

impl Vectors {
    /// Opens `<name>.safetensors` of the repository's copy.
    pub(crate) fn open(name: &str) -> Vectors {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/vectors");
        let bytes = std::fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
        let header = serde_json::from_slice(&rest[..length]).unwrap();
        Vectors { header, data: rest[length..].to_vec() }
    }

    fn bytes(&self, name: &str) -> &[u8] {
        let range = &self.header[name]["data_offsets"];
        let end = |index: usize| {
            range[index].as_u64().unwrap_or_else(|| panic!("no tensor {name}")) as usize
        };
        &self.data[end(0)..end(1)]
    }

    /// Dimensions of a tensor.
    pub(crate) fn shape(&self, name: &str) -> Vec<usize> {
        let shape = self.header[name]["shape"].as_array().unwrap();
        shape.iter().map(|dim| dim.as_u64().unwrap() as usize).collect()
    }

    /// Elements of an f32 tensor.
    pub(crate) fn f32(&self, name: &str) -> Vec<f32> {
        let words = self.bytes(name).chunks_exact(4);
        words.map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Elements of an f64 tensor.
    pub(crate) fn f64(&self, name: &str) -> Vec<f64> {
        let words = self.bytes(name).chunks_exact(8);
        words.map(|word| f64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Elements of an i32 tensor.
    pub(crate) fn i32(&self, name: &str) -> Vec<i32> {
        let words = self.bytes(name).chunks_exact(4);
        words.map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Elements of a u32 tensor.
    pub(crate) fn u32(&self, name: &str) -> Vec<u32> {
        self.i32(name).into_iter().map(|word| word as u32).collect()
    }

    /// Names with a prefix, without it, in the order of the names.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let object = self.header.as_object().unwrap();
        let sorted: BTreeMap<_, _> = object.iter().collect();
        sorted.keys().filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned).collect()
    }
}
