//! Mixture of experts: a router sends each token to k of E gated feed-forward layers.
//!
//! There is no capacity and no token is dropped. Which experts a token goes to is decided and kept
//! on the device; reading it back is for statistics only.

use super::{Linear, Pass};
use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;
use std::cell::RefCell;

/// Shape and start of the layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeConfig {
    /// Width of the residual stream.
    pub width: usize,
    /// Experts.
    pub experts: usize,
    /// Experts that a token goes to.
    pub top_k: usize,
    /// Width of an expert.
    pub ff: usize,
    /// Whether the weights of a token's experts sum to 1; else they are their probabilities.
    pub renormalise: bool,
    /// Whether router and experts have biases.
    pub biases: bool,
    /// Initial values of router, gate and up.
    pub init: Init,
    /// Initial values of the output projections.
    pub init_out: Init,
}

/// The layer: parameters `w_router`, `w_gate`, `w_up`, `w_down`, and as configured `b_router`,
/// `b_gate`, `b_up`, `b_down`.
#[derive(Clone, Debug)]
pub struct Moe {
    router: Linear,
    gate: Experts,
    up: Experts,
    down: Experts,
    config: MoeConfig,
}

/// One matrix, and perhaps a bias, per expert.
#[derive(Clone, Debug)]
struct Experts {
    weight: Parameter,
    bias: Option<Parameter>,
}

/// What a router decided in one pass.
#[derive(Clone, Debug)]
pub struct Routed {
    /// Logits `[tokens, experts]`.
    pub logits: Tensor,
    /// Their log-sum-exp, `[tokens]`.
    pub lse: Tensor,
    /// First row of each expert, u32 `[experts + 1]`; differences are its assignments.
    pub offsets: Tensor,
    /// Experts of a token.
    pub top_k: usize,
}

/// Collects what the routers of a pass decided, layer by layer.
pub type RouterLog = RefCell<Vec<Routed>>;

impl Experts {
    fn new(
        scope: &mut Scope<'_>,
        name: &str,
        shape: [usize; 3],
        (init, biases): (Init, bool),
    ) -> Result<Experts> {
        let weight = scope.declare(&format!("w_{name}"), shape, init)?;
        let bias = |scope: &mut Scope<'_>| {
            scope.declare_with(
                &format!("b_{name}"),
                [shape[0], shape[1]],
                Init::Zeros,
                crate::param::Decay::Never,
            )
        };
        let bias = if biases { Some(bias(scope)?) } else { None };
        Ok(Experts { weight, bias })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, dispatch: &oa_graph::ops::moe::Dispatch) -> Result<Tensor> {
        let y = x.grouped_linear(&self.weight.value(), &dispatch.offsets)?;
        match &self.bias {
            Some(bias) => Ok(y.add(&bias.value().embedding(&dispatch.experts)?)?),
            None => Ok(y),
        }
    }
}

impl Moe {
    /// Declares the layer.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(scope: &mut Scope<'_>, config: MoeConfig) -> Result<Moe> {
        let MoeConfig { width, experts, ff, biases, init, init_out, .. } = config;
        let mut router = Linear::new(scope, "w_router", [experts, width], init)?;
        if biases {
            router = router.with_bias(scope, "b_router", experts, Init::Zeros)?;
        }
        let gate = Experts::new(scope, "gate", [experts, ff, width], (init, biases))?;
        let up = Experts::new(scope, "up", [experts, ff, width], (init, biases))?;
        let down = Experts::new(scope, "down", [experts, width, ff], (init_out, biases))?;
        Ok(Moe { router, gate, up, down, config })
    }

    /// Applies the layer to `[.., width]`; the pass's log gets what the router decided.
    ///
    /// # Errors
    ///
    /// When the shapes do not fit, or a pass has more than
    /// [`MAX_ASSIGNMENTS`](oa_graph::ops::moe::MAX_ASSIGNMENTS) tokens times k.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let shape = x.shape();
        let x = x.reshape([shape.rows(), self.config.width])?;
        let logits = self.router.forward(&x)?;
        let route = logits.moe_route(self.config.top_k, self.config.renormalise)?;
        let dispatch = route.ids.moe_dispatch(self.config.experts)?;
        let xs = dispatch.gather(&x)?;
        let gated =
            self.gate.forward(&xs, &dispatch)?.swiglu_gate(&self.up.forward(&xs, &dispatch)?)?;
        let ys = self.down.forward(&gated, &dispatch)?;
        let y = dispatch.combine(&ys, &route.weights)?;
        if let Some(log) = pass.routers {
            let (lse, offsets) = (route.lse, dispatch.offsets);
            log.borrow_mut().push(Routed { logits, lse, offsets, top_k: self.config.top_k });
        }
        Ok(y.reshape(shape)?)
    }
}

impl Routed {
    /// `aux` times the load-balance loss plus `z` times the mean squared log-sum-exp, a scalar.
    ///
    /// # Errors
    ///
    /// None that a logged pass can cause.
    #[track_caller]
    pub fn losses(&self, coefficients: [f32; 2]) -> Result<Tensor> {
        Ok(self.logits.moe_losses(&self.lse, &self.offsets, self.top_k, coefficients)?)
    }
}
