//! The verbs about files, with a double of the process of the user behind its real socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

#[path = "common/printed.rs"]
mod printed;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use weft_transfer::api::{
    Amount, Answer, Direction, ForwardStatus, GetRequest, LISTING, ListedKind, ListedName, Listing, Note, Progress,
    RawPath, ReceiveMode, ReceiveStatus, Refusal, RefusalCode, Request, SERVICES, SHARES, SendRequest, ServiceList,
    ServiceRequest, ServiceStatus, ShareRequest, ShareStatus, Shared, Shares, TRANSFERS, TransferId, TransferState,
    TransferStatus, Transfers,
};
use weft_transfer::audience::Party;
use weft_transfer::server::{Handler, Server, Stopper};
use weft_transfer::services::{Local, Target};

use printed::{done, failed};

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
const ID: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

fn transfer(state: TransferState) -> TransferStatus {
    TransferStatus {
        id: TransferId([0x0f; 16]),
        direction: Direction::Send,
        peer: "nas".to_owned(),
        user: None,
        state,
        why: None,
        share: None,
        names: vec!["photos".to_owned()],
        into: String::new(),
        overwrite: false,
        progress: Progress {
            entries: Amount {
                total: Some(3),
                done: 3,
            },
            bytes: Amount {
                total: Some(2_000),
                done: 2_000,
            },
            ..Progress::default()
        },
        begun: 0,
        ended: None,
        next_try_s: None,
        rate: None,
        eta_s: None,
        path: None,
        held_up_by: None,
    }
}

fn offer() -> TransferStatus {
    TransferStatus {
        direction: Direction::Receive,
        names: vec!["tax\x1b[2J.pdf".to_owned()],
        ..transfer(TransferState::Waiting)
    }
}

fn all(transfers: Vec<TransferStatus>) -> Transfers {
    Transfers {
        version: String::new(),
        schema: TRANSFERS.to_owned(),
        receive: ReceiveStatus {
            mode: ReceiveMode::Ask,
            for_s: None,
            folder: Some("/home/a/Downloads".to_owned()),
            why_not: None,
        },
        transfers,
    }
}

fn got() -> TransferStatus {
    TransferStatus {
        direction: Direction::Receive,
        share: Some("photos/2026".to_owned()),
        into: "/home/a".to_owned(),
        ..transfer(TransferState::Queued)
    }
}

fn shares() -> Answer {
    let share = |name: &str, to: &[&str], why_not: Option<&str>| ShareStatus {
        name: name.to_owned(),
        path: format!("/srv/{name}"),
        to: to.iter().map(ToString::to_string).collect(),
        why_not: why_not.map(str::to_owned),
    };
    Answer::Shares(Shares {
        schema: SHARES.to_owned(),
        shares: vec![share("a", &[], None), share("b", &["nas", "tag:x"], Some("gone"))],
        why_not: None,
    })
}

fn listing() -> Answer {
    Answer::Listing(Listing {
        schema: LISTING.to_owned(),
        peer: "nas".to_owned(),
        share: "photos".to_owned(),
        path: String::new(),
        names: vec![ListedName {
            name: "a\x1b[2J".to_owned(),
            user: None,
            kind: ListedKind::File,
            size: 5,
            changed: 0,
        }],
        more: false,
        missing: None,
    })
}

fn services() -> ServiceList {
    ServiceList {
        schema: SERVICES.to_owned(),
        services: vec![ServiceStatus {
            name: "web".to_owned(),
            target: "127.0.0.1:8080".to_owned(),
            to: vec!["tag:family".to_owned()],
            port: Some(8080),
            at: vec!["[fd00::1]:8080".to_owned()],
            why: None,
            silent: None,
            connections: 1,
        }],
        forwards: vec![ForwardStatus {
            local: "5432".to_owned(),
            peer: "nas".to_owned(),
            npub: None,
            user: None,
            service: "db".to_owned(),
            up: false,
            why: Some("gone\n\x1b[2J".to_owned()),
            connections: 0,
            next_try_s: Some(3),
        }],
        why_not: None,
    }
}

