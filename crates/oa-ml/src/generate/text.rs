//! Generating texts: prompts of any lengths side by side, stop sequences, characters as they come.
//!
//! The rows of a batch share one position, so a longer prompt is read on, token by token, while
//! shorter ones are already continued. Nothing is padded or masked: each row is computed from its
//! own tokens only, and draws its own random numbers.

use super::generator::{Generator, Prompt};
use super::sampling::Sampling;
use super::stop::{RowText, Stop};
use super::stream::Utf8Stream;
use crate::data::Tokenizer;
use crate::error::{Error, Result};
use std::ops::ControlFlow;

/// What is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct TextRequest {
    /// Tokens of a row at most.
    pub tokens: usize,
    /// How they are chosen. The seed is that of each prompt instead.
    pub sampling: Sampling,
    /// Sequences that end a row. Prompts are not searched for them.
    pub stops: Vec<Stop>,
    /// Keep the stop sequence at the end of the text instead of cutting it off.
    pub keep_stop: bool,
}

impl Default for TextRequest {
    /// 256 tokens, greedy, no stops.
    fn default() -> TextRequest {
        TextRequest {
            tokens: 256,
            sampling: Sampling::default(),
            stops: Vec::new(),
            keep_stop: false,
        }
    }
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEnd {
    /// It has as many tokens as were asked for.
    Length,
    /// The stop sequence of this number was found.
    Stop(usize),
    /// The caller broke it off.
    Caller,
}

/// A generated text, without its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The tokens that lie in the text as a whole.
    pub tokens: Vec<u32>,
    /// The text; not always UTF-8.
    pub text: Vec<u8>,
    /// Why it ended.
    pub end: TextEnd,
}

/// The next piece of a row's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The row.
    pub row: usize,
    /// Whole characters; bytes that are no UTF-8 appear as replacement characters.
    pub text: &'a str,
    /// The bytes that came, among them those of a character that is not whole yet. Beginnings of
    /// stop sequences come only once they turn out to be none.
    pub bytes: &'a [u8],
}

/// A row while it is generated.
#[derive(Default)]
struct Row {
    text: RowText,
    shown: usize,
    stream: Utf8Stream,
    end: Option<TextEnd>,
}

impl Generator {
    /// Continues one prompt per row, whatever their lengths. `on_piece` sees each row's text as it
    /// comes and may end that row.
    ///
    /// A row gets the tokens that it would get alone with its seed: its arithmetic is the same up to
    /// the rounding of kernels that a driver chooses by the number of rows.
    ///
    /// # Errors
    ///
    /// [`Error::Rows`] when there are not as many prompts as rows; [`Error::EmptyPrompt`],
    /// [`Error::EmptyStop`], [`Error::TokenOutOfRange`], [`Error::Sampling`].
    pub fn generate_texts(
        &mut self,
        prompts: &[Prompt<'_>],
        tokenizer: &dyn Tokenizer,
        request: &TextRequest,
        mut on_piece: impl FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>> {
        let vocab = tokenizer.vocab();
        for (index, stop) in request.stops.iter().enumerate() {
            stop.check(index, vocab)?;
        }
        let mut rows: Vec<Row> = prompts.iter().map(|_| Row::default()).collect();
        let mut unknown = None;
        self.run(prompts, request.tokens, &request.sampling, &mut |got, done| {
            for (index, (row, token)) in rows.iter_mut().zip(got).enumerate() {
                let Some(token) = *token else { continue };
                let Some(bytes) = tokenizer.decode(&[token]) else {
                    unknown = Some(Error::TokenOutOfRange {
                        token,
                        vocab,
                        position: row.text.tokens.len(),
                    });
                    done.fill(true);
                    return;
                };
                row.take(index, (token, &bytes), request, &mut on_piece);
                done[index] = row.end.is_some();
            }
        })?;
        match unknown {
            Some(error) => Err(error),
            None => Ok(rows.into_iter().map(Row::finish).collect()),
        }
    }
}

impl Row {
    /// Takes a token and shows what is settled by it.
    fn take(
        &mut self,
        row: usize,
        (token, bytes): (u32, &[u8]),
        request: &TextRequest,
        on_piece: &mut impl FnMut(Piece<'_>) -> ControlFlow<()>,
    ) {
        let TextRequest { stops, keep_stop, .. } = request;
        let stop = self.text.push(token, bytes, stops, *keep_stop);
        self.end = match stop {
            Some(index) => Some(TextEnd::Stop(index)),
            None if self.text.tokens.len() == request.tokens => Some(TextEnd::Length),
            None => None,
        };
        let settled = match self.end {
            Some(_) => self.text.text.len(),
            None => self.text.settled(stops, *keep_stop),
        };
        let bytes = &self.text.text[self.shown..settled];
        let mut text = self.stream.push(bytes);
        if self.end.is_some() {
            text.extend(self.stream.finish());
        }
        self.shown = settled;
        if (!bytes.is_empty() || !text.is_empty())
            && on_piece(Piece { row, text: &text, bytes }).is_break()
            && self.end.is_none()
        {
            self.end = Some(TextEnd::Caller);
        }
    }

    fn finish(self) -> Generated {
        let RowText { tokens, text, .. } = self.text;
        Generated { tokens, text, end: self.end.unwrap_or(TextEnd::Length) }
    }
}
