//! What all trials share: the device, the engines that were opened, the rows of the report.
//!
//! Engines are opened once per set of forced kernels and kept for a while, because opening one costs
//! more than most trials; some drivers end at some thirty instances a process. A trial gets its checks by reference, so that what it compared before it failed is
//! in the report.

use anyhow::{Context as _, Result};
use libtest_mimic::{Completion, Trial};
use oa_graph::engine::Engine;
use oa_tests::Verdict;
use oa_tests::case::Checks;
use oa_tests::device::{self, Lab};
use oa_tests::expect::{KNOWN, judge};
use oa_tests::report::{CaseRow, DeviceRow};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Engines that stay open. Trials of one op follow each other, so that few are opened twice.
const OPEN_ENGINES: usize = 8;

/// Kernel variants to use instead of the selected ones: family name to variant name.
pub type Force = BTreeMap<String, String>;

/// How a trial that ran to its end came out.
pub enum Outcome {
    /// Its checks decide.
    Checked,
    /// It does not apply here, and this is why.
    Skipped(String),
}

/// Shared by all trials of a run.
pub struct Context {
    /// Opens devices as the run was asked to.
    pub lab: Lab,
    engines: Mutex<BTreeMap<Force, Engine>>,
    /// What the validation layer said to engines that are closed by now.
    messages: Mutex<Vec<String>>,
    rows: Mutex<Vec<CaseRow>>,
}

impl Context {
    /// A context without an open device.
    pub fn new(lab: Lab) -> Context {
        Context {
            lab,
            engines: Mutex::default(),
            messages: Mutex::default(),
            rows: Mutex::default(),
        }
    }

    /// The engine with the kernels that the device selects.
    ///
    /// # Errors
    ///
    /// When the device is absent or cannot be opened.
    pub fn engine(&self) -> oa_graph::Result<Engine> {
        self.engine_with(&Force::new())
    }

    /// The engine that is forced to these variants.
    ///
    /// # Errors
    ///
    /// As [`Context::engine`].
    pub fn engine_with(&self, force: &Force) -> oa_graph::Result<Engine> {
        let mut engines = lock(&self.engines);
        if let Some(engine) = engines.get(force) {
            return Ok(engine.clone());
        }
        if engines.len() >= OPEN_ENGINES {
            // The one that every suite uses stays.
            let (usual, forced): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(&mut *engines).into_iter().partition(|(force, _)| force.is_empty());
            let said = forced.values().flat_map(|engine| engine.gpu().validation_messages());
            lock(&self.messages).extend(said);
            *engines = usual;
        }
        let engine = self.lab.open_forced(force.clone())?;
        engines.insert(force.clone(), engine.clone());
        Ok(engine)
    }

    /// Closes every engine, so that a trial which looks at memory sees only its own.
    pub fn close_engines(&self) {
        let said = self.validation_messages();
        lock(&self.engines).clear();
        lock(&self.messages).extend(said);
    }

    /// What a report says of the device; opens it when no trial has.
    pub fn device_row(&self) -> Option<DeviceRow> {
        self.engine().ok().map(|engine| device::describe(&engine))
    }

    /// The rows so far, in the order the trials ran.
    pub fn take_rows(&self) -> Vec<CaseRow> {
        std::mem::take(&mut *lock(&self.rows))
    }

    /// Messages of the validation layer since the last call, over all engines.
    pub fn validation_messages(&self) -> Vec<String> {
        let mut messages = std::mem::take(&mut *lock(&self.messages));
        let engines = lock(&self.engines);
        messages.extend(engines.values().flat_map(|engine| engine.gpu().validation_messages()));
        messages
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A trial that panicked may have held the lock; the maps stay whole.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A trial of the run. Its verdict comes from its checks, from the validation layer (any message is
/// a failure) and from the known failures.
pub fn trial(
    context: &Arc<Context>,
    name: impl Into<String>,
    body: impl FnOnce(&Context, &mut Checks) -> Result<Outcome> + Send + 'static,
) -> Trial {
    let (name, context) = (name.into(), context.clone());
    let case = name.clone();
    Trial::ignorable_test(name, move || {
        let start = Instant::now();
        let mut checks = Checks::default();
        let run = AssertUnwindSafe(|| body(&context, &mut checks));
        let verdict = match std::panic::catch_unwind(run) {
            Ok(Ok(Outcome::Checked)) => checks.verdict(),
            Ok(Ok(Outcome::Skipped(reason))) => Verdict::Skipped(reason),
            Ok(Err(error)) => Verdict::Failed(format!("{error:#}")),
            Err(_) => Verdict::Failed("panicked; the message is above".to_owned()),
        };
        let verdict = with_messages(verdict, &context.validation_messages());
        let verdict = judge(KNOWN, &driver(&context), &case, verdict);
        let row = CaseRow::new(&case, verdict.clone(), &checks, start.elapsed().as_secs_f64());
        lock(&context.rows).push(row);
        match verdict {
            Verdict::Passed => Ok(Completion::Completed),
            Verdict::Skipped(reason) => Ok(Completion::ignored_with(reason)),
            Verdict::Failed(reason) => Err(reason.into()),
        }
    })
}

/// A trial under the validation layer passes only when the layer had nothing to say.
fn with_messages(verdict: Verdict, messages: &[String]) -> Verdict {
    match messages.first() {
        None => verdict,
        Some(first) => Verdict::Failed(format!(
            "the validation layer wrote {} messages; the first: {first}",
            messages.len()
        )),
    }
}

fn driver(context: &Context) -> String {
    let row = context.device_row();
    row.map(|row| format!("{}, {}, {}", row.name, row.driver, row.driver_info)).unwrap_or_default()
}

/// The number after `key` on a line of `/proc/self/status`, in KiB.
///
/// # Errors
///
/// When the system has no such file or line.
pub fn status_kib(key: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse().ok());
    line.with_context(|| format!("/proc/self/status has no {key}"))
}
