//! The generator: which pass comes next, and what it is fed.
//!
//! While a sequence fits the model's context, a Transformer decodes from its cache. Beyond that
//! each token is computed from the last `context` tokens, placed at positions 0, 1, ..: exactly
//! what a fresh forward pass over that window gives, at the price of a whole window per token. A
//! recurrent model has no such limit.

use super::passes::{Kind, TokenPass};
use super::sampling::Sampling;
use crate::data::dataset::check_tokens;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::nn::Cache;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Shortest captured prefill; longer ones double up to the context, so that prompts of many
/// lengths share few plans.
const SHORTEST_PREFILL: usize = 8;

/// Generates text with one model. Its plans and caches are reused from prompt to prompt.
pub struct Generator {
    model: Model,
    cache: Cache,
    decode: Option<TokenPass>,
    window: Option<TokenPass>,
    prefill: BTreeMap<usize, TokenPass>,
}

impl Generator {
    /// A generator of one sequence at a time.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    pub fn new(model: &Model) -> Result<Generator> {
        Generator::with_rows(model, 1)
    }

    /// A generator of `rows` sequences at a time.
    ///
    /// # Errors
    ///
    /// When device memory is short.
    ///
    /// # Panics
    ///
    /// When `rows` is 0.
    pub fn with_rows(model: &Model, rows: usize) -> Result<Generator> {
        assert!(rows > 0, "a generator has at least one row");
        let cache = model.cache(rows)?;
        let model = model.clone();
        Ok(Generator { model, cache, decode: None, window: None, prefill: BTreeMap::new() })
    }

    /// Continues a prompt by `count` tokens and returns them. `on_token` sees each token as it is
    /// sampled and may end the generation.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyPrompt`], [`Error::TokenOutOfRange`], [`Error::Sampling`].
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        sampling: &Sampling,
        mut on_token: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        let rows = self.generate_rows(&[prompt], count, sampling, |row| on_token(row[0]))?;
        Ok(rows.into_iter().next().expect("one prompt gives one row"))
    }

    /// As [`Generator::generate`], for one prompt per row; all have one length.
    ///
    /// # Errors
    ///
    /// As [`Generator::generate`]; [`Error::UnevenPrompts`].
    ///
    /// # Panics
    ///
    /// When there are not as many prompts as rows.
    pub fn generate_rows(
        &mut self,
        prompts: &[&[u32]],
        count: usize,
        sampling: &Sampling,
        mut on_tokens: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<u32>>> {
        assert_eq!(prompts.len(), self.cache.rows, "one prompt per row of the generator");
        sampling.check()?;
        self.check_prompts(prompts)?;
        let start = prompts[0].len();
        let mut rows: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.to_vec()).collect();
        let mut next = vec![0u32; rows.len()];
        for index in 0..count {
            self.pass(&rows, index, sampling, &mut next)?;
            rows.iter_mut().zip(&next).for_each(|(row, &token)| row.push(token));
            if on_tokens(&next).is_break() {
                break;
            }
        }
        Ok(rows.into_iter().map(|mut row| row.split_off(start)).collect())
    }

    fn check_prompts(&self, prompts: &[&[u32]]) -> Result<()> {
        let first = prompts[0].len();
        for prompt in prompts {
            if prompt.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            if prompt.len() != first {
                return Err(Error::UnevenPrompts { first, other: prompt.len() });
            }
            check_tokens(prompt, self.model.config().vocab())?;
        }
        Ok(())
    }

    /// One token per row after `rows`, of which all but the last is in the cache unless `index`
    /// is 0.
    fn pass(
        &mut self,
        rows: &[Vec<u32>],
        index: usize,
        sampling: &Sampling,
        next: &mut [u32],
    ) -> Result<()> {
        let length = rows[0].len();
        let number = index as u32;
        let event = match self.model.config().context() {
            None if index == 0 => {
                self.reset()?;
                for place in 0..length - 1 {
                    self.decode(rows, place, sampling, number)?;
                }
                self.decode(rows, length - 1, sampling, number)?
            }
            Some(context) if length > context => self.slide(rows, context, sampling, number)?,
            Some(context) if index == 0 && length > 1 => {
                let filled = length.next_power_of_two().max(SHORTEST_PREFILL).min(context);
                self.fill(rows, filled, sampling, number)?
            }
            _ => self.decode(rows, length - 1, sampling, number)?,
        };
        Ok(event.output_u32(0, next)?)
    }

    /// Starts recurrent states anew. Caches need none of it: what they hold is masked.
    fn reset(&self) -> Result<()> {
        for state in self.cache.recurrent() {
            let zeros = vec![0u8; state.spec().len_bytes() as usize];
            self.model.engine().write_state(state, &zeros)?;
        }
        Ok(())
    }

    /// One token per row, at `place`.
    fn decode(
        &mut self,
        rows: &[Vec<u32>],
        place: usize,
        sampling: &Sampling,
        number: u32,
    ) -> Result<oa_graph::Event> {
        if self.decode.is_none() {
            self.decode = Some(TokenPass::capture(&self.model, &self.cache, Kind::Decode)?);
        }
        let pass = self.decode.as_ref().expect("just captured");
        let tokens: Vec<u32> = rows.iter().map(|row| row[place]).collect();
        pass.submit(&tokens, &[place as u32], sampling, number)
    }

    /// The whole sequence, filled up to `filled` tokens.
    fn fill(
        &mut self,
        rows: &[Vec<u32>],
        filled: usize,
        sampling: &Sampling,
        number: u32,
    ) -> Result<oa_graph::Event> {
        if !self.prefill.contains_key(&filled) {
            let kind = Kind::Prefill(filled);
            self.prefill.insert(filled, TokenPass::capture(&self.model, &self.cache, kind)?);
        }
        let pass = &self.prefill[&filled];
        let mut tokens = vec![0u32; rows.len() * filled];
        for (row, cells) in rows.iter().zip(tokens.chunks_exact_mut(filled)) {
            cells[..row.len()].copy_from_slice(row);
        }
        let last = rows[0].len() - 1;
        let places: Vec<u32> = (0..rows.len()).map(|row| (row * filled + last) as u32).collect();
        pass.submit(&tokens, &places, sampling, number)
    }

    /// The last `context` tokens.
    fn slide(
        &mut self,
        rows: &[Vec<u32>],
        context: usize,
        sampling: &Sampling,
        number: u32,
    ) -> Result<oa_graph::Event> {
        if self.window.is_none() {
            let kind = Kind::Window(context);
            self.window = Some(TokenPass::capture(&self.model, &self.cache, kind)?);
        }
        let pass = self.window.as_ref().expect("just captured");
        let last = |row: &Vec<u32>| row[row.len() - context..].to_vec();
        let tokens: Vec<u32> = rows.iter().flat_map(last).collect();
        pass.submit(&tokens, &[], sampling, number)
    }
}
