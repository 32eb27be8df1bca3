//! Child processes: how xtask runs another program, shows it and reads it.
//!
//! Exists so that every command line is printed before it runs and every failure names it. Does not
//! interpret what a program prints.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

/// A program ended with another status than success.
#[derive(Debug)]
pub struct Failed {
    /// The command line, as printed.
    pub line: String,
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(out, "`{}` ended with exit code {code}", self.line),
            None => write!(out, "`{}` was ended by a signal", self.line),
        }
    }
}

impl std::error::Error for Failed {}

/// The exit code xtask ends with for an error: 3 (no such device) passes through, all else is 1.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Failed>() {
        Some(Failed { code: Some(3), .. }) => 3,
        _ => 1,
    }
}

/// The cargo that runs xtask, freed of what cargo told xtask about itself: build scripts that watch
/// those variables would otherwise be rebuilt in every turn.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The command line as text, for messages.
pub fn line(command: &Command) -> String {
    let name = PathBuf::from(command.get_program());
    let name = name.file_name().unwrap_or(OsStr::new("?")).to_string_lossy().into_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}

/// Prints the command line, runs it with our own input and output, and fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start `{}`", line(command)))?;
    verdict(command, status)
}

/// Runs the command quietly and returns what it printed; its error output goes into the error.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", line(command)))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match verdict(command, output.status) {
        Ok(()) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) if said.is_empty() => Err(error),
        Err(error) => Err(error.context(said)),
    }
}

/// Prints the command line, runs it, shows its output line by line and hands each line over.
pub fn stream(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    announce(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", line(command)))?;
    let mut reader = BufReader::new(child.stdout.take().expect("the output was asked for above"));
    let mut bytes = Vec::new();
    let mut screen = std::io::stdout();
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        let text = String::from_utf8_lossy(&bytes);
        screen.write_all(text.as_bytes())?;
        each(text.trim_end());
        bytes.clear();
    }
    Ok(child.wait()?)
}

/// Success, or the error that names the command.
pub fn verdict(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    Err(Failed { line: line(command), code: status.code() }.into())
}

/// True when the program can be started and succeeds on these arguments.
pub fn works(program: impl AsRef<OsStr>, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn announce(command: &Command) {
    println!("$ {}", line(command));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_code() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let error = run(&mut command).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` ended with exit code 3");
        assert_eq!(exit_code(&error), 3);
        assert_eq!(exit_code(&anyhow::anyhow!("something else")), 1);
    }

    #[test]
    fn streaming_hands_over_each_line_even_without_a_last_newline() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'one\\ntwo'"]);
        let mut lines = Vec::new();
        let status = stream(&mut command, |text| lines.push(text.to_string())).unwrap();
        assert!(status.success());
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn capturing_keeps_the_error_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo reason >&2; exit 1"]);
        let error = format!("{:#}", capture(&mut command).unwrap_err());
        assert_eq!(error, "reason: `sh -c echo reason >&2; exit 1` ended with exit code 1");
    }
}
