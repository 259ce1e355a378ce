//! Losses of power at the receiving end, played on the writes of a real one.
//!
//! A process receives a small tree in three tries under strace; before the last one a file has changed. Each state that
//! a disk may have at a sync, by the model of [`model`], is then made in a folder of its own, and the transfer goes on
//! there under another boot identity. What a kill of the process leaves after each single change goes on under the same
//! one, and under another one. The checkpoint after the first try is made as a session makes it every half minute.

mod model;
mod trace;
mod tree;

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

use weft_os::test_support::skip;
use weft_transfer::api::TransferId;
use weft_transfer::hash::GROUP;
use weft_transfer::journal::{Journal, boot_id};
use weft_transfer::names::STAGED;
use weft_transfer::receive;
use weft_transfer::root::Root;

use self::model::{Born, Event, Fate, Image, Op, materialise, replay};
use self::tree::{Found, Source, prepare, wrong_end, wrong_names};
use crate::sender::{ID, STORED};

/// Set in the process that receives; its value is the folder.
const RECEIVER: &str = "WEFT_TEST_POWER";

/// How many images are chosen by chance at each point.
const SEEDS: u64 = 6;

/// Another boot than the present one.
const BOOT: TransferId = TransferId([0xb0; 16]);

/// How far the transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Moment {
    Staging,
    /// A group is written over, as the file has changed.
    Changed,
    /// Something has got its final name.
    Placing,
    /// The process keeps that everything is stored.
    Done,
}

impl Moment {
    /// The moment behind a change, which others precede.
    fn behind(self, op: &Op, before: &[Op]) -> Self {
        let is_first_group =
            |op: &Op| matches!(op, Op::Write { at: Some(0), bytes, .. } if bytes.len() as u64 == GROUP);
        match op {
            Op::Move { new: (0, _), .. } => Self::Placing,
            op if is_first_group(op) && before.iter().any(is_first_group) => Self::Changed,
            _ => self,
        }
    }
}

#[test]
fn a_transfer_goes_on_after_a_loss_of_power_at_any_point() {
    if let Some(folder) = std::env::var_os(RECEIVER) {
        return receive(Path::new(&folder));
    }
    let Some((mut ops, events)) = record() else { return };
    let mut durable = vec![true; ops.len()];
    let mut check = Check::new();
    let (mut syncs, mut moment) = (0, Moment::Staging);
    for event in events {
        match event {
            Event::Op(op) => {
                moment = moment.behind(&op, &ops);
                ops.push(op);
                durable.push(false);
                check.kill(&ops, moment);
            }
            Event::Done => moment = Moment::Done,
            Event::Sync(scope) => {
                syncs += 1;
                check.point(&format!("before sync {syncs}"), &ops, &durable, moment);
                for (op, is_durable) in ops.iter().zip(&mut durable) {
                    *is_durable |= op.is_synced_by(scope);
                }
                check.point(&format!("behind sync {syncs}"), &ops, &durable, moment);
            }
        }
    }
    check.point("at the end", &ops, &durable, moment);
    assert!(moment == Moment::Done && syncs > 5, "the trace has {syncs} syncs");
    check.finish(syncs);
}

/// Receives, as the process that is traced.
fn receive(folder: &Path) {
    let before = Source::new(false);
    before.send_some(folder, &[(2, 0), (1, 0), (4, 0)]);
    let root = Root::open(folder).unwrap();
    root.sync_fs().unwrap();
    let journal = folder.join(staging()).join("journal");
    let journal = std::fs::File::options().read(true).write(true).open(journal).unwrap();
    Journal::open(journal, boot_id()).unwrap().0.sync().unwrap();
    before.send_some(folder, &[(2, 2), (8, 0)]);
    Source::new(true).send_all(folder, &[0]);
}

/// The name of the hidden folder.
fn staging() -> String {
    format!("{}{ID}", str::from_utf8(STAGED).unwrap())
}

