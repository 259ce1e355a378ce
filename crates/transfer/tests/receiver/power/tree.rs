//! What is sent, a sender of it, and what must be there in the end.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use weft_os::test_support::wait_until;
use weft_transfer::hash::{GROUP, Hash};
use weft_transfer::names::STAGED;
use weft_transfer::walk::EntryKind;
use weft_transfer::wire::{FromReceiver, FromSender, Verdict, WireEntry};

use super::model::{Image, What};
use crate::sender::{Sender, content, file, folder, groups, link};

/// Something that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Permissions and time; `None` if none is set.
    Dir(u32, Option<(i64, i64)>),
    File(Vec<u8>, u32, (i64, i64)),
    Link(Vec<u8>),
}

/// The entries of a transfer, with the contents of files.
pub(super) struct Source(Vec<(WireEntry, Vec<u8>)>);

/// The time of the file that has a name of the transfer.
const OWN_TIME: u64 = 1_400_000_000;

/// Makes what is in the folder before.
pub(super) fn prepare(to: &Path) {
    let time = UNIX_EPOCH + Duration::from_secs(OWN_TIME);
    DirBuilder::new().mode(0o755).create(to.join("c")).unwrap();
    for (name, text) in [("a.txt", "mine"), ("c/own", "own")] {
        std::fs::write(to.join(name), text).unwrap();
        std::fs::set_permissions(to.join(name), Permissions::from_mode(0o600)).unwrap();
        std::fs::File::open(to.join(name)).unwrap().set_modified(time).unwrap();
    }
}

impl Source {
    /// With `is_changed` the first group of the large file is another one than before.
    pub(super) fn new(is_changed: bool) -> Self {
        let of = |path: &str, bytes: &[u8]| (file(path, bytes.len() as u64), bytes.to_vec());
        let dir = |path: &str, mode| WireEntry {
            mode,
            mtime_s: 1_500_000_000,
            ..folder(path)
        };
        let mut big = content(3 * GROUP + 17, 1);
        big[GROUP as usize..2 * GROUP as usize].fill(0);
        big[..GROUP as usize / 2]
            .iter_mut()
            .for_each(|byte| *byte ^= u8::from(is_changed));
        let mut of_big = of("big", &big);
        of_big.0.mtime_ns += u32::from(is_changed);
        let bare = |entry| (entry, Vec::new());
        Self(vec![
            of("a.txt", b"yours"),
            of("b", b"hello"),
            of_big,
            bare(folder("c")),
            of("c/x", b"x"),
            bare(dir("d", 0o750)),
            of("d/empty", b""),
            bare(dir("d/in", 0o710)),
            of("d/in/y", b"why"),
            bare(link("f", "b")),
        ])
    }

    fn entries(&self) -> Vec<WireEntry> {
        self.0.iter().map(|(entry, _)| entry.clone()).collect()
    }

    /// Plays a try that ends when these groups of these entries are stored.
    pub(super) fn send_some(&self, to: &Path, wanted: &[(usize, u64)]) {
        let mut sender = Sender::start(to);
        sender.announce(0, &self.entries());
        let live = Arc::clone(&sender.live);
        let mut stored = live.bytes.value();
        for (entry, group) in wanted {
            let all = groups(&self.0[*entry].1).0;
            let (_, bytes) = all.iter().find(|(index, _)| index == group).unwrap();
            sender.group(*entry as u64, *group, bytes);
            stored += bytes.len() as u64;
        }
        wait_until(Duration::from_secs(60), "all is stored", || {
            live.bytes.value() == stored
        });
        sender.vanish();
    }

    /// Plays a try up to its end, by a sender that knows which groups are others than those that it has sent. Returns
    /// how many groups were there before.
    pub(super) fn send_all(&self, to: &Path, changed: &[u64]) -> u64 {
        let mut sender = Sender::start(to);
        let verdicts = sender.announce(0, &self.entries());
        let mut kept = 0;
        for (index, (verdict, (entry, bytes))) in (0..).zip(verdicts.into_iter().zip(&self.0)) {
            let (all, hash) = groups(bytes);
            let held = match self.compared(&mut sender, index, verdict, &all) {
                Verdict::Made | Verdict::Have => continue,
                Verdict::Send => Vec::new(),
                Verdict::Resume(ranges) => ranges,
                other => panic!("{} is {other:?}", entry.path.display()),
            };
            kept += held.iter().map(|range| range.end - range.start).sum::<u64>();
            let is_held = |group: &u64| held.iter().any(|range| range.contains(group)) && !changed.contains(group);
            let missing = all.iter().filter(|(group, _)| !is_held(group));
            let frames = missing.map(|(group, bytes)| sender.group(index, *group, bytes)).count();
            if entry.size > GROUP {
                sender.say(&FromSender::Finished(index, frames as u64, hash));
            }
        }
        let bytes = self.0.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        sender.finish(self.0.len() as u64, bytes);
        kept
    }

