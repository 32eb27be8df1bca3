//! Angles of the rotations: the running sum of the steps, kept within half a turn.

use super::super::activation::FIRST_ORDER;
use super::super::rule::{Inferred, refuse};
use super::super::sample::{Sample, signed, uniform};
use super::super::{Backward, Launch, Lower, OpCall, OpDef};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::host::{HostTensor, Spec};
use crate::value::Tensor;
use oa_kernels::{DType, Variant};
use std::f64::consts::{PI, TAU};

/// Running sums over time, modulo a turn. Inputs: steps `[B, T, A]`, theta0 `[B, A]`.
pub static MAMBA3_ANGLES: OpDef = OpDef {
    name: "mamba3_angles",
    doc: "Running sum of angle steps from `theta0`, kept within `[-pi, pi]`: `theta_t = \
          theta_{t-1} + steps_t mod 2 pi`.",
    infer: infer_forward,
    lower: Lower::Kernel { family: |_| "mamba3_angles", launch },
    backward: Backward::Rule(gradients),
    reference: |inputs, _| vec![forward_reference(&inputs[0], &inputs[1])],
    samples: forward_samples,
    mutates: &[],
    in_place: None,
};

/// Sums from each token to the last. Input: dtheta `[B, T, A]`.
pub static MAMBA3_ANGLES_BACKWARD: OpDef = OpDef {
    name: "mamba3_angles_backward",
    doc: "Sum from each token to the last one: `dsteps_t = sum_{u >= t} dtheta_u`.",
    infer: infer_backward,
    lower: Lower::Kernel { family: |_| "mamba3_angles_backward", launch },
    backward: Backward::None(FIRST_ORDER),
    reference: |inputs, _| vec![backward_reference(&inputs[0])],
    samples: backward_samples,
    mutates: &[],
    in_place: None,
};

fn infer_forward(call: &OpCall) -> Inferred {
    match call.inputs {
        [steps, theta0]
            if steps.dtype == DType::F32
                && matches!(*steps.shape.dims(), [b, t, a] if t > 0 && *theta0 == Spec::f32([b, a])) =>
        {
            Ok(vec![*steps])
        }
        _ => refuse(call, "angle steps [B, T, A] and first angles [B, A], T at least 1"),
    }
}

fn infer_backward(call: &OpCall) -> Inferred {
    match call.inputs {
        [dtheta] if dtheta.dtype == DType::F32 && dtheta.shape.rank() == 3 => Ok(vec![*dtheta]),
        _ => refuse(call, "gradients of angles [B, T, A]"),
    }
}

/// A lane per sequence and angle; `push` is batch, steps and angles.
fn launch(call: &OpCall, variant: &Variant) -> Launch {
    let &[batch, steps, angles] = call.inputs[0].shape.dims() else {
        unreachable!("infer admitted three axes")
    };
    let groups = (batch * angles).div_ceil(variant.tile[0] as usize) as u64;
    let push = [batch, steps, angles].map(|size| size as u32).to_vec();
    Launch { groups, push, spec: Vec::new() }
}

fn gradients(call: &super::super::GradCall) -> Result<Vec<Option<Tensor>>> {
    let dsteps = Tensor::record1(&MAMBA3_ANGLES_BACKWARD, Attrs::NONE, &[call.dout()])?;
    let first = call.wanted[1].then(|| dsteps.narrow(1, 0, 1)?.reshape(call.inputs[1].shape()));
    let first = first.transpose()?;
    Ok(vec![Some(dsteps), first])
}

fn forward_reference(steps: &HostTensor, theta0: &HostTensor) -> HostTensor {
    let &[batch, time, angles] = steps.shape().dims() else { unreachable!("infer admitted three") };
    let mut theta = steps.clone();
    for b in 0..batch {
        for angle in 0..angles {
            let mut sum = theta0.data[b * angles + angle];
            for t in 0..time {
                let at = (b * time + t) * angles + angle;
                sum += steps.data[at];
                sum -= TAU * (sum / TAU).round();
                theta.data[at] = sum;
            }
        }
    }
    theta
}

fn backward_reference(dtheta: &HostTensor) -> HostTensor {
    let &[_, time, angles] = dtheta.shape().dims() else { unreachable!("infer admitted three") };
    let mut dsteps = dtheta.clone();
    for sequence in dsteps.data.chunks_mut(time * angles) {
        for at in (0..(time - 1) * angles).rev() {
            sequence[at] += sequence[at + angles];
        }
    }
    dsteps
}

/// Steps whose sums stay away from half a turn, where no finite difference may step over.
fn forward_samples() -> Vec<Sample> {
    let sample = |[batch, time, angles]: [usize; 3], reach: f64, first: f64| {
        let steps = uniform([batch, time, angles], -reach, reach, 901);
        Sample::new(vec![steps, uniform([batch, angles], -first, first, 902)], Attrs::NONE)
    };
    let turning =
        HostTensor::f32([1, 5, 2], vec![2.0, -2.5, 2.0, 1.5, 1.25, -3.0, 2.0, 2.0, 2.0, 0.5]);
    let late = HostTensor::f32([1, 2], vec![0.25, -0.5]);
    vec![
        sample([1, 1, 1], 1.0, 1.0),
        sample([2, 5, 3], 0.3, 1.0),
        sample([3, 7, 43], 0.2, 1.0),
        Sample::new(vec![turning, late], Attrs::NONE),
        Sample::later(move || far_from_half_turns(sample([2, 4096, 9], PI / 8.0, 3.0))),
    ]
}

/// Lengthens every step after which the sum is within 1e-3 of half a turn, where a device may
/// rightly be a whole turn away.
fn far_from_half_turns(mut sample: Sample) -> Sample {
    let theta = forward_reference(&sample.inputs[0], &sample.inputs[1]);
    let angles = theta.shape().last();
    for (at, angle) in theta.data.iter().enumerate() {
        if PI - angle.abs() < 1.0e-3 && at + angles < theta.data.len() {
            let steps = &mut sample.inputs[0].data;
            steps[at] = f64::from((steps[at] + 0.0078125) as f32);
            steps[at + angles] = f64::from((steps[at + angles] - 0.0078125) as f32);
        }
    }
    sample.large()
}

fn backward_samples() -> Vec<Sample> {
    let sample = |shape: [usize; 3]| Sample::new(vec![signed(shape, 903)], Attrs::NONE);
    vec![
        sample([1, 1, 1]),
        sample([2, 5, 3]),
        sample([3, 7, 43]),
        Sample::later(move || sample([2, 4096, 9])),
    ]
}
