//! Every optimizer: eager as captured, resumed as uninterrupted, clipped, grouped, frozen.

use super::*;
use crate::init::Init;
use crate::{
    AdamW, Checkpoint, GradientTape, ItTraining, ItTrainingConfig, Muon, MuonConfig, NamedTensor,
    Optimizer, OptimizerConfig, ParameterGroup, ParameterStore, Parameters, Schedule, Sgd,
    SgdConfig,
};

/// Steps of a run.
const STEPS: u64 = 6;

fn optimizers() -> [OptimizerConfig; 3] {
    let sgd = SgdConfig { nesterov: true, weight_decay: 0.01, ..SgdConfig::default() };
    [
        OptimizerConfig::named("adamw").unwrap(),
        OptimizerConfig::Sgd(sgd),
        OptimizerConfig::Muon(MuonConfig::default()),
    ]
}

/// A recurrent model, one with attention, one with experts and one with a state space.
fn models() -> [ModelConfig; 4] {
    let [_, contract, _, moe, _, gru, mamba3, _] = small_models();
    [contract, moe, gru, mamba3]
}

/// Trains from fresh weights or a checkpoint, with a group and a frozen parameter, until `stop`.
fn leg(
    (model, optimizer): (ModelConfig, OptimizerConfig),
    from: Option<&Checkpoint>,
    stop: u64,
    captured: bool,
) -> Checkpoint {
    let engine = engine();
    // Another seed than the first leg's: nothing of the fresh weights may survive a load.
    let model = model.build(&engine, 3 + stop * u64::from(from.is_some())).unwrap();
    let mut optimizer = optimizer.build(model.all_parameters().unwrap()).unwrap();
    let schedule = Schedule::Cosine { warmup: 2, min_ratio: 0.1 };
    let settings = ItTrainingConfig { total_steps: STEPS, schedule, ..Default::default() };
    if from.is_none() {
        let first = model.parameters().layout().slots()[0].name.to_string();
        let last = model.parameters().layout().slots().last().unwrap().name.to_string();
        let group =
            ParameterGroup { weight_decay: Some(0.5), ..ParameterGroup::scaled(&[&last], 0.25) };
        optimizer.set_groups(vec![group]).unwrap();
        model.parameters().freeze(&[first]).unwrap();
    }
    let new = if captured { ItTraining::new_captured } else { ItTraining::new_eager };
    let mut training = new(&engine, &mut *optimizer, settings).unwrap();
    train_until(&model, &mut training, from, stop)
}

#[test]
fn eager_captured_and_resumed_runs_give_the_same_bits() {
    for model in models() {
        for optimizer in optimizers() {
            let config = (model, optimizer);
            let straight = leg(config, None, STEPS, true);
            assert_eq!(leg(config, None, STEPS, false), straight, "{config:?}, eager");
            let halfway = leg(config, None, STEPS / 2, true);
            let state = halfway.training.as_ref().unwrap();
            assert_eq!((state.frozen.len(), state.optimizer.groups.len()), (1, 1));
            assert_eq!(leg(config, Some(&halfway), STEPS, true), straight, "{config:?}, resumed");
            assert_eq!(halfway.tensors[0], straight.tensors[0], "frozen");
            assert_ne!(halfway.tensors[1], straight.tensors[1]);
        }
    }
}

/// A matrix and a vector, and the gradient that `loss` gives them.
fn two_parameters(engine: &Engine) -> (Parameters, impl Fn() -> Tensor + use<>) {
    let mut store = ParameterStore::new(engine, 1);
    let mut scope = store.root();
    let w = scope.declare("w", [2, 3], Init::Uniform { bound: 1.0 }).unwrap();
    let b = scope.declare("b", [4], Init::Uniform { bound: 1.0 }).unwrap();
    let engine = engine.clone();
    let loss = move || {
        let up = engine.tensor_f32([2, 3], &[0.5, -1.0, 2.0, 0.25, 1.5, -0.75]).unwrap();
        let linear = w.value().mul(&up).unwrap().sum().unwrap();
        let square = b.value().mul(&b.value()).unwrap().sum().unwrap();
        linear.add(&square.scale(0.5).unwrap()).unwrap()
    };
    (store.finalise().unwrap(), loss)
}

/// Steps of a schedule by hand, clipping off.
fn run_steps(optimizer: &mut dyn Optimizer, steps: u64, max_norm: f32, loss: &dyn Fn() -> Tensor) {
    let engine = optimizer.parameters().engine().clone();
    let schedule = Schedule::Constant { warmup: 2 };
    let settings =
        ItTrainingConfig { total_steps: steps, schedule, max_norm, ..Default::default() };
    let mut training = ItTraining::new_eager(&engine, optimizer, settings).unwrap();
    while training.begin_step().unwrap() {
        training.zero_grad();
        let loss = loss();
        GradientTape::new().backward(&loss).unwrap();
        training.complete_step(&loss).unwrap();
    }
}

