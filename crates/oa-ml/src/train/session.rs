//! The training session: begin, zero, walk back, complete.

use super::captured::CapturedStep;
use super::inputs::{StepInputs, inverse_count};
use super::watch::{Outcome, StepReport, Watch};
use crate::data::Batch;
use crate::error::{Error, Result, StepFault};
use crate::optim::Optimizer;
use crate::optim::schedule::Schedule;
use crate::param::GradientReport;
use crate::tape::GradientTape;
use oa_graph::{Engine, ExecutionPlan, Tensor};
use std::panic::Location;

/// Settings of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItTrainingConfig {
    /// Optimizer steps in the whole run.
    pub total_steps: u64,
    /// How the learning rate moves.
    pub schedule: Schedule,
    /// Largest global gradient norm; 0 turns clipping off.
    pub max_norm: f32,
    /// Backward passes that make one step.
    pub accumulation: u32,
    /// Seed of the dropout masks.
    pub seed: u64,
}

impl Default for ItTrainingConfig {
    /// 100 steps at a constant rate, gradients clipped to a norm of 1.
    fn default() -> ItTrainingConfig {
        ItTrainingConfig {
            total_steps: 100,
            schedule: Schedule::default(),
            max_norm: 1.0,
            accumulation: 1,
            seed: 0,
        }
    }
}

/// How the steps of a session execute.
pub(super) enum Mode {
    /// Recorded anew each time; the engine finds the compiled plan again.
    Eager,
    /// Recorded once, replayed with new inputs.
    Captured(Option<CapturedStep>),
}

/// A running training session.
pub struct ItTraining<'a> {
    pub(super) engine: Engine,
    pub(super) optimizer: &'a mut dyn Optimizer,
    pub(super) config: ItTrainingConfig,
    pub(super) mode: Mode,
    pub(super) watch: Watch,
    /// Steps completed, over all resumptions.
    pub(super) step: u64,
    /// Predictions trained on, over all resumptions.
    pub(super) tokens: u64,
    open: bool,
    /// What the first step reached, and the freezing it was recorded under.
    report: Option<(u64, GradientReport)>,
}

