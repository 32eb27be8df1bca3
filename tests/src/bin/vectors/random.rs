//! The counter-based generator and dropout: words and masks are exact, also far into a stream.

use crate::runner::{GRADIENTS, OUTPUTS, Run};
use anyhow::{Context, Result, ensure};
use oa_graph::ops::rng;
use oa_graph::{Tensor, grad};
use oa_ml::philox;
use oa_tests::Tolerance;
use oa_tests::fixture::widen;

/// Words, uniform and normal numbers of step 0; dropout and its gradient at each step of the file.
pub fn dropout(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let seed = seed(fixture.word("rng_seed").context("the config has no rng_seed")?)?;
    let stream = u32::try_from(fixture.size("stream")?)?;
    known_answers(run)?;
    let step = |step: u32| run.engine.tensor_u32([1], &[step]);
    let near = fixture.u32("u32.words_step0")?;
    let words = rng::words(&step(0)?, [near.len()], seed, stream, 0)?;
    run.checks.exact(OUTPUTS, "u32.words_step0", &words.to_vec_u32()?, near);
    let far = fixture.u32("u32.words_far")?;
    let offset = fixture.size("far_offset")? as u64;
    let words = rng::words(&step(0)?, [far.len()], seed, stream, offset)?;
    run.checks.exact(OUTPUTS, "u32.words_far", &words.to_vec_u32()?, far);
    let count = fixture.f32("out.uniform_step0")?.len();
    let uniform = rng::uniform(&step(0)?, [count], seed, stream, 0)?;
    run.output("out.uniform_step0", &uniform, Tolerance::EXACT)?;
    let count = fixture.f32("out.normals_step0")?.len();
    let normals = rng::normal(&step(0)?, [count], seed, stream, 0)?;
    run.output("out.normals_step0", &normals, Tolerance::OP)?;
    let names: Vec<String> = fixture.names().map(str::to_owned).collect();
    for name in names {
        if let Some(number) = name.strip_prefix("out.y_step") {
            masked(run, number, seed, stream)?;
        }
    }
    Ok(())
}

/// Dropout at one step: the mask is what is left of ones, the gradient passes through it.
fn masked(run: &mut Run, number: &str, seed: u64, stream: u32) -> Result<()> {
    let fixture = run.fixture;
    let p = fixture.number("p")? as f32;
    let step = run.engine.tensor_u32([1], &[number.parse()?])?;
    let x = run.input("in.x")?;
    let ones = run.engine.tensor_f32(x.shape(), &vec![1.0; x.shape().elems()])?;
    let kept = ones.dropout(p, seed, stream, &step)?.to_vec_f32()?;
    let kept: Vec<u8> = kept.iter().map(|&value| u8::from(value != 0.0)).collect();
    let name = format!("u8.keep_step{number}");
    run.checks.exact(OUTPUTS, name.as_str(), &kept, fixture.u8(&name)?);
    let y = x.dropout(p, seed, stream, &step)?;
    run.output(&format!("out.y_step{number}"), &y, Tolerance::OP)?;
    let dy = run.input("in.dy")?;
    let found: Vec<Option<Tensor>> = grad::gradients(&[(&y, &dy)], &[&x])?;
    let gradient = found[0].as_ref().context("x got no gradient")?.to_vec_f32()?;
    let name = format!("g.x_step{number}");
    let want = widen(fixture.f32(&name)?);
    run.checks.floats(GRADIENTS, name, (&gradient, &want), Tolerance::OP);
    Ok(())
}

/// The published known answers. A counter is addressed by (element, stream, step), so the device
/// reaches the rows whose block number is below 2^62; the host generator computes every row.
fn known_answers(run: &mut Run) -> Result<()> {
    let fixture = run.fixture;
    let (rows, answers) = (fixture.u32("u32.kat_in")?, fixture.u32("u32.kat_out")?);
    ensure!(rows.len() / 6 == answers.len() / 4, "as many answers as rows");
    for (row, answer) in rows.chunks_exact(6).zip(answers.chunks_exact(4)) {
        let &[c0, c1, stream, step, k0, k1] = row else { continue };
        let host = philox::block([k0, k1], [c0, c1, stream, step]);
        run.checks.exact(OUTPUTS, "u32.kat_out (host)", &host, answer);
        let block = u64::from(c0) | u64::from(c1) << 32;
        let seed = u64::from(k0) | u64::from(k1) << 32;
        if let Some(first) = block.checked_mul(4) {
            let step = run.engine.tensor_u32([1], &[step])?;
            let words = rng::words(&step, [4], seed, stream, first)?;
            run.checks.exact(OUTPUTS, "u32.kat_out (device)", &words.to_vec_u32()?, answer);
        }
    }
    Ok(())
}

/// A seed written as a hexadecimal or decimal number.
fn seed(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("{text} is no seed"))
}
