//! The whole scan: angles, rotation, coefficients, initial state, and one of two forms of the walk.

use super::super::index::RopeLayout;
use super::super::turns;
use super::recurrent::turns_of_a_token;
use super::sizes::{DOCUMENTS, STATE, Sizes};
use super::{
    MAMBA3_ANGLES, MAMBA3_CARRY, MAMBA3_CHUNKS, MAMBA3_LOAD, MAMBA3_OUTPUTS, MAMBA3_RECURRENT,
    MAMBA3_ROTATE, MAMBA3_WEIGHTS,
};
use crate::attrs::Attrs;
use crate::error::Result;
use crate::shape::Shape;
use crate::value::Tensor;

/// Which of two equal computations a scan uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mamba3Form {
    /// Walks the tokens in order with one state.
    Recurrent,
    /// Splits the sequence into chunks of at most 32 rows (tokens times ranks).
    Chunked,
}

/// Longest sequence that is walked token by token.
const RECURRENT_STEPS: usize = 4;

impl Mamba3Form {
    /// The form that a sequence of `steps` tokens uses: token by token up to four, as in decoding,
    /// in chunks beyond, where the products of a chunk cost less than a walk over its tokens.
    pub fn of(steps: usize) -> Mamba3Form {
        if steps <= RECURRENT_STEPS { Mamba3Form::Recurrent } else { Mamba3Form::Chunked }
    }
}

/// Inputs of a scan over T tokens of H heads, R ranks, N state columns, P channels and S angles.
pub struct Mamba3Scan<'a> {
    /// Queries `[B, T, R H, N]`, not rotated; row `r H + h` belongs to rank r of head h.
    pub q: &'a Tensor,
    /// Keys, as the queries.
    pub k: &'a Tensor,
    /// Values `[B, T, R H, P]`.
    pub v: &'a Tensor,
    /// Logarithms of the decays `[B, T, H]`, below zero.
    pub a: &'a Tensor,
    /// Step sizes `[B, T, H]`.
    pub dt: &'a Tensor,
    /// Weights of the trapezoid `[B, T, H]`, between 0 and 1.
    pub lambda: &'a Tensor,
    /// Angle increments `[B, T, H S]`; the first S pairs of channels turn.
    pub steps: &'a Tensor,
    /// Heads, H.
    pub heads: usize,
    /// Which channels form a pair.
    pub layout: RopeLayout,
    /// u32 `[B, T]`, not zero at the first token of each packed document; `None` is one document.
    pub starts: Option<&'a Tensor>,
    /// What came before; `None` is zeros.
    pub state: Option<&'a Mamba3State>,
}

/// What a scan leaves for the tokens after it.
#[derive(Clone, Debug)]
pub struct Mamba3State {
    /// Angles `[B, H S]`.
    pub theta: Tensor,
    /// State `[B, H, P N]`.
    pub h: Tensor,
    /// Rotated keys of the last token `[B, R H, N]`.
    pub k: Tensor,
    /// Values of the last token `[B, R H, P]`.
    pub v: Tensor,
}

/// What a scan returns.
#[derive(Clone, Debug)]
pub struct Mamba3Scanned {
    /// Outputs `[B, T, R H, P]`, without the skip connection.
    pub y: Tensor,
    /// Angles of each token `[B, T, H S]`, within half a turn.
    pub theta: Tensor,
    /// State after the last token `[B, H, P N]`.
    pub h: Tensor,
    /// Rotated keys of the last token `[B, R H, N]`.
    pub k_last: Tensor,
    /// Values of the last token `[B, R H, P]`.
    pub v_last: Tensor,
}

impl Mamba3Scanned {
    /// The state that continues this scan.
    ///
    /// # Errors
    ///
    /// When the values cannot be recorded.
    #[track_caller]
    pub fn state(&self) -> Result<Mamba3State> {
        let (theta, h) = (last(&self.theta)?, self.h.clone());
        Ok(Mamba3State { theta, h, k: self.k_last.clone(), v: self.v_last.clone() })
    }
}

/// The last token of a value `[B, T, ..]`.
#[track_caller]
fn last(x: &Tensor) -> Result<Tensor> {
    let dims = x.shape();
    let mut rest = dims.dims().to_vec();
    let steps = rest.remove(1);
    let rest = Shape::try_new(&rest).expect("fewer axes than a shape that exists");
    x.narrow(1, steps - 1, 1)?.reshape(rest)
}