impl<'a> ItTraining<'a> {
    /// A session whose steps are recorded each time they run.
    ///
    /// # Errors
    ///
    /// When the optimizer's parameters live on another engine.
    #[track_caller]
    pub fn new_eager(
        engine: &Engine,
        optimizer: &'a mut dyn Optimizer,
        config: ItTrainingConfig,
    ) -> Result<ItTraining<'a>> {
        ItTraining::new(engine, optimizer, config, Mode::Eager)
    }

    /// A session whose step is captured as an execution plan the first time [`ItTraining::step`]
    /// runs, and replayed afterwards. It gives the same bits as the eager one.
    ///
    /// # Errors
    ///
    /// As [`ItTraining::new_eager`].
    #[track_caller]
    pub fn new_captured(
        engine: &Engine,
        optimizer: &'a mut dyn Optimizer,
        config: ItTrainingConfig,
    ) -> Result<ItTraining<'a>> {
        ItTraining::new(engine, optimizer, config, Mode::Captured(None))
    }

    #[track_caller]
    fn new(
        engine: &Engine,
        optimizer: &'a mut dyn Optimizer,
        config: ItTrainingConfig,
        mode: Mode,
    ) -> Result<ItTraining<'a>> {
        if !std::sync::Arc::ptr_eq(engine.graph(), optimizer.parameters().engine().graph()) {
            return Err(Error::OtherEngine { site: Location::caller() });
        }
        optimizer.parameters().gradients()?.zero();
        Ok(ItTraining {
            engine: engine.clone(),
            optimizer,
            config,
            mode,
            watch: Watch::new(),
            step: 0,
            tokens: 0,
            open: false,
            report: None,
        })
    }

    /// Opens the next step; false when the run is over, and then every loss has been read.
    ///
    /// # Errors
    ///
    /// [`Error::NonFinite`] when a step turned out to have a loss or gradient norm that is no
    /// number; [`Error::StepOrder`] when the step before was not completed.
    #[track_caller]
    pub fn begin_step(&mut self) -> Result<bool> {
        self.watch.check()?;
        if self.open {
            return Err(order("begin_step", Location::caller(), StepFault::StillOpen));
        }
        if self.step >= self.config.total_steps {
            self.finish()?;
            return Ok(false);
        }
        self.open = true;
        Ok(true)
    }

    /// Makes the next backward pass overwrite the gradients instead of adding to them.
    pub fn zero_grad(&mut self) {
        let gradients = self.optimizer.parameters().gradients();
        gradients.expect("the arena was made with the session").zero();
    }

    /// Clips, updates and submits the open step. The loss is read when later steps have been
    /// submitted.
    ///
    /// # Errors
    ///
    /// [`Error::StepOrder`] when no step is open, or the number of backward passes is not the
    /// accumulation setting; [`Error::NonFinite`] as in [`ItTraining::begin_step`].
    #[track_caller]
    pub fn complete_step(&mut self, loss: &Tensor) -> Result<()> {
        let site = Location::caller();
        if !self.open {
            return Err(order("complete_step", site, StepFault::NotOpen));
        }
        self.check_passes("complete_step", site)?;
        self.open = false;
        let rate = self.rate();
        let norm = self.optimizer.step(rate, self.config.max_norm)?;
        self.engine.submit()?;
        self.completed(rate, Outcome::Values { norm, loss: loss.clone() })
    }

    /// Runs the open step: `forward` gives the loss of each part of the batch. An eager session
    /// calls it each time; a captured one only the first time, with the inputs of the plan, and it
    /// must then depend on nothing else that changes.
    ///
    /// # Errors
    ///
    /// What `forward` returns, and as [`ItTraining::complete_step`].
    #[track_caller]
    pub fn step(
        &mut self,
        batches: &[Batch],
        forward: &mut dyn FnMut(&StepInputs) -> Result<Tensor>,
    ) -> Result<()> {
        let (site, expected) = (Location::caller(), self.config.accumulation.max(1) as usize);
        if !self.open {
            return Err(order("step", site, StepFault::NotOpen));
        }
        if batches.len() != expected {
            let got = batches.len();
            return Err(order("step", site, StepFault::Parts { got, expected }));
        }
        self.tokens += batches.iter().map(|batch| batch.predictions() as u64).sum::<u64>();
        match self.mode {
            Mode::Eager => self.step_eager(batches, forward),
            Mode::Captured(_) => self.step_captured(batches, forward, site),
        }
    }

    fn step_eager(
        &mut self,
        batches: &[Batch],
        forward: &mut dyn FnMut(&StepInputs) -> Result<Tensor>,
    ) -> Result<()> {
        self.zero_grad();
        let (engine, inverse) = (&self.engine, inverse_count(batches));
        let several = batches.len() > 1;
        let mut total: Option<Tensor> = None;
        for (part, batch) in batches.iter().enumerate() {
            let inputs = StepInputs {
                tokens: batch.tokens_on(engine)?,
                targets: batch.targets_on(engine)?,
                starts: batch.starts_on(engine)?,
                step: engine.tensor_u32([1], &[self.step as u32])?,
                inverse_count: several.then(|| engine.tensor_f32([1], &[inverse])).transpose()?,
                seed: self.config.seed,
                part: part as u16,
            };
            walk_back(&mut total, forward(&inputs)?)?;
        }
        let loss = total.expect("a step has at least one part");
        self.complete_step(&loss)
    }

    #[track_caller]
    fn step_captured(
        &mut self,
        batches: &[Batch],
        forward: &mut dyn FnMut(&StepInputs) -> Result<Tensor>,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let freezing = self.optimizer.parameters().freezing_changes();
        if let Mode::Captured(captured) = &self.mode
            && captured.as_ref().is_none_or(|captured| captured.freezing() != freezing)
        {
            let captured = CapturedStep::capture(self, batches, forward)?;
            self.check_passes("step", site)?;
            self.mode = Mode::Captured(Some(captured));
        }
        let rate = self.rate();
        let Mode::Captured(Some(captured)) = &self.mode else {
            unreachable!("a captured session has its plan by now");
        };
        captured.check(batches).map_err(|fault| order("step", site, fault))?;
        self.open = false;
        let hyper = self.optimizer.advance(rate, self.config.max_norm);
        let event = captured.replay(batches, self.step as u32, &hyper, inverse_count(batches))?;
        self.completed(rate, Outcome::Replay(event))
    }

    fn completed(&mut self, rate: f64, outcome: Outcome) -> Result<()> {
        let step = self.step;
        self.step += 1;
        self.watch.submitted(self.optimizer.parameters(), step, rate, outcome)
    }

    /// Waits for every submitted step and reads its loss.
    ///
    /// # Errors
    ///
    /// As [`ItTraining::begin_step`].
    pub fn finish(&mut self) -> Result<()> {
        self.watch.settle(self.optimizer.parameters(), 0)
    }

    fn check_passes(&mut self, call: &'static str, site: &'static Location<'static>) -> Result<()> {
        let gradients = self.optimizer.parameters().gradients()?;
        let (got, expected) = (gradients.passes(), self.config.accumulation.max(1));
        if got != expected {
            return Err(order(call, site, StepFault::Passes { got, expected }));
        }
        let freezing = self.optimizer.parameters().freezing_changes();
        if self.report.as_ref().is_none_or(|(of, _)| *of != freezing) {
            let report = gradients.report(self.optimizer.parameters());
            if report.missing.is_empty() {
                tracing::info!("{report}");
            } else {
                tracing::warn!("{report}");
            }
            self.report = Some((freezing, report));
        }
        Ok(())
    }

    /// The learning rate of the next step.
    pub fn rate(&self) -> f64 {
        let (base, total) = (self.optimizer.config().rate(), self.config.total_steps);
        self.config.schedule.rate(base, self.step, total)
    }

    /// Steps completed, over all resumptions.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// Predictions trained on through [`ItTraining::step`], over all resumptions.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Settings of the run.
    pub fn config(&self) -> &ItTrainingConfig {
        &self.config
    }

    /// Which parameters the first step of this session reached, or the first one since other
    /// parameters are frozen.
    pub fn gradient_report(&self) -> Option<&GradientReport> {
        self.report.as_ref().map(|(_, report)| report)
    }

    /// The oldest finished step that was not taken yet. At most 1,024 are kept.
    pub fn take_report(&mut self) -> Option<StepReport> {
        self.watch.take()
    }

    /// The last step whose loss was read.
    pub fn last_report(&self) -> Option<StepReport> {
        self.watch.last()
    }

    /// The captured plan, once a captured session has run a step.
    pub fn plan(&self) -> Option<&ExecutionPlan> {
        match &self.mode {
            Mode::Captured(Some(captured)) => Some(captured.plan()),
            _ => None,
        }
    }
}

/// Adds a part's loss to the step's, and walks it back.
pub(super) fn walk_back(total: &mut Option<Tensor>, loss: Tensor) -> Result<()> {
    GradientTape::new().backward(&loss)?;
    *total = Some(match total.take() {
        Some(sum) => sum.add(&loss)?,
        None => loss,
    });
    Ok(())
}

fn order(call: &'static str, site: &'static Location<'static>, fault: StepFault) -> Error {
    Error::StepOrder { call, site, fault }
}
