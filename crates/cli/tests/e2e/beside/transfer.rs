//! Files between members with the real binary: what arrives, what survives, and what each end says.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::daemon::Daemon;

use super::join::{Net, code, done, members};
use crate::common::{PATIENCE, WEFT, beside, wait_until};

/// Bytes of a group.
const GROUP: u64 = 1 << 20;

/// A user of a node: its process, and the folder that gets files.
pub(crate) struct User<'a> {
    node: &'a Daemon,
    process: LoggedChild,
    pub(crate) folder: PathBuf,
}

impl Drop for User<'_> {
    /// Ends the process that a verb may have started in the place of the first one.
    fn drop(&mut self) {
        let _ = self.node.attempt(&["transferd", "--stop"], PATIENCE);
    }
}

impl<'a> User<'a> {
    /// Starts the process of a user whose offers wait.
    pub(crate) fn start(node: &'a Daemon) -> Self {
        Self::start_with(node, "ask")
    }

    /// Starts the process of a user whose settings have this mode and a folder.
    pub(crate) fn start_with(node: &'a Daemon, mode: &str) -> Self {
        let state = &node.identity().state;
        let folder = state.join("files");
        fs::create_dir(&folder).unwrap();
        fs::DirBuilder::new()
            .mode(0o700)
            .create(state.join("transfer"))
            .unwrap();
        let settings = serde_json::json!({"schema": "weft.transfer-settings/1", "mode": mode, "folder": folder});
        fs::write(state.join("transfer/settings.json"), settings.to_string()).unwrap();
        Self::again(node)
    }

    /// Starts the process of a user with existing settings.
    pub(crate) fn again(node: &'a Daemon) -> Self {
        let folder = node.identity().state.join("files");
        let user = Self {
            node,
            process: start(node),
            folder,
        };
        user.wait_ready();
        user
    }

    /// Kills its process for good.
    pub(crate) fn crash(mut self) {
        self.process.kill().unwrap();
    }

    /// The most bytes of memory that its process has used.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        most.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    pub(crate) const fn node(&self) -> &Daemon {
        self.node
    }

    /// Runs a verb on the host of the node.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.node.attempt(arguments, PATIENCE).unwrap()
    }

    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The one line of a verb that fails with 1.
    pub(crate) fn failed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
        text
    }

    pub(crate) fn list(&self, more: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[&["transfers", "--history", "--json"], more].concat())).unwrap()
    }

    /// Sends and returns the identifier.
    pub(crate) fn send(&self, arguments: &[&str]) -> String {
        let sent = self.done(&[&["send", "--no-follow", "--json"], arguments].concat());
        let sent: Value = serde_json::from_str(&sent).unwrap();
        sent["transfers"][0]["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn transfer(&self, id: &str) -> Value {
        let list = self.list(&[]);
        let all = list["transfers"].as_array().unwrap();
        all.iter().find(|one| one["id"] == id).cloned().unwrap_or_default()
    }

    pub(crate) fn wait(&self, id: &str, state: &str) -> Value {
        let mut last = Value::Null;
        wait_until(PATIENCE, state, || {
            last = self.transfer(id);
            if last["state"] == "failed" && state != "failed" {
                panic!("{last:#}");
            }
            last["state"] == state
        });
        last
    }

    /// Kills its process and starts another one. Returns the bytes that the killed one had read.
    pub(crate) fn kill(&mut self) -> u64 {
        let read = bytes_read(self.process.pid());
        self.process.kill().unwrap();
        self.process = start(self.node);
        read
    }

    /// Bounds what its sockets hold, as that comes again after a kill: the system gives them megabytes where it has room.
    pub(crate) fn bound_sockets(&self) {
        for buffer in ["tcp_rmem", "tcp_wmem"] {
            let set = move || fs::write(format!("/proc/sys/net/ipv4/{buffer}"), "4096 65536 262144");
            self.node.host().run(set).unwrap().unwrap();
        }
    }

    /// Waits until the process that was started last can receive and serve.
    pub(crate) fn wait_ready(&self) {
        wait_until(PATIENCE, "it can receive", || {
            self.list(&[])["receive"]["why_not"].is_null()
        });
    }

    /// The bytes that its process has read from files and sockets.
    pub(crate) fn bytes_read(&self) -> u64 {
        bytes_read(self.process.pid())
    }
}

