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

/// What a row continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// At least one token.
    pub tokens: &'a [u32],
    /// Seed of the row's random numbers.
    pub seed: u64,
}

/// Generates text with one model. Its plans and caches are reused from prompt to prompt.
pub struct Generator {
    model: Model,
    cache: Cache,
    /// Captured passes; those of rows that draw apart beside those that share one draw.
    passes: BTreeMap<(Kind, bool), TokenPass>,
}

/// What a step gave each row, a token unless it is reading its prompt or done; rows that are done
/// are marked.
pub(super) type OnStep<'a> = &'a mut dyn FnMut(&[Option<u32>], &mut [bool]);

/// The draws of a step.
struct Draw<'a> {
    sampling: &'a Sampling,
    /// Which random numbers each row uses.
    counters: &'a [[u32; 4]],
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
    /// [`Error::Setting`] when `rows` is 0; when device memory is short.
    pub fn with_rows(model: &Model, rows: usize) -> Result<Generator> {
        if rows == 0 {
            return Err(Error::Setting {
                name: "the number of rows of a generator",
                value: 0,
                least: 1,
            });
        }
        let cache = model.cache(rows)?;
        Ok(Generator { model: model.clone(), cache, passes: BTreeMap::new() })
    }

    /// Number of sequences at a time.
    pub fn rows(&self) -> usize {
        self.cache.rows
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

    /// As [`Generator::generate`], for one prompt per row; all have one length, so that every step
    /// gives each row a token. Row r draws with the seed plus r. For prompts of several lengths see
    /// [`Generator::generate_texts`].
    ///
    /// # Errors
    ///
    /// As [`Generator::generate`]; [`Error::UnevenPrompts`]; [`Error::Rows`] when there are not as
    /// many prompts as rows.
    pub fn generate_rows(
        &mut self,
        prompts: &[&[u32]],
        count: usize,
        sampling: &Sampling,
        mut on_tokens: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<u32>>> {
        if let [first, others @ ..] = prompts
            && let Some(other) = others.iter().find(|other| other.len() != first.len())
        {
            return Err(Error::UnevenPrompts { first: first.len(), other: other.len() });
        }
        let seed = |row: usize| sampling.seed.wrapping_add(row as u64);
        let prompts = prompts.iter().enumerate();
        let prompts: Vec<Prompt<'_>> =
            prompts.map(|(row, tokens)| Prompt { tokens, seed: seed(row) }).collect();
        let mut rows = vec![Vec::new(); prompts.len()];
        self.run(&prompts, count, sampling, &mut |got, done| {
            let tokens: Vec<u32> = got.iter().copied().flatten().collect();
            rows.iter_mut().zip(&tokens).for_each(|(row, &token)| row.push(token));
            if on_tokens(&tokens).is_break() {
                done.fill(true);
            }
        })?;
        Ok(rows)
    }

    /// Steps until each row has `most` tokens or is done.
    pub(super) fn run(
        &mut self,
        prompts: &[Prompt<'_>],
        most: usize,
        sampling: &Sampling,
        on_step: OnStep<'_>,
    ) -> Result<()> {
        sampling.check()?;
        self.check_prompts(prompts)?;
        let shortest = prompts.iter().map(|prompt| prompt.tokens.len()).min().unwrap_or(0);
        let mut rows: Vec<Vec<u32>> =
            prompts.iter().map(|prompt| prompt.tokens[..shortest].to_vec()).collect();
        let mut made = vec![0usize; rows.len()];
        let mut done = vec![most == 0; rows.len()];
        let (mut next, mut got) = (vec![0u32; rows.len()], vec![None; rows.len()]);
        let mut fresh = true;
        while !done.iter().all(|&done| done) {
            let counters = prompts.iter().zip(&made);
            let counters: Vec<[u32; 4]> = counters
                .map(|(prompt, &made)| sampling.counter(prompt.seed, made as u32))
                .collect();
            self.pass(&rows, fresh, &Draw { sampling, counters: &counters }, &mut next)?;
            fresh = false;
            for (index, row) in rows.iter_mut().enumerate() {
                // A row that is done goes on unseen: its share of a pass costs nothing more.
                let given = prompts[index].tokens.get(row.len()).copied();
                got[index] = (given.is_none() && !done[index]).then_some(next[index]);
                row.push(given.unwrap_or(next[index]));
                made[index] += usize::from(got[index].is_some());
            }
            if got.iter().any(Option::is_some) {
                on_step(&got, &mut done);
            }
            done.iter_mut().zip(&made).for_each(|(done, &made)| *done |= made == most);
        }
        Ok(())
    }

    fn check_prompts(&self, prompts: &[Prompt<'_>]) -> Result<()> {
        if prompts.len() != self.cache.rows {
            return Err(Error::Rows { rows: self.cache.rows, prompts: prompts.len() });
        }
        for prompt in prompts {
            if prompt.tokens.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            check_tokens(prompt.tokens, self.model.config().vocab())?;
        }
        Ok(())
    }

    /// One token per row after `rows`, of which all but the last is in the cache unless the
    /// generation is fresh.
    fn pass(
        &mut self,
        rows: &[Vec<u32>],
        fresh: bool,
        draw: &Draw<'_>,
        next: &mut [u32],
    ) -> Result<()> {
        let length = rows[0].len();
        match self.model.config().context() {
            None if fresh => {
                self.reset()?;
                (0..length).try_for_each(|place| self.decode(rows, place, draw, next))
            }
            Some(context) if length > context => self.slide(rows, context, draw, next),
            Some(context) if fresh && length > 1 => {
                let filled = length.next_power_of_two().max(SHORTEST_PREFILL).min(context);
                self.fill(rows, filled, draw, next)
            }
            _ => self.decode(rows, length - 1, draw, next),
        }
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
        draw: &Draw<'_>,
        next: &mut [u32],
    ) -> Result<()> {
        let tokens: Vec<u32> = rows.iter().map(|row| row[place]).collect();
        self.submit(Kind::Decode, &tokens, &[place as u32], draw, next)
    }

    /// The whole sequence, filled up to `filled` tokens.
    fn fill(
        &mut self,
        rows: &[Vec<u32>],
        filled: usize,
        draw: &Draw<'_>,
        next: &mut [u32],
    ) -> Result<()> {
        let mut tokens = vec![0u32; rows.len() * filled];
        for (row, cells) in rows.iter().zip(tokens.chunks_exact_mut(filled)) {
            cells[..row.len()].copy_from_slice(row);
        }
        let last = rows[0].len() - 1;
        let places: Vec<u32> = (0..rows.len()).map(|row| (row * filled + last) as u32).collect();
        self.submit(Kind::Prefill(filled), &tokens, &places, draw, next)
    }

    /// The last `context` tokens.
    fn slide(
        &mut self,
        rows: &[Vec<u32>],
        context: usize,
        draw: &Draw<'_>,
        next: &mut [u32],
    ) -> Result<()> {
        let last = |row: &Vec<u32>| row[row.len() - context..].to_vec();
        let tokens: Vec<u32> = rows.iter().flat_map(last).collect();
        self.submit(Kind::Window(context), &tokens, &[], draw, next)
    }

    /// Runs a pass, captured the first time it is needed. Rows draw apart only where chance has a
    /// say: greedy tokens of all rows are one dispatch.
    fn submit(
        &mut self,
        kind: Kind,
        tokens: &[u32],
        places: &[u32],
        draw: &Draw<'_>,
        next: &mut [u32],
    ) -> Result<()> {
        let apart = self.cache.rows > 1 && draw.sampling.temperature > 0.0;
        if !self.passes.contains_key(&(kind, apart)) {
            let pass = TokenPass::capture(&self.model, &self.cache, kind, apart)?;
            self.passes.insert((kind, apart), pass);
        }
        let pass = &self.passes[&(kind, apart)];
        pass.submit(tokens, places, &draw.sampling.controls(), draw.counters, next)
    }
}
