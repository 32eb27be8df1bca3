//! Ten digits, drawn with noise, read by a small convolutional network.
//!
//! `cargo run --release -p oa --example image_classifier`
//!
//! The images are made here, so nothing is downloaded: the strokes of a seven-segment display,
//! turned, sheared, scaled, moved and covered with noise, 28 x 28 pixels. The network is two blocks
//! of convolution, batch norm, ReLU and max pooling, and a linear head. It is measured on digits it
//! never saw, and its weights, with the running statistics of the norms, are carried into a second
//! network that must give the same answers.

use oa::ml::nn::{BatchNorm, Conv2d, Convolution, Flatten, Linear, MaxPool2d, Mode};
use oa::ml::philox::Stream;
use oa::{Engine, Tensor, ml};
use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pixels of a side of an image.
const SIDE: usize = 28;
/// Images of one training step.
const BATCH: usize = 64;
/// Images that are only measured.
const HELD_OUT: usize = 512;
/// Decides weights and images.
const SEED: u64 = 20_260_714;

fn main() -> Outcome<()> {
    let engine = Engine::new()?;
    println!("device: {}", engine.device().name);
    let learned = learn(&engine, 150)?;
    println!("held-out accuracy: {:.3}", learned.accuracy);
    if learned.accuracy < 0.95 {
        return Err("the network did not learn to read".into());
    }
    if !learned.reloads {
        return Err("the reloaded network gives other answers".into());
    }
    println!("a second network with the saved weights gives the same answers, bit for bit");
    Ok(())
}

/// What a run showed.
pub struct Learned {
    /// Share of held-out images that were read right.
    pub accuracy: f64,
    /// Whether another network with the saved weights gives the same logits, and gave others before.
    pub reloads: bool,
}

/// The network.
struct Reader {
    blocks: [(Conv2d, BatchNorm); 2],
    head: Linear,
}

impl Reader {
    /// Declares the layers on an engine; the seed decides how they start.
    fn new(engine: &Engine, seed: u64) -> Outcome<(Reader, ml::Parameters)> {
        let mut store = ml::ParameterStore::new(engine, seed);
        let mut root = store.root();
        let padded = Convolution { padding: [1, 1], ..Convolution::default() };
        let mut block = |name: &str, channels: [usize; 2]| -> ml::Result<(Conv2d, BatchNorm)> {
            let conv = Conv2d::new(&mut root, name, channels, [3, 3], padded)?;
            Ok((conv, BatchNorm::new(&mut root, &format!("{name}.norm"), channels[0])?))
        };
        let blocks = [block("conv1", [16, 1])?, block("conv2", [32, 16])?];
        let features = 32 * (SIDE / 4) * (SIDE / 4);
        let init = ml::init::Init::fan_in(features);
        let head = Linear::new(&mut root, "head.w", [10, features], init)?;
        let head = head.with_bias(&mut root, "head.b", 10, init)?;
        Ok((Reader { blocks, head }, store.finalise()?))
    }

    /// Logits `[batch, 10]` of images `[batch, 1, 28, 28]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Outcome<Tensor> {
        let mut x = images.clone();
        for (conv, norm) in &self.blocks {
            let normed = norm.forward(&conv.forward(&x)?, mode)?;
            x = MaxPool2d::square(2).forward(&normed.relu()?)?;
        }
        Ok(self.head.forward(&Flatten {}.forward(&x)?)?)
    }

    /// Logits of all held-out images, batch by batch.
    fn read(&self, engine: &Engine, digits: &Digits) -> Outcome<Vec<f32>> {
        let mut logits = Vec::new();
        for first in (0..digits.classes.len()).step_by(BATCH) {
            let (images, _) = digits.on(engine, first)?;
            logits.extend(self.forward(&images, Mode::Evaluation)?.to_vec_f32()?);
        }
        Ok(logits)
    }
}

/// Trains for so many steps, measures, saves and loads.
pub fn learn(engine: &Engine, steps: u64) -> Outcome<Learned> {
    let (reader, parameters) = Reader::new(engine, SEED)?;
    println!("model: {} parameters", parameters.layout().count());
    let mut optimizer = ml::AdamW::new(parameters.clone(), 2.0e-3)?;
    let mut training = ml::ItTraining::new_eager(
        engine,
        &mut optimizer,
        ml::ItTrainingConfig { total_steps: steps, seed: SEED, ..Default::default() },
    )?;
    let mut drawn = 0;
    while training.begin_step()? {
        let digits = Digits::draw(BATCH, 1 + drawn);
        let (images, classes) = digits.on(engine, 0)?;
        training.zero_grad();
        let tape = ml::GradientTape::new();
        let loss = ml::loss::cross_entropy(&reader.forward(&images, Mode::Training)?, &classes)?;
        tape.backward(&loss)?;
        training.complete_step(&loss)?;
        while let Some(report) = training.take_report() {
            if report.step % 25 == 0 {
                println!("step {:>3}  loss {:.4}", report.step, report.loss);
            }
        }
        drawn += 1;
    }

    let held_out = Digits::draw(HELD_OUT, 0);
    let logits = reader.read(engine, &held_out)?;
    let saved = parameters.to_host()?;
    let (other, fresh) = Reader::new(engine, SEED + 1)?;
    let before = other.read(engine, &held_out)?;
    fresh.load(&saved)?;
    let reloads = other.read(engine, &held_out)? == logits && before != logits;
    Ok(Learned { accuracy: held_out.accuracy(&logits), reloads })
}