/// Starts a process. A verb before it listens would start another one.
fn start(node: &Daemon) -> LoggedChild {
    let state = &node.identity().state;
    let mut weft = Command::new(WEFT);
    weft.arg("--state").arg(state).arg("transferd");
    let child = LoggedChild::start(node.host(), weft, &state.join("transferd.log")).unwrap();
    wait_until(PATIENCE, "it listens", || {
        UnixStream::connect(state.join("transfer/socket")).is_ok()
    });
    child
}

fn bytes_read(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    read.parse().unwrap()
}

/// Two members, desk and nas.
pub(crate) fn two(net: &Net) -> [&Daemon; 2] {
    let [desk, nas] = &net.nodes[..] else { panic!() };
    done(desk, &["create", "home", "--host", "desk"]);
    let code = code(desk, &["--name", "nas"]);
    done(nas, &["join", &code]);
    for node in [desk, nas] {
        wait_until(PATIENCE, "both know both", || members(node).len() == 2);
    }
    [desk, nas]
}

/// Bytes without a pattern.
pub(crate) fn content(size: u64, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 24).to_le_bytes()
    };
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        bytes.extend_from_slice(&next()[..5]);
    }
    bytes.truncate(usize::try_from(size).unwrap());
    bytes
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a tree is: names, kinds, permissions, times and contents.
pub(crate) fn describe(top: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            let kind = metadata.file_type();
            let what = if kind.is_symlink() {
                format!("-> {:?}", fs::read_link(&path).unwrap())
            } else if kind.is_dir() {
                left.push(path.clone());
                format!("{:o} {}.{}", metadata.mode(), metadata.mtime(), metadata.mtime_nsec())
            } else {
                let bytes = fs::read(&path).unwrap();
                let sum = bytes
                    .iter()
                    .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
                format!(
                    "{:o} {}.{} {} {sum}",
                    metadata.mode(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    bytes.len()
                )
            };
            all.push(format!("{:?} {what}", path.strip_prefix(top).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn a_folder_arrives_as_it_is_once_it_is_accepted() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let photos = desk.folder.join("photos");
        fs::create_dir_all(photos.join("empty/deep")).unwrap();
        fs::write(photos.join("small"), "hello").unwrap();
        fs::write(photos.join("nothing"), "").unwrap();
        fs::write(photos.join("big"), content(3 * GROUP + 17, 1)).unwrap();
        fs::write(photos.join("n".repeat(255)), "long").unwrap();
        fs::create_dir(photos.join("many")).unwrap();
        for number in 0..30 {
            fs::write(photos.join(format!("many/{number}")), content(2 * GROUP + 9, number)).unwrap();
        }
        fs::write(photos.join(std::ffi::OsStr::from_bytes(b"\xff\xfe bytes")), "raw").unwrap();
        fs::set_permissions(photos.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
        symlink("small", photos.join("link")).unwrap();
        symlink("/etc/passwd", photos.join("out")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            photos.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let id = desk.send(&[path(&photos), "nas"]);
        desk.wait(&id, "waiting");
        let offer: Value = serde_json::from_str(&nas.done(&["inbox", "--json"])).unwrap();
        let offer = &offer["transfers"][0];
        assert_eq!(
            (&offer["id"], &offer["peer"]),
            (&Value::from(id.as_str()), &Value::from("desk"))
        );
        assert_eq!(
            fs::read_dir(&nas.folder).unwrap().count(),
            0,
            "nothing before it is accepted"
        );
        nas.done(&["accept", &id[..8]]);
        let sent = desk.wait(&id, "done");
        nas.wait(&id, "done");
        let notes = sent["notes"].to_string();
        assert!(notes.contains("a FIFO") && notes.contains("out"), "{notes}");

        fs::remove_file(photos.join("fifo")).unwrap();
        fs::remove_file(photos.join("out")).unwrap();
        // What makes a program of it run with other rights does not travel.
        fs::set_permissions(photos.join("small"), fs::Permissions::from_mode(0o751)).unwrap();
        let here: Vec<String> = describe(&photos);
        let there = describe(&nas.folder.join("photos"));
        assert_eq!(here, there);
        assert_eq!(
            fs::read_dir(&nas.folder).unwrap().count(),
            1,
            "nothing is left beside it"
        );

        // Once more: nothing moves, and nothing is asked.
        nas.done(&["receive", "members"]);
        let again = desk.send(&[path(&photos), "nas"]);
        let sent = desk.wait(&again, "done");
        assert_eq!(
            (&sent["moved"], &sent["read"]),
            (&Value::from(0), &Value::from(0)),
            "{sent:#}"
        );
        assert_eq!(describe(&nas.folder.join("photos")), there);
    });
}

#[test]
fn a_kill_of_either_end_repeats_nothing() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [mut desk, mut nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let size = 48 * GROUP + 5;
        let (file, bytes) = (desk.folder.join("film"), content(size, 7));
        fs::write(&file, &bytes).unwrap();
        let base = desk.bytes_read();
        let id = desk.send(&[path(&file), "nas", "--limit", "4M"]);
        let mut read = 0;
        let mut stored = 0;
        for kill in 0..10 {
            // Some of it has come since the last time.
            wait_until(PATIENCE, "it goes on", || {
                let now = nas.transfer(&id);
                now["bytes"]["done"].as_u64().unwrap_or(0) >= stored + GROUP
            });
            stored = nas.transfer(&id)["bytes"]["done"].as_u64().unwrap();
            match kill % 2 {
                0 => read += desk.kill(),
                _ => drop(nas.kill()),
            }
            nas.wait_ready();
            desk.run(&["resume", &id]);
        }
        assert_ne!(desk.transfer(&id)["state"], "done", "all kills came before the end");
        let sent = desk.wait(&id, "done");
        read += desk.bytes_read();
        assert_eq!(fs::read(nas.folder.join("film")).unwrap(), bytes);
        // What was under way at a kill of the receiver comes again: a group of each connection, and what its sockets
        // held. What the sender had read and not sent is read again.
        let under_way = 10 * 8 * GROUP;
        assert!(read < base + size + under_way, "{read} bytes read for {size}: {sent:#}");
    });
}

#[test]
fn names_that_are_taken_stay_what_they_are() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let file = desk.folder.join("notes.txt");
        fs::write(&file, "of desk").unwrap();
        fs::write(nas.folder.join("notes.txt"), "of nas").unwrap();
        let ids = [
            desk.send(&[path(&file), "nas"]),
            desk.send(&[path(&file), "nas:sub/folder"]),
        ];
        let sent = ids.map(|id| desk.wait(&id, "done"));
        assert!(
            sent[0]["notes"][0]["what"].as_str().unwrap().contains("notes (2).txt"),
            "{:#}",
            sent[0]
        );
        let read = |name: &str| fs::read_to_string(nas.folder.join(name)).unwrap();
        assert_eq!(read("notes.txt"), "of nas");
        assert_eq!(read("notes (2).txt"), "of desk");
        assert_eq!(read("sub/folder/notes.txt"), "of desk");
        let replaced = desk.send(&[path(&file), "nas", "--overwrite"]);
        desk.wait(&replaced, "done");
        assert_eq!(read("notes.txt"), "of desk");
    });
}

