//! The end that has services, with a peer that does what it wants.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use weft_os::test_support::wait_until;
use weft_transfer::keep::Beat;
use weft_transfer::serve::{Mesh, Serving, Session, User};
use weft_transfer::wire::message::{self, Ended};
use weft_transfer::wire::request::{Answer, Request};

use super::{HERE, PATIENCE, QUICK, echo, ended, hear, pair, service, user};

/// What a service that does not exist is answered with, and one of others.
const NO_SERVICE: &str = "no such service, or not for this node";

fn serving(beat: Beat) -> Arc<Serving> {
    Arc::new(Serving::new(Box::new(|_| Ok(Some(user(&["family"])))), beat))
}

/// A request connection, the session behind it, and the thread that serves it.
struct Use {
    request: TcpStream,
    session: mpsc::Receiver<Arc<Session>>,
    thread: JoinHandle<()>,
}

fn ask(serving: &Arc<Serving>, name: &str, user: User) -> Use {
    let (request, theirs) = pair();
    let (begun, session) = mpsc::channel();
    let (serving, name) = (Arc::clone(serving), name.to_owned());
    let thread = thread::spawn(move || serving.serve(&theirs, &name, user, |session| begun.send(session).unwrap()));
    Use {
        request,
        session,
        thread,
    }
}

fn data(session: &Arc<Session>) -> TcpStream {
    let (data, theirs) = pair();
    let session = Arc::clone(session);
    thread::spawn(move || session.take(&theirs));
    data
}

#[test]
fn unknown_services_and_those_of_others_are_refused_alike() {
    let serving = serving(Beat::default());
    serving.add(service("web", &echo(), None));
    for (name, tags) in [
        ("none", &["family"][..]),
        ("web", &[]),
        ("", &["family"]),
        ("web", &["work"]),
    ] {
        let used = ask(&serving, name, user(tags));
        assert_eq!(
            hear(&used.request),
            Answer::Refused(Ended::Rejected, NO_SERVICE.to_owned()),
            "{name}"
        );
        assert_eq!(ended(&used.request), b"");
        used.thread.join().unwrap();
        assert!(used.session.recv().is_err(), "nothing takes its data connections");
    }
}

#[test]
fn bytes_pass_until_both_directions_have_ended() {
    let serving = serving(Beat::default());
    serving.add(service("web", &echo(), None));
    let used = ask(&serving, "web", user(&["family"]));
    assert_eq!(hear(&used.request), Answer::Granted);
    let session = used.session.recv().unwrap();
    let mut data = data(&session);
    assert_eq!(hear(&data), Answer::Granted);
    data.write_all(b"hello").unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ended(&data), b"hello");
    drop(used.request);
    used.thread.join().unwrap();
    // What comes after the end of the request is not passed on.
    let (late, theirs) = pair();
    session.take(&theirs);
    drop(theirs);
    let mut all = Vec::new();
    let _ = (&late).read_to_end(&mut all);
    assert!(!all.windows(5).any(|part| part == b"hello"));
}

#[test]
fn a_silent_peer_is_given_up_with_its_connections() {
    let serving = serving(QUICK);
    serving.add(service("web", &echo(), None));
    let used = ask(&serving, "web", user(&["family"]));
    assert_eq!(hear(&used.request), Answer::Granted);
    let data = data(&used.session.recv().unwrap());
    assert_eq!(hear(&data), Answer::Granted);
    assert_eq!(
        hear(&used.request),
        Answer::Alive,
        "the other end says that it is there"
    );
    assert_eq!(ended(&data), b"");
    used.thread.join().unwrap();
    assert_eq!(serving.state("web").connections, 0);
}

#[test]
fn a_peer_that_says_something_else_loses_its_use() {
    let serving = serving(Beat::default());
    serving.add(service("web", &echo(), None));
    let second = Request::Use {
        service: "web".to_owned(),
    };
    for bytes in [second.to_bytes(), vec![0xff], vec![9, 9]] {
        let mut used = ask(&serving, "web", user(&["family"]));
        assert_eq!(hear(&used.request), Answer::Granted);
        message::write(&mut used.request, &bytes).unwrap();
        used.thread.join().unwrap();
    }
    let mut used = ask(&serving, "web", user(&["family"]));
    used.request.write_all(&u32::MAX.to_le_bytes()).unwrap();
    used.thread.join().unwrap();
}

