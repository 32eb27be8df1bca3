//! Cross-entropy with ignored rows, label smoothing and the squared log-sum-exp penalty.

use crate::runner::Run;
use anyhow::{Context, Result};
use oa_graph::grad;
use oa_graph::ops::loss::CrossEntropy;
use oa_tests::Tolerance;

/// Each case of the file: a loss and the gradient of the logits.
pub fn cross_entropy(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let cases = fixture.setting("cases").and_then(|cases| cases.as_object());
    let cases = cases.context("the config has no cases")?;
    let ignore = fixture.number("ignore")? as i32;
    let targets = fixture.i32("in.target")?;
    for (name, settings) in cases {
        let setting = |index: usize| settings.get(index).and_then(|value| value.as_f64());
        let smoothing = setting(0).context("a case has no smoothing")? as f32;
        let z_coef = setting(1).context("a case has no z coefficient")? as f32;
        let logits = run.input("in.logits")?;
        let targets = run.engine.tensor_i32([targets.len()], targets)?;
        let options = CrossEntropy { smoothing, z_coef, ignore };
        let loss = logits.cross_entropy(&targets, options)?;
        run.output(&format!("out.{name}"), &loss, Tolerance::OP)?;
        let seed = run.engine.tensor_f32(loss.shape(), &[1.0])?;
        let found = grad::gradients(&[(&loss, &seed)], &[&logits])?;
        let gradient = found[0].as_ref().context("the logits got no gradient")?;
        run.gradient(&format!("in.{name}"), &gradient.to_vec_f32()?, Tolerance::OP)?;
    }
    Ok(())
}