/// A folder in memory if there is one: images are not to wait for a disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Returns what was there before, and what happened below the folder of a transfer; `None` without strace.
fn record() -> Option<(Vec<Op>, Vec<Event>)> {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        skip("there is no strace");
        return None;
    }
    let base = directory();
    let folder = base.path().canonicalize().unwrap().join("to");
    std::fs::create_dir(&folder).unwrap();
    prepare(&folder);
    let (names, ops) = adopt(&folder);
    let account = base.path().join("trace");
    let traced = Command::new("strace")
        .args(["-f", "-y", "-xx", "-s", "4194304", "-e"])
        .arg(format!("trace={}", trace::CALLS))
        .arg("-o")
        .arg(&account)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "power::a_transfer_goes_on_after_a_loss_of_power_at_any_point",
        ])
        .env(RECEIVER, &folder)
        .output()
        .unwrap();
    assert!(traced.status.success(), "{traced:?}");
    let wrong = wrong_end(&folder, &Source::new(true).expected());
    assert!(wrong.is_empty(), "{wrong:?}");
    let text = std::fs::read_to_string(account).unwrap();
    Some((ops, trace::read(&text, &folder, STORED, names)))
}

/// What is in a folder, as changes that make it.
fn adopt(folder: &Path) -> (BTreeMap<Vec<u8>, u32>, Vec<Op>) {
    use std::os::unix::fs::MetadataExt as _;
    let (mut names, mut ops) = (BTreeMap::new(), Vec::new());
    let files = ["a.txt", "c", "c/own"];
    for (ino, name) in (1..).zip(files) {
        let path = folder.join(name);
        let meta = path.metadata().unwrap();
        let place = match name.split_once('/') {
            Some((parent, name)) => (names[parent.as_bytes()], name.into()),
            None => (0, name.into()),
        };
        let born = if meta.is_dir() { Born::Dir(0o755) } else { Born::File };
        ops.push(Op::Make { place, ino, born });
        if meta.is_file() {
            let bytes = std::fs::read(&path).unwrap().into();
            ops.push(Op::Write { ino, at: None, bytes });
            ops.push(Op::Time {
                ino,
                time: (meta.mtime(), meta.mtime_nsec()),
            });
        }
        names.insert(name.into(), ino);
    }
    (names, ops)
}

/// The images so far.
struct Check {
    source: Source,
    expected: BTreeMap<String, Found>,
    /// The identity of the present boot in names, and in the journal; the same of another one.
    boots: [(String, Vec<u8>); 2],
    seen: HashSet<u64>,
    images: u64,
    /// Those in which groups were kept.
    kept: u64,
    /// What is wrong, with the images.
    problems: BTreeMap<(String, Moment), Vec<String>>,
}

impl Check {
    fn new() -> Self {
        let source = Source::new(true);
        let of = |boot: TransferId| {
            let file = tempfile::NamedTempFile::new().unwrap();
            drop(Journal::open(file.reopen().unwrap(), boot.0).unwrap());
            (boot.to_string(), std::fs::read(file.path()).unwrap())
        };
        Self {
            expected: source.expected(),
            source,
            boots: [of(TransferId(boot_id())), of(BOOT)],
            seen: HashSet::new(),
            images: 0,
            kept: 0,
            problems: BTreeMap::new(),
        }
    }

    /// Checks what a kill of the process leaves, and a loss of power with everything on the disk.
    fn kill(&mut self, ops: &[Op], moment: Moment) {
        let image = replay(ops, &vec![(Fate::There, true); ops.len()]);
        for same_boot in [true, false] {
            let what = format!("killed after {} changes, the last is {}", ops.len(), short(ops.last()));
            self.image(&what, &image, moment, same_boot);
        }
    }

