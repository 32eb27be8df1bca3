//! The one road, walked on whatever Vulkan device is present: segments, plans, states, captures.

use oa_graph::{Engine, Error, Spec, Tensor, grad};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

fn engine() -> Engine {
    Engine::new().expect("these tests need a Vulkan device; `cargo xtask test` prepares one")
}

fn clean(engine: &Engine) {
    assert_eq!(engine.gpu().validation_messages(), Vec::<String>::new());
}

#[test]
fn a_loop_compiles_its_plan_once() {
    let engine = engine();
    let state = engine.state("x", Spec::f32([5])).unwrap();
    for turn in 1..=6 {
        let one = engine.tensor_f32([5], &[1.0, 2.0, 3.0, 4.0, turn as f32]).unwrap();
        let sum = engine.read(&state).add(&one).unwrap();
        engine.store(&state, &sum).unwrap();
        drop((one, sum));
        engine.submit().unwrap().wait(WAIT).unwrap();
    }
    let mut bytes = [0u8; 20];
    engine.read_state(&state, &mut bytes).unwrap();
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
    assert_eq!(values, [6.0, 12.0, 18.0, 24.0, 21.0]);
    assert_eq!(engine.plans_compiled(), 1);
    clean(&engine);
}

#[test]
fn a_value_that_was_not_kept_is_computed_again() {
    let engine = engine();
    let x = engine.tensor_f32([3], &[1.0, 2.0, 3.0]).unwrap();
    let y = x.add(&x).unwrap();
    let z = y.mul(&y).unwrap();
    drop(y.clone());
    assert_eq!(z.to_vec_f32().unwrap(), [4.0, 16.0, 36.0]);
    assert_eq!(y.to_vec_f32().unwrap(), [2.0, 4.0, 6.0]);
    let loss = z.sum().unwrap();
    assert_eq!(loss.item().unwrap(), 56.0);
    let seed = engine.tensor_f32([0; 0], &[1.0]).unwrap();
    let gradients = grad::gradients(&[(&loss, &seed)], &[&x]).unwrap();
    let gradient = gradients[0].as_ref().expect("the loss depends on x");
    assert_eq!(gradient.to_vec_f32().unwrap(), [8.0, 16.0, 24.0]);
    clean(&engine);
}

#[test]
fn a_stale_read_of_a_state_is_an_error_with_the_line() {
    let engine = engine();
    let state = engine.state("weights", Spec::f32([2])).unwrap();
    let old = engine.read(&state);
    let one = engine.tensor_f32([2], &[1.0, 1.0]).unwrap();
    engine.store(&state, &one).unwrap();
    let line = line!() + 1;
    let error = old.add(&one).unwrap_err();
    assert!(matches!(error, Error::StaleState { .. }));
    let text = error.to_string();
    assert!(text.contains("`weights`") && text.contains(&format!("engine.rs:{line}:")), "{text}");
}

