//! The end that brings a service here, with a peer that does what it wants.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};

use weft_os::test_support::wait_until;
use weft_transfer::api::RawPath;
use weft_transfer::forward::{Forwarding, Way};
use weft_transfer::keep::Beat;
use weft_transfer::live::Failure;
use weft_transfer::services::Local;
use weft_transfer::wire::Connection;
use weft_transfer::wire::message::Ended;
use weft_transfer::wire::request::{Answer, Request};

use super::{PATIENCE, QUICK, ended, hear_request, pair, say};

/// A user of the peer, whose ends of connections the test has.
struct Played(Mutex<mpsc::Sender<(Connection, TcpStream)>>);

impl Way for Played {
    fn connect(&self, connection: Connection) -> Result<Arc<TcpStream>, Failure> {
        let (theirs, own) = pair();
        let sent = self.0.lock().unwrap().send((connection, theirs));
        sent.map(|()| own)
            .map_err(|_| Failure::Retry("the peer is not reached".to_owned()))
    }
}

struct Scene {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    forwarding: Arc<Forwarding>,
    /// Connections to each user of the peer.
    users: Vec<mpsc::Receiver<(Connection, TcpStream)>>,
}

impl Scene {
    fn start(users: usize, beat: Beat) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("db");
        let (ways, users): (Vec<Arc<dyn Way>>, Vec<_>) = (0..users)
            .map(|_| {
                let (sender, receiver) = mpsc::channel();
                (Arc::new(Played(Mutex::new(sender))) as Arc<dyn Way>, receiver)
            })
            .unzip();
        let local = Local::Unix(RawPath::from(&*socket));
        let dial = Box::new(move || Ok(ways.clone()));
        let (forwarding, listens) = Forwarding::start(local, "db".to_owned(), dial, beat);
        listens.unwrap();
        Self {
            _directory: directory,
            socket,
            forwarding,
            users,
        }
    }

    fn next(&self, user: usize, kind: Connection) -> TcpStream {
        let (found, stream) = self.users[user].recv_timeout(PATIENCE).unwrap();
        assert_eq!(found, kind);
        stream
    }

    /// Grants what is asked for.
    fn grant(&self, user: usize) -> TcpStream {
        let request = self.next(user, Connection::Request);
        let wanted = Request::Use {
            service: "db".to_owned(),
        };
        assert_eq!(hear_request(&request), wanted);
        say(&request, &Answer::Granted);
        wait_until(PATIENCE, "it is up", || self.forwarding.state().up);
        request
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn down(&self, words: &str) {
        wait_until(PATIENCE, "it is down", || !self.forwarding.state().up);
        let why = self.forwarding.state().why.unwrap();
        assert!(why.contains(words), "{why}");
        assert_eq!(why.lines().count(), 1);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.forwarding.stop();
    }
}

