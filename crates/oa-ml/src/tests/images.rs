//! Layers for images: what batch norm keeps, what a file of a model must hold, what pooling does
//! with equal elements.

use super::*;
use crate::nn::{
    Activation, BatchNorm, Conv2d, Convolution, Flatten, MaxPool2d, Mlp, Mode, Pooling,
};
use crate::{Error, GradientTape, NamedTensor, ParameterStore, Parameters};
use oa_graph::ops::sample::uniform;

/// A batch norm of three channels alone in a model.
fn norm(engine: &Engine) -> (BatchNorm, Parameters) {
    let mut store = ParameterStore::new(engine, 1);
    let norm = BatchNorm::new(&mut store.root(), "norm", 3).unwrap();
    (norm, store.finalise().unwrap())
}

fn images(engine: &Engine, seed: u64) -> Tensor {
    let x = uniform([4, 3, 5, 2], -1.0, 3.0, seed);
    let data: Vec<f32> = x.data.iter().map(|&x| x as f32).collect();
    engine.tensor_f32([4, 3, 5, 2], &data).unwrap()
}

/// Mean and unbiased variance of each channel.
fn moments(x: &Tensor) -> [Vec<f64>; 2] {
    let data = x.to_vec_f32().unwrap();
    let channel = |c: usize| data.chunks(10).skip(c).step_by(3).flatten().copied().map(f64::from);
    let mean = |c: usize| channel(c).sum::<f64>() / 40.0;
    let variance = |c: usize| channel(c).map(|x| (x - mean(c)).powi(2)).sum::<f64>() / 39.0;
    [(0..3).map(mean).collect(), (0..3).map(variance).collect()]
}

fn close(found: &[f32], wanted: impl IntoIterator<Item = f64>) {
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((f64::from(*found) - wanted).abs() < 1e-5, "element {at}: {found} is not {wanted}");
    }
}

#[test]
fn running_statistics_follow_the_batches_and_decide_an_evaluation() {
    let engine = engine();
    let (norm, _) = norm(&engine);
    let (mut mean, mut variance) = (vec![0.0; 3], vec![1.0; 3]);
    for seed in 0..3 {
        let x = images(&engine, seed);
        let y = norm.forward(&x, Mode::Training).unwrap();
        let [of_y, spread_of_y] = moments(&y);
        close(&of_y.map_f32(), [0.0; 3]);
        close(&spread_of_y.map_f32(), [40.0 / 39.0; 3]);
        let [batch_mean, batch_variance] = moments(&x);
        for c in 0..3 {
            mean[c] = 0.9 * mean[c] + 0.1 * batch_mean[c];
            variance[c] = 0.9 * variance[c] + 0.1 * batch_variance[c];
        }
        close(&norm.mean.value().to_vec_f32().unwrap(), mean.clone());
        close(&norm.variance.value().to_vec_f32().unwrap(), variance.clone());
    }
    let x = images(&engine, 9);
    let y = norm.forward(&x, Mode::Evaluation).unwrap().to_vec_f32().unwrap();
    let wanted = x.to_vec_f32().unwrap().into_iter().enumerate().map(|(at, x)| {
        let c = at / 10 % 3;
        (f64::from(x) - mean[c]) / (variance[c] + 1e-5).sqrt()
    });
    close(&y, wanted);
    close(&norm.mean.value().to_vec_f32().unwrap(), mean);
}

trait MapF32 {
    fn map_f32(&self) -> Vec<f32>;
}

impl MapF32 for Vec<f64> {
    fn map_f32(&self) -> Vec<f32> {
        self.iter().map(|&x| x as f32).collect()
    }
}

#[test]
fn buffers_are_saved_and_loaded_but_not_trained() {
    let engine = engine();
    let (first, parameters) = norm(&engine);
    let y = first.forward(&images(&engine, 1), Mode::Training).unwrap();
    let loss = y.mul(&y).unwrap().sum().unwrap();
    GradientTape::new().backward(&loss).unwrap();
    let gradients = parameters.gradients_to_host().unwrap();
    let names: Vec<&str> = gradients.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["norm.g", "norm.b"]);
    assert_eq!(parameters.layout().count(), 6);
    assert_eq!(parameters.buffers().len(), 2);

    let saved = parameters.to_host().unwrap();
    let names: Vec<&str> = saved.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["norm.g", "norm.b", "norm.mean", "norm.variance"]);
    let (second, fresh) = norm(&engine);
    let x = images(&engine, 2);
    let answer =
        |norm: &BatchNorm| norm.forward(&x, Mode::Evaluation).unwrap().to_vec_f32().unwrap();
    assert_ne!(answer(&second), answer(&first));
    fresh.load(&saved).unwrap();
    assert_eq!(answer(&second), answer(&first));
    assert_eq!(fresh.to_host().unwrap(), saved);
}

