//! Language models against the published vectors: logits, gradients, training, greedy tokens.

use super::*;
use crate::vectors::Vectors;
use crate::{
    AdamW, AdamWConfig, Generator, GradientTape, ItTraining, ItTrainingConfig, NamedTensor,
    Sampling, Schedule, loss,
};
use std::ops::ControlFlow;

/// Largest absolute error over the largest absolute value.
fn error(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0.0f64, |max, &x| max.max(f64::from(x).abs()));
    let worst = got.iter().zip(want).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
    worst.fold(0.0, f64::max) / largest.max(1e-30)
}

fn load(model: &Model, vectors: &Vectors) {
    let tensor = |name: String| NamedTensor {
        shape: vectors.shape(&format!("p.{name}")),
        data: vectors.f32(&format!("p.{name}")),
        name,
    };
    let tensors: Vec<_> = vectors.names("p.").into_iter().map(tensor).collect();
    model.parameters().load(&tensors).unwrap();
}

/// Tokens but the last and tokens but the first of rows of `width`.
fn shifted(rows: &[i32], width: usize) -> Batch {
    let tokens: Vec<u32> =
        rows.chunks(width).flat_map(|row| row[..width - 1].iter().map(|&t| t as u32)).collect();
    let targets = rows.chunks(width).flat_map(|row| row[1..].to_vec()).collect();
    Batch { rows: rows.len() / width, sequence: width - 1, tokens, targets, starts: None }
}

fn check_contract(name: &str, heads: usize) {
    let (engine, vectors) = (engine(), Vectors::open(name));
    let config =
        ContractTransformerConfig { vocab: 41, width: 16, heads, ff: 32, context: 10, eps: 1.0e-5 };
    let model = ModelConfig::ContractTransformer(config).build(&engine, 0).unwrap();
    load(&model, &vectors);
    let batch = shifted(&vectors.i32("i.tokens"), 11);
    let logits = model.forward(&batch.tokens_on(&engine).unwrap()).unwrap();
    let loss = loss::cross_entropy(&logits, &batch.targets_on(&engine).unwrap()).unwrap();
    let up = engine.tensor_f32([3, 10, 41], &vectors.f32("up.logits")).unwrap();
    let scale = vectors.f32("up.loss")[0];
    let objective = logits.mul(&up).unwrap().sum().unwrap();
    let objective = objective.add(&loss.scale(scale).unwrap()).unwrap();
    GradientTape::new().backward(&objective).unwrap();
    assert!(error(&logits.to_vec_f32().unwrap(), &vectors.f32("out.logits")) < 3e-5);
    assert!((loss.item().unwrap() - vectors.f32("out.loss")[0]).abs() < 1e-5);
    for gradient in model.parameters().gradients_to_host().unwrap() {
        let want = vectors.f32(&format!("g.p.{}", gradient.name));
        // The key bias shifts all scores of a row alike: its true gradient is zero, and what is
        // left is rounding, so it is measured against the query bias.
        let scale = match gradient.name.as_str() {
            "attn.b_k" => vectors.f32("g.p.attn.b_q"),
            _ => want.clone(),
        };
        let largest = scale.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        let worst = gradient.data.iter().zip(&want).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0f32, f32::max) / largest;
        assert!(worst < 3e-5, "{name}: gradient of {} is off by {worst}", gradient.name);
    }
}

#[test]
fn the_contract_transformer_agrees() {
    check_contract("lm_contract_transformer", 1);
    check_contract("lm_contract_transformer_2head", 2);
}