/// The changes of the only transfer, and what was asked.
#[derive(Default)]
struct Double {
    requests: Mutex<Vec<Request>>,
    /// Each is sent to a follower once; then it hears no more until there are further ones.
    changes: Mutex<Vec<TransferStatus>>,
    changed: Condvar,
}

impl Handler for Double {
    fn handle(&self, request: Request) -> Result<Answer, Refusal> {
        self.requests.lock().unwrap().push(request.clone());
        let transfers = match request {
            Request::Transfers { id: None, .. } => all(vec![transfer(TransferState::Running), offer()]),
            Request::Send(_) | Request::Resume { .. } => all(vec![transfer(TransferState::Queued)]),
            Request::Accept { .. } => all(vec![TransferStatus {
                state: TransferState::Queued,
                ..offer()
            }]),
            Request::Pause { .. } => all(vec![transfer(TransferState::Paused)]),
            Request::Cancel { .. } | Request::Reject { .. } => {
                return Err(Refusal {
                    code: RefusalCode::UnknownTransfer,
                    message: "no transfer begins with\n\x1b[2J".to_owned(),
                });
            }
            Request::Receive { .. } => all(Vec::new()),
            Request::ShareAdd(_) | Request::ShareList {} | Request::ShareRemove { .. } => return Ok(shares()),
            Request::Browse(_) => return Ok(listing()),
            Request::Get(request) => all(request.what.iter().map(|_| got()).collect()),
            Request::Services(_) => return Ok(services().into()),
            _ => all(vec![transfer(TransferState::Running)]),
        };
        Ok(transfers.into())
    }

    fn follow(&self, id: &str, each: &mut dyn FnMut(Transfers) -> bool) -> Result<(), Refusal> {
        assert_eq!(id, ID);
        let mut changes = self.changes.lock().unwrap();
        loop {
            if changes.is_empty() {
                changes = self.changed.wait_timeout(changes, Duration::from_millis(20)).unwrap().0;
                if changes.is_empty() && !each(all(vec![transfer(TransferState::Running)])) {
                    return Ok(());
                }
                continue;
            }
            let change = changes.remove(0);
            let is_last = change.state.has_ended() || change.state == TransferState::Waiting;
            if !each(all(vec![change])) || is_last {
                return Ok(());
            }
        }
    }
}