#[test]
fn a_file_without_a_buffer_or_with_a_wrong_one_changes_nothing() {
    let engine = engine();
    let (_, parameters) = norm(&engine);
    let good = parameters.to_host().unwrap();
    let refused = |change: &dyn Fn(&mut Vec<NamedTensor>)| {
        let mut tensors = good.clone();
        tensors.iter_mut().for_each(|tensor| tensor.data.fill(7.0));
        change(&mut tensors);
        let message = parameters.load(&tensors).unwrap_err().to_string();
        assert_eq!(parameters.to_host().unwrap(), good);
        message
    };
    let missing = refused(&|tensors| drop(tensors.remove(2)));
    assert!(missing.contains("norm.mean"), "{missing}");
    let shape = refused(&|tensors| {
        tensors[3].data.pop();
        tensors[3].shape = vec![2];
    });
    assert!(shape.contains("`norm.variance` has shape [2]"), "{shape}");
    let gain = refused(&|tensors| drop(tensors.remove(0)));
    assert!(gain.contains("norm.g"), "{gain}");
    let mut store = ParameterStore::new(&engine, 1);
    store.root().declare_buffer("norm.mean", [3], 0.0).unwrap();
    let twice = BatchNorm::new(&mut store.root(), "norm", 3).unwrap_err();
    assert!(matches!(twice, Error::DuplicateParameter { .. }), "{twice}");
}

#[test]
fn equal_elements_give_their_gradient_to_the_first() {
    let engine = engine();
    let x = [-1.0, -1.0, -3.0, -1.0, -1.0, -2.0, -3.0, -2.0, -2.0];
    let x = engine.tensor_f32([1, 1, 3, 3], &x).unwrap();
    let pool = Pooling { kernel: [2; 2], stride: [1; 2], padding: [1; 2] };
    let y = x.max_pool2d(pool).unwrap();
    let wanted = [
        -1.0, -1.0, -1.0, -3.0, -1.0, -1.0, -1.0, -2.0, -1.0, -1.0, -1.0, -2.0, -3.0, -2.0, -2.0,
        -2.0,
    ];
    assert_eq!(y.to_vec_f32().unwrap(), wanted);
    let ones = engine.tensor_f32([1, 1, 4, 4], &[1.0; 16]).unwrap();
    let dx = oa_graph::grad::gradients(&[(&y, &ones)], &[&x]).unwrap().swap_remove(0).unwrap();
    assert_eq!(dx.to_vec_f32().unwrap(), [4.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]);
}

#[test]
fn layers_put_together_have_the_shapes_and_gradients_of_their_parts() {
    let engine = engine();
    let mut store = ParameterStore::new(&engine, 3);
    let mut root = store.root();
    let strided = Convolution { stride: [2; 2], padding: [1; 2], groups: 3, ..Default::default() };
    let conv = Conv2d::new(&mut root, "conv", [6, 3], [3, 3], strided).unwrap();
    let conv = conv.with_bias(&mut root, "conv", crate::init::Init::fan_in(9)).unwrap();
    let tanh: Activation = "tanh".parse().unwrap();
    let mlp = Mlp::new(&mut root.scope("mlp"), &[12, 7, 5, 2], tanh).unwrap();
    let parameters = store.finalise().unwrap();
    assert_eq!(parameters.layout().count(), 60 + 91 + 40 + 12);

    let x = images(&engine, 5).reshape([4, 3, 5, 2]).unwrap();
    let y = conv.forward(&x).unwrap();
    assert_eq!(y.shape().dims(), [4, 6, 3, 1]);
    let pooled = MaxPool2d { window: Pooling { kernel: [2, 1], stride: [1; 2], padding: [0; 2] } };
    let row = Flatten {}.forward(&pooled.forward(&y).unwrap()).unwrap();
    let out = mlp.forward(&row).unwrap();
    assert_eq!(out.shape().dims(), [4, 2]);
    GradientTape::new().backward(&out.mul(&out).unwrap().sum().unwrap()).unwrap();
    for gradient in parameters.gradients_to_host().unwrap() {
        assert!(gradient.data.iter().any(|&x| x != 0.0), "{} gets no gradient", gradient.name);
    }
}
