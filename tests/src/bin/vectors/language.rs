//! Whole language models: logits, gradients, a training trajectory, and greedy tokens.
//!
//! The model, optimizer, session and generator are those that users run; the file only says which
//! sizes and settings they have. Greedy tokens are computed twice, from the decode cache and from
//! a fresh forward pass a token, before and after training.

use crate::runner::{GREEDY, Run, TRAJECTORY};
use anyhow::{Context, Result, bail, ensure};
use oa_graph::Tensor;
use oa_ml::checkpoint::NamedTensor;
use oa_ml::data::Batch;
use oa_ml::generate::{Generator, Sampling};
use oa_ml::model::{
    DecayStyle, Mamba3LmConfig, Model, ModelConfig, MoeLmConfig, RnnLmConfig, RopeStyle,
    TransformerConfig,
};
use oa_ml::optim::adamw::{AdamW, AdamWConfig};
use oa_ml::optim::schedule::Schedule;
use oa_ml::tape::GradientTape;
use oa_ml::train::{ItTraining, ItTrainingConfig};
use oa_tests::Tolerance;
use oa_tests::fixture::{Fixture, widen};
use std::ops::ControlFlow;

/// The language model of Elman layers.
pub fn rnn(run: &mut Run) -> Result<()> {
    let config = recurrent(run.fixture)?;
    language_model(run, &ModelConfig::Rnn(config))
}

/// The language model of gated recurrent units.
pub fn gru(run: &mut Run) -> Result<()> {
    let config = recurrent(run.fixture)?;
    language_model(run, &ModelConfig::Gru(config))
}

fn recurrent(fixture: &Fixture) -> Result<RnnLmConfig> {
    let size = |key: &str| fixture.size(key);
    Ok(RnnLmConfig {
        vocab: size("vocab")?,
        width: size("d_model")?,
        hidden: size("hidden")?,
        layers: size("n_layer")?,
    })
}

/// The dense decoder Transformer.
pub fn transformer(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let size = |key: &str| fixture.size(key);
    let longest = |name: &str| -> Result<usize> {
        Ok(*fixture.shape(name)?.last().context("a tensor with an axis")?)
    };
    let config = TransformerConfig {
        vocab: size("vocab")?,
        width: size("d_model")?,
        layers: size("n_layer")?,
        heads: size("n_head")?,
        kv_heads: size("n_kv")?,
        head_dim: size("d_head")?,
        ff: size("d_ff")?,
        context: longest("in.batches")?.max(longest("i.greedy")?),
        rope: match fixture.word("rope_layout") {
            Some("half") => RopeStyle::Half,
            Some("pair") => RopeStyle::Pair,
            other => bail!("the rotary layout {other:?} is unknown"),
        },
        rope_base: fixture.number("rope_base")?,
        eps: fixture.number("eps")? as f32,
        qk_norm: fixture.flag("qk_norm"),
        tied: false,
        dropout: 0.0,
    };
    language_model(run, &ModelConfig::Transformer(config))
}

/// The mixture-of-experts Transformer.
pub fn moe(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let size = |key: &str| fixture.size(key);
    let longest = |name: &str| -> Result<usize> {
        Ok(*fixture.shape(name)?.last().context("a tensor with an axis")?)
    };
    let config = MoeLmConfig {
        vocab: size("vocab")?,
        width: size("d_model")?,
        layers: size("n_layer")?,
        heads: size("n_head")?,
        kv_heads: size("n_kv")?,
        head_dim: size("d_head")?,
        experts: size("n_expert")?,
        top_k: size("top_k")?,
        ff: size("d_ff")?,
        renormalise: true,
        context: longest("in.batches")?.max(longest("i.greedy")?),
        rope: match fixture.word("rope_layout") {
            Some("half") => RopeStyle::Half,
            Some("pair") => RopeStyle::Pair,
            other => bail!("the rotary layout {other:?} is unknown"),
        },
        rope_base: fixture.number("rope_base")?,
        eps: fixture.number("eps")? as f32,
        aux_coef: fixture.number("aux_coef")? as f32,
        z_coef: fixture.number("z_coef")? as f32,
    };
    language_model(run, &ModelConfig::Moe(config))
}

