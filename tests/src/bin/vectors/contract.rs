//! The teaching contract's Transformer: logits, loss and the gradient of every parameter.
//!
//! Its files have no training trajectory; the `train` suite of the gate trains it.

use crate::language::parameters;
use crate::runner::{GRADIENTS, OUTPUTS, Run, gradient_name};
use anyhow::{Result, bail, ensure};
use oa_ml::model::{ContractTransformerConfig, Model, ModelConfig};
use oa_ml::tape::GradientTape;
use oa_tests::Tolerance;
use oa_tests::fixture::widen;

/// Gradients of `<logits, up> + up.loss * loss`.
pub fn transformer(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    ensure!(fixture.word("gelu") == Some("erf"), "the contract's GELU is the exact one");
    let (vocab, sequence) = (fixture.size("vocab")?, fixture.size("T")?);
    let config = ContractTransformerConfig {
        vocab,
        width: fixture.size("d_model")?,
        heads: fixture.size("heads")?,
        ff: fixture.size("d_ff")?,
        context: sequence,
        eps: fixture.number("eps")? as f32,
    };
    let model = ModelConfig::ContractTransformer(config).build(run.engine, 0)?;
    model.parameters().load(&parameters(fixture)?)?;
    let &[rows, length] = fixture.shape("i.tokens")? else { bail!("i.tokens is not [B, T + 1]") };
    ensure!(length == sequence + 1, "a row predicts one token after each of its {sequence}");
    let ids = fixture.ids("i.tokens")?;
    let tokens: Vec<u32> =
        ids.chunks_exact(length).flat_map(|row| row[..sequence].to_vec()).collect();
    let targets: Vec<i32> =
        ids.chunks_exact(length).flat_map(|row| row[1..].to_vec()).map(|id| id as i32).collect();
    let logits = model.forward(&run.engine.tensor_u32([rows, sequence], &tokens)?)?;
    let targets = run.engine.tensor_i32([rows, sequence], &targets)?;
    let loss = oa_ml::loss::cross_entropy(&logits, &targets)?;
    let contracted = logits.mul(&run.input("up.logits")?)?.sum()?;
    let total = contracted.add(&loss.mul(&run.input("up.loss")?)?)?;
    GradientTape::new().backward(&total)?;
    run.output("out.logits", &logits, Tolerance::MODEL)?;
    let want = widen(fixture.f32("out.loss")?);
    run.checks.floats(OUTPUTS, "out.loss", (&[loss.item()?], &want), Tolerance::loss(0, 1));
    gradients(run, &model)
}

/// Why one gradient has no scale of its own.
const KEY_BIAS: &str = "a bias of the keys moves all scores of a query alike and the softmax takes \
    it out again: the true gradient is zero, what is left is rounding; measured against the largest \
    gradient of the file";

fn gradients(run: &mut Run, model: &Model) -> Result<()> {
    let fixture = run.fixture;
    let names = fixture.names().filter(|name| name.starts_with("g."));
    let largest = |name: &str| -> Result<f32> {
        Ok(fixture.f32(name)?.iter().fold(0.0f32, |scale, value| scale.max(value.abs())))
    };
    let scales: Result<Vec<f32>> = names.map(largest).collect();
    let scale = f64::from(scales?.into_iter().fold(0.0f32, f32::max));
    for gradient in model.parameters().gradients_to_host()? {
        let name = format!("p.{}", gradient.name);
        if gradient.name.ends_with("b_k") {
            let full = gradient_name(fixture, &name)?;
            let want = widen(fixture.f32(&full)?);
            let bound = (Tolerance::MODEL, scale, KEY_BIAS);
            run.checks.floats_against_scale(GRADIENTS, full, (&gradient.data, &want), bound);
        } else {
            run.gradient(&name, &gradient.data, Tolerance::MODEL)?;
        }
    }
    Ok(())
}
