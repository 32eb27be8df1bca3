//! Two interleaved spirals, told apart by a small network: not everything is text.
//!
//! `cargo run --release -p oa --example mlp_classifier`
//!
//! No straight line separates the spirals, and their points are noisy. The network sees 1,000 of
//! them and is measured on 1,000 others. Everything is in this file: data, model, training loop,
//! measurement.

use oa::ml::nn::{Activation, Mlp};
use oa::ml::philox::Stream;
use oa::{Engine, ml};
use std::error::Error;
use std::f64::consts::TAU;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Points that the network learns from, and as many that it never sees.
const POINTS: usize = 1000;
/// Points of one training step.
const BATCH: usize = 100;
/// Decides weights, points and the order of training.
const SEED: u64 = 7;

fn main() -> Outcome<()> {
    let engine = Engine::new()?;
    println!("device: {}", engine.device().name);
    let accuracy = learn(&engine, 600)?;
    println!("held-out accuracy: {accuracy:.3}");
    if accuracy < 0.95 {
        return Err("the network did not learn the spirals".into());
    }
    Ok(())
}

/// Trains for so many steps and returns the share of held-out points that come out right.
pub fn learn(engine: &Engine, steps: u64) -> Outcome<f64> {
    let mut store = ml::ParameterStore::new(engine, SEED);
    let activation: Activation = "relu".parse()?;
    let network = Mlp::new(&mut store.root(), &[2, 64, 64, 2], activation)?;
    let parameters = store.finalise()?;
    println!("model: {} parameters", parameters.layout().count());

    let (seen, unseen) = (spirals(0), spirals(1));
    let mut optimizer = ml::AdamW::new(parameters, 1.0e-2)?;
    let mut training = ml::ItTraining::new_eager(
        engine,
        &mut optimizer,
        ml::ItTrainingConfig { total_steps: steps, seed: SEED, ..Default::default() },
    )?;
    let mut step = 0;
    while training.begin_step()? {
        let (points, classes) = seen.draw(step);
        let x = engine.tensor_f32([BATCH, 2], &points)?;
        let y = engine.tensor_i32([BATCH], &classes)?;
        training.zero_grad();
        let tape = ml::GradientTape::new();
        let loss = ml::loss::cross_entropy(&network.forward(&x)?, &y)?;
        tape.backward(&loss)?;
        training.complete_step(&loss)?;
        while let Some(report) = training.take_report() {
            if report.step % 100 == 0 {
                println!("step {:>3}  loss {:.4}", report.step, report.loss);
            }
        }
        step += 1;
    }

    let x = engine.tensor_f32([POINTS, 2], &unseen.points)?;
    let y = engine.tensor_i32([POINTS], &unseen.classes)?;
    let right = network.forward(&x)?.correct_rows(&y)?.mean()?;
    Ok(f64::from(right.item()?))
}

/// Labelled points of the plane.
struct Points {
    points: Vec<f32>,
    classes: Vec<i32>,
}

/// One and a half turns of two spirals with a little noise; each `part` has other points.
fn spirals(part: u32) -> Points {
    let places = Stream { seed: SEED, stream: part, step: 0 }.uniform(POINTS);
    let noise = Stream { seed: SEED, stream: part, step: 1 }.normal(2 * POINTS);
    let (mut points, mut classes) = (Vec::new(), Vec::new());
    for (index, place) in places.into_iter().enumerate() {
        let class = index % 2;
        let radius = 0.1 + 0.9 * place;
        let angle = TAU * (1.5 * place + 0.5 * class as f64);
        points.push((radius * angle.cos() + 0.02 * noise[2 * index]) as f32);
        points.push((radius * angle.sin() + 0.02 * noise[2 * index + 1]) as f32);
        classes.push(class as i32);
    }
    Points { points, classes }
}

impl Points {
    /// The batch of a step: points drawn at random.
    fn draw(&self, step: u32) -> (Vec<f32>, Vec<i32>) {
        let order = Stream { seed: SEED, stream: 2, step };
        let (mut points, mut classes) = (Vec::new(), Vec::new());
        for row in 0..BATCH {
            let index = order.below(row as u64, POINTS as u64) as usize;
            points.extend(&self.points[2 * index..2 * index + 2]);
            classes.push(self.classes[index]);
        }
        (points, classes)
    }
}