/// The Mamba-3 language model.
pub fn mamba3(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let size = |key: &str| fixture.size(key);
    let (width, head_dim, state) = (size("d_model")?, size("P")?, size("N")?);
    let mimo = fixture.flag("mimo");
    let config = Mamba3LmConfig {
        vocab: size("vocab")?,
        width,
        layers: size("n_layer")?,
        heads: size("expand")? * width / head_dim,
        head_dim,
        state,
        groups: size("G")?,
        // The files name a rank that only MIMO has.
        rank: if mimo { size("R")? } else { 1 },
        mimo,
        angles: (state as f64 * fixture.number("rope_fraction")?) as usize / 2,
        rope: match fixture.word("layout") {
            Some("half") => RopeStyle::Half,
            Some("pair") => RopeStyle::Pair,
            other => bail!("the rotary layout {other:?} is unknown"),
        },
        decay: match fixture.word("a_act") {
            Some("heavy_tail") => DecayStyle::HeavyTail,
            Some("softplus") => DecayStyle::Softplus,
            other => bail!("the rate of decay {other:?} is unknown"),
        },
        floor: fixture.number("a_floor")? as f32,
        out_norm: fixture.flag("out_norm"),
        ff: size("d_ff")?,
        eps: fixture.number("eps")? as f32,
    };
    language_model(run, &ModelConfig::Mamba3(config))
}

fn language_model(run: &mut Run, config: &ModelConfig) -> Result<()> {
    let model = config.build(run.engine, 0)?;
    model.parameters().load(&parameters(run.fixture)?)?;
    check_decay(run.fixture, &model)?;
    let batches = batches(run.fixture)?;
    greedy(run, &model, "i.greedy")?;
    first_step(run, &model, batches.first().context("the file has a batch")?)?;
    trajectory(run, &model, &batches)?;
    greedy(run, &model, "i.greedy_after_training")
}

/// The parameters of a file by their names in the model.
pub fn parameters(fixture: &Fixture) -> Result<Vec<NamedTensor>> {
    let names = fixture.names().filter_map(|name| name.strip_prefix("p."));
    let named = names.map(|name| {
        let full = format!("p.{name}");
        let (shape, data) = (fixture.shape(&full)?.to_vec(), fixture.f32(&full)?.to_vec());
        Ok(NamedTensor { name: name.to_owned(), shape, data })
    });
    named.collect()
}

/// The model must decay the parameters that the file says were decayed.
fn check_decay(fixture: &Fixture, model: &Model) -> Result<()> {
    let names = fixture.setting("decay_names").and_then(|names| names.as_array());
    let names = names.context("the config has no decay_names")?;
    for slot in model.parameters().layout().slots() {
        let last = slot.name.rsplit('.').next().unwrap_or_default();
        let decays = names.iter().any(|name| name.as_str() == Some(last));
        ensure!(slot.decays == decays, "the file says decay of {} is {decays}", slot.name);
    }
    Ok(())
}

/// Each batch predicts the next token of its rows.
fn batches(fixture: &Fixture) -> Result<Vec<Batch>> {
    let &[_, rows, length] = fixture.shape("in.batches")? else {
        bail!("in.batches is not [steps, rows, tokens]")
    };
    let ids = fixture.ids("in.batches")?;
    let batch = |ids: &[u32]| {
        let sequence = length - 1;
        let mut batch =
            Batch { tokens: Vec::new(), targets: Vec::new(), ..Batch::zeroed(rows, sequence) };
        for row in ids.chunks_exact(length) {
            batch.tokens.extend(&row[..sequence]);
            batch.targets.extend(row[1..].iter().map(|&id| id as i32));
        }
        batch
    };
    Ok(ids.chunks_exact(rows * length).map(batch).collect())
}

/// Logits and gradients before any update.
fn first_step(run: &mut Run, model: &Model, batch: &Batch) -> Result<()> {
    let (logits, routers) = model.forward_with_losses(&batch.tokens_on(run.engine)?, None)?;
    let mut loss = oa_ml::loss::cross_entropy(&logits, &batch.targets_on(run.engine)?)?;
    if let Some(routers) = routers {
        loss = loss.add(&routers)?;
    }
    GradientTape::new().backward(&loss)?;
    run.output("out.logits", &logits, Tolerance::MODEL)?;
    for gradient in model.parameters().gradients_to_host()? {
        run.gradient(&format!("p.{}", gradient.name), &gradient.data, Tolerance::MODEL)?;
    }
    Ok(())
}

