//! A mixture-of-experts layer: router, dispatch, experts, combination and router losses.

use crate::runner::{OUTPUTS, Run};
use anyhow::Result;
use oa_graph::Tensor;
use oa_tests::Tolerance;
use oa_tests::fixture::widen;

const BLOCK: Tolerance = Tolerance::BLOCK;

/// One layer of SwiGLU experts, with renormalised weights or plain probabilities.
pub fn layer(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let (experts, top_k) = (fixture.size("n_expert")?, fixture.size("top_k")?);
    let (x, router) = (run.input("in.x")?, run.input("p.w_router")?);
    let (gate, up, down) = (run.input("p.w_gate")?, run.input("p.w_up")?, run.input("p.w_down")?);
    let logits = x.linear(&router, None)?;
    let route = logits.moe_route(top_k, fixture.flag("renorm"))?;
    let dispatch = route.ids.moe_dispatch(experts)?;
    let xs = dispatch.gather(&x)?;
    let gated = xs.grouped_linear(&gate, &dispatch.offsets)?;
    let gated = gated.swiglu_gate(&xs.grouped_linear(&up, &dispatch.offsets)?)?;
    let ys = gated.grouped_linear(&down, &dispatch.offsets)?;
    let y = dispatch.combine(&ys, &route.weights)?;
    let losses =
        |coefficients| logits.moe_losses(&route.lse, &dispatch.offsets, top_k, coefficients);
    let (aux, z) = (losses([1.0, 0.0])?, losses([0.0, 1.0])?);
    integers(run, "i.idx", &route.ids, usize::MAX)?;
    integers(run, "i.offsets", &dispatch.offsets, usize::MAX)?;
    integers(run, "i.perm", &dispatch.order, fixture.shape("i.perm")?[0])?;
    load(run, &dispatch.offsets)?;
    run.output("out.logits", &logits, BLOCK)?;
    run.output("out.weights", &route.weights, BLOCK)?;
    run.output("out.y", &y, BLOCK)?;
    run.output("out.aux", &aux, BLOCK)?;
    run.output("out.z", &z, BLOCK)?;
    let outputs = [
        (&y, "up.y"),
        (&logits, "up.logits"),
        (&route.weights, "up.weights"),
        (&aux, "up.aux"),
        (&z, "up.z"),
    ];
    let inputs = [
        (&x, "in.x"),
        (&router, "p.w_router"),
        (&gate, "p.w_gate"),
        (&up, "p.w_up"),
        (&down, "p.w_down"),
    ];
    run.gradients(&outputs, &inputs, BLOCK)
}

/// The first `count` integers of a value, which must be the file's.
fn integers(run: &mut Run, name: &str, value: &Tensor, count: usize) -> Result<()> {
    let got: Vec<f32> = value.to_vec_u32()?.into_iter().take(count).map(|id| id as f32).collect();
    let want: Vec<f64> = run.fixture.ids(name)?.into_iter().map(f64::from).collect();
    run.checks.floats(OUTPUTS, name, (&got, &want), Tolerance::EXACT);
    Ok(())
}

/// Each expert's share of the assignments.
fn load(run: &mut Run, offsets: &Tensor) -> Result<()> {
    let offsets = offsets.to_vec_u32()?;
    let all = offsets[offsets.len() - 1] as f32;
    let got: Vec<f32> = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as f32 / all).collect();
    let want = widen(run.fixture.f32("out.load")?);
    run.checks.floats(OUTPUTS, "out.load", (&got, &want), BLOCK);
    Ok(())
}
