//! What strace has written, as events below one folder.

use std::collections::BTreeMap;
use std::path::Path;

use super::model::{Born, Event, Op, Scope};

/// The system calls that are recorded. Those that change names or bytes in a way that the model does not know end the
/// test.
pub(super) const CALLS: &str = "openat,openat2,write,writev,pwrite64,pwritev,ftruncate,fallocate,renameat2,renameat,\
    rename,mkdirat,unlinkat,symlinkat,linkat,fchmod,fchmodat,utimensat,fsync,fdatasync,syncfs,sync_file_range,\
    copy_file_range";

/// The names as all processes see them, and the events so far.
struct Reader<'a> {
    folder: &'a [u8],
    /// What is written when everything counts as stored.
    done: &'a [u8],
    names: BTreeMap<Vec<u8>, u32>,
    next: u32,
    events: Vec<Event>,
}

/// Reads a trace. `adopted` are the names before it, with their inodes; the folder itself is inode 0.
pub(super) fn read(text: &str, folder: &Path, done: &[u8], adopted: BTreeMap<Vec<u8>, u32>) -> Vec<Event> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut reader = Reader {
        folder: folder.as_os_str().as_bytes(),
        done,
        next: adopted.values().max().map_or(1, |last| last + 1),
        names: adopted,
        events: Vec::new(),
    };
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines() {
        let (pid, line) = line.split_once(' ').unwrap();
        let line = line.trim_start();
        if let Some(start) = line.strip_suffix(" <unfinished ...>") {
            // What is written while a sync runs may be behind it.
            match is_sync(start) {
                true => reader.call(&format!("{start}) = 0")),
                false => drop(begun.insert(pid, start)),
            }
        } else if let Some((_, rest)) = line.split_once(" resumed>").filter(|_| line.starts_with("<...")) {
            if let Some(start) = begun.remove(pid) {
                reader.call(&format!("{start}{rest}"));
            }
        } else if !line.starts_with(['+', '-']) {
            reader.call(line);
        }
    }
    reader.events
}

fn is_sync(line: &str) -> bool {
    ["fsync(", "fdatasync(", "syncfs("]
        .iter()
        .any(|name| line.starts_with(name))
}