#[test]
fn a_transfer_waits_for_a_peer_that_comes_later() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net);
        let desk = User::start(desk);
        let file = desk.folder.join("late");
        fs::write(&file, "late").unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        wait_until(PATIENCE, "the reason is told", || {
            let why = desk.transfer(&id)["why"].to_string();
            why.contains("no user of nas receives files")
        });
        let mut desk = desk;
        desk.kill();
        let nas = User::start_with(nas, "members");
        desk.wait(&id, "done");
        assert_eq!(fs::read(nas.folder.join("late")).unwrap(), b"late");
    });
}

#[test]
fn an_unwanted_transfer_does_not_come() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let file = desk.folder.join("file");
        fs::write(&file, content(20 * GROUP, 3)).unwrap();
        let rejected = desk.send(&[path(&file), "nas"]);
        desk.wait(&rejected, "waiting");
        nas.done(&["reject", &rejected]);
        let rejected = desk.wait(&rejected, "rejected");
        assert!(
            rejected["why"]
                .as_str()
                .unwrap()
                .contains("rejected at the receiving end")
        );
        nas.done(&["receive", "off"]);
        let refused = desk.send(&[path(&file), "nas"]);
        let refused = desk.wait(&refused, "rejected");
        assert!(
            refused["why"].as_str().unwrap().contains("receives no files"),
            "{refused:#}"
        );
        nas.done(&["receive", "members"]);
        for verb in ["cancel", "pause"] {
            let id = desk.send(&[path(&file), "nas", "--limit", "1M"]);
            wait_until(PATIENCE, "it runs", || {
                nas.transfer(&id)["bytes"]["done"].as_u64() > Some(0)
            });
            nas.done(&[verb, &id]);
            match verb {
                "cancel" => drop(desk.wait(&id, "cancelled")),
                _ => {
                    wait_until(PATIENCE, "the sender knows", || {
                        desk.transfer(&id)["why"]
                            .to_string()
                            .contains("paused at the receiving end")
                    });
                    nas.done(&["resume", &id]);
                    desk.done(&["resume", &id]);
                    wait_until(PATIENCE, "it runs again", || nas.transfer(&id)["state"] == "running");
                    desk.done(&["cancel", &id]);
                    nas.wait(&id, "cancelled");
                }
            }
        }
        assert_eq!(
            fs::read_dir(&nas.folder).unwrap().count(),
            0,
            "nothing is left of all that"
        );
    });
}