/// Images with the digits they show.
struct Digits {
    pixels: Vec<f32>,
    classes: Vec<i32>,
}

impl Digits {
    /// Draws `count` images; each `step` has others.
    fn draw(count: usize, step: u32) -> Digits {
        let mut digits = Digits { pixels: Vec::new(), classes: Vec::new() };
        for index in 0..count {
            let stream = Stream { seed: SEED, stream: index as u32, step };
            let digit = stream.below(u64::MAX, 10) as usize;
            digits.pixels.extend(draw(digit, stream));
            digits.classes.push(digit as i32);
        }
        digits
    }

    /// The batch from image `first` on, as values of an engine.
    fn on(&self, engine: &Engine, first: usize) -> Outcome<(Tensor, Tensor)> {
        let pixels = &self.pixels[first * SIDE * SIDE..(first + BATCH) * SIDE * SIDE];
        let images = engine.tensor_f32([BATCH, 1, SIDE, SIDE], pixels)?;
        Ok((images, engine.tensor_i32([BATCH], &self.classes[first..first + BATCH])?))
    }

    /// Share of images whose largest logit is that of their digit.
    fn accuracy(&self, logits: &[f32]) -> f64 {
        let best = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b]));
        let answers = logits.chunks(10).map(best);
        let right = answers.zip(&self.classes).filter(|(a, b)| *a == Some(**b as usize)).count();
        right as f64 / self.classes.len() as f64
    }
}

/// The segments of a display, from (x, y) to (x, y), in a box of 1 x 2 around the origin.
const SEGMENTS: [[f64; 4]; 7] = [
    [-0.5, -1.0, 0.5, -1.0],
    [-0.5, -1.0, -0.5, 0.0],
    [0.5, -1.0, 0.5, 0.0],
    [-0.5, 0.0, 0.5, 0.0],
    [-0.5, 0.0, -0.5, 1.0],
    [0.5, 0.0, 0.5, 1.0],
    [-0.5, 1.0, 0.5, 1.0],
];

/// Which segments a digit lights, the first one in the lowest bit.
const LIT: [u8; 10] = [
    0b111_0111, 0b010_0100, 0b101_1101, 0b110_1101, 0b010_1110, 0b110_1011, 0b111_1011, 0b010_0101,
    0b111_1111, 0b110_1111,
];

/// One image: a digit under a random affine map, and noise.
fn draw(digit: usize, stream: Stream) -> Vec<f32> {
    let random = stream.uniform(8 + SIDE * SIDE);
    let between = |index: usize, low: f64, high: f64| low + (high - low) * random[index];
    let (sine, cosine) = between(0, -0.25, 0.25).sin_cos();
    let (scale, shear) = (between(1, 5.5, 9.0), between(2, -0.2, 0.2));
    let (x0, y0) = (between(3, 10.0, 17.0), between(4, 11.0, 16.0));
    let (width, noise) = (between(5, 0.12, 0.25), between(6, 0.2, 0.5));
    let pixel = |index: usize| {
        let (x, y) = ((index % SIDE) as f64 - x0, (index / SIDE) as f64 - y0);
        let (x, y) = ((cosine * x + sine * y) / scale, (cosine * y - sine * x) / scale);
        let lit = SEGMENTS.iter().enumerate().filter(|(bit, _)| LIT[digit] >> bit & 1 == 1);
        let nearest = lit.map(|(_, segment)| distance([x + shear * y, y], segment));
        let ink = (1.5 - nearest.fold(f64::MAX, f64::min) / width).clamp(0.0, 1.0);
        (ink + noise * (random[8 + index] - 0.5)) as f32
    };
    (0..SIDE * SIDE).map(pixel).collect()
}

/// Distance of a point from a segment.
fn distance([x, y]: [f64; 2], &[x0, y0, x1, y1]: &[f64; 4]) -> f64 {
    let (dx, dy) = (x1 - x0, y1 - y0);
    let along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy);
    let along = along.clamp(0.0, 1.0);
    (x - x0 - along * dx).hypot(y - y0 - along * dy)
}