struct Place {
    directory: tempfile::TempDir,
    double: Arc<Double>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::bind(&directory.path().join("state/transfer/socket")).unwrap();
        let (double, stopper) = (Arc::new(Double::default()), server.stopper());
        let handler: Arc<dyn Handler> = double.clone();
        let thread = Some(thread::spawn(move || server.serve(handler)));
        fs::write(directory.path().join("photos"), "x").unwrap();
        Self {
            directory,
            double,
            stopper,
            thread,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WEFT);
        command.args(arguments).arg("--state").arg(self.path("state"));
        command.current_dir(self.directory.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut self.double.requests.lock().unwrap())
    }

    fn happens(&self, changes: impl IntoIterator<Item = TransferStatus>) {
        self.double.changes.lock().unwrap().extend(changes);
        self.double.changed.notify_all();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn files_are_queued_by_absolute_paths() {
    let place = Place::new();
    fs::create_dir(place.path("a")).unwrap();
    std::os::unix::fs::symlink("none", place.path("link")).unwrap();
    let text = done(&place.run(&[
        "send",
        "photos",
        "a/../link",
        "anna@nas.home.weft:2026/x",
        "--exclude",
        "*.tmp",
        "--exclude",
        "a b",
        "--overwrite",
        "--limit",
        "20M",
        "--limit-relay",
        "1M",
    ]));
    assert_eq!(
        text,
        "queued: photos to nas; `weft transfers 0f0f0f0f` shows how far it is\n"
    );
    let base = fs::canonicalize(place.directory.path()).unwrap();
    let path = |name: &str| RawPath::from(&*base.join(name));
    assert_eq!(
        place.asked(),
        [Request::Send(SendRequest {
            paths: vec![path("photos"), path("a/../link")],
            peer: "nas.home.weft".to_owned(),
            user: Some("anna".to_owned()),
            into: "2026/x".to_owned(),
            exclude: vec!["*.tmp".to_owned(), "a b".to_owned()],
            overwrite: true,
            limit: Some(20_000_000),
            limit_relay: Some(1_000_000),
        })]
    );
    let json: Value = serde_json::from_str(&done(&place.run(&["send", "photos", "nas", "--json"]))).unwrap();
    assert_eq!(
        (&json["schema"], &json["transfers"][0]["id"]),
        (&TRANSFERS.into(), &ID.into())
    );
}

#[test]
fn a_command_line_that_cannot_be_carried_out_asks_nothing() {
    let place = Place::new();
    let line = failed(&place.run(&["send", "photos", "none", "nas"]), 1);
    assert!(line.contains("weft: none cannot be sent (No such file"), "{line}");
    for (arguments, words) in [
        (&["send", "photos"][..], "<PATH>"),
        (&["send", "x", "photos/"], "letters"),
        (&["send", "x", "./photos"], "the last argument is the peer"),
        (&["send", "photos", "nas:../x"], "no .."),
        (&["send", "photos", "nas", "--limit", "1"], "such as 20M"),
        (&["accept", "0f1"], "at least 4 digits"),
        (&["receive", "all"], "tag:NAME"),
        (&["browse", "nas:../x"], "no .."),
        (&["browse", "nas:/etc"], "leave the leading /"),
        (&["get", "nas"], "name a share, as nas:photos"),
        (&["get"], "<PEER:SHARE[/PATH]>"),
        (&["get", "nas:a", "nas:b", "--follow"], "--follow shows one transfer"),
        (&["receive", "--for", "2h"], "off|ask|members|tag:NAME"),
        (&["serve", "192.0.2.1:80"], "not on the loopback"),
        (&["serve", "[::]:80"], "not on the loopback"),
        (&["serve", "web"], "write a port, ADDR:PORT"),
        (&["serve", "0"], "port 0"),
        (&["serve", "80", "--name", "a b"], "no name of a service"),
        (&["serve", "80", "--port", "0"], "--port"),
        (&["serve", "80", "--to", "tag:"], "tag:TAG or network:NETWORK"),
        (&["serve", "--name", "a"], "TARGET"),
        (&["serve", "remove"], "<NAME>"),
        (&["forward", "5432"], "PEER:SERVICE"),
        (&["forward", "0", "nas:db"], "choose a port"),
        (&["forward", "x", "nas:db"], "a slash in it"),
        (&["forward", "5432", "nas"], "a colon and the name of the service"),
        (&["forward", "./", "nas:db"], "a folder is no socket"),
    ] {
        let line = failed(&place.run(arguments), 2);
        assert!(line.contains(words), "{line}");
    }
    let line = failed(&place.run(&["share", "add", "none"]), 1);
    assert!(line.contains("weft: none cannot be shared (No such file"), "{line}");
    let line = failed(&place.run(&["get", "nas:a", "--to", "photos"]), 1);
    assert!(line.contains("photos cannot be the folder"), "{line}");
    let line = failed(&place.run(&["receive", "--to", "photos"]), 1);
    assert!(line.contains("photos cannot be the folder"), "{line}");
    assert_eq!(place.asked(), []);
}

#[test]
fn services_and_forwards_are_asked_for_as_they_are_written() {
    let place = Place::new();
    let base = fs::canonicalize(place.directory.path()).unwrap();
    let path = |name: &str| RawPath::from(&*base.join(name));
    let served = done(&place.run(&["serve", "8080", "--name", "web", "--to", "tag:family", "--to", "desk"]));
    assert_eq!(
        served,
        "web: 127.0.0.1:8080 is served to tag:family\n    \
         there: `weft forward PORT THIS-NODE:web`, or TCP port 8080 of this node\n"
    );
    done(&place.run(&["serve", "./db", "--port", "5432"]));
    assert_eq!(done(&place.run(&["serve", "remove", "web"])), "removed\n");
    let forwarded = done(&place.run(&["forward", "5432", "anna@nas:db"]));
    assert!(forwarded.contains("5432 leads to nas:db"), "{forwarded}");
    done(&place.run(&["forward", "remove", "./db"]));
    let member = Party::Member {
        name: "desk".to_owned(),
        npub: None,
    };
    assert_eq!(
        place.asked().into_iter().collect::<Vec<_>>(),
        [
            ServiceRequest::Serve {
                target: Target::Tcp(([127, 0, 0, 1], 8080).into()),
                to: vec![Party::Tag("family".to_owned()), member],
                name: Some("web".to_owned()),
                port: None,
            },
            ServiceRequest::Serve {
                target: Target::Unix(path("db")),
                to: Vec::new(),
                name: None,
                port: Some(5432),
            },
            ServiceRequest::RemoveService { name: "web".to_owned() },
            ServiceRequest::Forward {
                local: Local::Port(5432),
                peer: "nas".to_owned(),
                user: Some("anna".to_owned()),
                service: "db".to_owned(),
            },
            ServiceRequest::RemoveForward {
                local: Local::Unix(path("db"))
            },
        ]
        .map(Request::Services)
    );
    for arguments in [&["serve"][..], &["serve", "list"]] {
        let listed = done(&place.run(arguments));
        assert!(listed.contains("web") && listed.contains("TCP port 8080"), "{listed}");
    }
    for arguments in [&["forward"][..], &["forward", "list"]] {
        let listed = done(&place.run(arguments));
        assert!(
            listed.contains("down") && listed.contains("gone??[2J; next try in 3 s"),
            "{listed:?}"
        );
    }
    let json: Value = serde_json::from_str(&done(&place.run(&["forward", "--json"]))).unwrap();
    assert_eq!(
        (&json["schema"], &json["services"][0]["port"]),
        (&SERVICES.into(), &8080.into())
    );
}

#[test]
fn each_state_is_a_line_until_all_is_stored() {
    let place = Place::new();
    let note = Note {
        name: "photos/pipe".to_owned(),
        what: "left out: it is no file".to_owned(),
    };
    let end = TransferStatus {
        progress: Progress {
            notes: vec![note],
            more_notes: 3,
            ..transfer(TransferState::Done).progress
        },
        ..transfer(TransferState::Done)
    };
    let moving = TransferStatus {
        rate: Some(1_000),
        ..transfer(TransferState::Running)
    };
    place.happens([
        transfer(TransferState::Connecting),
        transfer(TransferState::Waiting),
        transfer(TransferState::Running),
        moving,
        transfer(TransferState::Syncing),
        end,
    ]);
    let text = done(&place.run(&["send", "photos", "nas", "--follow"]));
    assert_eq!(
        text,
        "queued: photos to nas; `weft transfers 0f0f0f0f` shows how far it is\n\
         0f0f0f0f: queued\n\
         0f0f0f0f: connecting to nas\n\
         0f0f0f0f: waits until it is accepted there: `weft accept 0f0f0f0f` on nas\n\
         0f0f0f0f: running: 2.0 kB of 2.0 kB, 100 %\n\
         0f0f0f0f: all has arrived, and is written to the disk there\n\
         sent 3 files and folders, 2.0 kB to nas: stored and synced there\n  \
         photos/pipe: left out: it is no file\n  and 3 more\n"
    );
}

#[test]
fn a_terminal_shows_a_bar_and_keeps_what_waits() {
    let place = Place::new();
    let states = [TransferState::Waiting, TransferState::Running, TransferState::Done];
    place.happens(states.map(transfer));
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inner = File::options()
        .read(true)
        .write(true)
        .open(OsStr::from_bytes(name.to_bytes()))
        .unwrap();
    let winsize = Winsize {
        ws_row: 24,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&inner, winsize).unwrap();
    // On a terminal it is followed without --follow.
    let mut command = place.command(&["send", "photos", "nas"]);
    let mut child = command.env("TERM", "xterm").stdout(inner).spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    let _ = File::from(terminal).read_to_end(&mut shown);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("`weft accept 0f0f0f0f` on nas  "), "{shown:?}");
    assert!(shown.contains("█ running: 2.0 kB of 2.0 kB, 100 %"), "{shown:?}");
    let last = shown.lines().last().unwrap();
    assert!(
        last.ends_with("sent 3 files and folders, 2.0 kB to nas: stored and synced there"),
        "{last:?}"
    );
}

