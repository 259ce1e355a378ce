//! The control socket, client and server over a real socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_control::status::{Document as _, Event, EventKind, Peers, Reloaded, Stopping, TransferEvent, Version};
use weft_control::{
    self, Access, BindError, ControlCommand, ControlError, ControlServer, ErrorCode, MAX_CONNECTIONS, MAX_REQUEST,
    QUEUE, Refusal, TransferCommand,
};
use weft_os::test_support::wait_until;

/// A time limit above that of any answer.
const MINUTE: Duration = Duration::from_secs(60);

/// Repeats a call that is refused as busy: the daemon may not have noticed yet that an earlier
/// connection is closed.
fn unless_busy<T>(call: impl Fn() -> Result<T, ControlError>) -> Result<T, ControlError> {
    let end = Instant::now() + MINUTE;
    loop {
        let late = Instant::now() >= end;
        let answer = call();
        let busy = matches!(&answer, Err(ControlError::Refused(refusal)) if refusal.code == ErrorCode::Busy);
        if !busy || late {
            return answer;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A daemon without peers that ends at `down`.
struct Daemon {
    directory: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let (ready, bound) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            runtime().block_on(async {
                let mut server = ControlServer::bind(&path, Access::default()).await.unwrap();
                ready.send(()).unwrap();
                let mut subscribers = Vec::new();
                while let Some(request) = server.next().await {
                    match request.command {
                        ControlCommand::Version {} => request.reply.ok(&Version::of_this_build()),
                        ControlCommand::Ping { peer, .. } => {
                            request.reply.refuse(Refusal::unknown_peer(&peer));
                        }
                        ControlCommand::Events {} => subscribers.push(request.reply.stream()),
                        // Sends so many events.
                        ControlCommand::Reload { confirm_s } => {
                            let event = |number: u32| Event::of_daemon(EventKind::Path, number.into());
                            for number in 0..confirm_s.unwrap_or(1) {
                                subscribers.retain(|subscriber| subscriber.send(&event(number)));
                            }
                            subscribers.retain(|subscriber| !subscriber.is_gone());
                            let confirm_s = Some(subscribers.len() as u64);
                            let (live, at_start) = (Vec::new(), Vec::new());
                            let schema = Reloaded::SCHEMA.to_owned();
                            request.reply.ok(&Reloaded {
                                schema,
                                live,
                                at_start,
                                refused: Vec::new(),
                                notes: Vec::new(),
                                confirm_s,
                            });
                        }
                        ControlCommand::Down {} => {
                            for subscriber in &subscribers {
                                assert!(subscriber.send(&Event::of_daemon(EventKind::Stopping, 1)));
                            }
                            request.reply.ok(&Stopping::this_process(false));
                            break;
                        }
                        ControlCommand::Peers { .. } => request.reply.ok(&Version::of_this_build()),
                        ControlCommand::Status {}
                        | ControlCommand::Whois { .. }
                        | ControlCommand::Reach { .. }
                        | ControlCommand::Hops { .. }
                        | ControlCommand::Netcheck {}
                        | ControlCommand::Trace { .. }
                        | ControlCommand::Network(_)
                        | ControlCommand::Transfer(_)
                        | ControlCommand::Confirm {} => drop(request),
                    }
                }
                server.close().await;
            });
        });
        bound.recv().unwrap();
        Self {
            directory,
            thread: Some(thread),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    fn connect(&self) -> Raw {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(MINUTE)).unwrap();
        Raw(BufReader::new(stream))
    }

    fn down(&mut self) -> Result<Stopping, ControlError> {
        let answer = unless_busy(|| weft_control::call_and_wait(&self.path(), &ControlCommand::Down {}))?;
        // Without an answer it does not end.
        self.thread.take().unwrap().join().unwrap();
        Ok(answer)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let down = self.down();
            // A second panic would end the process, and with it the other tests.
            assert!(down.is_ok() || thread::panicking(), "{down:?}");
        }
    }
}