/// The file's AdamW steps: losses, gradient norms before clipping, and the final parameters.
fn trajectory(run: &mut Run, model: &Model, batches: &[Batch]) -> Result<()> {
    let fixture = run.fixture;
    let setting = |key: &str| fixture.number(&format!("optimizer.{key}"));
    let config = AdamWConfig {
        lr: setting("lr")?,
        beta1: setting("b1")?,
        beta2: setting("b2")?,
        eps: setting("eps")?,
        weight_decay: setting("wd")?,
    };
    let schedule =
        Schedule::Cosine { warmup: setting("warmup")? as u64, min_ratio: setting("min_ratio")? };
    let settings = ItTrainingConfig {
        total_steps: setting("total")? as u64,
        schedule,
        max_norm: setting("clip")? as f32,
        ..Default::default()
    };
    let mut optimizer = AdamW::with_config(model.all_parameters()?, config)?;
    let mut session = ItTraining::new_eager(run.engine, &mut optimizer, settings)?;
    for batch in batches {
        ensure!(session.begin_step()?, "the run is shorter than its batches");
        session.step(std::slice::from_ref(batch), &mut |inputs| inputs.loss(model))?;
    }
    session.finish()?;
    let (losses, norms) = (fixture.f64("f64.losses")?, fixture.f64("f64.grad_norms")?);
    let mut found = Vec::new();
    while let Some(report) = session.take_report() {
        found.push(report);
    }
    ensure!(found.len() == losses.len(), "{} steps of {}", found.len(), losses.len());
    for (step, (report, &want)) in found.iter().zip(losses).enumerate() {
        let tolerance = Tolerance::loss(step, losses.len());
        let name = format!("f64.losses[{step}]");
        run.checks.floats(TRAJECTORY, name, (&[report.loss], &[want]), tolerance);
    }
    let got: Vec<f32> = found.iter().map(|report| report.gradient_norm).collect();
    run.checks.floats(TRAJECTORY, "f64.grad_norms", (&got, norms), Tolerance::MODEL);
    for parameter in model.parameters().to_host()? {
        let name = format!("final.{}", parameter.name);
        let want = widen(fixture.f32(&name)?);
        run.checks.floats(TRAJECTORY, name, (&parameter.data, &want), Tolerance::FINAL);
    }
    Ok(())
}

/// The prompt's greedy continuation, from the decode cache and recomputed.
fn greedy(run: &mut Run, model: &Model, name: &str) -> Result<()> {
    let fixture = run.fixture;
    let (prompts, want) = (fixture.ids("in.prompt")?, fixture.ids(name)?);
    let (&[rows, given], &[_, total]) = (fixture.shape("in.prompt")?, fixture.shape(name)?) else {
        bail!("in.prompt and {name} are not [rows, tokens]")
    };
    let prompts: Vec<&[u32]> = prompts.chunks_exact(given).collect();
    let want: Vec<&[u32]> = want.chunks_exact(total).collect();
    let prefixed = prompts.iter().zip(&want).all(|(prompt, whole)| whole.starts_with(prompt));
    ensure!(prefixed, "{name} does not begin with the prompt");
    let mut generator = Generator::with_rows(model, rows)?;
    let go_on = |_: &[u32]| ControlFlow::Continue(());
    let cached = generator.generate_rows(&prompts, total - given, &Sampling::default(), go_on)?;
    let recomputed = recompute(model, &prompts, total - given)?;
    for (row, want) in want.iter().enumerate() {
        let want = &want[given..];
        run.checks.exact(GREEDY, format!("{name}[{row}] cached"), &cached[row], want);
        run.checks.exact(GREEDY, format!("{name}[{row}] recomputed"), &recomputed[row], want);
    }
    Ok(())
}

/// Greedy tokens from a whole forward pass a token.
fn recompute(model: &Model, prompts: &[&[u32]], count: usize) -> Result<Vec<Vec<u32>>> {
    let mut rows: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.to_vec()).collect();
    for _ in 0..count {
        let (batch, time) = (rows.len(), rows[0].len());
        let tokens = model.engine().tensor_u32([batch, time], &rows.concat())?;
        let next: Tensor = model.forward(&tokens)?.argmax()?;
        let next = next.to_vec_u32()?;
        for (row, tokens) in rows.iter_mut().enumerate() {
            tokens.push(next[row * time + time - 1]);
        }
    }
    let given = prompts[0].len();
    Ok(rows.into_iter().map(|mut row| row.split_off(given)).collect())
}
