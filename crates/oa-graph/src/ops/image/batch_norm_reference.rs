//! Batch norm in double precision, by the definition.

use super::channels::planes;
use crate::attrs::Attrs;
use crate::host::HostTensor;
use crate::ops::reduce::sum;

/// The channel of each element.
fn channel_of(x: &HostTensor) -> impl Fn(usize) -> usize {
    let [_, channels, pixels] = planes(x.shape()).expect("infer admitted the shape");
    move |at| at / pixels % channels
}

fn normed(x: &HostTensor, [gain, bias, mean, variance]: [&[f64]; 4], eps: f32) -> Vec<HostTensor> {
    let channel = channel_of(x);
    let norm = |(at, x): (usize, &f64)| {
        let c = channel(at);
        gain[c] * (x - mean[c]) / (variance[c] + f64::from(eps)).sqrt() + bias[c]
    };
    vec![HostTensor::new(x.spec, x.data.iter().enumerate().map(norm).collect())]
}

/// Mean and population variance of each channel.
pub(super) fn statistics(x: &HostTensor) -> [Vec<f64>; 2] {
    let [_, channels, _] = planes(x.shape()).expect("infer admitted the shape");
    let channel = channel_of(x);
    let values = |c: usize| -> Vec<f64> {
        let own = x.data.iter().enumerate().filter(|(at, _)| channel(*at) == c);
        own.map(|(_, x)| *x).collect()
    };
    let mean = |values: &[f64]| sum(values) / values.len() as f64;
    let means: Vec<f64> = (0..channels).map(|c| mean(&values(c))).collect();
    let variance = |c: usize| {
        let squares: Vec<f64> = values(c).iter().map(|x| (x - means[c]).powi(2)).collect();
        mean(&squares)
    };
    let variances = (0..channels).map(variance).collect();
    [means, variances]
}

/// The statistics are those of x, whatever the last two inputs say.
pub(super) fn norm_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [x, gain, bias, ..] = inputs else { unreachable!("a norm has five inputs") };
    let [mean, variance] = statistics(x);
    normed(x, [&gain.data, &bias.data, &mean, &variance], attrs.float[0])
}

pub(super) fn channel_norm_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [x, gain, bias, mean, variance] = inputs else { unreachable!("a norm has five inputs") };
    normed(x, [&gain.data, &bias.data, &mean.data, &variance.data], attrs.float[0])
}

pub(super) fn sums_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dy, x, mean, variance] = inputs else { unreachable!("the op has four inputs") };
    let [batch, channels, pixels] = planes(x.shape()).expect("infer admitted the shape");
    let (mut dgain, mut dbias) = (Vec::new(), Vec::new());
    for (row, (dy, x)) in dy.data.chunks(pixels).zip(x.data.chunks(pixels)).enumerate() {
        let c = row % channels;
        let r = (variance.data[c] + f64::from(attrs.float[0])).sqrt().recip();
        let products: Vec<f64> =
            dy.iter().zip(x).map(|(dy, x)| dy * (x - mean.data[c]) * r).collect();
        dgain.push(sum(&products));
        dbias.push(sum(dy));
    }
    vec![HostTensor::f32([batch, channels], dgain), HostTensor::f32([batch, channels], dbias)]
}

pub(super) fn input_reference(inputs: &[HostTensor], attrs: &Attrs) -> Vec<HostTensor> {
    let [dy, x, gain, mean, variance, dgain, dbias] = inputs else {
        unreachable!("the op has seven inputs")
    };
    let [batch, _, pixels] = planes(x.shape()).expect("infer admitted the shape");
    let (channel, values) = (channel_of(x), (batch * pixels) as f64);
    let gradient = |(at, (dy, x)): (usize, (&f64, &f64))| {
        let c = channel(at);
        let r = (variance.data[c] + f64::from(attrs.float[0])).sqrt().recip();
        let xh = (x - mean.data[c]) * r;
        gain.data[c] * r * (dy - (dbias.data[c] + xh * dgain.data[c]) / values)
    };
    let pairs = dy.data.iter().zip(&x.data).enumerate();
    vec![HostTensor::new(x.spec, pairs.map(gradient).collect())]
}