/// A client that breaks the rules.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn ask(&mut self, bytes: &[u8]) -> serde_json::Value {
        self.0.get_mut().write_all(bytes).unwrap();
        self.read()
    }

    fn read(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// True if the server has closed the connection.
    fn ended(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            // Nothing came within the time limit.
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn bind(path: &Path) -> Result<(), BindError> {
    runtime().block_on(async { ControlServer::bind(path, Access::default()).await.map(drop) })
}

fn ping() -> ControlCommand {
    ControlCommand::Ping {
        peer: "bob".parse().unwrap(),
        timeout_ms: 10,
    }
}

#[test]
fn round_trip() {
    let mut daemon = Daemon::start();
    let path = daemon.path();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let version: Version = weft_control::call(&path, &ControlCommand::Version {}).unwrap();
    assert_eq!(version, Version::of_this_build());
    match weft_control::call_raw(&path, &ping()) {
        Err(ControlError::Refused(refusal)) => {
            assert_eq!(refusal.code, ErrorCode::UnknownPeer);
            assert!(refusal.message.starts_with("no node named bob"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(daemon.down().unwrap(), Stopping::this_process(false));
    assert!(!path.exists());
    let gone = weft_control::call_raw(&path, &ControlCommand::Version {});
    assert!(matches!(gone, Err(ControlError::NotRunning { .. })));
}

#[test]
fn a_socket_for_all_users_has_the_mode_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let access = Access {
        all_users: true,
        ..Access::default()
    };
    runtime().block_on(async {
        let _server = ControlServer::bind(&path, access).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    });
}

#[test]
fn a_public_document_in_place_of_the_whole_says_what_to_do() {
    let error = answered_with(b"{\"ok\":true,\"data\":{\"schema\":\"weft.public-status/1\"}}\n");
    assert!(
        matches!(&error, ControlError::Refused(refusal) if refusal.code == ErrorCode::Forbidden),
        "{error}"
    );
    assert!(error.to_string().contains("sudo"), "{error}");
}

#[test]
fn an_answer_of_another_schema_is_not_taken() {
    let daemon = Daemon::start();
    let command = ControlCommand::Peers { peer: None };
    let error = weft_control::call::<Peers>(&daemon.path(), &command).unwrap_err();
    assert!(matches!(error, ControlError::BadAnswer { .. }));
    assert!(error.to_string().contains("weft.version/1 where weft.peers/1"));
}

#[test]
fn a_request_that_is_dropped_is_refused() {
    let daemon = Daemon::start();
    let error = weft_control::call_raw(&daemon.path(), &ControlCommand::Status {}).unwrap_err();
    assert!(matches!(error, ControlError::Refused(refusal) if refusal.code == ErrorCode::Unavailable));
}

#[test]
fn bad_requests_keep_the_connection() {
    let daemon = Daemon::start();
    let mut raw = daemon.connect();
    assert_eq!(raw.ask(b"\n")["error"]["code"], "bad-request");
    assert_eq!(raw.ask(b"\xff\xfe\n")["error"]["code"], "bad-request");
    let old = raw.ask(b"{\"schema\":\"weft.control/0\",\"cmd\":\"version\"}\n");
    assert_eq!(old["error"]["code"], "wrong-schema");
    let good = raw.ask(ControlCommand::Version {}.to_request().as_bytes());
    assert_eq!(good["data"]["schema"], "weft.version/1");
    // Two requests in one write are answered in order.
    let two = format!("x\n{}", ControlCommand::Version {}.to_request());
    assert_eq!(raw.ask(two.as_bytes())["ok"], false);
    assert_eq!(raw.read()["ok"], true);
}

#[test]
fn the_longest_request_and_one_byte_more() {
    let daemon = Daemon::start();
    let mut request = ControlCommand::Version {}.to_request().into_bytes();
    request.pop();
    request.resize(MAX_REQUEST - 1, b' ');
    request.push(b'\n');
    let mut raw = daemon.connect();
    assert_eq!(raw.ask(&request)["ok"], true);
    request.insert(0, b' ');
    assert_eq!(raw.ask(&request)["error"]["code"], "too-long");
    assert!(raw.ended());
    // A request without an end.
    let mut raw = daemon.connect();
    assert_eq!(raw.ask(&vec![b'x'; MAX_REQUEST + 1])["error"]["code"], "too-long");
    assert!(raw.ended());
}

#[test]
fn connections_are_limited_and_come_free_again() {
    let daemon = Daemon::start();
    let mut held: Vec<_> = (0..MAX_CONNECTIONS).map(|_| daemon.connect()).collect();
    for raw in &mut held {
        let answer = raw.ask(ControlCommand::Version {}.to_request().as_bytes());
        assert_eq!(answer["ok"], true);
    }
    let mut further = daemon.connect();
    assert_eq!(further.read()["error"]["code"], "busy");
    assert!(further.ended());
    let error = weft_control::call_raw(&daemon.path(), &ControlCommand::Version {}).unwrap_err();
    assert!(matches!(error, ControlError::Refused(refusal) if refusal.code == ErrorCode::Busy));
    drop(held);
    // The daemon notices the end of connections after a while.
    wait_until(MINUTE, "a place is free again", || {
        weft_control::call_raw(&daemon.path(), &ControlCommand::Version {}).is_ok()
    });
}

#[test]
fn a_stream_that_is_ended_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let (ready, bound) = std::sync::mpsc::channel();
    let daemon = thread::spawn({
        let path = path.clone();
        move || {
            runtime().block_on(async {
                let mut server = ControlServer::bind(&path, Access::default()).await.unwrap();
                ready.send(()).unwrap();
                let request = server.next().await.unwrap();
                assert_eq!(
                    request.command,
                    ControlCommand::Transfer(TransferCommand::Receive { port: 7375 })
                );
                assert_eq!(request.reply.uid(), weft_os::process::effective_uid());
                let subscriber = request.reply.stream();
                let own = "fd00::1".parse().unwrap();
                assert!(subscriber.send(&TransferEvent::registered(own, "weft0", "bob".to_owned())));
                subscriber.end(Refusal::new(ErrorCode::Transfer, "replaced"));
                server.close().await;
            });
        }
    });
    bound.recv().unwrap();
    let command = ControlCommand::Transfer(TransferCommand::Receive { port: 7375 });
    let mut stream = weft_control::EventStream::open_with(&path, &command).unwrap();
    assert_eq!(stream.next_event().unwrap().unwrap()["user"], "bob");
    let error = stream.next_event().unwrap_err();
    assert!(matches!(error, ControlError::Refused(refusal) if refusal.code == ErrorCode::Transfer));
    assert_eq!(stream.next_event().unwrap(), None);
    daemon.join().unwrap();
}

const EVENTS: &[u8] = b"{\"schema\":\"weft.control/1\",\"cmd\":\"events\"}\n";

/// Lets the daemon send `number` events. Returns how many clients listen after that.
fn send_events(daemon: &Daemon, number: usize) -> u64 {
    let confirm_s = Some(u32::try_from(number).unwrap());
    let done = unless_busy(|| weft_control::call::<Reloaded>(&daemon.path(), &ControlCommand::Reload { confirm_s }));
    done.unwrap().confirm_s.unwrap()
}

#[test]
fn events_come_until_the_daemon_ends() {
    let mut daemon = Daemon::start();
    let mut raw = daemon.connect();
    raw.0.get_mut().write_all(EVENTS).unwrap();
    let mut stream = weft_control::EventStream::open(&daemon.path()).unwrap();
    // Both requests arrive before the daemon sends.
    wait_until(MINUTE, "both clients listen", || send_events(&daemon, 0) >= 2);
    assert_eq!(send_events(&daemon, 2), 2);
    for number in 0..2 {
        let line = raw.read();
        assert_eq!((&line["ok"], &line["data"]["event"]), (&true.into(), &"path".into()));
        let event = stream.next_event().unwrap().unwrap();
        assert_eq!(
            (&event["schema"], &event["unix_ms"]),
            (&"weft.event/1".into(), &number.into())
        );
    }
    daemon.down().unwrap();
    assert_eq!(stream.next_event().unwrap().unwrap()["event"], "stopping");
    assert_eq!(stream.next_event().unwrap(), None);
    assert_eq!(raw.read()["data"]["event"], "stopping");
    assert!(raw.ended());
}

#[test]
fn a_client_that_does_not_read_events_is_ended_and_delays_none() {
    let daemon = Daemon::start();
    let mut slow = daemon.connect();
    slow.0.get_mut().write_all(EVENTS).unwrap();
    wait_until(MINUTE, "the client listens", || send_events(&daemon, 0) >= 1);
    assert_eq!(send_events(&daemon, QUEUE + 1), 0, "more than the queue holds");
    for _ in 0..QUEUE {
        assert_eq!(slow.read()["ok"], true);
    }
    assert_eq!(slow.read()["error"]["code"], "too-slow");
    assert!(slow.ended());
}

#[test]
fn a_client_of_events_that_leaves_gives_its_place_back() {
    let daemon = Daemon::start();
    let mut held: Vec<_> = (1..MAX_CONNECTIONS)
        .map(|_| {
            let mut raw = daemon.connect();
            raw.0.get_mut().write_all(EVENTS).unwrap();
            raw
        })
        .collect();
    wait_until(MINUTE, "all clients listen", || {
        send_events(&daemon, 0) >= MAX_CONNECTIONS as u64 - 1
    });
    let mut asks = held.pop().unwrap();
    asks.0.get_mut().write_all(EVENTS).unwrap();
    assert!(asks.ended());
    drop(held);
    wait_until(MINUTE, "no client listens", || send_events(&daemon, 0) == 0);
}

#[test]
fn closing_ends_idle_connections() {
    let mut daemon = Daemon::start();
    let mut idle = daemon.connect();
    idle.ask(ControlCommand::Version {}.to_request().as_bytes());
    daemon.down().unwrap();
    assert!(idle.ended());
}

#[test]
fn a_second_server_leaves_the_first_alone() {
    let daemon = Daemon::start();
    assert!(matches!(bind(&daemon.path()), Err(BindError::InUse { .. })));
    let version = weft_control::call::<Version>(&daemon.path(), &ControlCommand::Version {});
    assert!(version.is_ok());
}

#[test]
fn the_socket_of_a_dead_daemon_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let asked = weft_control::call_raw(&path, &ControlCommand::Version {});
    assert!(matches!(asked, Err(ControlError::NotRunning { .. })));
    bind(&path).unwrap();
    assert!(!path.exists(), "and removed at the end");
}

#[test]
fn a_later_servers_socket_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    runtime().block_on(async {
        let first = ControlServer::bind(&path, Access::default()).await.unwrap();
        fs::remove_file(&path).unwrap();
        let _second = ControlServer::bind(&path, Access::default()).await.unwrap();
        drop(first);
        assert!(path.exists());
    });
}

#[test]
fn places_where_no_socket_can_be() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "kept").unwrap();
    assert!(matches!(bind(&file), Err(BindError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert!(matches!(
        bind(&directory.path().join("no/socket")),
        Err(BindError::Io { .. })
    ));
    let long = directory.path().join("x".repeat(120));
    assert!(matches!(bind(&long), Err(BindError::PathTooLong { .. })));
    let asked = weft_control::call_raw(&long, &ControlCommand::Version {});
    assert!(matches!(asked, Err(ControlError::PathTooLong { .. })));
}

/// The error of a client if the daemon answers with `bytes`.
fn answered_with(bytes: &'static [u8]) -> ControlError {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        stream.read_line(&mut String::new()).unwrap();
        stream.get_mut().write_all(bytes).unwrap();
    });
    let error = weft_control::call::<Version>(&path, &ControlCommand::Version {}).unwrap_err();
    daemon.join().unwrap();
    error
}

#[test]
fn answers_that_make_no_sense() {
    for bytes in [
        &b""[..],
        b"hello\n",
        b"[]\n",
        b"{\"ok\":true}\n",
        b"{\"ok\":1,\"data\":{}}\n",
        b"{\"ok\":true,\"data\":{\"schema\":\"weft.version/1\"}}\n",
        b"{\"ok\":false,\"error\":{\"code\":5}}\n",
        b"\xff\n",
    ] {
        let error = answered_with(bytes);
        assert!(matches!(error, ControlError::BadAnswer { .. }), "{bytes:?}: {error}");
        assert!(!error.to_string().contains('\n'));
    }
    let later = answered_with(b"{\"ok\":false,\"error\":{\"code\":\"on-fire\",\"message\":\"m\"}}\n");
    assert!(matches!(later, ControlError::Refused(refusal) if refusal.code == ErrorCode::Other));
}
