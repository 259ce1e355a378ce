//! Standard output, whose reader may close it at any time.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, StdoutLock, Write as _};

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::Value;
use weft_control::ControlCommand;
use weft_control::status::Document;
use weft_store::state::StatePaths;

use crate::documents::{self, OfCommand};
use crate::failure::Failure;
use crate::{command_line, commands};

/// Standard output. If it is closed, the command ends without a message.
pub(crate) struct Out(StdoutLock<'static>);

impl Out {
    pub(crate) fn new() -> Self {
        Self(io::stdout().lock())
    }

    /// Writes `text` and flushes it.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.0.write_all(text.as_bytes())?;
        self.0.flush()?;
        Ok(())
    }

    /// Writes a document over several lines.
    pub(crate) fn json(&mut self, document: &Value) -> Result<(), Failure> {
        self.text(&format!("{document:#}\n"))
    }

    /// Writes the document of a command over several lines.
    pub(crate) fn document<T: OfCommand>(&mut self, body: &T) -> Result<(), Failure> {
        self.json(&documents::document(body))
    }

    /// Writes a document on one line, for a stream of documents.
    pub(crate) fn json_line(&mut self, document: &Value) -> Result<(), Failure> {
        self.text(&format!("{document}\n"))
    }

    /// Makes room for the next of several pages: clears the screen of a terminal; otherwise an empty
    /// line is between two pages.
    pub(crate) fn next_page(&mut self, is_next: bool) -> Result<(), Failure> {
        match is_next && !io::stdout().is_terminal() {
            true => self.text("\n"),
            false => self.clear(),
        }
    }

    /// Clears the screen, if standard output is a terminal.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            self.text("\x1b[H\x1b[2J")
        } else {
            Ok(())
        }
    }
}

/// Says what happens while a command runs, or beside what it prints: on standard output, or on standard error if
/// standard output is for a program.
pub(crate) fn tell(aside: bool, text: &str) -> Result<(), Failure> {
    match aside {
        // If standard error is closed, nothing more can be done.
        true => drop(io::stderr().write_all(text.as_bytes())),
        false => Out::new().text(text)?,
    }
    Ok(())
}

/// Sends a command to the daemon, and writes its answer: the document, or `text` of it.
pub(crate) fn answer<T: Document>(
    paths: &StatePaths,
    command: &ControlCommand,
    json: bool,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    match json {
        true => Out::new().json(&weft_control::call_raw(&paths.control(), command)?),
        false => Out::new().text(&text(&weft_control::call(&paths.control(), command)?)),
    }
}

/// Whether a command line asks for a document.
pub(crate) fn is_json(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>("json");
    let below = || matches.subcommand().is_some_and(|(_, below)| is_json(below));
    matches!(here, Ok(Some(true))) || below()
}

/// Whether a command line that is wrong names the option for a document.
pub(crate) fn names_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut options = arguments.take_while(|argument| argument != "--");
    options.any(|option| option == "--json")
}

/// Shows the requested help, or reports in one line the fault of the `arguments`.
pub(crate) fn usage(error: &clap::Error, arguments: &[OsString]) -> Result<(), Failure> {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Out::new().text(&text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = io::stderr().write_all(text.as_bytes());
            Err(Failure::Helped)
        }
        ErrorKind::UnknownArgument => Err(Failure::Usage(
            ahead(error, arguments).unwrap_or_else(|| one_line(&text)),
        )),
        _ => Err(Failure::Usage(one_line(&text))),
    }
}

/// The line about an option that stands ahead of the command that has it; `None` if the fault is another one.
fn ahead(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_option = |word: &OsString| word.to_str().and_then(|word| word.split('=').next()) == Some(option);
    let at = arguments.iter().position(is_option)?;
    // The word behind it may be its value.
    let matches = [1, 2].into_iter().find_map(|words| {
        let mut moved = arguments.to_vec();
        let option: Vec<OsString> = moved.drain(at..arguments.len().min(at + words)).collect();
        let options_end = moved.iter().position(|word| word == "--").unwrap_or(moved.len());
        moved.splice(options_end..options_end, option);
        command_line().try_get_matches_from(moved).ok()
    })?;
    let command = commands::path(&matches);
    Some(format!(
        "unexpected argument '{option}' found; it belongs behind the command: `weft {command} {option}`"
    ))
}

/// The first paragraph of clap's message, which has the fault and the probable correction; the rest
/// repeats the help.
fn one_line(text: &str) -> String {
    let mut paragraphs = text.split("\n\n");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = words(paragraphs.next().unwrap_or(text));
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let tips = paragraphs
        .flat_map(str::lines)
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    // Other tips are about the syntax of a command line.
    let tip = tips.into_iter().find(|tip| tip.contains("similar"));
    let tip = tip.map(|tip| format!("; {}", words(tip)));
    format!("{what}{}; see `{} --help`", tip.unwrap_or_default(), command(text))
}

/// The command that the message is about, from its line of usage: the words in front of its
/// arguments.
fn command(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words: Vec<&str> = usage
        .unwrap_or_default()
        .split_whitespace()
        .take_while(is_name)
        .collect();
    match words.is_empty() {
        true => "weft".to_owned(),
        false => words.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_becomes_a_line() {
        let text = "error: the following arguments are required:\n  <PEER>\n\nUsage: weft ping <PEER>\n";
        assert_eq!(
            one_line(text),
            "the following arguments are required: <PEER>; see `weft ping --help`"
        );
        let text = "error: unexpected argument\n\nUsage: weft member rename [OPTIONS] <MEMBER> <NAME>\n";
        assert_eq!(one_line(text), "unexpected argument; see `weft member rename --help`");
        let text =
            "error: unrecognized subcommand 'pign'\n\n  tip: a similar subcommand exists: 'ping'\n\nUsage: weft\n";
        assert_eq!(
            one_line(text),
            "unrecognized subcommand 'pign'; a similar subcommand exists: 'ping'; see `weft --help`"
        );
    }
}
