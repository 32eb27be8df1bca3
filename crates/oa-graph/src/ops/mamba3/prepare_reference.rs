//! The f64 references of `mamba3_prepare` and its derivatives.

use super::prepare::{GAINS, MIMO, SOFTPLUS, Sizes};
use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};
use std::f64::consts::PI;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The rate of decay before the floor, and its derivative.
fn rate(x: f64, sizes: &Sizes) -> [f64; 2] {
    match (sizes.has(SOFTPLUS), x >= 0.0) {
        (true, _) => [softplus(x), sigmoid(x)],
        (false, true) => [1.0 + x, 1.0],
        (false, false) => [1.0 / (1.0 - x), 1.0 / (1.0 - x).powi(2)],
    }
}

/// A weight, or 1 where there is none.
fn weight(weights: &HostTensor, read: bool, at: usize) -> f64 {
    if read { weights.data[at] } else { 1.0 }
}

fn inverse(row: &[f64], eps: f32) -> f64 {
    let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    (square + f64::from(eps)).sqrt().recip()
}

/// Group of a head.
fn group(s: &Sizes, head: usize) -> usize {
    head / (s.heads / s.groups)
}

pub(super) fn prepare_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [p, dt_bias, b_gain, c_gain, b_bias, c_bias, mimo_x] = inputs else {
        unreachable!("mamba3_prepare has seven inputs")
    };
    let (s, [floor, eps, ..]) = (Sizes::of(attrs), attrs.float);
    let [b, c, step, decay, mix, angle, width] = s.places();
    let mut out: [Vec<f64>; 8] = Default::default();
    for row in p.data.chunks_exact(width) {
        out[0].extend(&row[..s.inner()]);
        for r in 0..s.rank {
            for h in 0..s.heads {
                let pair = r * s.groups + group(&s, h);
                let parts = [(2, b, b_gain, b_bias), (1, c, c_gain, c_bias)];
                for (output, from, gain, bias) in parts {
                    let x = &row[from + pair * s.state..][..s.state];
                    let scale = inverse(x, eps);
                    out[output].extend(x.iter().enumerate().map(|(n, x)| {
                        let bias = bias.data[(h * s.rank + r) * s.state + n];
                        x * scale * weight(gain, s.has(GAINS), n) + bias
                    }));
                }
                let x = &row[s.inner() + h * s.dim..][..s.dim];
                out[3].extend(
                    x.iter().enumerate().map(|(d, x)| {
                        x * weight(mimo_x, s.has(MIMO), (h * s.rank + r) * s.dim + d)
                    }),
                );
            }
        }
        for h in 0..s.heads {
            let dt = softplus(row[step + h] + dt_bias.data[h]);
            out[4].push(-rate(row[decay + h], &s)[0].max(f64::from(floor)) * dt);
            out[5].push(dt);
            out[6].push(sigmoid(row[mix + h]));
            out[7].extend(row[angle..].iter().map(|rate| dt * PI * rate.tanh()));
        }
    }
    let &[batch, time, _] = p.shape().dims() else { unreachable!("a projection is [B, T, width]") };
    let (rows, [heads, angles]) = (s.rank * s.heads, [s.heads, s.heads * s.angles]);
    let shapes = [
        Spec::f32([batch, time, s.inner()]),
        Spec::f32([batch, time, rows, s.state]),
        Spec::f32([batch, time, rows, s.state]),
        Spec::f32([batch, time, rows, s.dim]),
        Spec::f32([batch, time, heads]),
        Spec::f32([batch, time, heads]),
        Spec::f32([batch, time, heads]),
        Spec::f32([batch, time, angles]),
    ];
    shapes.into_iter().zip(out).map(|(spec, data)| HostTensor::new(spec, data)).collect()
}

/// The gradients of a row of B or C: `u` is the gradient of the normalised row times the gain.
fn norm_backward(x: &[f64], u: &[f64], scale: f64) -> Vec<f64> {
    let product: f64 = x.iter().zip(u).map(|(x, u)| x * u).sum();
    let pull = scale * scale * product / x.len() as f64;
    x.iter().zip(u).map(|(x, u)| scale * (u - x * pull)).collect()
}

