//! The Mamba-3 mixer: a projection, a gated scan over time with rotating states, a projection.
//!
//! Heads own a state each and share the keys and queries of their group; with several ranks (MIMO)
//! every head reads and writes its state through as many channels. There is no convolution. What
//! happens between the projections is three ops: prepare, scan, gate.

use super::Pass;
use super::cache::SsmCache;
use super::linear::Linear;
use crate::error::Result;
use crate::init::Init;
use crate::model::config::RopeStyle;
use crate::param::{Decay, Parameter, Scope};
use oa_graph::Tensor;
use oa_graph::ops::index::RopeLayout;
use oa_graph::ops::mamba3::{
    DecayRate, Mamba3Gate, Mamba3Prepare, Mamba3Scan, Mamba3Scanned, Mamba3State,
};

/// Sizes and options of a mixer.
#[derive(Clone, Copy, Debug)]
pub struct Mamba3Config {
    /// Width of the residual stream.
    pub width: usize,
    /// Heads.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Rows of a head's state.
    pub state: usize,
    /// Groups of keys and queries; they divide the heads.
    pub groups: usize,
    /// Channels through which a head reads and writes its state, with weights; `None` for one
    /// without.
    pub mimo: Option<usize>,
    /// Angles of the rotation; at most half the state.
    pub angles: usize,
    /// Which rows of the state a rotation pairs.
    pub rope: RopeStyle,
    /// How the rate of decay is made positive.
    pub rate: DecayRate,
    /// Smallest rate of decay.
    pub floor: f32,
    /// Added to the mean square in the norms.
    pub eps: f32,
    /// Whether the norms of keys and queries have gains.
    pub gains: bool,
    /// Whether a head's values are normalised, with a gain, before the gate.
    pub out_norm: bool,
    /// Shortest and longest time step at the start.
    pub time_steps: [f64; 2],
    /// Initial values of the output projection.
    pub init_out: Init,
}

impl Mamba3Config {
    /// Channels of all heads.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels through which a head reads and writes its state.
    pub fn rank(&self) -> usize {
        self.mimo.unwrap_or(1)
    }

    /// Rows of the input projection.
    pub fn projected(&self) -> usize {
        2 * self.inner() + 2 * self.state * self.groups * self.rank() + 3 * self.heads + self.angles
    }

    /// Number of parameters.
    pub fn parameter_count(&self) -> usize {
        let projections = self.width * (self.projected() + self.inner());
        let biases = 2 * self.heads * self.rank() * self.state;
        let gains = if self.gains { 2 * self.state } else { 0 };
        let mimo = self.mimo.map_or(0, |rank| 3 * rank * self.inner());
        let out_norm = if self.out_norm { self.inner() } else { 0 };
        projections + 2 * self.heads + biases + gains + mimo + out_norm
    }
}

/// The layer: parameters `w_in`, `w_out`, `dt_bias`, `d_skip`, `b_bias`, `c_bias`, and as configured
/// `b_norm`, `c_norm`, `mimo_x`, `mimo_z`, `mimo_o`, `o_norm`.
#[derive(Clone, Debug)]
pub struct Mamba3 {
    w_in: Linear,
    w_out: Linear,
    dt_bias: Parameter,
    d_skip: Parameter,
    biases: [Parameter; 2],
    gains: Option<[Parameter; 2]>,
    mimo: Option<[Parameter; 3]>,
    o_norm: Option<Parameter>,
    config: Mamba3Config,
}

