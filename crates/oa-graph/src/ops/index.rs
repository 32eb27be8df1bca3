//! Rows of a table by id, and rotary embedding by position.
//!
//! Ids and positions are data on the device: one outside its table gives NaN in the forward, so
//! that a loss shows it, and is left out of the gradient of the table. The gradient sums tokens
//! without atomics, in an order that depends on sizes only.

use super::activation::FIRST_ORDER;
use super::reduce::sum;
use super::rule::{Inferred, refuse};
use super::sample::{Sample, ids, signed, uniform};
use super::{Backward, GradCall, Launch, Lower, OpCall, OpDef, launch};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::shape::Shape;
use crate::value::Tensor;
use oa_kernels::{Class, DType, Variant};

/// Rows of a table.
pub static EMBEDDING: OpDef = OpDef {
    name: "embedding",
    doc: "Rows of a table: `y[.., c] = table[ids[..], c]`; NaN for an id outside the table.",
    infer: infer_embedding,
    lower: Lower::Kernel { family: |_| "embedding", launch: launch_embedding },
    backward: Backward::Rule(|g| {
        let rows = g.inputs[0].shape().dims()[0];
        let dtable = g.wanted[0].then(|| embedding_backward(g.dout(), &g.inputs[1], rows));
        Ok(vec![dtable.transpose()?, None])
    }),
    reference: |x, _| vec![embedding_reference(&x[0], &x[1])],
    samples: embedding_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`EMBEDDING`]. Integer attribute: rows of the table.
pub static EMBEDDING_BACKWARD: OpDef = OpDef {
    name: "embedding_backward",
    doc: "`dtable[v, c]`: the sum of `dy[m, c]` over the tokens `m` with `ids[m] = v`.",
    infer: infer_embedding_backward,
    lower: Lower::Kernel { family: embedding_backward_family, launch: launch_embedding_backward },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, attrs| vec![embedding_backward_reference(&x[0], &x[1], attrs)],
    samples: embedding_backward_samples,
    mutates: &[],
    in_place: None,
};

/// Rotary embedding. Integer attributes: layout (0 pair, 1 half), 1 for the inverse turn.
pub static ROPE: OpDef = OpDef {
    name: "rope",
    doc: "Turns channel pairs by their position: `y0 = x0 c - x1 s`, `y1 = x0 s + x1 c`.",
    infer: infer_rope,
    lower: Lower::Kernel { family: |_| "rope", launch: launch_rope },
    backward: Backward::Rule(rope_rule),
    reference: |x, attrs| vec![rope_reference(x, attrs)],
    samples: rope_samples,
    mutates: &[],
    in_place: None,
};

/// Derivative of [`ROPE`] with respect to the (cos, sin) pairs of each time step. Integer
/// attributes: layout, 1 for the inverse turn, number of pairs.
pub static ROPE_BACKWARD_TABLE: OpDef = OpDef {
    name: "rope_backward_table",
    doc: "Sums over batch and heads of `dy0 x0 + dy1 x1` (cosines) and `dy1 x0 - dy0 x1` (sines).",
    infer: infer_rope_backward_table,
    lower: Lower::Kernel { family: |_| "rope_backward_table", launch: launch_rope_backward_table },
    backward: Backward::None(FIRST_ORDER),
    reference: |x, attrs| vec![rope_backward_table_reference(&x[0], &x[1], attrs)],
    samples: rope_backward_table_samples,
    mutates: &[],
    in_place: None,
};

/// Every op of this file.
pub static OPS: &[&OpDef] = &[&EMBEDDING, &EMBEDDING_BACKWARD, &ROPE, &ROPE_BACKWARD_TABLE];

/// Which channels of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeLayout {
    /// Pair `i` is channels `2i` and `2i + 1`.
    Pair,
    /// Pair `i` is channels `i` and `i + dim/2`.
    Half,
}

