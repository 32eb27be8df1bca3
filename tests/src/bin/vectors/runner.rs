//! What every runner needs: inputs on the device, outputs and gradients against the file.

use anyhow::{Context, Result};
use oa_graph::engine::Engine;
use oa_graph::{Shape, Tensor, grad};
use oa_tests::Tolerance;
use oa_tests::case::Checks;
use oa_tests::fixture::{Fixture, widen};

/// Names of the groups of checks in lines and reports.
pub const OUTPUTS: &str = "outputs";
/// Gradients of `<out, up>`, or of the loss.
pub const GRADIENTS: &str = "gradients";
/// Losses, norms and parameters over several updates.
pub const TRAJECTORY: &str = "trajectory";
/// Greedy tokens.
pub const GREEDY: &str = "greedy";

/// One file being run.
pub struct Run<'a> {
    /// The device.
    pub engine: &'a Engine,
    /// The file.
    pub fixture: &'a Fixture,
    /// Where the comparisons go.
    pub checks: &'a mut Checks,
}

impl Run<'_> {
    /// An f32 tensor of the file as a value on the device.
    pub fn input(&self, name: &str) -> Result<Tensor> {
        let shape = shape(self.fixture.shape(name)?)?;
        Ok(self.engine.tensor_f32(shape, self.fixture.f32(name)?)?)
    }

    /// Compares a value with a tensor of the file.
    pub fn output(&mut self, name: &str, value: &Tensor, tolerance: Tolerance) -> Result<()> {
        let want = widen(self.fixture.f32(name)?);
        self.checks.floats(OUTPUTS, name, (&value.to_vec_f32()?, &want), tolerance);
        Ok(())
    }

    /// Gradients of `sum <output, upstream>`: `outputs` pairs a value with the name of its
    /// upstream gradient, `inputs` a value with the name of the tensor it came from.
    pub fn gradients(
        &mut self,
        outputs: &[(&Tensor, &str)],
        inputs: &[(&Tensor, &str)],
        tolerance: Tolerance,
    ) -> Result<()> {
        let seeds: Result<Vec<Tensor>> = outputs.iter().map(|(_, up)| self.input(up)).collect();
        let seeds = seeds?;
        let pairs: Vec<_> = outputs.iter().zip(&seeds).map(|(output, up)| (output.0, up)).collect();
        let wanted: Vec<&Tensor> = inputs.iter().map(|(value, _)| *value).collect();
        let found = grad::gradients(&pairs, &wanted)?;
        for ((_, name), gradient) in inputs.iter().zip(found) {
            let gradient = gradient.with_context(|| format!("{name} got no gradient"))?;
            self.gradient(name, &gradient.to_vec_f32()?, tolerance)?;
        }
        Ok(())
    }

    /// Compares a gradient with the file's gradient of the tensor `name`.
    pub fn gradient(&mut self, name: &str, got: &[f32], tolerance: Tolerance) -> Result<()> {
        let full = gradient_name(self.fixture, name)?;
        let want = widen(self.fixture.f32(&full)?);
        self.checks.floats(GRADIENTS, full, (got, &want), tolerance);
        Ok(())
    }
}

/// Name of the gradient of `in.x` or `p.w`: the files write `g.in.x` or, older ones, `g.x`.
pub fn gradient_name(fixture: &Fixture, name: &str) -> Result<String> {
    let short = name.split_once('.').map_or(name, |(_, rest)| rest);
    let names = [format!("g.{name}"), format!("g.{short}")];
    let found = names.into_iter().find(|name| fixture.has(name));
    found.with_context(|| format!("{} has no gradient of {name}", fixture.name))
}

/// A shape of at most four dimensions.
pub fn shape(dims: &[usize]) -> Result<Shape> {
    Shape::try_new(dims).with_context(|| format!("{dims:?} has more than four dimensions"))
}