#[test]
fn a_value_read_before_an_update_keeps_its_bits() {
    let engine = engine();
    let state = engine.state("s", Spec::f32([3])).unwrap();
    engine.write_state(&state, bytemuck::cast_slice(&[1.0f32, 2.0, 3.0])).unwrap();
    let view = engine.read(&state).reshape([3, 1]).unwrap();
    let double = engine.read(&state).scale(2.0).unwrap();
    engine.store(&state, &double).unwrap();
    assert_eq!(view.to_vec_f32().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(double.to_vec_f32().unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!(engine.read(&state).to_vec_f32().unwrap(), [2.0, 4.0, 6.0]);
    clean(&engine);
}

#[test]
fn swapping_two_states_reads_before_it_writes() {
    let engine = engine();
    let a = engine.state("a", Spec::f32([2])).unwrap();
    let b = engine.state("b", Spec::f32([2])).unwrap();
    engine.write_state(&a, bytemuck::cast_slice(&[1.0f32, 2.0])).unwrap();
    engine.write_state(&b, bytemuck::cast_slice(&[3.0f32, 4.0])).unwrap();
    let (old_a, old_b) = (engine.read(&a).scale(1.0).unwrap(), engine.read(&b).scale(1.0).unwrap());
    engine.store(&a, &old_b).unwrap();
    engine.store(&b, &old_a).unwrap();
    assert_eq!(engine.read(&a).to_vec_f32().unwrap(), [3.0, 4.0]);
    assert_eq!(engine.read(&b).to_vec_f32().unwrap(), [1.0, 2.0]);
    clean(&engine);
}

#[test]
fn a_captured_plan_replays_with_new_inputs() {
    let engine = engine();
    let state = engine.state("sum", Spec::f32([4])).unwrap();
    let plan = engine
        .capture(|| {
            let x = engine.input("x", Spec::f32([4]));
            let fixed = engine.tensor_f32([4], &[10.0; 4])?;
            let next = engine.read(&state).add(&x)?;
            engine.store(&state, &next)?;
            Ok::<Vec<Tensor>, Error>(vec![next.sum()?, next.add(&fixed)?])
        })
        .unwrap();
    let input = plan.input("x").expect("the plan has the input it was captured with");
    let mut events = Vec::new();
    for turn in 1..=8 {
        let x = [turn as f32; 4];
        events.push(plan.submit(&[(input, bytemuck::cast_slice(&x))]).unwrap());
    }
    let (mut total, mut shifted) = ([0.0f32], [0.0f32; 4]);
    events[7].output_f32(0, &mut total).unwrap();
    events[7].output_f32(1, &mut shifted).unwrap();
    assert_eq!((total, shifted), ([144.0], [46.0; 4]));
    events[5].output_f32(0, &mut total).unwrap();
    assert_eq!(total, [84.0]);
    let error = events[0].output_f32(0, &mut total).unwrap_err();
    assert!(matches!(error, Error::Overwritten { replay: 1, .. }), "{error}");
    assert_eq!(engine.read(&state).to_vec_f32().unwrap(), [36.0; 4]);
    let missing = plan.submit(&[]).unwrap_err().to_string();
    assert_eq!(missing, "input `x` of the plan takes 16 bytes, 0 were bound");
    assert_eq!(plan.dump(), plan.dump());
    clean(&engine);
}

#[test]
fn a_shape_mistake_names_the_line_and_both_shapes() {
    let engine = engine();
    let a = engine.tensor_f32([2, 3], &[0.0; 6]).unwrap();
    let line = line!() + 1;
    let error = a.add(&engine.tensor_f32([3, 2], &[0.0; 6]).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("add at ") && text.contains(&format!("engine.rs:{line}:")), "{text}");
    assert!(text.contains("f32[2, 3] and f32[3, 2]"), "{text}");
}

#[test]
fn two_engines_coexist_and_do_not_mix() {
    let (one, two) = (engine(), engine());
    let a = one.tensor_f32([2], &[1.0, 2.0]).unwrap();
    let b = two.tensor_f32([2], &[3.0, 4.0]).unwrap();
    assert!(matches!(a.add(&b), Err(Error::MixedEngines { .. })));
    let (twice_a, twice_b) = (a.add(&a).unwrap(), b.add(&b).unwrap());
    assert_eq!(twice_b.to_vec_f32().unwrap(), [6.0, 8.0]);
    assert_eq!(twice_a.to_vec_f32().unwrap(), [2.0, 4.0]);
}

#[test]
fn threads_share_an_engine() {
    let engine = engine();
    let run = |seed: f32| {
        for turn in 0..25 {
            let x = engine.tensor_f32([64], &[seed + turn as f32; 64]).unwrap();
            let y = x.add(&x).unwrap().mul(&x).unwrap();
            let expected = 2.0 * (seed + turn as f32) * (seed + turn as f32);
            assert_eq!(y.to_vec_f32().unwrap(), [expected; 64]);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || run(thread as f32 * 3.0));
        }
    });
    clean(&engine);
}

#[test]
fn a_chain_of_ten_thousand_ops_needs_no_deep_stack() {
    let engine = engine();
    let mut x = engine.tensor_f32([3], &[0.0, 1.0, 2.0]).unwrap();
    let one = engine.tensor_f32([3], &[1.0; 3]).unwrap();
    for _ in 0..10_000 {
        x = x.add(&one).unwrap();
    }
    assert_eq!(x.to_vec_f32().unwrap(), [10_000.0, 10_001.0, 10_002.0]);
    drop(x);
}

#[test]
fn cached_plans_hold_a_bounded_amount_of_memory() {
    let engine = engine();
    let big = engine.zeros([1 << 24]).unwrap();
    for turn in 1..=20 {
        let sum = big.affine(1.0, turn as f32).unwrap().sum().unwrap();
        assert_eq!(sum.item().unwrap(), (turn << 24) as f32);
    }
    let held = engine.gpu().memory().allocated_bytes >> 20;
    assert_eq!(engine.plans_compiled(), 20, "each turn has a plan with a 64 MiB transient");
    assert!(held <= 1024 + 128, "{held} MiB are held: 1 GiB of plans, the value, and a margin");
    clean(&engine);
}