/// The table `[max_positions, angles, 2]` of (cosine, sine) for [`Tensor::rope`]: angle `i` of
/// position `p` is `p base^(-2i/dim)`. Computed in double precision, since the f32 product of a
/// position and a frequency is already off by 1e-4 at position 4,095.
pub fn rope_table(max_positions: usize, angles: usize, dim: usize, base: f64) -> Vec<f32> {
    let mut table = Vec::with_capacity(max_positions * angles * 2);
    for position in 0..max_positions {
        for i in 0..angles {
            let angle = position as f64 * base.powf(-2.0 * i as f64 / dim as f64);
            table.extend([angle.cos() as f32, angle.sin() as f32]);
        }
    }
    table
}

fn infer_embedding(call: &OpCall) -> Inferred {
    let expected = "an f32 table [rows, width] and u32 ids of at most three dimensions";
    let [table, ids] = call.inputs else { return refuse(call, expected) };
    let [_, width] = table.shape.dims() else { return refuse(call, expected) };
    let mut dims = ids.shape.dims().to_vec();
    dims.push(*width);
    match Shape::try_new(&dims) {
        Some(shape) if table.dtype == DType::F32 && ids.dtype == DType::U32 => {
            Ok(vec![Spec::f32(shape)])
        }
        _ => refuse(call, expected),
    }
}

fn infer_embedding_backward(call: &OpCall) -> Inferred {
    let expected = "an f32 gradient [.., width] and u32 ids [..]";
    let [dy, ids] = call.inputs else { return refuse(call, expected) };
    let leading = dy.shape.dims().split_last().map(|(_, leading)| leading);
    let table = Shape::try_new(&[call.attrs.int[0] as usize, dy.shape.last()]);
    match table {
        Some(table)
            if dy.dtype == DType::F32
                && ids.dtype == DType::U32
                && leading == Some(ids.shape.dims()) =>
        {
            Ok(vec![Spec::f32(table)])
        }
        _ => refuse(call, expected),
    }
}

fn launch_embedding(call: &OpCall, variant: &Variant) -> Launch {
    let table = call.inputs[0].shape.dims();
    let sizes = [table[0], table[1]].map(|size| size as u32);
    launch::elements(call.outputs[0].shape.elems(), &sizes, variant)
}

/// A lane of a cpu kernel visits every token, which older lavapipe ends after 65,535 turns.
fn embedding_backward_family(call: &OpCall) -> &'static str {
    match call.inputs[1].shape.elems() {
        ..=32_768 => "embedding_backward",
        _ => "embedding_backward_long",
    }
}

/// Portable: a workgroup per vocabulary row and tile of columns. cpu: a workgroup per eight
/// columns.
fn launch_embedding_backward(call: &OpCall, variant: &Variant) -> Launch {
    let (tokens, width) = (call.inputs[1].shape.elems(), call.inputs[0].shape.last());
    let rows = call.attrs.int[0] as usize;
    let lanes = width.next_power_of_two().min(128);
    let groups = match variant.class {
        Class::Cpu => {
            let [columns, slice, _] = variant.tile.map(|size| size as usize);
            (width.div_ceil(columns) * rows.div_ceil(slice)) as u64
        }
        Class::Subgroup | Class::Portable => rows as u64 * width.div_ceil(lanes) as u64,
    };
    let push = [tokens, rows, width, lanes].map(|size| size as u32).to_vec();
    Launch { groups, push, spec: Vec::new() }
}

#[track_caller]
fn embedding_backward(dy: &Tensor, ids: &Tensor, rows: usize) -> Result<Tensor> {
    Tensor::record1(&EMBEDDING_BACKWARD, Attrs::ints(&[rows as u32]), &[dy, ids])
}

fn embedding_reference(table: &HostTensor, ids: &HostTensor) -> HostTensor {
    let width = table.shape().last();
    let mut dims = ids.shape().dims().to_vec();
    dims.push(width);
    let shape = Shape::try_new(&dims).expect("infer admitted the shapes");
    let mut data = Vec::with_capacity(shape.elems());
    for &id in &ids.data {
        match table.data.chunks(width).nth(id as usize) {
            Some(row) => data.extend(row),
            None => data.extend(vec![f64::NAN; width]),
        }
    }
    HostTensor::f32(shape, data)
}

