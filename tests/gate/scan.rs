//! Suite `scan`: the Mamba-3 scan over whole sequences.
//!
//! Both forms against the f64 reference, forward and gradients, at lengths around and far beyond a
//! chunk; a chunked prefill that goes on token by token; documents packed in one row against
//! separate runs. The ops themselves are in suite `ops`.

use crate::context::{Context, Outcome, trial};
use anyhow::{Context as _, Result};
use libtest_mimic::Trial;
use oa_graph::graph::Graph;
use oa_graph::ops::index::RopeLayout;
use oa_graph::ops::mamba3::{Mamba3Form, Mamba3Scan, Mamba3Scanned, Mamba3State};
use oa_graph::ops::sample::{Source, signed, uniform};
use oa_graph::{HostTensor, Shape, Spec, Tensor, grad, oracle};
use oa_tests::case::Checks;
use oa_tests::compare::Tolerance;
use oa_tests::fixture::widen;
use std::sync::Arc;

const BLOCK: Tolerance = Tolerance::BLOCK;
/// Heads, state columns, channels and angles of all cases.
const HEADS: usize = 2;
const STATE: usize = 6;
const WIDTH: usize = 5;
const ANGLES: usize = 2;
/// What the inputs are called, in order; the last four are the state before the first token.
const NAMES: [&str; 11] = ["q", "k", "v", "a", "dt", "lambda", "steps", "theta0", "h0", "k0", "v0"];
const BOTH: [Mamba3Form; 2] = [Mamba3Form::Recurrent, Mamba3Form::Chunked];

/// All trials of the suite.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for steps in [1, 16, 17, 64, 1000, 4096] {
        for ranks in [1, 3] {
            for (extras, documents, state) in
                [("plain", false, false), ("state", false, true), ("documents", true, true)]
            {
                let name = format!("scan/forms/{steps}/{ranks}/{extras}");
                let inputs = move || Inputs::new(2, steps, ranks, documents, state);
                trials.push(trial(context, name, move |context, checks| {
                    forms(context, checks, &inputs())
                }));
            }
        }
    }
    for ranks in [1, 2, 4] {
        trials.push(trial(context, format!("scan/decode/{ranks}"), move |context, checks| {
            decode(context, checks, &Inputs::new(2, 40, ranks, false, true))
        }));
        trials.push(trial(context, format!("scan/documents/{ranks}"), move |context, checks| {
            packed(context, checks, ranks)
        }));
    }
    trials
}

/// Inputs of a scan on the host.
struct Inputs {
    ranks: usize,
    values: Vec<HostTensor>,
    starts: Option<HostTensor>,
}

impl Inputs {
    fn new(batch: usize, steps: usize, ranks: usize, documents: bool, state: bool) -> Inputs {
        let (rows, tokens) = (ranks * HEADS, [batch, steps, HEADS]);
        let mut values = vec![
            signed([batch, steps, rows, STATE], 1),
            signed([batch, steps, rows, STATE], 2),
            signed([batch, steps, rows, WIDTH], 3),
            uniform(tokens, -0.3, -0.002, 4),
            uniform(tokens, 0.02, 0.4, 5),
            uniform(tokens, 0.05, 0.95, 6),
            uniform([batch, steps, HEADS * ANGLES], -0.4, 0.5, 7),
        ];
        if state {
            values.push(uniform([batch, HEADS * ANGLES], -3.0, 3.0, 8));
            values.push(signed([batch, HEADS, WIDTH * STATE], 9));
            values.push(signed([batch, rows, STATE], 10));
            values.push(signed([batch, rows, WIDTH], 11));
        }
        let mut source = Source::new(12);
        let marks =
            (0..batch * steps).map(|_| f64::from(u8::from(source.bits().is_multiple_of(23))));
        let marks: Vec<f64> = marks.collect();
        let starts = documents.then(|| HostTensor::new(Spec::u32([batch, steps]), marks));
        Inputs { ranks, values, starts }
    }