#[test]
fn connections_without_end_have_a_bound() {
    let serving = serving(Beat::default());
    serving.add(service("web", &echo(), None));
    let used = ask(&serving, "web", user(&["family"]));
    let session = used.session.recv().unwrap();
    let all: Vec<TcpStream> = (0..100).map(|_| data(&session)).collect();
    let granted = all.iter().filter(|data| match hear(data) {
        Answer::Granted => true,
        Answer::Refused(Ended::NotNow, why) => {
            assert_eq!(why, "too many connections at present");
            false
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(granted.count(), 32);
    wait_until(PATIENCE, "all are counted", || serving.state("web").connections == 32);
    drop(all);
    wait_until(PATIENCE, "their places are free", || {
        hear(&data(&session)) == Answer::Granted
    });
}

#[test]
fn a_service_that_does_not_answer_is_told_without_an_end() {
    let serving = serving(Beat::default());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    serving.add(service("web", &address, None));
    serving.add(service("db", "/nonexistent/db", None));
    for (name, words) in [("web", "connection refused"), ("db", "no such file")] {
        let used = ask(&serving, name, user(&["family"]));
        assert_eq!(hear(&used.request), Answer::Granted);
        let session = used.session.recv().unwrap();
        for _ in 0..2 {
            let data = data(&session);
            match hear(&data) {
                Answer::Refused(Ended::NotNow, why) => assert!(why.contains(words), "{why}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(ended(&data), b"");
        }
        assert!(!used.thread.is_finished());
    }
}

#[test]
fn removal_ends_all_of_a_service_and_nothing_else() {
    let serving = serving(Beat::default());
    let uses = ["web", "db"].map(|name| {
        serving.add(service(name, &echo(), None));
        let used = ask(&serving, name, user(&["family"]));
        assert_eq!(hear(&used.request), Answer::Granted);
        let data = data(&used.session.recv().unwrap());
        assert_eq!(hear(&data), Answer::Granted);
        (used, data)
    });
    serving.remove("web");
    let [(web, web_data), (db, mut db_data)] = uses;
    assert_eq!((ended(&web_data), ended(&web.request)), (Vec::new(), Vec::new()));
    web.thread.join().unwrap();
    assert!(!db.thread.is_finished());
    db_data.write_all(b"hello").unwrap();
    db_data.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ended(&db_data), b"hello");
}

#[test]
fn a_right_that_is_taken_back_ends_the_use() {
    let allowed = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&allowed);
    let who = move |_| Ok(asked.load(Ordering::Acquire).then(|| user(&["family"])));
    let serving = Arc::new(Serving::new(Box::new(who), Beat::default()));
    serving.add(service("web", &echo(), None));
    let used = ask(&serving, "web", user(&["family"]));
    assert_eq!(hear(&used.request), Answer::Granted);
    let data = data(&used.session.recv().unwrap());
    assert_eq!(hear(&data), Answer::Granted);
    allowed.store(false, Ordering::Release);
    serving.sweep();
    assert_eq!((ended(&data), ended(&used.request)), (Vec::new(), Vec::new()));
    used.thread.join().unwrap();
}

/// A port at which a service can be published.
fn free_port() -> u16 {
    let free = TcpListener::bind((HERE, 0)).unwrap();
    free.local_addr().unwrap().port()
}

fn mesh() -> Mesh {
    Mesh {
        interface: None,
        addresses: vec![HERE],
    }
}

#[test]
fn a_mesh_address_serves_those_who_may() {
    for (tags, answer) in [(&["family"][..], &b"hello"[..]), (&["work"], b"")] {
        let user = user(tags);
        let serving = Arc::new(Serving::new(Box::new(move |_| Ok(Some(user.clone()))), Beat::default()));
        let port = free_port();
        serving.add(service("web", &echo(), Some(port)));
        assert!(serving.state("web").at.is_empty());
        serving.set_mesh(Ok(mesh()));
        assert_eq!(serving.state("web").at, [(HERE, port).into()]);
        let mut stream = TcpStream::connect((HERE, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be closed by now.
        let _ = stream
            .write_all(b"hello")
            .and_then(|()| stream.shutdown(Shutdown::Write));
        assert_eq!(ended(&stream), answer, "{tags:?}");
        serving.unpublish("the daemon has ended");
        assert_eq!(serving.state("web").why.as_deref(), Some("the daemon has ended"));
        wait_until(PATIENCE, "nothing listens", || {
            TcpStream::connect((HERE, port)).is_err()
        });
    }
}

#[test]
fn a_port_that_is_taken_leaves_the_service_by_name() {
    let serving = serving(Beat::default());
    let other = TcpListener::bind((HERE, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    serving.set_mesh(Ok(mesh()));
    serving.add(service("web", &echo(), Some(port)));
    let state = serving.state("web");
    assert!(state.at.is_empty());
    let why = state.why.unwrap();
    assert!(why.contains(&format!("another program has TCP port {port}")), "{why}");
    let used = ask(&serving, "web", user(&["family"]));
    assert_eq!(hear(&used.request), Answer::Granted);
    drop(other);
    wait_until(PATIENCE, "it is tried again", || {
        serving.set_mesh(Ok(mesh()));
        serving.state("web").why.is_none()
    });
}

#[test]
fn the_places_of_a_mesh_address_are_bounded() {
    let serving = serving(Beat::default());
    let port = free_port();
    serving.add(service("web", &echo(), Some(port)));
    serving.set_mesh(Ok(mesh()));
    let all: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect((HERE, port)).unwrap()).collect();
    wait_until(PATIENCE, "as many as may are served", || {
        serving.state("web").connections == 32
    });
    let closed = |stream: &&TcpStream| {
        stream.set_read_timeout(Some(QUICK.alive)).unwrap();
        !matches!((&**stream).read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    wait_until(PATIENCE, "the others are closed", || {
        all.iter().filter(closed).count() == 68
    });
}
