//! Attention of query rows over keys and values, with grouped heads and a causal mask.
//!
//! The forward keeps the log-sum-exp of each row, so that the backward (`attention_gradient`) can
//! recompute the weights: no matrix of scores is ever stored. The offset of the mask lies on the
//! device, so one plan serves every position of a cache.

use super::attention_gradient::gradients;
use super::rule::{Inferred, refuse};
use super::sample::{Sample, signed, uniform};
use super::{Backward, Launch, Lower, OpCall, OpDef, turns};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{DType, Variant};

/// `o = softmax(q k^T / sqrt(d)) v` and the log-sum-exp of each row. Inputs: q `[B, Tq, Hq, d]`,
/// k and v `[B, Tk, Hkv, d]`, offset u32 `[1]`. Integer attribute: 1 if causal.
pub static ATTENTION: OpDef = OpDef {
    name: "attention",
    doc: "Attention `o = softmax(q k^T / sqrt(d)) v` with grouped heads; row i sees key j when \
          j <= i + offset, if causal. Second output: the rows' log-sum-exp.",
    infer: infer_attention,
    lower: Lower::Kernel { family: |_| "attention", launch: launch_attention },
    backward: Backward::Rule(gradients),
    reference: attention_reference,
    samples: attention_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&ATTENTION];

/// Largest head dimension that the kernels hold.
pub const MAX_HEAD_DIM: usize = 128;

/// What [`Tensor::attention`] returns.
#[derive(Clone, Debug)]
pub struct AttentionOut {
    /// Weighted values `[B, Tq, Hq, d]`.
    pub o: Tensor,
    /// Log of the sum of exponentials of each row's scores, `[B, Hq, Tq]`.
    pub lse: Tensor,
}

impl Tensor {
    /// Attention of the queries `self` `[B, Tq, Hq, d]` over `k` and `v` `[B, Tk, Hkv, d]`, scaled
    /// by `1 / sqrt(d)`; query head h reads head `h / (Hq / Hkv)`. With `causal`, row i sees the
    /// keys `j <= i + offset` (`offset` is u32 `[1]`): 0 for a sequence on its own, the number of
    /// earlier rows for a cache.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit together or d exceeds [`MAX_HEAD_DIM`].
    #[track_caller]
    pub fn attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        offset: &Tensor,
        causal: bool,
    ) -> Result<AttentionOut> {
        let attrs = Attrs::ints(&[causal.into()]);
        if let Some(sizes) = Sizes::of(self.shape(), k.shape(), &attrs) {
            turns::check(&ATTENTION, &[self, k], sizes.turns(sizes.keys, 2))?;
        }
        let mut outputs = Tensor::record(&ATTENTION, attrs, &[self, k, v, offset])?;
        let lse = outputs.pop().expect("attention has two outputs");
        let o = outputs.pop().expect("attention has two outputs");
        Ok(AttentionOut { o, lse })
    }
}

/// Sizes of one attention and the addresses that follow from them.
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) dim: usize,
    causal: bool,
}

impl Sizes {
    /// The sizes, if the shapes fit together.
    pub(super) fn of(q: Shape, k: Shape, attrs: &Attrs) -> Option<Sizes> {
        let (&[batch, queries, heads, dim], &[kb, keys, kv_heads, kd]) = (q.dims(), k.dims())
        else {
            return None;
        };
        let fits = batch == kb
            && dim == kd
            && dim <= MAX_HEAD_DIM
            && kv_heads > 0
            && heads.is_multiple_of(kv_heads);
        let causal = attrs.int[0] == 1;
        fits.then_some(Sizes { batch, queries, keys, heads, kv_heads, dim, causal })
    }

    /// Loop turns of a cpu kernel whose lane walks over `rows` rows of the other side, eight at a
    /// time, `passes` times over the head dimension: four columns a turn, and one turn more to
    /// leave a loop.
    pub(super) fn turns(&self, rows: usize, passes: usize) -> usize {
        let chunks = self.dim.div_ceil(8);
        rows.div_ceil(8) * (passes * (4 * chunks + 1) + 2) + 4 * 8 * chunks
    }

    /// The push words that every attention kernel takes.
    fn push(&self) -> Vec<u32> {
        let sizes = [self.batch, self.queries, self.keys, self.heads, self.kv_heads, self.dim];
        let mut words = sizes.map(|size| size as u32).to_vec();
        words.extend([self.causal.into(), (self.scale() as f32).to_bits()]);
        words
    }