#[test]
fn another_end_than_done_is_a_failure_with_its_reason() {
    let place = Place::new();
    for (state, words) in [
        (TransferState::Failed, "weft: failed: no space"),
        (TransferState::Rejected, "weft: rejected by nas: no space"),
        (TransferState::Cancelled, "weft: cancelled: no space"),
    ] {
        let why = Some("no space".to_owned());
        place.happens([TransferStatus { why, ..transfer(state) }]);
        let output = place.run(&["send", "photos", "nas", "--follow"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8(output.stderr).unwrap().trim_end(), words);
    }
    place.happens([transfer(TransferState::Paused)]);
    let output = place.run(&["accept", "0f0f", "--follow"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("`weft resume 0f0f0f0f` goes on")
    );
}

#[test]
fn followed_documents_come_one_a_line() {
    let place = Place::new();
    let states = [TransferState::Connecting, TransferState::Running, TransferState::Failed];
    place.happens(states.map(transfer));
    let output = place.run(&["send", "photos", "nas", "--follow", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<_> = lines.iter().map(|line| line["transfers"][0]["state"].clone()).collect();
    assert_eq!(
        states,
        [
            Value::from("connecting"),
            "running".into(),
            "failed".into(),
            Value::Null
        ]
    );
    assert_eq!(
        (&lines[3]["schema"], &lines[3]["exit"]),
        (&"weft.error/1".into(), &1.into())
    );
}

#[test]
fn ctrl_c_leaves_the_transfer_in_the_background() {
    let place = Place::new();
    let mut child: Child = place
        .command(&["send", "photos", "nas", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("0f0f0f0f: running")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(
        lines.next().unwrap(),
        "goes on in the background; `weft transfers 0f0f0f0f` shows it, `weft cancel 0f0f0f0f` ends it"
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.asked().len(), 1, "nothing was cancelled");
}

#[test]
fn lists_and_changes_are_shown() {
    let place = Place::new();
    let inbox = done(&place.run(&["inbox"]));
    assert!(
        inbox.contains("0f0f0f0f  nas") && inbox.contains("tax?[2J.pdf"),
        "{inbox:?}"
    );
    assert_eq!(inbox.lines().count(), 2, "{inbox}");
    let json: Value = serde_json::from_str(&done(&place.run(&["inbox", "--json"]))).unwrap();
    assert_eq!(json["transfers"].as_array().unwrap().len(), 1);
    assert_eq!(done(&place.run(&["transfers"])).lines().count(), 3);
    place.asked();
    assert!(done(&place.run(&["transfers", "0F0F"])).contains(ID));
    let one = Request::Transfers {
        history: true,
        id: Some("0f0f".to_owned()),
    };
    assert_eq!(place.asked(), [one]);
    assert_eq!(
        done(&place.run(&["pause", "0f0f"])),
        "0f0f0f0f (photos to nas): paused; `weft resume 0f0f0f0f` goes on with it\n"
    );
    assert!(done(&place.run(&["accept", "0f0f"])).starts_with("accepted: tax?[2J.pdf from nas"));
    let line = failed(&place.run(&["cancel", "0f0f"]), 1);
    assert!(line.contains("no transfer begins with??[2J"), "{line:?}");
    place.asked();
    let text = done(&place.run(&["receive", "tag:family", "--to", "new", "--for", "2h"]));
    assert_eq!(
        text,
        "mode    ask: each offer waits for `weft accept`\nfolder  /home/a/Downloads\n"
    );
    let folder = fs::canonicalize(place.directory.path()).unwrap().join("new");
    assert_eq!(
        place.asked(),
        [Request::Receive {
            mode: Some(ReceiveMode::Tag("family".to_owned())),
            folder: Some(RawPath::from(&*folder)),
            for_s: Some(7_200),
        }]
    );
}

#[test]
fn shares_are_added_listed_and_fetched() {
    let place = Place::new();
    let base = fs::canonicalize(place.directory.path()).unwrap();
    let text = done(&place.run(&["share", "add", "photos", "--to", "nas", "--to", "tag:x", "--name", "p"]));
    assert_eq!(
        text,
        "NAME                  FOR                       PATH\n\
         a                     members                   /srv/a\n\
         b                     nas, tag:x                /srv/b (gone)\n"
    );
    let json: Value = serde_json::from_str(&done(&place.run(&["share", "list", "--json"]))).unwrap();
    assert_eq!(json["schema"], SHARES);
    done(&place.run(&["share", "remove", "b"]));
    let share = ShareRequest {
        path: RawPath::from(&*base.join("photos")),
        name: Some("p".to_owned()),
        to: vec!["nas".parse().unwrap(), "tag:x".parse().unwrap()],
    };
    let removed = Request::ShareRemove { name: "b".to_owned() };
    assert_eq!(
        place.asked(),
        [Request::ShareAdd(share), Request::ShareList {}, removed]
    );
    let text = done(&place.run(&["browse", "anna@nas:photos/2026/./x"]));
    assert!(text.contains("5 B") && text.contains("a?[2J"), "{text:?}");
    let browse = Shared {
        peer: "nas".to_owned(),
        user: Some("anna".to_owned()),
        share: "photos".to_owned(),
        path: "2026/x".to_owned(),
    };
    assert_eq!(place.asked(), [Request::Browse(browse)]);
    let text = done(&place.run(&["get", "nas:photos/2026", "nas:b", "--exclude", "*.o", "--limit", "20M"]));
    let line = "queued: photos/2026 from nas, into /home/a; `weft transfers 0f0f0f0f` shows how far it is\n";
    assert_eq!(text, line.repeat(2));
    let shared = |share: &str, path: &str| Shared {
        peer: "nas".to_owned(),
        user: None,
        share: share.to_owned(),
        path: path.to_owned(),
    };
    let get = GetRequest {
        what: vec![shared("photos", "2026"), shared("b", "")],
        // That of the command.
        folder: RawPath::from(&*base),
        exclude: vec!["*.o".to_owned()],
        overwrite: false,
        limit: Some(20_000_000),
    };
    assert_eq!(place.asked(), [Request::Get(get)], "all of it is asked for at once");
    let json: Value = serde_json::from_str(&done(&place.run(&["get", "nas:a", "nas:b", "--json"]))).unwrap();
    assert_eq!(json["transfers"].as_array().unwrap().len(), 2);
}

#[test]
fn watching_ends_with_ctrl_c() {
    let place = Place::new();
    let mut child = place
        .command(&["transfers", "--watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    for _ in 0..2 {
        let line: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!(line["schema"], TRANSFERS);
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_directory_that_is_open_to_others_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let transfer = directory.path().join("transfer");
    fs::create_dir(&transfer).unwrap();
    fs::set_permissions(&transfer, fs::Permissions::from_mode(0o750)).unwrap();
    let output = Command::new(WEFT)
        .arg("inbox")
        .arg("--state")
        .arg(directory.path())
        .output()
        .unwrap();
    let line = failed(&output, 1);
    assert!(
        line.contains("cannot be started") && line.contains("chmod 700"),
        "{line}"
    );
    assert_eq!(fs::read_dir(&transfer).unwrap().count(), 0);
}
