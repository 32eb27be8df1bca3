//! The f64 references of `mamba3_gate` and its derivatives.

use super::gate::{MIMO, NORM, Sizes};
use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};

/// One head of a token at a rank, with everything that the gate makes of it.
struct Row<'a> {
    /// Place of its first channel in y and v.
    at: usize,
    /// Place of its first channel in z and in the output.
    to: usize,
    /// Place of its first channel in the weights of a rank.
    weights: usize,
    /// Place of its first channel in the gain.
    channel: usize,
    head: usize,
    /// y plus the skip.
    values: Vec<f64>,
    /// Inverse root mean square of the values; 1 without the norm.
    inverse: f64,
    inputs: &'a [HostTensor],
    sizes: Sizes,
}

impl Row<'_> {
    fn weight(&self, input: usize, flag: u32, at: usize) -> f64 {
        if self.sizes.has(flag) { self.inputs[input].data[at] } else { 1.0 }
    }

    fn gain(&self, d: usize) -> f64 {
        self.weight(4, NORM, self.channel + d)
    }

    fn mimo_z(&self, d: usize) -> f64 {
        self.weight(5, MIMO, self.weights + d)
    }

    fn mimo_o(&self, d: usize) -> f64 {
        self.weight(6, MIMO, self.weights + d)
    }

    /// `silu(z mimo_z)` and its derivative by its argument.
    fn gate(&self, d: usize) -> [f64; 2] {
        let x = self.inputs[2].data[self.to + d] * self.mimo_z(d);
        let s = 1.0 / (1.0 + (-x).exp());
        [x * s, s * (1.0 + x * (1.0 - s))]
    }

    /// The value that the gate multiplies.
    fn gated(&self, d: usize) -> f64 {
        self.values[d] * self.inverse * self.gain(d)
    }
}

/// Every row, with `inverse` of each if the norm need not be computed.
fn rows<'a>(
    inputs: &'a [HostTensor],
    attrs: &Attrs,
    inverse: Option<&'a HostTensor>,
) -> impl Iterator<Item = Row<'a>> {
    let (sizes, eps) = (Sizes::of(attrs), f64::from(attrs.float[0]));
    let Sizes { heads, dim, rank, .. } = sizes;
    let count = inputs[0].data.len() / dim;
    (0..count).map(move |row| {
        let (token, r, head) = (row / heads / rank, row / heads % rank, row % heads);
        let skip = inputs[3].data[head];
        let pairs = inputs[0].data[row * dim..].iter().zip(&inputs[1].data[row * dim..]);
        let values: Vec<f64> = pairs.take(dim).map(|(y, v)| y + skip * v).collect();
        let square = values.iter().map(|x| x * x).sum::<f64>() / dim as f64;
        let own = if sizes.has(NORM) { (square + eps).sqrt().recip() } else { 1.0 };
        Row {
            at: row * dim,
            to: (token * heads + head) * dim,
            weights: (head * rank + r) * dim,
            channel: head * dim,
            head,
            values,
            inverse: inverse.map_or(own, |inverse| inverse.data[row]),
            inputs,
            sizes,
        }
    })
}

pub(super) fn gate_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let mut out = vec![0.0; inputs[2].data.len()];
    for row in rows(inputs, attrs, None) {
        for d in 0..row.sizes.dim {
            out[row.to + d] += row.gated(d) * row.gate(d)[0] * row.mimo_o(d);
        }
    }
    vec![HostTensor::new(inputs[2].spec, out)]
}

pub(super) fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let dout = &inputs[7];
    let s = Sizes::of(attrs);
    let mut dy = vec![0.0; inputs[0].data.len()];
    let (mut dv, mut dz) = (dy.clone(), vec![0.0; dout.data.len()]);
    let (mut inverses, mut skips) = (Vec::new(), vec![0.0; dout.data.len() / s.dim]);
    for row in rows(inputs, attrs, None) {
        let up = |d: usize| dout.data[row.to + d] * row.mimo_o(d);
        let u = |d: usize| up(d) * row.gate(d)[0] * row.gain(d);
        let product: f64 = (0..s.dim).map(|d| u(d) * row.values[d]).sum();
        let pull = row.inverse.powi(2) * product / s.dim as f64;
        for d in 0..s.dim {
            let pulled = if s.has(NORM) { row.values[d] * pull } else { 0.0 };
            let slope = row.inverse * (u(d) - pulled);
            dy[row.at + d] = slope;
            dv[row.at + d] = inputs[3].data[row.head] * slope;
            dz[row.to + d] += up(d) * row.gated(d) * row.gate(d)[1] * row.mimo_z(d);
            skips[row.to / s.dim] += slope * inputs[1].data[row.at + d];
        }
        inverses.push(row.inverse);
    }
    let &[b, t, rows, _] = inputs[0].shape().dims() else { unreachable!("y is [B, T, RH, P]") };
    vec![
        HostTensor::new(inputs[0].spec, dy),
        HostTensor::new(inputs[0].spec, dv),
        HostTensor::new(dout.spec, dz),
        HostTensor::f32([b, t, rows], inverses),
        HostTensor::f32([b, t, s.heads], skips),
    ]
}

pub(super) fn parameters_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [.., dout, inverses, skips] = inputs else { unreachable!("the op has ten inputs") };
    let s = Sizes::of(attrs);
    let (inner, wide) = (s.heads * s.dim, s.heads * s.rank * s.dim);
    let tokens = dout.data.len() / inner;
    let parts = tokens.div_ceil(s.chunk);
    let named = |flag, count: usize| if s.has(flag) { parts * count } else { 1 };
    let (mut dskip, mut dgain) = (vec![0.0; parts * s.heads], vec![0.0; named(NORM, inner)]);
    let mut dmimo = [vec![0.0; named(MIMO, wide)], vec![0.0; named(MIMO, wide)]];
    for (index, sum) in skips.data.iter().enumerate() {
        dskip[index / s.heads / s.chunk * s.heads + index % s.heads] += sum;
    }
    for row in rows(inputs, attrs, Some(inverses)) {
        let part = row.to / inner / s.chunk;
        for d in 0..s.dim {
            let (up, [gate, slope]) = (dout.data[row.to + d], row.gate(d));
            if s.has(NORM) {
                let normalised = row.values[d] * row.inverse;
                dgain[part * inner + row.channel + d] += up * row.mimo_o(d) * gate * normalised;
            }
            if s.has(MIMO) {
                let (at, z) = (part * wide + row.weights + d, inputs[2].data[row.to + d]);
                dmimo[0][at] += up * row.mimo_o(d) * row.gated(d) * slope * z;
                dmimo[1][at] += up * row.gated(d) * gate;
            }
        }
    }
    let shape = |flag, count: usize| match s.has(flag) {
        true => Spec::f32([parts, count]),
        false => Spec::f32([1]),
    };
    let [dmimo_z, dmimo_o] = dmimo;
    vec![
        HostTensor::f32([parts, s.heads], dskip),
        HostTensor::new(shape(NORM, inner), dgain),
        HostTensor::new(shape(MIMO, wide), dmimo_z),
        HostTensor::new(shape(MIMO, wide), dmimo_o),
    ]
}
