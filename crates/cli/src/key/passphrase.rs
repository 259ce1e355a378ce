//! Where a passphrase comes from: the terminal, without echo, or a file. Never the command line or the
//! environment, which other processes can read.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use weft_store::keyfile::encrypted::{MAX_PASSPHRASE, Passphrase};
use zeroize::Zeroizing;

use crate::failure::Failure;

const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACE: u8 = 8;
const ERASE_LINE: u8 = 21;
const DELETE: u8 = 127;

/// Where a passphrase comes from.
pub(super) enum Source {
    Terminal,
    StandardInput,
    File(PathBuf),
}

impl Source {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        match file {
            None => Self::Terminal,
            Some(path) if path == Path::new("-") => Self::StandardInput,
            Some(path) => Self::File(path),
        }
    }

    pub(super) const fn is_standard_input(&self) -> bool {
        matches!(self, Self::StandardInput)
    }

    /// Reads the passphrase of an encrypted key.
    pub(super) fn read(&self) -> Result<Passphrase, Failure> {
        let failed = |source| Failure::Passphrase {
            from: match self {
                Self::File(path) => path.display().to_string(),
                Self::StandardInput => "standard input".to_owned(),
                Self::Terminal => "the terminal".to_owned(),
            },
            source,
        };
        let line = match self {
            Self::Terminal => return ask("Passphrase: "),
            Self::StandardInput => first_line(io::stdin()),
            Self::File(path) => File::open(path).and_then(first_line),
        };
        Ok(Passphrase::new(&line.map_err(failed)?)?)
    }

    /// Reads a passphrase for a new text; a terminal asks for it twice.
    pub(super) fn read_new(&self) -> Result<Passphrase, Failure> {
        let Self::Terminal = self else {
            let passphrase = self.read()?;
            passphrase.check_new()?;
            return Ok(passphrase);
        };
        let passphrase = ask("New passphrase: ")?;
        passphrase.check_new()?;
        match ask("The same again: ")? == passphrase {
            true => Ok(passphrase),
            false => Err(Failure::PassphrasesDiffer),
        }
    }
}

/// The first line, without its newline. One byte more than allowed is read, so that a longer one is
/// refused and not cut.
fn first_line(mut input: impl Read) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE + 2));
    let mut byte = Zeroizing::new([0]);
    while line.len() <= MAX_PASSPHRASE && input.read(&mut *byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    text(&line)
}

fn text(bytes: &[u8]) -> io::Result<Zeroizing<String>> {
    let text = std::str::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Asks at the terminal of this process, wherever its standard streams lead.
fn ask(prompt: &str) -> Result<Passphrase, Failure> {
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let mut terminal = terminal.map_err(|_| Failure::NoTerminal)?;
    let line = read_silently(&mut terminal, prompt).map_err(|source| Failure::Passphrase {
        from: "the terminal".to_owned(),
        source,
    })?;
    Ok(Passphrase::new(&line)?)
}

/// Reads a line byte by byte. The terminal sends no signal meanwhile: a process that ended here would
/// leave it without echo.
fn read_silently(terminal: &mut File, prompt: &str) -> io::Result<Zeroizing<String>> {
    let silent = Silent::new(terminal.try_clone()?)?;
    terminal.write_all(prompt.as_bytes())?;
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE + 2));
    let mut byte = Zeroizing::new([0]);
    while line.len() <= MAX_PASSPHRASE && terminal.read(&mut *byte)? == 1 {
        match byte[0] {
            b'\n' | b'\r' | END => break,
            INTERRUPT => {
                drop(silent);
                let _ = terminal.write_all(b"\n");
                return Err(io::ErrorKind::Interrupted.into());
            }
            BACKSPACE | DELETE => {
                // The bytes of one character.
                while line.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
            }
            ERASE_LINE => line.clear(),
            other => line.push(other),
        }
    }
    terminal.write_all(b"\n")?;
    text(&line)
}

/// A terminal without echo, until it is dropped.
struct Silent {
    terminal: File,
    before: Termios,
}

impl Silent {
    fn new(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Nothing more can be done if it fails.
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_passphrase() {
        let read = |bytes: &[u8]| first_line(bytes).map(|line| line.to_string()).ok();
        assert_eq!(read(b"correct horse\nsecond").as_deref(), Some("correct horse"));
        assert_eq!(read(b" spaces stay \r\n").as_deref(), Some(" spaces stay "));
        assert_eq!(read(b"no end").as_deref(), Some("no end"));
        assert_eq!(read(b"\xff\n"), None);
        let long = vec![b'x'; 2 * MAX_PASSPHRASE];
        assert_eq!(
            read(&long).map(|line| line.len()),
            Some(MAX_PASSPHRASE + 1),
            "refused as too long"
        );
    }
}