    /// Checks what a loss of power may leave at a point.
    fn point(&mut self, what: &str, ops: &[Op], durable: &[bool], moment: Moment) {
        let mut check = |how: &str, fate: &mut dyn FnMut(usize, &Op) -> Fate| {
            let fates = ops
                .iter()
                .zip(durable)
                .enumerate()
                .map(|(at, (op, is_durable))| match is_durable {
                    true => (Fate::There, true),
                    false => (fate(at, op), false),
                });
            let fates: Vec<_> = fates.collect();
            self.image(&format!("{what}: {how}"), &replay(ops, &fates), moment, false);
        };
        check("what is synced", &mut |_, _| Fate::Lost);
        check("zeros for data", &mut |_, op| {
            if op.is_data() { Fate::Zeros } else { Fate::There }
        });
        check("no data", &mut |_, op| {
            if op.is_data() { Fate::Lost } else { Fate::There }
        });
        for seed in 0..SEEDS {
            let mut chance = Chance(seed << 32 | ops.len() as u64);
            // Names in the order of all, or in that of each inode.
            let is_ordered = seed % 3 == 0;
            let limit = chance.below(ops.len() as u64 + 1) as usize;
            let mut lost: HashSet<(u32, bool)> = HashSet::new();
            check(&format!("seed {seed}"), &mut |at, op| match op.is_data() {
                true => [Fate::There, Fate::There, Fate::Zeros, Fate::Lost][chance.below(4) as usize],
                false if is_ordered => {
                    if at < limit {
                        Fate::There
                    } else {
                        Fate::Lost
                    }
                }
                false => {
                    let order = (op.ino(), op.is_name());
                    if chance.below(6) == 0 {
                        lost.insert(order);
                    }
                    if lost.contains(&order) { Fate::Lost } else { Fate::There }
                }
            });
        }
    }

    /// Checks an image, unless there was an equal one.
    fn image(&mut self, what: &str, image: &Image, moment: Moment, same_boot: bool) {
        let mut hasher = DefaultHasher::new();
        (image, moment, same_boot).hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return;
        }
        self.images += 1;
        let folder = directory();
        let [own, other] = &self.boots;
        materialise(image, folder.path(), &|path, content| match same_boot {
            true => (path.to_vec(), content.to_vec()),
            false => {
                let path_there = replaced(path, own.0.as_bytes(), other.0.as_bytes());
                match path.ends_with(b"/journal") {
                    true => (path_there, replaced(content, &own.1, &other.1)),
                    false => (path_there, content.to_vec()),
                }
            }
        });
        let mut wrong = wrong_names(image, &self.expected);
        let changed: &[u64] = if moment == Moment::Staging { &[0] } else { &[] };
        let go_on = || match moment {
            // As at the start of the process.
            Moment::Done => {
                receive::discard(folder.path(), "", &ID).unwrap();
                0
            }
            _ => self.source.send_all(folder.path(), changed),
        };
        match catch_unwind(AssertUnwindSafe(go_on)) {
            Ok(kept) => {
                self.kept += u64::from(kept > 0);
                wrong.extend(wrong_end(folder.path(), &self.expected));
            }
            Err(cause) => wrong.push(format!("it does not go on: {}", words(&*cause))),
        }
        for problem in wrong {
            self.problems
                .entry((problem, moment))
                .or_default()
                .push(what.to_owned());
        }
    }

    /// Says what was checked, and fails if something is wrong.
    #[allow(
        clippy::print_stdout,
        reason = "the numbers tell what a change of the receiver does to this test"
    )]
    fn finish(self, syncs: u32) {
        println!("{syncs} syncs, {} images, {} with groups", self.images, self.kept);
        for ((problem, moment), images) in &self.problems {
            println!("{problem} ({moment:?}): {} images, such as {}", images.len(), images[0]);
        }
        assert!(self.kept > 0, "no image has groups that count");
        assert!(self.problems.is_empty(), "{:#?}", self.problems);
    }
}

/// The words of a panic.
fn words(cause: &(dyn Any + Send)) -> String {
    cause.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// A change in few words.
fn short(op: Option<&Op>) -> String {
    match op {
        Some(Op::Write { ino, at, bytes }) => format!("a write of {} bytes at {at:?} of {ino}", bytes.len()),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

/// Replaces each part of some bytes that is equal to another one, by one of the same length.
fn replaced(bytes: &[u8], part: &[u8], by: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let mut at = 0;
    while let Some(rest) = all.get_mut(at..at + part.len()) {
        if rest == part {
            rest.copy_from_slice(by);
        }
        at += 1;
    }
    all
}

/// Numbers that look like those of chance, the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 31) % end
    }
}