    /// A launch of `groups` workgroups; the head dimension is a constant where a variant has one.
    pub(super) fn launch(&self, groups: usize, variant: &Variant) -> Launch {
        let constant = variant.spec_ids.contains(&0).then_some((0, self.dim as u32));
        Launch { groups: groups as u64, push: self.push(), spec: Vec::from_iter(constant) }
    }

    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.dim as f64).sqrt()
    }

    /// Number of keys that row i sees.
    fn visible(&self, i: usize, offset: usize) -> usize {
        if self.causal { self.keys.min(i + offset + 1) } else { self.keys }
    }

    /// Calls `body` with every query row that sees a key at all.
    pub(super) fn rows(&self, offset: usize, mut body: impl FnMut(Row)) {
        for b in 0..self.batch {
            for h in 0..self.heads {
                for i in 0..self.queries {
                    let at = ((b * self.queries + i) * self.heads + h) * self.dim;
                    let index = (b * self.heads + h) * self.queries + i;
                    let kv_head = h / (self.heads / self.kv_heads);
                    let first = (b * self.keys * self.kv_heads + kv_head) * self.dim;
                    let visible = self.visible(i, offset);
                    let stride = self.kv_heads * self.dim;
                    body(Row {
                        at,
                        index,
                        keys: (0..visible).map(|j| first + j * stride).collect(),
                    });
                }
            }
        }
    }
}

/// One query row: its offset in q, its index among the rows, and the offsets of the keys it sees.
pub(super) struct Row {
    pub(super) at: usize,
    pub(super) index: usize,
    pub(super) keys: Vec<usize>,
}

/// Dot product of `dim` elements of two values.
pub(super) fn dot(a: &[f64], at: usize, b: &[f64], bt: usize, dim: usize) -> f64 {
    a[at..at + dim].iter().zip(&b[bt..bt + dim]).map(|(x, y)| x * y).sum()
}

fn infer_attention(call: &OpCall) -> Inferred {
    let expected = "q [B, Tq, Hq, d], k and v [B, Tk, Hkv, d] with Hkv dividing Hq and d at most \
                    128, and an offset u32 [1]";
    let [q, k, v, offset] = call.inputs else { return refuse(call, expected) };
    let typed = q.dtype == DType::F32 && k.dtype == DType::F32 && k == v;
    match Sizes::of(q.shape, k.shape, call.attrs) {
        Some(s) if typed && *offset == Spec::u32([1]) => {
            Ok(vec![*q, Spec::f32([s.batch, s.heads, s.queries])])
        }
        _ => refuse(call, expected),
    }
}

fn launch_attention(call: &OpCall, variant: &Variant) -> Launch {
    let s = Sizes::of(call.inputs[0].shape, call.inputs[1].shape, call.attrs)
        .expect("infer admitted the shapes");
    let blocks = s.queries.div_ceil(variant.tile[0] as usize);
    s.launch(s.batch * s.heads * blocks, variant)
}

fn attention_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [q, k, v, offset] = inputs else { unreachable!("attention has four inputs") };
    let s = Sizes::of(q.shape(), k.shape(), attrs).expect("infer admitted the shapes");
    let mut o = vec![0.0; q.data.len()];
    let mut lse = vec![0.0; s.batch * s.heads * s.queries];
    s.rows(offset.data[0] as usize, |row| {
        let score = |&key: &usize| s.scale() * dot(&q.data, row.at, &k.data, key, s.dim);
        let scores: Vec<f64> = row.keys.iter().map(score).collect();
        let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mass: f64 = scores.iter().map(|score| (score - peak).exp()).sum();
        lse[row.index] = peak + mass.ln();
        for (key, score) in row.keys.iter().zip(&scores) {
            let weight = (score - peak).exp() / mass;
            for c in 0..s.dim {
                o[row.at + c] += weight * v.data[key + c];
            }
        }
    });
    vec![HostTensor::new(q.spec, o), HostTensor::new(Spec::f32([s.batch, s.heads, s.queries]), lse)]
}

/// Inputs of an attention: `[B, Tq, Tk, Hq, Hkv, d]`, the offset, and whether it is causal.
pub(super) fn sample(sizes: [usize; 6], offset: u32, causal: bool) -> Sample {
    let [batch, queries, keys, heads, kv_heads, dim] = sizes;
    let inputs = vec![
        uniform([batch, queries, heads, dim], -2.0, 2.0, 51),
        uniform([batch, keys, kv_heads, dim], -2.0, 2.0, 52),
        signed([batch, keys, kv_heads, dim], 53),
        HostTensor::new(Spec::u32([1]), vec![f64::from(offset)]),
    ];
    Sample::new(inputs, Attrs::ints(&[causal.into()]))
}

/// The cases that forward and backward share.
pub(super) fn cases() -> Vec<Sample> {
    vec![
        sample([1, 1, 1, 1, 1, 1], 0, true),
        sample([1, 3, 3, 1, 1, 4], 0, true),
        sample([2, 5, 5, 4, 2, 6], 0, true),
        sample([1, 2, 9, 4, 1, 8], 7, true),
        sample([1, 4, 6, 2, 2, 5], 1, true),
        sample([1, 3, 5, 2, 1, 3], 0, false),
        sample([2, 9, 33, 3, 3, 4], 24, true).large(),
        sample([1, 127, 127, 2, 1, 32], 0, true).large(),
        sample([1, 65, 129, 4, 2, 64], 64, true).large(),
        sample([1, 33, 40, 1, 1, 128], 7, true).large(),
        sample([1, 70, 45, 2, 2, 100], 3, false).large(),
    ]
}

fn attention_samples() -> Vec<Sample> {
    cases()
}