fn embedding_backward_reference(dy: &HostTensor, ids: &HostTensor, attrs: &Attrs) -> HostTensor {
    let (rows, width) = (attrs.int[0] as usize, dy.shape().last());
    let mut table = vec![0.0; rows * width];
    for (row, &id) in dy.data.chunks(width).zip(&ids.data) {
        if (id as usize) < rows {
            let start = id as usize * width;
            table[start..start + width].iter_mut().zip(row).for_each(|(sum, dy)| *sum += dy);
        }
    }
    HostTensor::f32([rows, width], table)
}

/// Channels of pair `pair` in a head of `dim` channels.
fn channels(layout: u32, pair: usize, dim: usize) -> (usize, usize) {
    if layout == 0 { (2 * pair, 2 * pair + 1) } else { (pair, pair + dim / 2) }
}

fn infer_rope(call: &OpCall) -> Inferred {
    let expected = "x [B, T, heads, dim], table [positions, pairs, 2] with at most dim/2 pairs, \
                    all f32, and u32 positions [T]";
    let [x, table, positions] = call.inputs else { return refuse(call, expected) };
    let floats = x.dtype == DType::F32 && table.dtype == DType::F32;
    match (x.shape.dims(), table.shape.dims(), positions.shape.dims()) {
        ([_, time, _, dim], [_, pairs, 2], [count])
            if floats
                && positions.dtype == DType::U32
                && count == time
                && dim.is_multiple_of(2)
                && *pairs <= dim / 2 =>
        {
            Ok(vec![*x])
        }
        _ => refuse(call, expected),
    }
}

fn infer_rope_backward_table(call: &OpCall) -> Inferred {
    let expected = "dy and x [B, T, heads, dim], f32 and of one shape, with at most dim/2 pairs";
    let [dy, x] = call.inputs else { return refuse(call, expected) };
    let pairs = call.attrs.int[2] as usize;
    match x.shape.dims() {
        [_, time, _, dim]
            if dy == x
                && x.dtype == DType::F32
                && dim.is_multiple_of(2)
                && pairs > 0
                && pairs <= dim / 2 =>
        {
            Shape::try_new(&[*time, 2 * pairs])
                .map_or_else(|| refuse(call, expected), |shape| Ok(vec![Spec::f32(shape)]))
        }
        _ => refuse(call, expected),
    }
}

/// 1 or -1, as the bits of a float.
fn turn(attrs: &Attrs) -> f32 {
    if attrs.int[1] == 0 { 1.0 } else { -1.0 }
}

fn launch_rope(call: &OpCall, variant: &Variant) -> Launch {
    let (x, table) = (call.inputs[0].shape, call.inputs[1].shape.dims());
    let &[_, time, heads, dim] = x.dims() else { unreachable!("infer admits four dimensions") };
    let layout = call.attrs.int[0] as usize;
    let sizes = [time, heads * dim, dim, table[1], layout, table[0]].map(|size| size as u32);
    let mut rest = sizes.to_vec();
    rest.push(turn(call.attrs).to_bits());
    let mut launch = launch::elements(x.elems(), &rest, variant);
    if variant.class == Class::Cpu {
        // A lane turns a whole head, and the tile counts heads.
        launch.groups = (x.elems() / dim).div_ceil(variant.tile[0] as usize) as u64;
    }
    launch
}

fn launch_rope_backward_table(call: &OpCall, variant: &Variant) -> Launch {
    let x = call.inputs[1].shape;
    let &[batch, time, heads, dim] = x.dims() else { unreachable!("infer admits four dimensions") };
    let [layout, _, pairs, ..] = call.attrs.int;
    let mut rest = [batch, time, heads, dim].map(|size| size as u32).to_vec();
    rest.extend([pairs, layout, turn(call.attrs).to_bits()]);
    launch::elements(call.outputs[0].shape.elems(), &rest, variant)
}

