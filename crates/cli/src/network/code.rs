//! The code of an invite as its user gives it: in the command line, from a file, by a pipe or at a prompt, in one line
//! or several.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use weft_roster::invite::{Code, CodeError};

use crate::failure::Failure;

/// The longest code that is read, in bytes.
const MAX_CODE: u64 = 4_096;
/// The pause that the parts of a paste have between them at most, in a slow terminal.
const PAUSE: Duration = Duration::from_millis(100);
/// How many times more of a paste is awaited.
const PAUSES: usize = 20;

/// Where a code comes from.
#[derive(Debug, clap::Args)]
pub(crate) struct CodeArgs {
    /// The code of the invite, also in several parts; left out, it is asked for, or read from standard input
    code: Vec<String>,
    /// Read the code from this file; - is standard input
    #[arg(long, alias = "file", value_name = "PATH", conflicts_with = "code")]
    code_file: Option<PathBuf>,
}

impl CodeArgs {
    /// Reads the code.
    pub(super) fn read(self) -> Result<Code, Failure> {
        let input = io::stdin();
        let is_asked = match (&*self.code, &self.code_file) {
            ([], Some(path)) => path == Path::new("-"),
            (parts, _) => parts.is_empty(),
        };
        let code = match self.code_file {
            Some(path) if !is_asked => from_file(path),
            _ if !is_asked => parse(&self.code.join(" ")),
            _ if input.is_terminal() => from_terminal(),
            _ => lines(input.lock(), || ()),
        };
        // A paste that goes on would be a command for the shell, and stay in its history.
        if input.is_terminal() && (is_asked || code.is_err()) {
            drain(&input);
        }
        code
    }
}

fn from_file(path: PathBuf) -> Result<Code, Failure> {
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_CODE).read_to_string(&mut text));
    read.map_err(|source| Failure::CodeFile { path, source })?;
    parse(&text)
}

fn from_terminal() -> Result<Code, Failure> {
    let input = io::stdin();
    let say = |text: &str| drop(io::stderr().write_all(text.as_bytes()));
    say("Code of the invite: ");
    lines(input.lock(), || {
        if !is_waiting(&io::stdin(), PAUSE) {
            say("The code goes on; paste the rest of it, or end with an empty line: ");
        }
    })
}

/// Reads lines until they are a code, or cannot become one, or end: with an empty line, or with the input. `goes_on`
/// is called in front of each further line.
fn lines(input: impl BufRead, mut goes_on: impl FnMut()) -> Result<Code, Failure> {
    let mut input = input.take(MAX_CODE);
    let mut text = String::new();
    loop {
        let before = text.len();
        input.read_line(&mut text).map_err(|source| Failure::CodeFile {
            path: PathBuf::from("standard input"),
            source,
        })?;
        let is_empty = text.get(before..).is_none_or(|line| line.trim().is_empty());
        match Code::parse(&text) {
            Err(CodeError::Truncated) if !is_empty => goes_on(),
            _ => return parse(&text),
        }
    }
}

/// Reads a text as a code, and tells apart what users give in its place.
fn parse(text: &str) -> Result<Code, Failure> {
    Code::parse(text).map_err(|error| match text.trim() {
        "" => Failure::NoCode,
        key if key.starts_with("npub1") => Failure::KeyForCode,
        _ => error.into(),
    })
}

/// Whether there is something to read within a time.
fn is_waiting(input: &io::Stdin, time: Duration) -> bool {
    let time = Timespec::try_from(time).ok();
    poll(&mut [PollFd::new(input, PollFlags::IN)], time.as_ref()) == Ok(1)
}

/// Drops what a terminal has received and what is still coming of a paste.
fn drain(input: &io::Stdin) {
    for _ in 0..PAUSES {
        if tcflush(input, QueueSelector::IFlush).is_err() || !is_waiting(input, PAUSE) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "AEYDCMRTGQ2TMNZYHFQWEY3EMVTBXBGFKZ5REZCATFOT5VNKXICWLVY6DA2GASAZ76OBP5PJ2XOQPDYRZMAHCBYIJFGUW3GRGYIDFSU32KXLTWIAVJGULWPK3AFMSQRTOTCFDJZFJUDWNRRTMQEQQSTLJHJAABYHA4DQOBYHA4DQOBYHA4DQOB66HT6DU";

    /// What comes of an input, the lines that were read behind the first one, and what is left of the input.
    fn read(input: &str) -> (Option<String>, usize, String) {
        let (mut further, mut rest) = (0, input.as_bytes());
        let code = lines(&mut rest, || further += 1).ok();
        let code = code.map(|code| code.encode().to_string());
        (code, further, String::from_utf8(rest.to_vec()).unwrap())
    }

    #[test]
    fn a_code_in_lines_is_read_to_its_end_and_no_further() {
        let [one, two, three] = [&CODE[..70], &CODE[70..140], &CODE[140..]];
        let whole = Some(CODE.to_owned());
        let behind = "rm -r x\n";
        for (text, further) in [
            (format!("{CODE}\n{behind}"), 0),
            (format!("  {}  \r\n{behind}", CODE.to_lowercase()), 0),
            (format!("{one}\n{two}\n{three}\n{behind}"), 2),
            (format!("sudo weft join {one} {two}\n  {three}\n{behind}"), 1),
        ] {
            assert_eq!(read(&text), (whole.clone(), further, behind.to_owned()), "{text}");
        }
        assert_eq!(read(CODE), (whole, 0, String::new()), "an input without a newline");
    }

    #[test]
    fn a_text_that_becomes_no_code_ends_at_once() {
        let end = || "x\n".to_owned();
        let [one, two] = [&CODE[..70], &CODE[70..]];
        assert_eq!(read("\nx\n"), (None, 0, end()), "an empty line");
        assert_eq!(read(&format!("{one}\n\nx\n")), (None, 1, end()), "an empty line");
        assert_eq!(
            read(&format!("{one}\n1\nx\n")),
            (None, 1, end()),
            "no character of a code"
        );
        assert_eq!(read(&format!("B{one}\nx\n")), (None, 0, end()), "another version");
        assert_eq!(read(&format!("{one}\n{two}A\nx\n")), (None, 1, end()), "too much");
        assert_eq!(read(one), (None, 1, String::new()), "the end of the input");
        assert_eq!(read(""), (None, 0, String::new()));
    }

    #[test]
    fn a_text_in_place_of_a_code_is_named() {
        assert!(matches!(parse(" \n"), Err(Failure::NoCode)));
        assert!(matches!(parse("npub1abc"), Err(Failure::KeyForCode)));
        assert!(matches!(parse("AEYD"), Err(Failure::Code(CodeError::Truncated))));
    }
}