    /// Some of the tokens, without a state before them.
    fn part(&self, from: usize, len: usize) -> Inputs {
        let part = |x: &HostTensor| {
            let dims = x.shape();
            let row: usize = dims.dims()[2..].iter().product();
            let mut short = dims.dims().to_vec();
            short[1] = len;
            let sequences = x.data.chunks(row * dims.dims()[1]);
            let data = sequences.flat_map(|s| s[from * row..(from + len) * row].to_vec()).collect();
            let shape = Shape::try_new(&short).expect("as many axes as before");
            HostTensor::new(Spec { shape, ..x.spec }, data)
        };
        let values = self.values[..7].iter().map(part).collect();
        Inputs { ranks: self.ranks, values, starts: None }
    }

    fn record(&self, graph: &Arc<Graph>) -> Result<Recorded> {
        let host = |x: &HostTensor| graph.host(x.spec, x.to_bytes().into());
        let values: oa_graph::Result<Vec<Tensor>> = self.values.iter().map(host).collect();
        Ok(Recorded { values: values?, starts: self.starts.as_ref().map(host).transpose()? })
    }
}

/// The same inputs in a graph.
struct Recorded {
    values: Vec<Tensor>,
    starts: Option<Tensor>,
}

impl Recorded {
    fn state(&self) -> Option<Mamba3State> {
        let [theta, h, k, v] = self.values.get(7..)? else { return None };
        Some(Mamba3State { theta: theta.clone(), h: h.clone(), k: k.clone(), v: v.clone() })
    }

    fn scan(&self, form: Mamba3Form, state: Option<&Mamba3State>) -> Result<Mamba3Scanned> {
        let [q, k, v, a, dt, lambda, steps, ..] = self.values.as_slice() else {
            unreachable!("a scan has seven inputs or more")
        };
        let (heads, layout, starts) = (HEADS, RopeLayout::Half, self.starts.as_ref());
        let scan = Mamba3Scan { q, k, v, a, dt, lambda, steps, heads, layout, starts, state };
        Ok(scan.record_as(form)?)
    }

    /// Outputs, then the gradients of all inputs, with their names. Angles are left out: they may
    /// differ by whole turns, and the last keys show them.
    fn all(&self, form: Mamba3Form) -> Result<(Vec<String>, Vec<Tensor>)> {
        let scanned = self.scan(form, self.state().as_ref())?;
        let graph = scanned.y.graph();
        let outputs = [&scanned.y, &scanned.h, &scanned.k_last, &scanned.theta];
        let seed = |(index, output): (usize, &&Tensor)| {
            let seed = signed(output.shape(), 100 + index as u64);
            graph.host(seed.spec, seed.to_bytes().into())
        };
        let seeds: oa_graph::Result<Vec<Tensor>> = outputs.iter().enumerate().map(seed).collect();
        let seeds = seeds?;
        let pairs: Vec<_> = outputs.into_iter().zip(&seeds).collect();
        let inputs: Vec<&Tensor> = self.values.iter().collect();
        let mut names = ["y", "h", "k_last"].map(str::to_owned).to_vec();
        let mut values = outputs[..3].iter().map(|output| (*output).clone()).collect::<Vec<_>>();
        for (name, gradient) in NAMES.iter().zip(grad::gradients(&pairs, &inputs)?) {
            names.push(format!("d{name}"));
            values.push(gradient.with_context(|| format!("{name} got no gradient"))?);
        }
        Ok((names, values))
    }
}

/// Both forms, forward and gradients, against the f64 reference of the recurrent one.
fn forms(context: &Context, checks: &mut Checks, inputs: &Inputs) -> Result<Outcome> {
    let engine = context.engine()?;
    let detached = inputs.record(&Graph::detached())?;
    let (_, wanted) = detached.all(Mamba3Form::Recurrent)?;
    let wanted = oracle::evaluate(&wanted.iter().collect::<Vec<_>>());
    for form in BOTH {
        let (names, values) = inputs.record(engine.graph())?.all(form)?;
        for ((name, value), wanted) in names.into_iter().zip(values).zip(&wanted) {
            let got = value.to_vec_f32()?;
            checks.floats("forms", format!("{form:?} {name}"), (&got, &wanted.data), BLOCK);
        }
    }
    Ok(Outcome::Checked)
}