/// The input turns back; the table gets the sums of each position.
fn rope_rule(g: &GradCall) -> Result<Vec<Option<Tensor>>> {
    let [x, table, positions] = g.inputs else { unreachable!("rope has three inputs") };
    let [layout, inverse, ..] = g.attrs.int;
    let dx = g.wanted[0].then(|| {
        let attrs = Attrs::ints(&[layout, 1 - inverse.min(1)]);
        Tensor::record1(&ROPE, attrs, &[g.dout(), table, positions])
    });
    let dtable = g.wanted[1].then(|| {
        let &[rows, pairs, _] = table.shape().dims() else { unreachable!("infer admits three") };
        let attrs = Attrs::ints(&[layout, inverse, pairs as u32]);
        let steps = Tensor::record1(&ROPE_BACKWARD_TABLE, attrs, &[g.dout(), x])?;
        embedding_backward(&steps, positions, rows)?.reshape([rows, pairs, 2])
    });
    Ok(vec![dx.transpose()?, dtable.transpose()?, None])
}

fn rope_reference(inputs: &[HostTensor], attrs: &Attrs) -> HostTensor {
    let [x, table, positions] = inputs else { unreachable!("rope has three inputs") };
    let &[_, time, heads, dim] = x.shape().dims() else { unreachable!("infer admits four") };
    let &[rows, pairs, _] = table.shape().dims() else { unreachable!("infer admits three") };
    let mut y = x.data.clone();
    for (index, head) in y.chunks_mut(dim).enumerate() {
        let position = positions.data[index / heads % time] as usize;
        for pair in 0..pairs {
            let (first, second) = channels(attrs.int[0], pair, dim);
            let (c, s) = match position < rows {
                true => (
                    table.data[(position * pairs + pair) * 2],
                    table.data[(position * pairs + pair) * 2 + 1],
                ),
                false => (f64::NAN, f64::NAN),
            };
            let s = s * f64::from(turn(attrs));
            let (x0, x1) = (head[first], head[second]);
            head[first] = x0 * c - x1 * s;
            head[second] = x0 * s + x1 * c;
        }
    }
    HostTensor::new(x.spec, y)
}

fn rope_backward_table_reference(dy: &HostTensor, x: &HostTensor, attrs: &Attrs) -> HostTensor {
    let &[batch, time, heads, dim] = x.shape().dims() else { unreachable!("infer admits four") };
    let [layout, _, pairs, ..] = attrs.int;
    let turn = f64::from(turn(attrs));
    let mut out = Vec::new();
    for t in 0..time {
        for pair in 0..pairs as usize {
            let (first, second) = channels(layout, pair, dim);
            let base = |i: usize| ((i / heads * time + t) * heads + i % heads) * dim;
            let term = |i: usize, sine: bool| {
                let (a, b) = (base(i) + first, base(i) + second);
                match sine {
                    true => turn * (dy.data[b] * x.data[a] - dy.data[a] * x.data[b]),
                    false => dy.data[a] * x.data[a] + dy.data[b] * x.data[b],
                }
            };
            for sine in [false, true] {
                let terms: Vec<f64> = (0..batch * heads).map(|i| term(i, sine)).collect();
                out.push(sum(&terms));
            }
        }
    }
    HostTensor::f32([time, 2 * pairs as usize], out)
}

impl Tensor {
    /// Rows of this table `[V, D]`: u32 `ids` of at most three dimensions `[..]` give `[.., D]`. An
    /// id outside the table gives a row of NaN.
    ///
    /// # Errors
    ///
    /// When the shapes or element types do not fit.
    #[track_caller]
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        Tensor::record1(&EMBEDDING, Attrs::NONE, &[self, ids])
    }

    /// Rotary embedding of `[B, T, heads, dim]`: channel pairs turn by the angle of their position.
    /// `table` is `[P, S, 2]` of (cosine, sine), see [`rope_table`]; only the first `S` pairs turn.
    /// `positions` is u32 `[T]`; a position outside the table gives NaN.
    ///
    /// # Errors
    ///
    /// When the shapes or element types do not fit.
    #[track_caller]
    pub fn rope(&self, table: &Tensor, positions: &Tensor, layout: RopeLayout) -> Result<Tensor> {
        Tensor::record1(&ROPE, Attrs::ints(&[layout as u32, 0]), &[self, table, positions])
    }
}

