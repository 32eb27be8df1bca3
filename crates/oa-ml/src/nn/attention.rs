//! Causal self-attention with grouped key-value heads.
//!
//! Query head h reads key-value head `h / (heads / kv_heads)`. Rotary positions, per-head norms of
//! queries and keys, and biases are optional.

use super::Pass;
use super::cache::{CachePass, KvCache};
use super::linear::Linear;
use super::norm::RmsNorm;
use crate::error::{Error, Result};
use crate::init::Init;
use crate::model::config::RopeStyle;
use crate::param::Scope;
use oa_graph::ops::index::{RopeLayout, rope_table};
use oa_graph::ops::update::write_rows;
use oa_graph::{Engine, Tensor};
use std::panic::Location;

/// Rotary positions: a table of (cosine, sine) per position and pair, shared by all layers.
#[derive(Clone)]
pub struct Rotary {
    table: Tensor,
    style: RopeStyle,
    positions: usize,
}

impl Rotary {
    /// The table of `positions` rows for heads of `head_dim` channels.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn new(
        engine: &Engine,
        style: RopeStyle,
        [positions, head_dim]: [usize; 2],
        base: f64,
    ) -> Result<Rotary> {
        let pairs = head_dim / 2;
        let table = rope_table(positions, pairs, head_dim, base);
        let table = engine.constant_f32([positions, pairs, 2], &table)?;
        Ok(Rotary { table, style, positions })
    }

    #[track_caller]
    fn turn(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let layout = match self.style {
            RopeStyle::Pair => RopeLayout::Pair,
            RopeStyle::Half => RopeLayout::Half,
        };
        Ok(x.rope(&self.table, positions, layout)?)
    }
}

/// Sizes and options of an attention layer.
#[derive(Clone)]
pub struct AttentionConfig {
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; they divide `heads`.
    pub kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Whether the four projections have biases.
    pub biases: bool,
    /// Rotary positions, if any.
    pub rotary: Option<Rotary>,
    /// Epsilon of the per-head norms of queries and keys, if they are normalised.
    pub qk_norm: Option<f32>,
    /// Initial values of the query, key and value projections.
    pub init: Init,
    /// Initial values of the output projection.
    pub init_out: Init,
}

/// The layer: parameters `w_q`, `w_k`, `w_v`, `w_o`, and as configured `b_*`, `q_norm`, `k_norm`.
#[derive(Clone)]
pub struct CausalSelfAttention {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    norms: Option<[RmsNorm; 2]>,
    config: AttentionConfig,
}

impl CausalSelfAttention {
    /// Declares the layer.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, config: AttentionConfig) -> Result<CausalSelfAttention> {
        let (width, dim) = (config.width, config.head_dim);
        let (wide, narrow) = (config.heads * dim, config.kv_heads * dim);
        let mut layer = |name: &str, sizes: [usize; 2], init| {
            let linear = Linear::new(scope, &format!("w_{name}"), sizes, init)?;
            match config.biases {
                true => linear.with_bias(scope, &format!("b_{name}"), sizes[0], Init::Zeros),
                false => Ok(linear),
            }
        };
        let q = layer("q", [wide, width], config.init)?;
        let k = layer("k", [narrow, width], config.init)?;
        let v = layer("v", [narrow, width], config.init)?;
        let out = layer("o", [width, wide], config.init_out)?;
        let norms = match config.qk_norm {
            Some(eps) => Some([
                RmsNorm::new(scope, "q_norm", dim, eps)?,
                RmsNorm::new(scope, "k_norm", dim, eps)?,
            ]),
            None => None,
        };
        Ok(CausalSelfAttention { q, k, v, out, norms, config })
    }

    /// Attends over `[B, T, width]`; with a cache, also over what the cache holds. `layer` is the
    /// number of this layer in the cache.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit, or the sequence is longer than the rotary table.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, pass: &Pass<'_>, layer: usize) -> Result<Tensor> {
        let (shape, engine) = (x.shape(), self.q.weight.engine());
        let [batch, sequence] = [shape.dims()[0], shape.dims()[1]];
        let split =
            |y: Tensor, heads: usize| y.reshape([batch, sequence, heads, self.config.head_dim]);
        let mut q = split(self.q.forward(x)?, self.config.heads)?;
        let mut k = split(self.k.forward(x)?, self.config.kv_heads)?;
        let v = split(self.v.forward(x)?, self.config.kv_heads)?;
        if let Some([q_norm, k_norm]) = &self.norms {
            (q, k) = (q_norm.forward(&q)?, k_norm.forward(&k)?);
        }
        if let Some(rotary) = &self.config.rotary {
            check_context(sequence, rotary.positions)?;
            let positions = positions(engine, pass.cache, sequence)?;
            (q, k) = (rotary.turn(&q, &positions)?, rotary.turn(&k, &positions)?);
        }
        let o = match pass.cache {
            None => q.attention(&k, &v, &engine.constant_u32(&[0])?, true)?.o,
            Some(cache) => {
                let (k, v) = extend(engine, &cache.cache.kv[layer], [&k, &v], cache.position)?;
                q.attention(&k, &v, cache.position, true)?.o
            }
        };
        let joined = o.reshape([batch, sequence, self.config.heads * self.config.head_dim])?;
        self.out.forward(&joined)
    }
}

/// Refuses a sequence longer than the positions there are.
#[track_caller]
pub(crate) fn check_context(sequence: usize, context: usize) -> Result<()> {
    if sequence <= context {
        return Ok(());
    }
    Err(Error::Context { site: Location::caller(), sequence, context })
}

/// Positions of the tokens of a pass: where the cache ends for one token, else from 0.
pub(crate) fn positions(
    engine: &Engine,
    cache: Option<CachePass<'_>>,
    sequence: usize,
) -> Result<Tensor> {
    match cache {
        Some(cache) if sequence == 1 => Ok(cache.position.clone()),
        _ => Ok(engine.constant_u32(&(0..sequence as u32).collect::<Vec<u32>>())?),
    }
}

/// Writes new keys and values into a cache and reads the whole of it.
fn extend(
    engine: &Engine,
    cache: &KvCache,
    [k, v]: [&Tensor; 2],
    position: &Tensor,
) -> Result<(Tensor, Tensor)> {
    write_rows(&engine.read(&cache.k), k, position)?;
    write_rows(&engine.read(&cache.v), v, position)?;
    Ok((engine.read(&cache.k), engine.read(&cache.v)))
}