impl Mamba3 {
    /// Declares the layer. Decay applies to its two projections only.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, config: Mamba3Config) -> Result<Mamba3> {
        let Mamba3Config { width, heads, head_dim, state, .. } = config;
        let (inner, rank) = (config.inner(), config.rank());
        let w_in = Linear::new(scope, "w_in", [config.projected(), width], Init::fan_in(width))?;
        let w_out = Linear::new(scope, "w_out", [width, inner], config.init_out)?;
        let [shortest, longest] = config.time_steps;
        let dt_bias = scope.declare("dt_bias", [heads], Init::TimeStep { shortest, longest })?;
        let d_skip = scope.declare("d_skip", [heads], Init::Ones)?;
        let mut free = |name: &str, shape: [usize; 3], init| {
            scope.declare_with(name, shape, init, Decay::Never)
        };
        let bias = [heads, rank, state];
        let biases = [free("b_bias", bias, Init::Ones)?, free("c_bias", bias, Init::Ones)?];
        let mimo = match config.mimo {
            None => None,
            Some(rank) => {
                let (shape, share) = ([heads, rank, head_dim], 1.0 / rank as f32);
                let share = Init::Constant { value: share };
                Some([
                    free("mimo_x", shape, share)?,
                    free("mimo_z", shape, Init::Ones)?,
                    free("mimo_o", shape, share)?,
                ])
            }
        };
        let mut gain = |name: &str, width: usize| scope.declare(name, [width], Init::Ones);
        let gains = match config.gains {
            true => Some([gain("b_norm", state)?, gain("c_norm", state)?]),
            false => None,
        };
        let o_norm = config.out_norm.then(|| gain("o_norm", inner)).transpose()?;
        Ok(Mamba3 { w_in, w_out, dt_bias, d_skip, biases, gains, mimo, o_norm, config })
    }

    /// Mixes `[B, T, width]` over time. With a cache the sequence continues from its state, which
    /// moves on to the last time step; without one it starts from zeros. Documents that start within
    /// the sequence are kept apart if the pass says where. `layer` is the number of this layer in the
    /// cache.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, pass: &Pass<'_>, layer: usize) -> Result<Tensor> {
        let engine = self.w_in.weight.engine();
        let cache = pass.cache.map(|cache| &cache.cache.ssm[layer]);
        let state = cache.map(|cache| Mamba3State {
            theta: engine.read(&cache.theta),
            h: engine.read(&cache.h),
            k: engine.read(&cache.k),
            v: engine.read(&cache.v),
        });
        let (y, scanned) = self.mix(x, pass.starts, state.as_ref())?;
        if let Some(SsmCache { theta, h, k, v }) = cache {
            let last = scanned.state()?;
            let pairs = [(theta, &last.theta), (h, &last.h), (k, &last.k), (v, &last.v)];
            for (state, value) in pairs {
                engine.store(state, value)?;
            }
        }
        Ok(y)
    }

    /// As [`Mamba3::forward`], from a state or from zeros; also returns what the scan gave, which
    /// holds the state after the last time step.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit.
    #[track_caller]
    pub fn mix(
        &self,
        x: &Tensor,
        starts: Option<&Tensor>,
        state: Option<&Mamba3State>,
    ) -> Result<(Tensor, Mamba3Scanned)> {
        let config = &self.config;
        let values = |pair: &[Parameter; 2]| [pair[0].value(), pair[1].value()];
        let gains = self.gains.as_ref().map(values);
        let biases = values(&self.biases);
        let mimo = self.mimo.as_ref().map(|all| [0, 1, 2].map(|index| all[index].value()));
        let dt_bias = self.dt_bias.value();
        let made = self.w_in.forward(x)?.mamba3_prepare(Mamba3Prepare {
            dt_bias: &dt_bias,
            gains: gains.as_ref().map(|[b, c]| [b, c]),
            biases: [&biases[0], &biases[1]],
            mimo_x: mimo.as_ref().map(|[x, _, _]| x),
            head_dim: config.head_dim,
            groups: config.groups,
            angles: config.angles,
            rate: config.rate,
            floor: config.floor,
            eps: config.eps,
        })?;
        let scanned = Mamba3Scan {
            q: &made.q,
            k: &made.k,
            v: &made.v,
            a: &made.a,
            dt: &made.dt,
            lambda: &made.lambda,
            steps: &made.steps,
            heads: config.heads,
            layout: match config.rope {
                RopeStyle::Pair => RopeLayout::Pair,
                RopeStyle::Half => RopeLayout::Half,
            },
            starts,
            state,
        }
        .record()?;
        let o_norm = self.o_norm.as_ref().map(Parameter::value);
        let gated = scanned.y.mamba3_gate(Mamba3Gate {
            v: &made.v,
            z: &made.z,
            d_skip: &self.d_skip.value(),
            norm: o_norm.as_ref().map(|gain| (gain, config.eps)),
            mimo: mimo.as_ref().map(|[_, z, o]| [z, o]),
        })?;
        Ok((self.w_out.forward(&gated)?, scanned))
    }
}