fn embedding_samples() -> Vec<Sample> {
    let sample = |rows: usize, width: usize, tokens: Shape| {
        let table = signed([rows, width], 601);
        Sample::new(vec![table, ids(tokens, rows as u32, 602)], Attrs::NONE)
    };
    vec![
        sample(1, 1, [1].into()),
        sample(5, 3, Shape::SCALAR),
        sample(7, 5, [2, 9].into()),
        sample(3, 2, [127].into()),
        sample(11, 129, [2, 1, 2].into()),
        Sample::later(move || sample(50_257, 3, [1031].into())),
        Sample::later(move || sample(256, 129, [130_073].into())),
    ]
}

fn embedding_backward_samples() -> Vec<Sample> {
    let sample = |rows: usize, width: usize, tokens: usize, below: u32| {
        let dy = uniform([tokens, width], 0.0, 1.0, 603);
        Sample::new(vec![dy, ids([tokens], below, 604)], Attrs::ints(&[rows as u32]))
    };
    vec![
        sample(1, 1, 1, 1),
        sample(5, 3, 1, 5),
        sample(7, 5, 127, 7),
        sample(3, 127, 129, 3),
        sample(4, 129, 2, 9),
        sample(9, 1, 1025, 2),
        sample(513, 9, 300, 513),
        sample(1025, 2, 1026, 1025),
        Sample::later(move || sample(256, 32, 1024, 256)),
        Sample::later(move || sample(3, 33, 100_003, 1)),
        Sample::later(move || sample(50_257, 8, 2049, 50_257)),
        Sample::later(move || sample(17, 130, 129_057, 17)),
        Sample::later(move || sample(600, 17, 100_003, 5)),
    ]
}

/// Positions in no order, some of them twice.
fn rope_inputs(x: Shape, pairs: usize) -> Vec<HostTensor> {
    let (time, dim) = (x.dims()[1], x.dims()[3]);
    let table = rope_table(time + 3, pairs, dim, 10_000.0).into_iter().map(f64::from).collect();
    let table = HostTensor::f32([time + 3, pairs, 2], table);
    vec![signed(x, 605), table, ids([time], time as u32 + 3, 606)]
}

fn rope_samples() -> Vec<Sample> {
    let sample = |x: Shape, pairs: usize, ints: [u32; 2]| {
        Sample::new(rope_inputs(x, pairs), Attrs::ints(&ints))
    };
    vec![
        sample([1, 1, 1, 2].into(), 1, [0, 0]),
        sample([2, 3, 2, 6].into(), 3, [0, 0]),
        sample([2, 3, 2, 6].into(), 3, [1, 0]),
        sample([2, 3, 2, 6].into(), 1, [0, 0]),
        sample([2, 3, 2, 6].into(), 2, [1, 1]),
        sample([1, 43, 3, 2].into(), 1, [0, 1]),
        Sample::later(move || sample([3, 1031, 7, 10].into(), 5, [1, 0])),
        Sample::later(move || sample([2, 1031, 127, 66].into(), 33, [0, 0])),
    ]
}

fn rope_backward_table_samples() -> Vec<Sample> {
    let sample = |x: Shape, ints: [u32; 3]| {
        Sample::new(vec![signed(x, 607), uniform(x, 0.0, 1.0, 608)], Attrs::ints(&ints))
    };
    vec![
        sample([1, 1, 1, 2].into(), [0, 0, 1]),
        sample([2, 3, 2, 6].into(), [0, 1, 3]),
        sample([2, 3, 2, 6].into(), [1, 0, 2]),
        sample([9, 43, 5, 4].into(), [1, 0, 2]),
        Sample::later(move || sample([129, 127, 9, 10].into(), [0, 0, 5])),
    ]
}
