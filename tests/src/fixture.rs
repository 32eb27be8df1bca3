//! Reference vectors: one safetensors file of inputs, expected outputs and gradients.
//!
//! The file says by its metadata which family it belongs to and how it was computed; a runner
//! takes every size from there, so that other files of the same family can be dropped in.

use anyhow::{Context, Result, bail};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The elements of a tensor, in the type they are stored in.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Signed integers.
    I32(Vec<i32>),
    /// Unsigned words.
    U32(Vec<u32>),
    /// Bytes.
    U8(Vec<u8>),
}

/// One named tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Row-major elements.
    pub elements: Elements,
}

/// One file of vectors.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// File name without its extension.
    pub name: String,
    /// Family by the metadata, else the file name.
    pub family: String,
    /// How it was computed.
    pub config: Value,
    arrays: BTreeMap<String, Array>,
}

impl Fixture {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is no safetensors file, holds another element type than f32,
    /// f64, i32, u32 and u8, or has a configuration that is not JSON.
    pub fn read(path: &Path) -> Result<Fixture> {
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let refused = || format!("{} is no safetensors file", path.display());
        let (_, header) = SafeTensors::read_metadata(&bytes).with_context(refused)?;
        let file = SafeTensors::deserialize(&bytes).with_context(refused)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let family = metadata.get("family").cloned().unwrap_or_else(|| name.clone());
        let config = match metadata.get("config") {
            Some(text) => serde_json::from_str(text).context("the config is not JSON")?,
            None => Value::Null,
        };
        let mut arrays = BTreeMap::new();
        for (name, view) in file.tensors() {
            let elements = match view.dtype() {
                Dtype::F32 => Elements::F32(words(view.data(), f32::from_le_bytes)),
                Dtype::F64 => Elements::F64(words(view.data(), f64::from_le_bytes)),
                Dtype::I32 => Elements::I32(words(view.data(), i32::from_le_bytes)),
                Dtype::U32 => Elements::U32(words(view.data(), u32::from_le_bytes)),
                Dtype::U8 => Elements::U8(view.data().to_vec()),
                other => bail!("tensor {name} of {} holds {other:?}", path.display()),
            };
            arrays.insert(name, Array { shape: view.shape().to_vec(), elements });
        }
        Ok(Fixture { name, family, config, arrays })
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// True when the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    /// A tensor by its full name.
    ///
    /// # Errors
    ///
    /// When the file has no such tensor.
    pub fn array(&self, name: &str) -> Result<&Array> {
        self.arrays.get(name).with_context(|| format!("{} has no tensor {name}", self.name))
    }

    /// Dimensions of a tensor.
    ///
    /// # Errors
    ///
    /// When the file has no such tensor.
    pub fn shape(&self, name: &str) -> Result<&[usize]> {
        Ok(&self.array(name)?.shape)
    }

    /// Elements of an f32 tensor.
    ///
    /// # Errors
    ///
    /// When there is no such tensor or it holds another type; so do the other accessors.
    pub fn f32(&self, name: &str) -> Result<&[f32]> {
        match &self.array(name)?.elements {
            Elements::F32(data) => Ok(data),
            _ => bail!("tensor {name} of {} does not hold f32", self.name),
        }
    }

    /// Elements of an f64 tensor.
    ///
    /// # Errors
    ///
    /// As [`Fixture::f32`].
    pub fn f64(&self, name: &str) -> Result<&[f64]> {
        match &self.array(name)?.elements {
            Elements::F64(data) => Ok(data),
            _ => bail!("tensor {name} of {} does not hold f64", self.name),
        }
    }

    /// Elements of an i32 tensor.
    ///
    /// # Errors
    ///
    /// As [`Fixture::f32`].
    pub fn i32(&self, name: &str) -> Result<&[i32]> {
        match &self.array(name)?.elements {
            Elements::I32(data) => Ok(data),
            _ => bail!("tensor {name} of {} does not hold i32", self.name),
        }
    }

    /// Elements of an i32 tensor whose elements are ids: none may be negative.
    ///
    /// # Errors
    ///
    /// As [`Fixture::f32`], and for a negative element.
    pub fn ids(&self, name: &str) -> Result<Vec<u32>> {
        let ids = self.i32(name)?.iter().map(|&id| u32::try_from(id));
        ids.collect::<Result<_, _>>().with_context(|| format!("tensor {name} has a negative id"))
    }

    /// Elements of a u32 tensor.
    ///
    /// # Errors
    ///
    /// As [`Fixture::f32`].
    pub fn u32(&self, name: &str) -> Result<&[u32]> {
        match &self.array(name)?.elements {
            Elements::U32(data) => Ok(data),
            _ => bail!("tensor {name} of {} does not hold u32", self.name),
        }
    }

    /// Elements of a u8 tensor.
    ///
    /// # Errors
    ///
    /// As [`Fixture::f32`].
    pub fn u8(&self, name: &str) -> Result<&[u8]> {
        match &self.array(name)?.elements {
            Elements::U8(data) => Ok(data),
            _ => bail!("tensor {name} of {} does not hold u8", self.name),
        }
    }

    /// A number of the configuration; `key` may be a path such as `optimizer.lr`.
    ///
    /// # Errors
    ///
    /// When there is no such number.
    pub fn number(&self, key: &str) -> Result<f64> {
        let value = self.setting(key).and_then(Value::as_f64);
        value.with_context(|| format!("the config of {} has no number {key}", self.name))
    }

    /// A size of the configuration.
    ///
    /// # Errors
    ///
    /// When there is no such whole number.
    pub fn size(&self, key: &str) -> Result<usize> {
        let value = self.setting(key).and_then(Value::as_u64);
        let value = value.with_context(|| format!("the config of {} has no size {key}", self.name));
        Ok(value? as usize)
    }

    /// A word of the configuration.
    pub fn word(&self, key: &str) -> Option<&str> {
        self.setting(key).and_then(Value::as_str)
    }

    /// A switch of the configuration; false when it is absent.
    pub fn flag(&self, key: &str) -> bool {
        self.setting(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A value of the configuration by its path.
    pub fn setting(&self, key: &str) -> Option<&Value> {
        key.split('.').try_fold(&self.config, |value, part| value.get(part))
    }
}

/// Little-endian elements of `N` bytes.
fn words<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
    let chunks = bytes.chunks_exact(N);
    chunks.map(|chunk| read(chunk.try_into().expect("chunks have N bytes"))).collect()
}

/// Widens floats for a comparison.
pub fn widen(data: &[f32]) -> Vec<f64> {
    data.iter().map(|&value| f64::from(value)).collect()
}

/// Swaps the two middle axes of a `[b, x, y, d]` tensor: the vectors keep heads before time, the
/// engine keeps time before heads.
pub fn swap_middle<T: Copy>(data: &[T], shape: &[usize]) -> (Vec<T>, [usize; 4]) {
    let [b, x, y, d] = *<&[usize; 4]>::try_from(shape).expect("a tensor of four dimensions");
    let mut swapped = Vec::with_capacity(data.len());
    for batch in 0..b {
        for inner in 0..y {
            for outer in 0..x {
                let start = ((batch * x + outer) * y + inner) * d;
                swapped.extend_from_slice(&data[start..start + d]);
            }
        }
    }
    (swapped, [b, y, x, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("data/vectors")
    }

    #[test]
    fn every_file_of_the_index_is_there_and_readable() {
        let index = std::fs::read_to_string(folder().join("INDEX.txt")).unwrap();
        assert!(index.lines().count() >= 19, "the index lost rows");
        for line in index.lines() {
            let name = line.split('\t').next().unwrap();
            let fixture = Fixture::read(&folder().join(name).with_extension("safetensors"));
            let fixture = fixture.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let tensors = line.split('\t').find_map(|field| field.strip_prefix("tensors="));
            assert_eq!(fixture.names().count().to_string(), tensors.unwrap(), "{name}");
            assert_eq!(fixture.family, name);
        }
    }

    #[test]
    fn a_cut_file_is_refused() {
        let whole = std::fs::read(folder().join("op_gelu.safetensors")).unwrap();
        let path = std::env::temp_dir().join(format!("cut-{}.safetensors", std::process::id()));
        for keep in [0, 7, 100, whole.len() - 1] {
            std::fs::write(&path, &whole[..keep]).unwrap();
            assert!(Fixture::read(&path).is_err(), "{keep} bytes were read as a file");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn swapping_twice_is_the_identity() {
        let data: Vec<u32> = (0..2 * 3 * 4 * 5).collect();
        let (once, shape) = swap_middle(&data, &[2, 3, 4, 5]);
        assert_eq!(shape, [2, 4, 3, 5]);
        assert_eq!(once[5..10], data[20..25]);
        assert_eq!(swap_middle(&once, &shape).0, data);
    }
}
