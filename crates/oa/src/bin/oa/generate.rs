//! `oa generate`: continues texts and shows them as they come.
//!
//! Where people watch, bytes that are no text become a replacement mark, so that a model cannot
//! steer the terminal; into a pipe or a file go the bytes themselves. Several prompts are computed
//! side by side and shown one after the other.

use crate::failure::{End, Explain, Failure};
use crate::flags::{Common, GenerateFlags};
use crate::interrupt::Interrupt;
use crate::{open, output};
use oa::ml::data::Tokenizer;
use oa::ml::generate::{Generated, Piece, TextEnd, Utf8Stream};
use oa::ml::{Generator, Model, Prompt, Sampling, Stop, TextRequest};
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What an error of the loop could not do.
const STOPPED: &str = "the generation stopped";

/// Runs `oa generate`.
pub fn run(common: &Common, flags: &GenerateFlags) -> Result<(), Failure> {
    let request = request(flags)?;
    let prompts = prompts(flags)?;
    let file = open::model_file(&flags.model)?;
    let checkpoint = open::load(&file)?;
    let tokenizer = checkpoint.tokenizer.build();
    let encode = |text: Vec<u8>| {
        let ids = tokenizer.encode(&text).explain("cannot use this prompt")?;
        Ok((text, ids))
    };
    let prompts = prompts.into_iter().map(encode).collect::<Result<Vec<_>, Failure>>()?;
    let engine = open::engine(common)?;
    let model = open::build(&engine, &file, &checkpoint)?;
    let mut writer = Writer {
        model: &model,
        tokenizer: tokenizer.as_ref(),
        request,
        flags,
        json: common.json,
        file,
        interrupt: Interrupt::listen()?,
        screen: Screen::new(io::stdout().is_terminal()),
    };
    let together = if flags.prompts.is_some() { flags.batch } else { 1 };
    let mut generator: Option<Generator> = None;
    for (index, batch) in prompts.chunks(together).enumerate() {
        if writer.interrupt.asked() {
            break;
        }
        let fitting = generator.take().filter(|generator| generator.rows() == batch.len());
        let generator = match fitting {
            Some(fitting) => generator.insert(fitting),
            None => {
                let fresh = Generator::with_rows(&model, batch.len()).explain("cannot generate")?;
                generator.insert(fresh)
            }
        };
        writer.write(generator, batch, (index * together) as u64)?;
    }
    Ok(())
}

/// What is asked of the library.
fn request(flags: &GenerateFlags) -> Result<TextRequest, Failure> {
    let sampling = Sampling {
        temperature: flags.temperature,
        top_k: flags.top_k,
        top_p: flags.top_p,
        seed: flags.seed,
    };
    sampling.check().explain("cannot generate")?;
    if flags.batch == 0 {
        let cause = "--batch is 0";
        return Err(Failure::usage("cannot generate", cause, "it must be at least 1"));
    }
    if flags.stop.iter().any(String::is_empty) {
        let cause = "--stop is empty: it would end every text before it begins";
        return Err(Failure::usage("cannot generate", cause, "give the text to stop at"));
    }
    let stops = flags.stop.iter().map(|stop| Stop::Bytes(stop.clone().into_bytes())).collect();
    Ok(TextRequest { tokens: flags.tokens, sampling, stops, keep_stop: flags.keep_stop })
}

/// The prompts: one, or a line each.
fn prompts(flags: &GenerateFlags) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(path) = &flags.prompts else {
        let prompt = match &flags.prompt_file {
            Some(path) => open::text(Some(path))?,
            None => flags.prompt.clone().into_bytes(),
        };
        return Ok(vec![prompt]);
    };
    let text = std::fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
    let lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    let prompts: Vec<Vec<u8>> = lines.collect();
    match prompts.iter().position(Vec::is_empty) {
        Some(line) => Err(empty_prompt(path, line + 1)),
        None => Ok(prompts),
    }
}

fn empty_prompt(path: &Path, line: usize) -> Failure {
    let cause = format!("line {line} of {} is empty", path.display());
    Failure::new(End::Failed, "cannot generate", cause, "give a prompt on each line")
}

/// A prompt and its tokens.
type Encoded = (Vec<u8>, Vec<u32>);

