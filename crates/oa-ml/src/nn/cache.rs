//! Device state of a running generation.
//!
//! Rows of a cache beyond the current length may hold anything: the causal mask never lets a query
//! see them, and they are overwritten when the sequence gets there.

use crate::error::Result;
use oa_graph::state::State;
use oa_graph::{Engine, Spec, Tensor};

/// Rotated keys, and values, of one attention layer: `[rows, capacity, kv heads, head dim]`.
#[derive(Clone)]
pub struct KvCache {
    /// Keys.
    pub k: State,
    /// Values.
    pub v: State,
}

impl KvCache {
    /// An empty cache of that shape.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn new(engine: &Engine, shape: [usize; 4]) -> Result<KvCache> {
        let state = |name| engine.state(name, Spec::f32(shape));
        Ok(KvCache { k: state("cache.k")?, v: state("cache.v")? })
    }
}

/// What a model carries from token to token.
#[derive(Clone, Default)]
pub struct Cache {
    /// Sequences decoded together.
    pub rows: usize,
    /// Per attention layer.
    pub kv: Vec<KvCache>,
    /// Per recurrent layer, `[rows, hidden]`.
    pub hidden: Vec<State>,
}

/// The cache as a forward pass sees it. The pass reads one token, or the first tokens of a
/// sequence.
#[derive(Clone, Copy)]
pub struct CachePass<'a> {
    /// The cache, which the pass extends.
    pub cache: &'a Cache,
    /// Tokens before this pass, u32 `[1]`.
    pub position: &'a Tensor,
}