pub(super) fn backward_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [p, dt_bias, b_gain, c_gain, mimo_x, douts @ ..] = inputs else {
        unreachable!("mamba3_prepare_backward has thirteen inputs")
    };
    let [dz, dq, dk, dv, da, ddt, dlambda, dsteps] = douts else {
        unreachable!("mamba3_prepare has eight outputs")
    };
    let (s, [floor, eps, ..]) = (Sizes::of(attrs), attrs.float);
    let [b, c, step, decay, mix, angle, width] = s.places();
    let (mut dp, mut inverses) = (vec![0.0; p.data.len()], Vec::new());
    for (token, (row, dp)) in p.data.chunks(width).zip(dp.chunks_mut(width)).enumerate() {
        dp[..s.inner()].copy_from_slice(&dz.data[token * s.inner()..][..s.inner()]);
        for (from, gain, gradient) in [(b, b_gain, dk), (c, c_gain, dq)] {
            for pair in 0..s.rank * s.groups {
                let (r, at) = (pair / s.groups, from + pair * s.state);
                let heads = (0..s.heads).filter(|&h| group(&s, h) == pair % s.groups);
                let mut u = vec![0.0; s.state];
                for h in heads {
                    for (n, u) in u.iter_mut().enumerate() {
                        let place = ((token * s.rank + r) * s.heads + h) * s.state + n;
                        *u += gradient.data[place] * weight(gain, s.has(GAINS), n);
                    }
                }
                let x = &row[at..at + s.state];
                inverses.push(inverse(x, eps));
                let found = norm_backward(x, &u, inverse(x, eps));
                dp[at..at + s.state].copy_from_slice(&found);
            }
        }
        for h in 0..s.heads {
            for r in 0..s.rank {
                for d in 0..s.dim {
                    let scale = weight(mimo_x, s.has(MIMO), (h * s.rank + r) * s.dim + d);
                    let place = ((token * s.rank + r) * s.heads + h) * s.dim + d;
                    dp[s.inner() + h * s.dim + d] += dv.data[place] * scale;
                }
            }
            let (at, raw) = (token * s.heads + h, row[step + h] + dt_bias.data[h]);
            let (dt, [value, slope]) = (softplus(raw), rate(row[decay + h], &s));
            let floored = value < f64::from(floor);
            let mut total = ddt.data[at] - value.max(f64::from(floor)) * da.data[at];
            for i in 0..s.angles {
                let (t, up) = (row[angle + i].tanh(), dsteps.data[at * s.angles + i]);
                total += PI * t * up;
                dp[angle + i] += PI * (1.0 - t * t) * dt * up;
            }
            dp[step + h] = sigmoid(raw) * total;
            dp[decay + h] = if floored { 0.0 } else { -slope * dt * da.data[at] };
            let lambda = sigmoid(row[mix + h]);
            dp[mix + h] = lambda * (1.0 - lambda) * dlambda.data[at];
        }
    }
    let &[batch, time, _] = p.shape().dims() else { unreachable!("a projection is [B, T, width]") };
    let inverses = HostTensor::f32([batch, time, 2, s.rank * s.groups], inverses);
    vec![HostTensor::new(p.spec, dp), inverses]
}

pub(super) fn parameters_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [p, dp, inverses, dq, dk, dv] = inputs else {
        unreachable!("mamba3_prepare_parameters has six inputs")
    };
    let s = Sizes::of(attrs);
    let [b, c, step, .., width] = s.places();
    let (tokens, rows) = (p.data.len() / width, s.rank * s.heads);
    let parts = tokens.div_ceil(s.chunk);
    let named = |flag, count: usize| if s.has(flag) { parts * count } else { 1 };
    let (gain, mimo) = (named(GAINS, s.state), named(MIMO, rows * s.dim));
    let bias = parts * rows * s.state;
    let mut out = [parts * s.heads, gain, gain, bias, bias, mimo].map(|count| vec![0.0; count]);
    for token in 0..tokens {
        let (part, row) = (token / s.chunk, &p.data[token * width..][..width]);
        for h in 0..s.heads {
            out[0][part * s.heads + h] += dp.data[token * width + step + h];
            for r in 0..s.rank {
                let (source, to) = ((token * s.rank + r) * s.heads + h, h * s.rank + r);
                let pair = r * s.groups + group(&s, h);
                for (which, (from, gradient)) in [(b, dk), (c, dq)].into_iter().enumerate() {
                    let scale = inverses.data[(token * 2 + which) * s.rank * s.groups + pair];
                    for n in 0..s.state {
                        let up = gradient.data[source * s.state + n];
                        out[3 + which][(part * rows + to) * s.state + n] += up;
                        if s.has(GAINS) {
                            let x = row[from + pair * s.state + n] * scale;
                            out[1 + which][part * s.state + n] += up * x;
                        }
                    }
                }
                for d in (0..s.dim).filter(|_| s.has(MIMO)) {
                    let x = row[s.inner() + h * s.dim + d];
                    out[5][(part * rows + to) * s.dim + d] += dv.data[source * s.dim + d] * x;
                }
            }
        }
    }
    let shape = |flag, count: usize| match flag == 0 || s.has(flag) {
        true => Spec::f32([parts, count]),
        false => Spec::f32([1]),
    };
    let specs = [
        shape(0, s.heads),
        shape(GAINS, s.state),
        shape(GAINS, s.state),
        shape(0, rows * s.state),
        shape(0, rows * s.state),
        shape(MIMO, rows * s.dim),
    ];
    specs.into_iter().zip(out).map(|(spec, data)| HostTensor::new(spec, data)).collect()
}