#[test]
fn two_users_that_send_one_name_both_keep_it() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let file = desk.folder.join("twice");
        fs::write(&file, content(4 * GROUP, 3)).unwrap();
        let ids = [(), ()].map(|()| desk.send(&[path(&file), "nas", "--limit", "4M"]));
        for id in &ids {
            desk.wait(id, "done");
        }
        let all = fs::read_dir(&nas.folder).unwrap().map(|entry| entry.unwrap().path());
        let all: Vec<PathBuf> = all.collect();
        assert!(!all.is_empty() && all.len() <= 2, "{all:?}");
        for one in all {
            assert_eq!(fs::read(one).unwrap(), fs::read(&file).unwrap());
        }
    });
}

#[test]
fn a_sparse_tebibyte_takes_as_long_as_its_data() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let path_here = desk.folder.join("sparse");
        let file = fs::File::create(&path_here).unwrap();
        file.set_len(1 << 40).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &content(GROUP, 5), 1 << 39).unwrap();
        let id = desk.send(&[path(&path_here), "nas"]);
        let sent = desk.wait(&id, "done");
        assert!(sent["read"].as_u64().unwrap() <= 2 * GROUP, "{sent:#}");
        let there = fs::metadata(nas.folder.join("sparse")).unwrap();
        assert_eq!(there.len(), 1 << 40);
        assert!(there.blocks() * 512 < 8 * GROUP);
    });
}

