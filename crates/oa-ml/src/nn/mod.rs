//! Modules: plain structs that declare parameters and record ops.
//!
//! A module is built once, by declaring its parameters in a scope, and run many times. There is no
//! trait to implement: a model is a struct of modules whose forward pass reads like the formula.

pub mod activation;
pub mod attention;
pub mod batch_norm;
pub mod cache;
pub mod conv;
pub mod dropout;
pub mod embedding;
pub mod linear;
pub mod mamba3;
pub mod mlp;
pub mod moe;
pub mod norm;
pub mod pool;
pub mod recurrent;

pub use activation::{Activation, UnknownActivation};
pub use attention::{AttentionConfig, CausalSelfAttention, Rotary};
pub use batch_norm::{BatchNorm, Mode};
pub use cache::{Cache, CachePass, KvCache, SsmCache};
pub use conv::Conv2d;
pub use dropout::{Dropout, DropoutPass};
pub use embedding::Embedding;
pub use linear::Linear;
pub use mamba3::{Mamba3, Mamba3Config};
pub use mlp::{GeluMlp, Mlp, SwiGlu};
pub use moe::{Moe, MoeConfig, RouterLog};
pub use norm::{LayerNorm, RmsNorm};
pub use oa_graph::ops::image::{Convolution, Pooling};
pub use pool::{AvgPool2d, Flatten, GlobalAvgPool2d, MaxPool2d};
pub use recurrent::{Cell, Rnn, RnnLayer};

use oa_graph::Tensor;

/// What a forward pass is for; the default is plain evaluation.
#[derive(Clone, Copy, Default)]
pub struct Pass<'a> {
    /// Dropout masks of a training step; `None` when evaluating.
    pub dropout: Option<DropoutPass<'a>>,
    /// Where documents start in packed rows, u32 `[B, T]`: 1 at the first token of a document, else
    /// 0. Layers that carry a state drop it there. Only models that can are given it.
    pub starts: Option<&'a Tensor>,
    /// Where routers log what they decided; `None` when nobody asks.
    pub routers: Option<&'a RouterLog>,
    /// Device state of a running generation; `None` when a whole sequence is given.
    pub cache: Option<CachePass<'a>>,
}