fn data(tensors: &[NamedTensor]) -> Vec<f64> {
    tensors.iter().flat_map(|tensor| &tensor.data).map(|&x| f64::from(x)).collect()
}

#[test]
fn gradient_descent_follows_its_formula_with_groups_and_a_schedule() {
    let engine = engine();
    for (nesterov, decoupled) in [(false, false), (true, false), (false, true), (true, true)] {
        let (parameters, loss) = two_parameters(&engine);
        let mut p = data(&parameters.to_host().unwrap());
        let config = SgdConfig { lr: 0.1, momentum: 0.5, nesterov, weight_decay: 0.2, decoupled };
        let mut sgd = Sgd::with_config(parameters.clone(), config).unwrap();
        sgd.set_groups(vec![ParameterGroup::scaled(&["w"], 0.5)]).unwrap();
        run_steps(&mut sgd, 4, 0.0, &loss);
        let up = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75];
        let mut m = [0.0f64; 10];
        for step in 0..4 {
            let rate = 0.1 * if step == 0 { 0.5 } else { 1.0 };
            for i in 0..10 {
                // Decay is for matrices: the vector has none.
                let (factor, decay) = if i < 6 { (0.5, 0.2) } else { (1.0, 0.0) };
                let mut g = if i < 6 { up[i] } else { p[i] };
                if !decoupled {
                    g += decay * p[i];
                }
                m[i] = 0.5 * m[i] + g;
                let direction = if nesterov { g + 0.5 * m[i] } else { m[i] };
                let kept = if decoupled { 1.0 - rate * factor * decay } else { 1.0 };
                p[i] = p[i] * kept - rate * factor * direction;
            }
        }
        let found = data(&parameters.to_host().unwrap());
        let worst = found.iter().zip(&p).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1.0e-6, "{worst} off, nesterov {nesterov}, decoupled {decoupled}");
    }
}

#[test]
fn clipping_bounds_the_step_of_gradient_descent() {
    let engine = engine();
    let (parameters, loss) = two_parameters(&engine);
    let before = data(&parameters.to_host().unwrap());
    let config = SgdConfig { lr: 1.0, momentum: 0.0, ..SgdConfig::default() };
    let mut sgd = Sgd::with_config(parameters.clone(), config).unwrap();
    run_steps(&mut sgd, 1, 0.125, &loss);
    let after = data(&parameters.to_host().unwrap());
    let moved: f64 = after.iter().zip(before).map(|(a, b)| (a - b).powi(2)).sum();
    // The warm-up halves the first rate.
    assert!((moved.sqrt() - 0.0625).abs() < 1.0e-5, "{}", moved.sqrt());
}

#[test]
fn a_gradient_that_is_no_number_changes_nothing_with_any_optimizer() {
    let engine = engine();
    for config in optimizers() {
        let (parameters, loss) = two_parameters(&engine);
        let mut optimizer = config.build(parameters.clone()).unwrap();
        run_steps(&mut *optimizer, 2, 1.0, &loss);
        let state = |optimizer: &dyn Optimizer| optimizer.state().unwrap().slots;
        let (values, moments) = (parameters.to_host().unwrap(), state(&*optimizer));
        let bad = || loss().scale(f32::INFINITY).unwrap();
        {
            let settings = ItTrainingConfig::default();
            let mut training = ItTraining::new_eager(&engine, &mut *optimizer, settings).unwrap();
            training.begin_step().unwrap();
            training.zero_grad();
            let loss = bad();
            GradientTape::new().backward(&loss).unwrap();
            training.complete_step(&loss).unwrap();
            let message = training.finish().unwrap_err().to_string();
            assert!(message.starts_with("training stopped: "), "{message}");
        }
        assert_eq!(parameters.to_host().unwrap(), values, "{config:?}");
        assert_eq!(state(&*optimizer), moments, "{config:?}");
    }
}

#[test]
fn muon_moves_hidden_matrices_along_orthogonal_directions_and_the_rest_with_adamw() {
    let engine = engine();
    let (parameters, loss) = two_parameters(&engine);
    let before = data(&parameters.to_host().unwrap());
    let config = MuonConfig { lr: 0.5, weight_decay: 0.0, ..MuonConfig::default() };
    let mut muon = Muon::with_config(parameters.clone(), config).unwrap();
    run_steps(&mut muon, 1, 0.0, &loss);
    let after = data(&parameters.to_host().unwrap());
    let moved: Vec<f64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    // Two rows with lengths near one, times half the rate; singular values of the method end
    // between 0.7 and 1.2.
    let square: f64 = moved[..6].iter().map(|x| x * x).sum();
    assert!((2.0f64.sqrt() * 0.7 * 0.25..2.0f64.sqrt() * 1.2 * 0.25).contains(&square.sqrt()));
    // AdamW's first step is its rate, halved by the warm-up, against the sign of the gradient.
    for (step, value) in moved[6..].iter().zip(&before[6..]) {
        assert!((step + 0.5e-3 * value.signum()).abs() < 1.0e-6, "{step} for {value}");
    }
    let hidden = |name: &str| {
        let layout = parameters.layout();
        layout.slots()[layout.find(name).unwrap()].hidden
    };
    assert_eq!((hidden("w"), hidden("b")), (true, false));
}