impl Reader<'_> {
    fn call(&mut self, line: &str) {
        let (name, rest) = line.split_once('(').unwrap();
        let (args, result) = rest.rsplit_once(" = ").unwrap();
        if result.starts_with(['-', '?']) {
            return;
        }
        let args: Vec<&str> = args.trim_end().trim_end_matches(')').split(", ").collect();
        if name == "write" && bytes(args[1]) == self.done {
            self.events.push(Event::Done);
            return;
        }
        match name {
            "openat" | "openat2" => self.opened(&args, result),
            "mkdirat" => self.make(self.at(args[0], args[1]), Born::Dir(octal(args[2]))),
            "symlinkat" => self.make(self.at(args[1], args[2]), Born::Link(bytes(args[0]))),
            "renameat" | "renameat2" => self.moved(self.at(args[0], args[1]), self.at(args[2], args[3])),
            "unlinkat" => self.unlinked(self.at(args[0], args[1])),
            "utimensat" => self.timed(&args),
            _ => self.of_file(name, &args),
        }
    }

    /// A path below the folder; `None` for any other. The folder itself is an empty one.
    fn below(&self, path: &[u8]) -> Option<Vec<u8>> {
        match path.strip_prefix(self.folder)? {
            [] => Some(Vec::new()),
            [b'/', rest @ ..] => Some(rest.to_vec()),
            _ => None,
        }
    }

    /// The path of an open file, unless it has no name any more.
    fn of_fd(&self, arg: &str) -> Option<Vec<u8>> {
        let (_, path) = arg.split_once('<')?;
        self.below(&unhex(path.strip_suffix('>')?))
    }

    /// A name in an open folder.
    fn at(&self, folder: &str, name: &str) -> Option<Vec<u8>> {
        let folder = self.of_fd(folder)?;
        let name = bytes(name);
        Some(match folder.is_empty() {
            true => name,
            false => [&folder[..], b"/", &name[..]].concat(),
        })
    }

    fn ino(&self, path: &[u8]) -> u32 {
        match path {
            [] => 0,
            path => *self
                .names
                .get(path)
                .unwrap_or_else(|| panic!("{} is not known", String::from_utf8_lossy(path))),
        }
    }

    /// The folder of a path, and its name there.
    fn place(&self, path: &[u8]) -> (u32, Vec<u8>) {
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (self.ino(&path[..at]), path[at + 1..].to_vec()),
            None => (0, path.to_vec()),
        }
    }

    fn push(&mut self, op: Op) {
        self.events.push(Event::Op(op));
    }

    fn opened(&mut self, args: &[&str], result: &str) {
        let path = self.of_fd(result);
        if args.iter().any(|arg| arg.contains("O_CREAT"))
            && path.as_ref().is_some_and(|path| !self.names.contains_key(path))
        {
            self.make(path, Born::File);
        }
        assert!(!args.iter().any(|arg| arg.contains("O_TRUNC")) || self.of_fd(result).is_none());
    }

    fn make(&mut self, path: Option<Vec<u8>>, born: Born) {
        let Some(path) = path else { return };
        let place = self.place(&path);
        let ino = self.next;
        self.next += 1;
        self.names.insert(path, ino);
        self.push(Op::Make { place, ino, born });
    }

    fn moved(&mut self, from: Option<Vec<u8>>, to: Option<Vec<u8>>) {
        let (Some(from), Some(to)) = (from, to) else { return };
        let ino = self.ino(&from);
        let (old, new) = (self.place(&from), self.place(&to));
        let inside = [&from[..], b"/"].concat();
        for (path, ino) in std::mem::take(&mut self.names) {
            let path = match path.strip_prefix(&inside[..]) {
                _ if path == from => to.clone(),
                Some(rest) => [&to[..], b"/", rest].concat(),
                None => path,
            };
            self.names.insert(path, ino);
        }
        self.push(Op::Move { ino, old, new });
    }

    fn unlinked(&mut self, path: Option<Vec<u8>>) {
        let Some(path) = path else { return };
        let ino = self.ino(&path);
        let place = self.place(&path);
        self.names.remove(&path);
        self.push(Op::Unlink { place, ino });
    }

    fn timed(&mut self, args: &[&str]) {
        let path = match args[1] {
            "NULL" => self.of_fd(args[0]),
            name => self.at(args[0], name),
        };
        let Some(path) = path else { return };
        let last = |field: &str| {
            let rest = args.iter().rev().find_map(|arg| arg.split_once(field)).unwrap().1;
            let end = rest.find(['}', ' ']).unwrap_or(rest.len());
            rest[..end].parse::<i64>().unwrap()
        };
        let ino = self.ino(&path);
        let time = (last("tv_sec="), last("tv_nsec="));
        self.push(Op::Time { ino, time });
    }

    /// A call about an open file.
    fn of_file(&mut self, name: &str, args: &[&str]) {
        let Some(path) = self.of_fd(args[0]) else { return };
        let ino = self.ino(&path);
        let number = |at: usize| args[at].parse::<u64>().unwrap();
        let event = match name {
            "syncfs" => Event::Sync(Scope::All),
            "fsync" | "fdatasync" => Event::Sync(Scope::One(ino)),
            "write" => Event::Op(Op::Write {
                ino,
                at: None,
                bytes: bytes(args[1]).into(),
            }),
            "pwrite64" => {
                let at = Some(number(3));
                Event::Op(Op::Write {
                    ino,
                    at,
                    bytes: bytes(args[1]).into(),
                })
            }
            "ftruncate" => Event::Op(Op::Size { ino, len: number(1) }),
            "fallocate" if args[1].contains("PUNCH_HOLE") => {
                let (at, len) = (number(2), number(3));
                Event::Op(Op::Punch { ino, at, len })
            }
            "fchmod" => Event::Op(Op::Mode {
                ino,
                mode: octal(args[1]),
            }),
            _ => panic!("the model does not know {name}"),
        };
        self.events.push(event);
    }
}

fn octal(text: &str) -> u32 {
    u32::from_str_radix(text, 8).unwrap()
}

/// A string in quotes.
fn bytes(arg: &str) -> Vec<u8> {
    assert!(!arg.ends_with("..."), "a string of the trace is cut off");
    unhex(arg.trim_matches('"'))
}

/// Bytes that are written as \x and two digits.
fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    let text = text.as_bytes();
    assert!(text.len().is_multiple_of(4), "{}", String::from_utf8_lossy(text));
    text.chunks(4)
        .map(|four| digit(four[2]) << 4 | digit(four[3]))
        .collect()
}