fn is_closed(stream: &mut UnixStream) -> bool {
    !matches!(stream.read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn bytes_pass_once_the_peer_has_granted_them() {
    let scene = Scene::start(1, Beat::default());
    let _request = scene.grant(0);
    let mut local = scene.connect();
    let mut data = scene.next(0, Connection::Data);
    local.write_all(b"question").unwrap();
    local.shutdown(Shutdown::Write).unwrap();
    say(&data, &Answer::Granted);
    assert_eq!(ended(&data), b"question");
    data.write_all(b"answer").unwrap();
    drop(data);
    let mut all = Vec::new();
    local.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"answer");
}

#[test]
fn the_user_that_has_the_service_is_found() {
    let scene = Scene::start(3, Beat::default());
    let first = scene.next(0, Connection::Request);
    say(&first, &Answer::Refused(Ended::Rejected, "not for you".to_owned()));
    // This one answers with what is no answer.
    let second = scene.next(1, Connection::Request);
    let end = Answer::End {
        more: true,
        user: String::new(),
    };
    say(&second, &end);
    let _third = scene.grant(2);
    let _local = scene.connect();
    scene.next(2, Connection::Data);
}

#[test]
fn a_service_of_several_users_needs_a_name() {
    let scene = Scene::start(2, Beat::default());
    let both = [0, 1].map(|user| {
        let request = scene.next(user, Connection::Request);
        say(&request, &Answer::Granted);
        request
    });
    wait_until(PATIENCE, "it is refused", || scene.forwarding.state().why.is_some());
    scene.down("several users there serve db; forward USER@PEER:db");
    both.iter().for_each(|request| drop(ended(request)));
}

#[test]
fn a_refusal_is_shown_as_plain_text_and_tried_again() {
    let scene = Scene::start(1, Beat::default());
    let request = scene.next(0, Connection::Request);
    say(
        &request,
        &Answer::Refused(Ended::Rejected, "no\x1b[2J\nroot".to_owned()),
    );
    wait_until(PATIENCE, "it says why", || {
        scene.forwarding.state().why.as_deref() == Some("no\\x1b[2J\\x0aroot")
    });
    assert!(scene.forwarding.state().next_try.is_some());
    // A program that comes at once is not kept waiting.
    assert!(is_closed(&mut scene.connect()));
    scene.forwarding.nudge();
    let _request = scene.grant(0);
}

#[test]
fn a_silent_peer_is_down_and_its_connections_end() {
    let scene = Scene::start(1, QUICK);
    let request = scene.grant(0);
    let mut local = scene.connect();
    let data = scene.next(0, Connection::Data);
    say(&data, &Answer::Granted);
    assert_eq!(hear_request(&request), Request::Alive);
    scene.down("the connection fell silent");
    assert!(is_closed(&mut local));
    assert_eq!(ended(&data), b"");
}

#[test]
fn a_peer_that_ends_or_lies_is_down() {
    for (bytes, words) in [
        (&[][..], "ended the connection"),
        (&[4, 0, 0, 0, 4, 1, 0, 0], "no such"),
        (&[1, 0, 0, 0, 1], "second answer"),
        (&[1, 0, 0, 0, 0xff], "an answer of kind 255"),
        (&[0xff; 4], "lost"),
    ] {
        let scene = Scene::start(1, Beat::default());
        let mut request = scene.grant(0);
        match words {
            "no such" => say(
                &request,
                &Answer::Refused(Ended::Rejected, "no such service".to_owned()),
            ),
            _ => request.write_all(bytes).unwrap(),
        }
        drop(request);
        scene.down(words);
    }
}

#[test]
fn a_service_that_does_not_answer_is_shown_while_it_is_up() {
    let scene = Scene::start(1, Beat::default());
    let _request = scene.grant(0);
    let mut local = scene.connect();
    let data = scene.next(0, Connection::Data);
    let why = "the service there does not answer (connection refused)";
    say(&data, &Answer::Refused(Ended::NotNow, why.to_owned()));
    assert!(is_closed(&mut local));
    let state = scene.forwarding.state();
    assert_eq!((state.up, state.why.as_deref()), (true, Some(why)));
    let _local = scene.connect();
    say(&scene.next(0, Connection::Data), &Answer::Granted);
    wait_until(PATIENCE, "the service answers again", || {
        scene.forwarding.state().why.is_none()
    });
}

#[test]
fn a_data_connection_without_a_place_is_tried_again() {
    let scene = Scene::start(1, Beat::default());
    let _request = scene.grant(0);
    let mut local = scene.connect();
    for _ in 0..2 {
        drop(scene.next(0, Connection::Data));
    }
    let data = scene.next(0, Connection::Data);
    say(&data, &Answer::Granted);
    (&data).write_all(b"x").unwrap();
    local.read_exact(&mut [0; 1]).unwrap();
}

#[test]
fn connections_of_programs_have_a_bound() {
    let scene = Scene::start(1, Beat::default());
    let _request = scene.grant(0);
    let mut all: Vec<UnixStream> = (0..64).map(|_| scene.connect()).collect();
    let data: Vec<TcpStream> = (0..64)
        .map(|_| {
            let data = scene.next(0, Connection::Data);
            say(&data, &Answer::Granted);
            data
        })
        .collect();
    wait_until(PATIENCE, "all are passed on", || {
        scene.forwarding.state().connections == 64
    });
    assert!(is_closed(&mut scene.connect()));
    drop(data);
    assert!(all.iter_mut().all(is_closed));
}

#[test]
fn a_stop_ends_all_and_removes_the_socket() {
    let scene = Scene::start(1, Beat::default());
    let request = scene.grant(0);
    let mut local = scene.connect();
    let data = scene.next(0, Connection::Data);
    say(&data, &Answer::Granted);
    wait_until(PATIENCE, "it is passed on", || {
        scene.forwarding.state().connections == 1
    });
    scene.forwarding.stop();
    assert!(is_closed(&mut local));
    assert_eq!(ended(&data), b"");
    ended(&request);
    assert!(!scene.socket.exists());
}