#[test]
fn a_file_that_changes_under_way_arrives_as_it_became() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let file = desk.folder.join("log");
        fs::write(&file, content(12 * GROUP, 3)).unwrap();
        let id = desk.send(&[path(&file), "nas", "--limit", "4M"]);
        wait_until(PATIENCE, "it runs", || {
            nas.transfer(&id)["bytes"]["done"].as_u64() > Some(2 * GROUP)
        });
        let mut changed = content(7 * GROUP + 3, 3);
        changed[5 * GROUP as usize] ^= 1;
        fs::write(&file, &changed).unwrap();
        desk.wait(&id, "done");
        assert_eq!(fs::read(nas.folder.join("log")).unwrap(), changed);
    });
}

#[test]
fn a_member_that_is_removed_midway_sends_no_more() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        desk.done(&["receive", "members"]);
        let file = nas.folder.join("file");
        fs::write(&file, content(30 * GROUP, 3)).unwrap();
        let id = nas.send(&[path(&file), "desk", "--limit", "1M"]);
        wait_until(PATIENCE, "it runs", || {
            desk.transfer(&id)["bytes"]["done"].as_u64() > Some(0)
        });
        desk.done(&["member", "remove", "nas"]);
        wait_until(Duration::from_secs(120), "it ends at both ends", || {
            desk.transfer(&id)["state"] != "running" && nas.transfer(&id)["state"] != "running"
        });
        assert!(!desk.folder.join("file").exists());
        assert!(desk.failed(&["accept", &id]).contains("does not wait"));
    });
}

/// A file system in memory, until this is dropped.
pub(super) struct Tmpfs(PathBuf);

impl Tmpfs {
    pub(super) fn mount(folder: &Path, options: &str) -> Self {
        let mounted = Self(folder.to_owned());
        mounted.call("mount", &["-t", "tmpfs", "-o", options, "none"]);
        mounted
    }

    /// Changes its options.
    pub(super) fn change(&self, options: &str) {
        self.call("mount", &["-o", &format!("remount,{options}")]);
    }

    fn call(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        assert!(command.args(arguments).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: the process of the user may have files open there.
        let mut umount = Command::new("umount");
        let status = umount.arg("--lazy").arg(&self.0).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_is_named_and_what_has_come_is_kept() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let disk = Tmpfs::mount(&nas.folder, "size=6m");
        nas.done(&["receive", "members"]);
        nas.done(&["limits", "--floor", "0"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(10 * GROUP, 3)).unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        wait_until(PATIENCE, "the sender knows why", || {
            desk.transfer(&id)["why"]
                .to_string()
                .contains("the disk is full at the receiving end")
        });
        assert!(!nas.folder.join("film").exists(), "nothing unfinished has its name");
        let stored = nas.transfer(&id)["bytes"]["done"].as_u64().unwrap();
        assert!(stored >= 3 * GROUP, "{stored}");
        disk.change("size=64m");
        desk.done(&["resume", &id]);
        let sent = desk.wait(&id, "done");
        assert_eq!(fs::read(nas.folder.join("film")).unwrap(), fs::read(&file).unwrap());
        let received = nas.wait(&id, "done");
        // A group for which there was no room comes again, one of each connection.
        let moved = received["moved"].as_u64().unwrap();
        assert!(moved <= 10 * GROUP + 8 * GROUP, "{moved} of all tries: {sent:#}");
    });
}

#[test]
fn a_receiver_behind_a_firewall_connects_itself() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let closed = "table inet closed { chain input { type filter hook input priority filter; \
                      tcp dport 7375-7390 tcp flags & (syn | ack) == syn counter drop; }\n}";
        let nft = |arguments: &[&str]| {
            let mut command = Command::new("nft");
            command.args(arguments);
            let output = nas.node.host().run(move || command.output().unwrap()).unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        nft(&[closed]);
        let file = desk.folder.join("film");
        let bytes = content(9 * GROUP + 5, 3);
        fs::write(&file, &bytes).unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        let sent = desk.wait(&id, "done");
        assert_eq!(fs::read(nas.folder.join("film")).unwrap(), bytes);
        assert_eq!(sent["moved"], bytes.len());
        assert!(
            !nft(&["list", "table", "inet", "closed"]).contains("packets 0 "),
            "none was dropped"
        );
    });
}