impl Mamba3Scan<'_> {
    /// Records the scan in the form that its length asks for.
    ///
    /// # Errors
    ///
    /// When shapes do not fit together, N is odd, R exceeds [`super::MAX_RANKS`], or a chunk has
    /// more loop turns than an older driver carries out.
    #[track_caller]
    pub fn record(&self) -> Result<Mamba3Scanned> {
        self.record_as(Mamba3Form::of(self.q.shape().dims().get(1).copied().unwrap_or(0)))
    }

    /// Records the scan in one form; both give the same numbers but for rounding.
    ///
    /// # Errors
    ///
    /// As [`Mamba3Scan::record`].
    #[track_caller]
    pub fn record_as(&self, form: Mamba3Form) -> Result<Mamba3Scanned> {
        let theta = self.angles()?;
        let attrs = Attrs::ints(&[self.layout as u32, self.heads as u32]);
        let turned = Tensor::record(&MAMBA3_ROTATE, attrs, &[self.q, self.k, &theta])?;
        let [q, k] = turned.as_slice() else { unreachable!("mamba3_rotate has two outputs") };
        let inputs = [self.a, self.dt, self.lambda];
        let made = Tensor::record(&MAMBA3_WEIGHTS, Attrs::NONE, &inputs)?;
        let [c, s0] = made.as_slice() else { unreachable!("mamba3_weights has two outputs") };
        let first = self.state.map(|state| {
            let inputs = [&state.h, &state.k, &state.v, s0];
            Tensor::record1(&MAMBA3_LOAD, Attrs::NONE, &inputs)
        });
        let core = Core { q, k, v: self.v, c, starts: self.starts };
        let first = first.transpose()?;
        let (y, h) = match form {
            Mamba3Form::Recurrent => core.recurrent(first)?,
            Mamba3Form::Chunked => core.chunked(first)?,
        };
        let (k_last, v_last) = (last(k)?, last(self.v)?);
        Ok(Mamba3Scanned { y, theta, h, k_last, v_last })
    }

    #[track_caller]
    fn angles(&self) -> Result<Tensor> {
        let zeros;
        let first = match (self.state, self.steps.shape().dims()) {
            (Some(state), _) => &state.theta,
            (None, &[batch, _, angles]) => {
                zeros = self.steps.graph().filled_f32([batch, angles].into(), 0.0)?;
                &zeros
            }
            // The op says what it expects.
            (None, _) => self.steps,
        };
        let tokens = self.steps.shape().dims().get(1).map_or(0, |tokens| tokens + 2);
        turns::check(&MAMBA3_ANGLES, &[self.steps], tokens)?;
        Tensor::record1(&MAMBA3_ANGLES, Attrs::NONE, &[self.steps, first])
    }
}

/// The scan proper: rotated queries and keys, values, coefficients and starts.
struct Core<'a> {
    q: &'a Tensor,
    k: &'a Tensor,
    v: &'a Tensor,
    c: &'a Tensor,
    starts: Option<&'a Tensor>,
}

impl Core<'_> {
    fn flags(&self, first: bool) -> Attrs {
        let documents = if self.starts.is_some() { DOCUMENTS } else { 0 };
        Attrs::ints(&[documents | if first { STATE } else { 0 }])
    }

    fn sizes(&self) -> Option<Sizes> {
        Sizes::of(&self.k.spec(), &self.v.spec(), &self.c.spec())
    }

    /// Token by token, in several dispatches where a driver ends long loops early.
    #[track_caller]
    fn recurrent(&self, first: Option<Tensor>) -> Result<(Tensor, Tensor)> {
        let most = self.sizes().map_or(usize::MAX, |sizes| {
            (turns::most(self.q) as usize / turns_of_a_token(sizes)).max(1)
        });
        let steps = self.q.shape().dims()[1];
        let (mut y, mut state): (Option<Tensor>, Option<Tensor>) = (None, first);
        for from in (0..steps.max(1)).step_by(most) {
            let part = |x: &Tensor| match steps {
                0 => Ok(x.clone()),
                _ => x.narrow(1, from, most.min(steps - from)),
            };
            let [q, k, v, c] = [self.q, self.k, self.v, self.c].map(part);
            let (q, k, v, c) = (q?, k?, v?, c?);
            let starts = self.starts.map(part).transpose()?;
            // What is not there is not read; the coefficients stand in its place.
            let inputs =
                [&q, &k, &v, &c, starts.as_ref().unwrap_or(&c), state.as_ref().unwrap_or(&c)];
            let mut made = Tensor::record(&MAMBA3_RECURRENT, self.flags(state.is_some()), &inputs)?;
            state = made.pop();
            let more = made.pop().expect("mamba3_recurrent has two outputs");
            y = Some(match y {
                Some(y) => y.concat(&more, 1)?,
                None => more,
            });
        }
        let both = y.zip(state);
        Ok(both.expect("the walk has at least one part"))
    }

    /// In chunks: what each adds, the walk over them, then all outputs at once.
    #[track_caller]
    fn chunked(&self, first: Option<Tensor>) -> Result<(Tensor, Tensor)> {
        let Core { q, k, v, c, starts } = *self;
        let (starts, g) = (starts.unwrap_or(c), first.as_ref().unwrap_or(c));
        if let Some(sizes) = self.sizes() {
            turns::check(&MAMBA3_OUTPUTS, &[q, k, v], sizes.chunk_turns())?;
            turns::check(&MAMBA3_CARRY, &[q, k, v], sizes.walk_turns())?;
        }
        let made = Tensor::record(&MAMBA3_CHUNKS, self.flags(false), &[k, v, c, starts])?;
        let [added, decays] = made.as_slice() else {
            unreachable!("mamba3_chunks has two outputs")
        };
        let flags = self.flags(first.is_some());
        let walked = Tensor::record(&MAMBA3_CARRY, flags, &[added, decays, g])?;
        let [states, last] = walked.as_slice() else { unreachable!("mamba3_carry has two") };
        // One chunk without a state before it reads none, and its walk is work only for `h`.
        let one = added.shape().dims()[1] == 1 && first.is_none();
        let (flags, states) = (self.flags(!one), if one { c } else { states });
        let y = Tensor::record1(&MAMBA3_OUTPUTS, flags, &[q, k, v, c, starts, states])?;
        Ok((y, last.clone()))
    }
}
