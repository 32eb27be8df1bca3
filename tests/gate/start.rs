//! Suite `start`: what opening an engine costs, seen from a process that does nothing else.
//!
//! At most 0.3 CPU-seconds and 150 MB of memory, and no pipeline is built before one is needed.

use crate::context::{Context, Outcome, status_kib, trial};
use crate::process::{self, Numbers};
use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use oa_tests::case::Checks;
use oa_tests::compare::{Metric, Tolerance};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most CPU-seconds, user and system.
const CPU_SECONDS: f64 = 0.3;
/// Most megabytes of resident memory at the peak.
const RESIDENT_MB: f64 = 150.0;
/// Ticks of `/proc/self/stat` in a second: fixed by the kernel's interface on every architecture
/// that Vulkan drivers exist for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Engines that one process opens, one after the other.
const REOPENED: usize = 60;

/// The trials.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![trial(context, "start/engine", check), trial(context, "start/reopened", check_reopened)]
}

/// A process may open and close as many engines as it likes.
fn check_reopened(context: &Context, checks: &mut Checks) -> Result<Outcome> {
    let numbers = process::ask(context, "reopen")?;
    let opened = *numbers.get("opened").context("the probe gave no number of engines")?;
    checks.exact("start", "engines", &[opened], &[REOPENED as f64]);
    // A driver that has no fault of its own shows only here that it was not kept.
    let unloaded = *numbers.get("unloaded").context("the probe gave no number of libraries")?;
    checks.exact("start", "libraries unloaded", &[unloaded], &[0.0]);
    Ok(Outcome::Checked)
}

/// Opens, uses and closes engines, and says how many, and how many libraries of the first went with
/// the last.
pub fn reopen(context: &Context) -> Result<Numbers> {
    let (mut opened, mut loaded) = (0.0, BTreeSet::new());
    for index in 0..REOPENED {
        let engine = context.lab.open().with_context(|| format!("opening engine {index}"))?;
        let sum = engine.tensor_f32([2], &[1.0, 2.0])?.sum()?.item()?;
        ensure!(sum == 3.0, "engine {index} added 1 and 2 to {sum}");
        opened += 1.0;
        if index == 0 {
            loaded = libraries()?;
        }
    }
    let unloaded = loaded.difference(&libraries()?).count() as f64;
    Ok(Numbers::from([("opened".to_owned(), opened), ("unloaded".to_owned(), unloaded)]))
}

/// The shared libraries that this process has mapped.
fn libraries() -> Result<BTreeSet<String>> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("reading /proc/self/maps")?;
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    Ok(paths.filter(|path| path.contains(".so")).map(str::to_owned).collect())
}

fn check(context: &Context, checks: &mut Checks) -> Result<Outcome> {
    let numbers = process::ask(context, "start")?;
    for (name, limit) in [("cpu_seconds", CPU_SECONDS), ("resident_mb", RESIDENT_MB)] {
        let got = *numbers.get(name).with_context(|| format!("the probe gave no {name}"))?;
        println!("    {name}: {got:.2} of at most {limit}");
        let tolerance = Tolerance { metric: Metric::Absolute, limit };
        checks.floats("start", name, (&[got as f32], &[0.0]), tolerance);
    }
    Ok(Outcome::Checked)
}

/// Opens an engine and says what the process has used since it began.
pub fn measure(context: &Context) -> Result<Numbers> {
    let engine = context.engine()?;
    let numbers = Numbers::from([
        ("cpu_seconds".to_owned(), cpu_seconds()?),
        ("resident_mb".to_owned(), status_kib("VmHWM")? as f64 / 1000.0 * 1.024),
    ]);
    ensure!(engine.plans_compiled() == 0, "opening an engine compiled a plan");
    Ok(numbers)
}

/// CPU-seconds of this process and its threads.
fn cpu_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
    let (_, after) = text.rsplit_once(')').context("/proc/self/stat has a name")?;
    let ticks: Vec<f64> =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ensure!(ticks.len() == 2, "/proc/self/stat has no CPU times");
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}
