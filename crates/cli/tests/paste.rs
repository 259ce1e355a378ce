//! The code of an invite, as it is pasted: at a prompt, by a pipe, behind `weft join`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
const CODE: &str = "AEYDCMRTGQ2TMNZYHFQWEY3EMVTBXBGFKZ5REZCATFOT5VNKXICWLVY6DA2GASAZ76OBP5PJ2XOQPDYRZMAHCBYIJFGUW3GRGYIDFSU32KXLTWIAVJGULWPK3AFMSQRTOTCFDJZFJUDWNRRTMQEQQSTLJHJAABYHA4DQOBYHA4DQOBYHA4DQOB66HT6DU";
/// What `join` says once it has a whole code: no daemon runs here that it could give it to.
const READ: &str = "no daemon is running";

/// `weft join`, which starts no daemon.
fn join(state: &tempfile::TempDir, parts: &[&str]) -> Command {
    let mut command = Command::new(WEFT);
    command
        .args(["join", "--json", "--state"])
        .arg(state.path())
        .args(parts);
    command
}

/// Pastes a text into a terminal in which `weft join` runs. Returns what the command says, and the first line that the
/// terminal has for the next program, to which `next` is typed.
fn pasted(text: &str) -> (String, String) {
    let state = tempfile::tempdir().unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let name = OsStr::from_bytes(name.to_bytes());
    let inner = File::options().read(true).write(true).open(name).unwrap();
    let mut terminal = File::from(terminal);
    terminal.write_all(text.as_bytes()).unwrap();
    let output = join(&state, &[]).stdin(inner.try_clone().unwrap()).output().unwrap();
    terminal.write_all(b"next\n").unwrap();
    let mut left = String::new();
    BufReader::new(inner).read_line(&mut left).unwrap();
    (String::from_utf8(output.stderr).unwrap(), left)
}

#[test]
fn a_paste_is_read_whole_and_nothing_is_left_for_the_shell() {
    let [one, two, three] = [&CODE[..70], &CODE[70..140], &CODE[140..]];
    for (text, words) in [
        (format!("{CODE}\n"), READ),
        (format!("{one}\n{two}\n{three}\n"), READ),
        (format!("{}\n {two} \n{three}\n", one.to_lowercase()), READ),
        (format!("sudo weft join {one}\n{two}{three}\n"), READ),
        (format!("{CODE}\n\nAddresses in it: 192.0.2.1:2121\n"), READ),
        (format!("0{one}\n{two}\n{three}\n"), "not '0'"),
        (format!("B{one}\n{two}\n{three}\n"), "mistyped"),
        (format!("{one}\n\n{three}\nrm -r x\n"), "incomplete"),
    ] {
        let (said, left) = pasted(&text);
        assert!(said.contains(words), "{text}: {said}");
        assert_eq!(left, "next\n", "{text}: {said}");
    }
}

#[test]
fn a_code_in_parts_is_taken_from_a_pipe_and_a_command_line() {
    let [one, two, three] = [&CODE[..70], &CODE[70..140], &CODE[140..]];
    let state = tempfile::tempdir().unwrap();
    for parts in [
        &[CODE][..],
        &[one, two, three],
        &["sudo", "weft", "join", one, two, three],
    ] {
        let output = join(&state, parts).stdin(Stdio::null()).output().unwrap();
        assert!(String::from_utf8(output.stderr).unwrap().contains(READ), "{parts:?}");
    }
    let mut child = join(&state, &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("{one}\n{two}\n{three}\n");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains(READ));
}