#[test]
fn embeddings_and_heads_are_no_hidden_matrices() {
    let engine = engine();
    for config in small_models() {
        let model = config.build(&engine, 1).unwrap();
        for slot in model.parameters().layout().slots() {
            let edge = ["embed", "position", "token", "head"];
            let edge = edge.iter().any(|name| slot.name.split('.').next() == Some(name));
            let matrix = slot.shape.rank() >= 2 && slot.decays;
            assert_eq!(slot.hidden, matrix && !edge, "{} of {config:?}", slot.name);
        }
    }
}

#[test]
fn freezing_in_the_middle_of_a_captured_session_takes_effect_at_once() {
    let engine = engine();
    let model = models()[0].build(&engine, 4).unwrap();
    let parameters = model.parameters();
    let mut optimizer = AdamW::new(model.all_parameters().unwrap(), 0.01).unwrap();
    let settings = ItTrainingConfig { total_steps: 9, ..Default::default() };
    let mut training = ItTraining::new_captured(&engine, &mut optimizer, settings).unwrap();
    let (mut order, mut forward) = (batches(2, 6), step_of(&model));
    let mut step = |training: &mut ItTraining<'_>| {
        training.begin_step().unwrap();
        training.step(&[order.next_batch()], &mut forward).unwrap();
        parameters.to_host().unwrap()
    };
    step(&mut training);
    assert!(training.gradient_report().unwrap().frozen.is_empty());
    let before = step(&mut training);
    parameters.freeze(&["attn", "*.b"]).unwrap();
    let frozen = parameters.frozen();
    assert!(frozen.iter().any(|name| name.starts_with("attn.")), "{frozen:?}");
    let after = step(&mut training);
    for (before, after) in before.iter().zip(&after) {
        let stays = frozen.iter().any(|name| **name == *before.name);
        assert_eq!(before == after, stays, "{}", before.name);
    }
    let report = training.gradient_report().unwrap();
    assert_eq!((&report.frozen, report.missing.len()), (&frozen, 0));
    assert_eq!(report.reached + frozen.len(), report.total);
    assert!(report.to_string().contains("; frozen are "), "{report}");
    parameters.unfreeze(&["*"]).unwrap();
    let again = step(&mut training);
    let moved = after.iter().zip(&again).filter(|(a, b)| a != b).count();
    assert_eq!(moved, after.len());
}

#[test]
fn wrong_patterns_optimizers_and_states_are_refused() {
    let engine = engine();
    let (parameters, loss) = two_parameters(&engine);
    let message = |result: Result<()>| result.unwrap_err().to_string();
    assert_eq!(
        message(parameters.freeze(&["w", "x*"])),
        "pattern `x*` matches none of the 2 parameters"
    );
    assert_eq!(
        message(parameters.freeze(&["*"])),
        "all 2 parameters are frozen: nothing is left to train"
    );
    assert!(parameters.frozen().is_empty());
    assert_eq!(
        message(parameters.set_frozen(&["c"])),
        "tensor `c` is not a parameter of this model"
    );
    assert_eq!(
        message(OptimizerConfig::named("adam").map(drop)),
        "there is no optimizer `adam`; the optimizers are adamw, sgd and muon"
    );
    let mut sgd = Sgd::new(parameters.clone(), 0.1).unwrap();
    run_steps(&mut sgd, 1, 1.0, &loss);
    let mut muon = Muon::new(parameters.clone(), 0.1).unwrap();
    let before = muon.state().unwrap();
    let mut state = sgd.state().unwrap();
    assert_eq!(message(muon.load_state(&state)), "the state is that of sgd, the optimizer is muon");
    state.config = muon.config();
    assert_eq!(message(muon.load_state(&state)), "the state of muon has no moments `v`");
    state = before.clone();
    state.groups = vec![ParameterGroup::scaled(&["none"], 1.0)];
    assert_eq!(message(muon.load_state(&state)), "pattern `none` matches none of the 2 parameters");
    assert_eq!(muon.state().unwrap(), before);
    assert_eq!(
        message(AdamW::new(parameters, -1.0).map(drop)),
        "AdamW: lr is -1, it must be finite and not negative"
    );
}