fn check_lm(name: &str, config: ModelConfig) {
    let (engine, vectors) = (engine(), Vectors::open(name));
    let model = config.build(&engine, 0).unwrap();
    load(&model, &vectors);
    check_greedy(&model, &vectors, "i.greedy");
    let batches: Vec<Batch> =
        vectors.i32("in.batches").chunks(18).map(|rows| shifted(rows, 9)).collect();
    let logits = model.forward(&batches[0].tokens_on(&engine).unwrap()).unwrap();
    assert!(error(&logits.to_vec_f32().unwrap(), &vectors.f32("out.logits")) < 3e-5);
    let settings = AdamWConfig { lr: 0.01, ..Default::default() };
    let mut optimizer = AdamW::with_config(model.all_parameters().unwrap(), settings).unwrap();
    let schedule = Schedule::Cosine { warmup: 2, min_ratio: 0.1 };
    let settings = ItTrainingConfig { total_steps: 6, schedule, ..Default::default() };
    let mut training = ItTraining::new_eager(&engine, &mut optimizer, settings).unwrap();
    let mut forward = step_of(&model);
    for (step, batch) in batches.iter().enumerate() {
        assert!(training.begin_step().unwrap());
        training.step(std::slice::from_ref(batch), &mut forward).unwrap();
        training.finish().unwrap();
        let report = training.take_report().unwrap();
        let (loss, norm) = (vectors.f64("f64.losses"), vectors.f64("f64.grad_norms"));
        let off = (f64::from(report.loss) - loss[step]).abs();
        assert!(off < if step == 0 { 1e-5 } else { 1e-4 }, "{name}: step {step} is off by {off}");
        let off = (f64::from(report.gradient_norm) / norm[step] - 1.0).abs();
        assert!(off < 1e-4, "{name}: norm of step {step} is off by {off}");
        if step == 0 {
            for gradient in model.parameters().gradients_to_host().unwrap() {
                let off = error(&gradient.data, &vectors.f32(&format!("g.{}", gradient.name)));
                assert!(off < 3e-5, "{name}: gradient of {} is off by {off}", gradient.name);
            }
        }
    }
    for tensor in model.parameters().to_host().unwrap() {
        let want = vectors.f32(&format!("final.{}", tensor.name));
        let worst = tensor.data.iter().zip(&want).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0f32, f32::max);
        assert!(worst < 2e-3, "{name}: final {} is off by {worst}", tensor.name);
    }
    check_greedy(&model, &vectors, "i.greedy_after_training");
}

fn check_greedy(model: &Model, vectors: &Vectors, name: &str) {
    let prompt = vectors.u32("in.prompt");
    let rows: Vec<&[u32]> = prompt.chunks(4).collect();
    let mut generator = Generator::with_rows(model, rows.len()).unwrap();
    let go_on = |_: &[u32]| ControlFlow::Continue(());
    let tokens = generator.generate_rows(&rows, 10, &Sampling::default(), go_on).unwrap();
    for (want, (row, more)) in vectors.u32(name).chunks(14).zip(rows.iter().zip(&tokens)) {
        assert_eq!(want[..4], **row);
        assert_eq!(want[4..], *more, "{name}");
    }
}

#[test]
fn the_recurrent_model_agrees() {
    let config = RnnLmConfig { vocab: 29, width: 16, hidden: 16, layers: 2 };
    check_lm("lm_rnn", ModelConfig::Rnn(config));
}

#[test]
fn the_gated_model_agrees() {
    let config = RnnLmConfig { vocab: 29, width: 16, hidden: 16, layers: 2 };
    check_lm("lm_gru", ModelConfig::Gru(config));
}

#[test]
fn the_mamba3_models_agree() {
    let config = Mamba3LmConfig {
        vocab: 29,
        width: 16,
        layers: 2,
        heads: 4,
        head_dim: 8,
        state: 8,
        groups: 2,
        angles: 2,
        ff: 24,
        ..Default::default()
    };
    check_lm("lm_mamba3_siso", ModelConfig::Mamba3(config));
    let config = Mamba3LmConfig { groups: 1, rank: 2, mimo: true, ..config };
    check_lm("lm_mamba3_mimo", ModelConfig::Mamba3(config));
}

#[test]
fn the_transformer_agrees() {
    let config = TransformerConfig {
        vocab: 29,
        width: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        ff: 24,
        context: 16,
        rope: RopeStyle::Half,
        ..Default::default()
    };
    check_lm("lm_transformer", ModelConfig::Transformer(config));
}