/// Generates batches and shows them.
struct Writer<'a> {
    model: &'a Model,
    tokenizer: &'a dyn Tokenizer,
    request: TextRequest,
    flags: &'a GenerateFlags,
    json: bool,
    file: PathBuf,
    interrupt: Interrupt,
    screen: Screen,
}

impl Writer<'_> {
    /// Continues a batch of prompts, of which the first has number `first`; a prompt that is alone is
    /// shown as it comes.
    fn write(
        &mut self,
        generator: &mut Generator,
        texts: &[Encoded],
        first: u64,
    ) -> Result<(), Failure> {
        let Writer { model, tokenizer, flags, json, .. } = *self;
        let seeds = (first..).map(|number| flags.seed.wrapping_add(number));
        let prompts: Vec<Prompt<'_>> =
            texts.iter().zip(seeds).map(|((_, tokens), seed)| Prompt { tokens, seed }).collect();
        let live = flags.prompts.is_none() && !json;
        let mut broken = Ok(());
        if live && !flags.no_echo {
            self.screen.show(&texts[0].0)?;
        }
        let started = Instant::now();
        let on_piece = |piece: Piece<'_>| {
            if live {
                broken = self.screen.show(piece.bytes);
            }
            match broken.is_ok() && !self.interrupt.asked() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let rows = generator.generate_texts(&prompts, tokenizer, &self.request, on_piece);
        let rows = rows.explain(STOPPED)?;
        broken?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(
            "{} rows of {} in {seconds:.2} s",
            rows.len(),
            model.config().architecture()
        );
        for (number, ((prompt, _), row)) in (first..).zip(texts.iter().zip(&rows)) {
            if json {
                self.tell((number, prompt, row), seconds)?;
            } else if !live {
                if !flags.no_echo {
                    self.screen.show(prompt)?;
                }
                self.screen.show(&row.text)?;
                self.screen.end()?;
                self.screen.line()?;
            }
        }
        if live { Ok(self.screen.end()?) } else { Ok(()) }
    }

    /// A text for programs.
    fn tell(
        &self,
        (number, prompt, row): (u64, &[u8], &Generated),
        seconds: f64,
    ) -> Result<(), Failure> {
        let end = match row.end {
            TextEnd::Length => "length",
            TextEnd::Stop(_) => "stop",
            TextEnd::Caller => "interrupted",
        };
        let stop = match row.end {
            TextEnd::Stop(index) => self.flags.stop.get(index),
            _ => None,
        };
        output::json(&json!({
            "event": "generation",
            "number": number,
            "file": self.file,
            "prompt": String::from_utf8_lossy(prompt),
            "text": String::from_utf8_lossy(&row.text),
            "tokens": row.tokens,
            "end": end,
            "stop": stop,
            "seconds": seconds,
            "tokens_per_second": row.tokens.len() as f64 / seconds,
        }))?;
        Ok(())
    }
}

/// Where generated bytes go.
struct Screen {
    watched: bool,
    stream: Utf8Stream,
}

impl Screen {
    fn new(watched: bool) -> Screen {
        Screen { watched, stream: Utf8Stream::default() }
    }

    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.watched {
            out.write_all(self.readable(bytes).as_bytes())?;
        } else {
            out.write_all(bytes)?;
        }
        out.flush()
    }

    /// Ends a text; where people watch, a line with it.
    fn end(&mut self) -> io::Result<()> {
        match (self.watched, self.stream.finish()) {
            (false, _) => Ok(()),
            (true, Some(mark)) => output::text(&format!("{mark}\n")),
            (true, None) => output::text("\n"),
        }
    }

    /// Sets texts of several prompts apart.
    fn line(&self) -> io::Result<()> {
        if self.watched { Ok(()) } else { output::text("\n") }
    }

    /// The characters that are whole by now, with a mark in place of what is no text or would steer
    /// a terminal.
    fn readable(&mut self, bytes: &[u8]) -> String {
        let safe =
            |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
        self.stream.push(bytes).chars().map(safe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_whole_characters_and_no_commands() {
        let mut screen = Screen::new(true);
        let euro = "\u{20ac}".as_bytes();
        assert_eq!(screen.readable(&euro[..2]), "");
        assert_eq!(screen.readable(&euro[2..]), "\u{20ac}");
        assert_eq!(screen.readable(b"x\xffy"), "x\u{fffd}y");
        assert_eq!(screen.readable(b"\x1b[2J\n"), "\u{fffd}[2J\n");
    }
}