/// A chunked prefill of some tokens, the rest one by one, against the whole in one scan.
fn decode(context: &Context, checks: &mut Checks, inputs: &Inputs) -> Result<Outcome> {
    let engine = context.engine()?;
    let all = inputs.record(engine.graph())?;
    let whole = all.scan(Mamba3Form::Chunked, all.state().as_ref())?;
    let steps = inputs.values[0].shape().dims()[1];
    for prefill in [1, 7, 16, 31, 32, 33, steps - 1] {
        let first = inputs.part(0, prefill).record(engine.graph())?;
        let mut scanned = first.scan(Mamba3Form::Chunked, all.state().as_ref())?;
        let mut y = scanned.y.clone();
        for t in prefill..steps {
            let next = inputs.part(t, 1).record(engine.graph())?;
            scanned = next.scan(Mamba3Form::Recurrent, Some(&scanned.state()?))?;
            y = y.concat(&scanned.y, 1)?;
        }
        let pairs = [
            ("y", &y, &whole.y),
            ("h", &scanned.h, &whole.h),
            ("k", &scanned.k_last, &whole.k_last),
        ];
        for (name, got, want) in pairs {
            let (got, want) = (got.to_vec_f32()?, widen(&want.to_vec_f32()?));
            checks.floats("decode", format!("{name} after {prefill}"), (&got, &want), BLOCK);
        }
    }
    Ok(Outcome::Checked)
}

/// Lengths of the documents of a packed row.
const DOCUMENTS: [usize; 6] = [5, 1, 17, 40, 1, 33];

/// Packed documents against a run for each: outputs and gradients of outputs.
fn packed(context: &Context, checks: &mut Checks, ranks: usize) -> Result<Outcome> {
    let engine = context.engine()?;
    let batch = 2;
    let steps = DOCUMENTS.iter().sum();
    let mut inputs = Inputs::new(batch, steps, ranks, true, false);
    let mut marks = vec![0.0; steps];
    let mut first = 0;
    for len in DOCUMENTS {
        marks[first] = 1.0;
        first += len;
    }
    let starts = HostTensor::new(Spec::u32([batch, steps]), marks.repeat(batch));
    inputs.starts = Some(starts);
    for form in BOTH {
        let together = of_outputs(&inputs.record(engine.graph())?, form)?;
        let mut from = 0;
        for len in DOCUMENTS {
            let apart = of_outputs(&inputs.part(from, len).record(engine.graph())?, form)?;
            for ((name, together), (_, apart)) in together.iter().zip(&apart) {
                let got = together.narrow(1, from, len)?.to_vec_f32()?;
                let want = widen(&apart.to_vec_f32()?);
                let tensor = format!("{form:?} {name} of {len} from {from}");
                checks.floats("documents", tensor, (&got, &want), BLOCK);
            }
            from += len;
        }
    }
    Ok(Outcome::Checked)
}

/// y and what it asks of the inputs when its upstream gradient is y itself: that of one document
/// does not depend on where it stands.
fn of_outputs(inputs: &Recorded, form: Mamba3Form) -> Result<Vec<(&'static str, Tensor)>> {
    let scanned = inputs.scan(form, None)?;
    let wanted: Vec<&Tensor> = inputs.values[..6].iter().collect();
    let gradients = grad::gradients(&[(&scanned.y, &scanned.y)], &wanted)?;
    let mut found = vec![("y", scanned.y.clone())];
    for (name, gradient) in NAMES.iter().zip(gradients) {
        found.push((name, gradient.with_context(|| format!("{name} got no gradient"))?));
    }
    Ok(found)
}