    /// The verdict, after a comparison if it asks for one.
    fn compared(&self, sender: &mut Sender, index: u64, verdict: Verdict, all: &[(u64, Vec<u8>)]) -> Verdict {
        if verdict != Verdict::Compare {
            return verdict;
        }
        let hashes = all.iter().map(|(group, bytes)| (*group, Hash::of(bytes))).collect();
        sender.say(&FromSender::Hashes(index, true, hashes));
        match sender.hear() {
            FromReceiver::Verdicts(of, mut verdicts) if of == index => verdicts.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// What must be there in the end, by path.
    pub(super) fn expected(&self) -> BTreeMap<String, Found> {
        let own = |text: &str| Found::File(text.into(), 0o600, (OWN_TIME as i64, 0));
        let mut all = BTreeMap::from([("a.txt".to_owned(), own("mine")), ("c/own".to_owned(), own("own"))]);
        for (entry, bytes) in &self.0 {
            let time = (entry.mtime_s, entry.mtime_ns.into());
            let path = match entry.path.display() {
                path if path == "a.txt" => "a (2).txt".to_owned(),
                path => path,
            };
            let found = match entry.kind {
                EntryKind::File => Found::File(bytes.clone(), entry.mode.into(), time),
                EntryKind::Dir if path == "c" => Found::Dir(0o755, None),
                EntryKind::Dir => Found::Dir(entry.mode.into(), Some(time)),
                EntryKind::Link => Found::Link(entry.target.clone()),
            };
            all.insert(path, found);
        }
        all
    }
}

/// What is wrong with what an image has under final names.
pub(super) fn wrong_names(image: &Image, expected: &BTreeMap<String, Found>) -> Vec<String> {
    let final_names = image.iter().filter(|(path, _)| !path.starts_with(STAGED));
    let wrong = final_names.filter_map(|(path, node)| {
        let path = String::from_utf8_lossy(path).into_owned();
        let is_right = match (&node.what, expected.get(&path)) {
            (What::Dir(_), Some(Found::Dir(..))) => true,
            (What::File(bytes), Some(Found::File(wanted, ..))) => bytes == wanted,
            (What::Link(target), Some(Found::Link(wanted))) => target == wanted,
            _ => false,
        };
        (!is_right).then(|| format!("{path} has its name and not its content"))
    });
    wrong.collect()
}

/// What is wrong with a folder in the end.
pub(super) fn wrong_end(folder: &Path, expected: &BTreeMap<String, Found>) -> Vec<String> {
    let found = find(folder);
    let mut wrong = Vec::new();
    for (path, found) in &found {
        match expected.get(path) {
            None => wrong.push(format!("{path} is there")),
            Some(expected) if expected != found => wrong.push(format!("{path} is {}", difference(found, expected))),
            Some(_) => {}
        }
    }
    let missing = expected.keys().filter(|path| !found.contains_key(*path));
    wrong.extend(missing.map(|path| format!("{path} is missing")));
    wrong
}

fn difference(found: &Found, expected: &Found) -> String {
    match (found, expected) {
        (Found::File(bytes, ..), Found::File(wanted, ..)) if bytes != wanted => "a file of another content".to_owned(),
        (Found::File(_, mode, time), _) => format!("a file of mode {mode:o} and time {time:?}"),
        // The time of what was not set differs each time.
        (Found::Dir(mode, time), Found::Dir(_, wanted)) => {
            let time = if time == wanted { "its" } else { "another" };
            format!("a folder of mode {mode:o} and {time} time")
        }
        (Found::Dir(..), _) => "a folder".to_owned(),
        (Found::Link(..), _) => "another link".to_owned(),
    }
}

/// All that is in a folder.
fn find(folder: &Path) -> BTreeMap<String, Found> {
    let mut all = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(inside) = left.pop() {
        for entry in std::fs::read_dir(inside).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let (mode, time) = (meta.mode() & 0o7777, (meta.mtime(), meta.mtime_nsec()));
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            let found = if meta.is_symlink() {
                Found::Link(std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else if meta.is_dir() {
                left.push(path);
                Found::Dir(mode, (name != "c").then_some(time))
            } else {
                Found::File(std::fs::read(&path).unwrap(), mode, time)
            };
            all.insert(name, found);
        }
    }
    all
}
