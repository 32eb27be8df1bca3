//! Device state of a running generation.
//!
//! Rows of a cache beyond the current length may hold anything: the causal mask never lets a query
//! see them, and they are overwritten when the sequence gets there.

use super::mamba3::Mamba3Config;
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

/// What one Mamba-3 mixer carries from token to token.
#[derive(Clone)]
pub struct SsmCache {
    /// Angles, `[rows, heads angles]`.
    pub theta: State,
    /// States of the heads, `[rows, heads, head dim state]`.
    pub h: State,
    /// Rotated keys of the last token, `[rows, rank heads, state]`.
    pub k: State,
    /// Values of the last token, `[rows, rank heads, head dim]`.
    pub v: State,
}

impl SsmCache {
    /// The state before the first token.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn new(engine: &Engine, rows: usize, config: &Mamba3Config) -> Result<SsmCache> {
        let Mamba3Config { heads, head_dim, state, angles, .. } = *config;
        let channels = config.rank() * heads;
        Ok(SsmCache {
            theta: engine.state("cache.theta", Spec::f32([rows, heads * angles]))?,
            h: engine.state("cache.h", Spec::f32([rows, heads, head_dim * state]))?,
            k: engine.state("cache.k", Spec::f32([rows, channels, state]))?,
            v: engine.state("cache.v", Spec::f32([rows, channels, head_dim]))?,
        })
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
    /// Per Mamba-3 mixer.
    pub ssm: Vec<SsmCache>,
}

impl Cache {
    /// The states that a new sequence must find at zero. Keys and values of attention are not among
    /// them: what they hold is masked.
    pub fn recurrent(&self) -> impl Iterator<Item = &State> {
        let ssm = self.ssm.iter().flat_map(|SsmCache { theta, h, k, v }| [theta, h, k, v]);
        self.hidden.iter().chain(ssm)
    }
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
