#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;

use weft_control::TransferPurpose;

use super::super::Options;
use super::super::services::OfServices;
use super::super::shared::{NO_SHARE, NOT_THERE};
use super::*;
use crate::audience::{Audience, Party};
use crate::queue::Store;
use crate::receive::{self, Session};
use crate::settings::Settings;
use crate::shares::Shares;
use crate::wire::request::{Listed, Request};
use crate::wire::{Connection, FromReceiver, FromSender, Prelude, message};

/// A time limit for what takes seconds at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process of a user who shares, without a daemon. The tests play the peers.
struct Sharer {
    process: Arc<Process>,
    directory: tempfile::TempDir,
    listener: TcpListener,
    address: SocketAddr,
    tokens: AtomicU8,
}

impl Sharer {
    /// Shares `open` with members and `closed` with one of them.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for folder in ["state/sent", "open/sub", "closed"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        for file in ["open/file", "open/sub/deep", "closed/secret", "secret"] {
            fs::write(path(file), file).unwrap();
        }
        symlink("../closed", path("open/link")).unwrap();
        symlink("/etc/passwd", path("open/out")).unwrap();
        let mut shares = Shares::default();
        let member = Party::Member {
            name: "carol".to_owned(),
            npub: Some("carol".to_owned()),
        };
        for (name, to) in [("open", vec![]), ("closed", vec![member])] {
            let share = Share {
                name: name.to_owned(),
                path: RawPath::from(&*path(name)),
                to: Audience(to),
            };
            shares.add(share).unwrap();
        }
        let options = Options {
            directory: path("state"),
            control: path("none"),
            home: None,
        };
        let store = Store::open(&options.directory).unwrap();
        let services = OfServices::load(&options).unwrap();
        let process = Arc::new(Process::new(options, store, Settings::default(), shares, services));
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let (accepting, accepts) = (Arc::clone(&process), listener.try_clone().unwrap());
        thread::spawn(move || accepting.accept(&accepts));
        Self {
            address: listener.local_addr().unwrap(),
            process,
            directory,
            listener,
            tokens: AtomicU8::new(0),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Has the daemon grant a token to a peer.
    fn grant(&self, npub: &str) -> [u8; 16] {
        let token = [self.tokens.fetch_add(1, Ordering::Relaxed); 16];
        let grant = Grant {
            purpose: TransferPurpose::Read,
            npub: npub.to_owned(),
            name: npub.to_owned(),
            address: Ipv6Addr::LOCALHOST,
            networks: vec!["home".to_owned()],
            tags: Vec::new(),
        };
        self.process.grants.add(token, grant, Instant::now());
        token
    }

    fn connect(&self, token: [u8; 16], connection: Connection) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&Prelude { token, connection }.to_bytes()).unwrap();
        stream
    }

    fn ask(&self, token: [u8; 16], request: &Request) -> (TcpStream, Answer) {
        let mut stream = self.connect(token, Connection::Request);
        message::write(&mut stream, &request.to_bytes()).unwrap();
        let answer = Answer::parse(&message::read(&mut stream).unwrap()).unwrap();
        (stream, answer)
    }

    /// The answer to a peer that fetches.
    fn get(&self, npub: &str, id: u8, share: &str, path: &[u8]) -> (TcpStream, Answer) {
        self.ask(self.grant(npub), &get(id, share, path))
    }

    fn wait_for(&self, fetched: usize) {
        let end = Instant::now() + PATIENCE;
        while self.process.fetched().len() != fetched {
            assert!(Instant::now() < end, "{:?}", self.process.fetched());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

fn get(id: u8, share: &str, path: &[u8]) -> Request {
    Request::Get {
        id: TransferId([id; 16]),
        share: share.to_owned(),
        path: path.to_vec(),
        exclude: Vec::new(),
    }
}

fn refused(ended: Ended, why: &str) -> Answer {
    Answer::Refused(ended, why.to_owned())
}

fn say(stream: &mut TcpStream, message: &FromReceiver) {
    message::write(stream, &message.to_bytes()).unwrap();
}

fn hear(stream: &mut TcpStream) -> FromSender {
    FromSender::parse(&message::read(stream).unwrap()).unwrap()
}

/// What comes until the end of a connection.
fn rest(stream: &mut TcpStream) -> Vec<FromSender> {
    let heard = std::iter::from_fn(|| message::read(&mut &*stream).ok());
    heard.map(|bytes| FromSender::parse(&bytes).unwrap()).collect()
}

#[test]
fn no_path_leads_out_of_a_share() {
    let sharer = Sharer::new();
    fs::create_dir(sharer.path("open/.weft-part-00")).unwrap();
    let long = [b"x/".repeat(300), b"x".to_vec()].concat();
    for path in [
        &b".."[..],
        b"../closed",
        b"sub/../../closed",
        b"/etc/passwd",
        b"/",
        b".",
        b"sub//deep",
        b"link/secret",
        b"out/x",
        b"none",
        b"file/x",
        b".weft-part-00",
        b"sub\0",
        &long,
    ] {
        let browse = Request::Browse {
            share: "open".to_owned(),
            path: path.to_vec(),
        };
        let expected = refused(Ended::Fault, NOT_THERE);
        assert_eq!(sharer.ask(sharer.grant("bob"), &browse).1, expected, "{path:?}");
        assert_eq!(sharer.get("bob", 1, "open", path).1, expected, "{path:?}");
    }
    // A share never serves a link itself.
    for path in [&b"link"[..], b"out"] {
        assert_eq!(sharer.get("bob", 1, "open", path).1, refused(Ended::Fault, NOT_THERE));
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        sharer.path("open/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(
        sharer.get("bob", 1, "open", b"fifo").1,
        refused(Ended::Fault, NOT_THERE)
    );
}

#[test]
fn a_share_of_others_is_one_that_does_not_exist() {
    let sharer = Sharer::new();
    for share in ["closed", "none", "../closed", "", "open/sub"] {
        assert_eq!(sharer.get("bob", 1, share, b"").1, refused(Ended::Fault, NO_SHARE));
        if share.is_empty() {
            continue;
        }
        let browse = Request::Browse {
            share: share.to_owned(),
            path: b"secret".to_vec(),
        };
        let (_, answer) = sharer.ask(sharer.grant("bob"), &browse);
        assert_eq!(answer, refused(Ended::Fault, NO_SHARE), "{share}");
    }
    let shares = |npub: &str| {
        let browse = Request::Browse {
            share: String::new(),
            path: Vec::new(),
        };
        match sharer.ask(sharer.grant(npub), &browse).1 {
            Answer::Listed(all) => all.into_iter().map(|one: Listed| one.name).collect::<Vec<_>>(),
            answer => panic!("{answer:?}"),
        }
    };
    assert_eq!(shares("bob"), [b"open"]);
    assert_eq!(shares("carol"), [&b"closed"[..], b"open"]);
    // A token to send files is none to read them.
    let token = sharer.grant("carol");
    sharer.process.grants.end(&token);
    let mut grant = Grant {
        purpose: TransferPurpose::Send,
        npub: "carol".to_owned(),
        name: "carol".to_owned(),
        address: Ipv6Addr::LOCALHOST,
        networks: vec!["home".to_owned()],
        tags: Vec::new(),
    };
    sharer.process.grants.add(token, grant.clone(), Instant::now());
    let (_, answer) = sharer.ask(token, &get(1, "closed", b""));
    assert!(matches!(answer, Answer::Refused(Ended::Fault, _)), "{answer:?}");
    // A configured peer is a member only through a common network.
    grant.networks.clear();
    grant.purpose = TransferPurpose::Read;
    let token = [0xff; 16];
    sharer.process.grants.add(token, grant, Instant::now());
    let (_, answer) = sharer.ask(token, &get(1, "open", b""));
    assert_eq!(answer, refused(Ended::Fault, NO_SHARE));
}

#[test]
fn a_link_that_comes_midway_leads_nowhere() {
    let sharer = Sharer::new();
    let (mut stream, answer) = sharer.get("bob", 1, "open", b"sub");
    assert_eq!(answer, Answer::Granted);
    let FromSender::Hello(hello) = hear(&mut stream) else {
        panic!()
    };
    assert_eq!((hello.names, hello.into), (vec![b"sub".to_vec()], Vec::new()));
    fs::rename(sharer.path("open/sub"), sharer.path("open/old")).unwrap();
    symlink("../closed", sharer.path("open/sub")).unwrap();
    say(&mut stream, &FromReceiver::Accepted);
    let heard = rest(&mut stream);
    let found = heard.iter().any(|message| matches!(message, FromSender::Entries(..)));
    assert!(!found, "{heard:?}");
    sharer.wait_for(0);
}

#[test]
fn a_peer_has_two_places_and_no_transfers_of_others() {
    let sharer = Sharer::new();
    let mut held = Vec::new();
    for id in [1, 2] {
        let (stream, answer) = sharer.get("bob", id, "open", b"");
        assert_eq!(answer, Answer::Granted);
        held.push(stream);
    }
    let (_, third) = sharer.get("bob", 3, "open", b"");
    assert!(matches!(third, Answer::Refused(Ended::NotNow, _)), "{third:?}");
    let (carol, answer) = sharer.get("carol", 3, "open", b"");
    assert_eq!(answer, Answer::Granted);
    let in_use = refused(Ended::Fault, "the identifier is in use");
    assert_eq!(sharer.get("carol", 1, "open", b"").1, in_use);
    // An older connection of the same transfer gives way.
    let (again, answer) = sharer.get("bob", 1, "open", b"");
    assert_eq!(answer, Answer::Granted);
    rest(held.first_mut().unwrap());
    drop((held, carol, again));
    sharer.wait_for(0);
    assert_eq!(sharer.process.store.outgoing(), [], "what was not fetched is not kept");
    let own = Outgoing {
        share: None,
        npub: Some("bob".to_owned()),
        state: TransferState::Queued,
        ..own(&sharer)
    };
    sharer.process.store.save_outgoing(&own).unwrap();
    assert_eq!(sharer.get("bob", 9, "open", b"").1, in_use);
}

/// A transfer that the user here has queued.
fn own(sharer: &Sharer) -> Outgoing {
    let grant = Grant {
        purpose: TransferPurpose::Read,
        npub: "bob".to_owned(),
        name: "bob".to_owned(),
        address: Ipv6Addr::LOCALHOST,
        networks: vec!["home".to_owned()],
        tags: Vec::new(),
    };
    let asked = Asked {
        id: TransferId([9; 16]),
        share: "open".to_owned(),
        path: Vec::new(),
        exclude: Vec::new(),
    };
    sharer.process.find_asked(&grant, &asked).unwrap().2
}

#[test]
fn names_of_folders_are_read_for_few_at_a_time() {
    let sharer = Sharer::new();
    let browse = |npub: &str| {
        let browse = Request::Browse {
            share: "open".to_owned(),
            path: Vec::new(),
        };
        sharer.ask(sharer.grant(npub), &browse).1
    };
    let take = |npub: &str| sharer.process.listings.take(npub);
    let mut held: Vec<_> = std::iter::from_fn(|| take("bob")).collect();
    assert_eq!(held.len(), 2);
    let busy = refused(Ended::NotNow, "too many read names there at present");
    assert_eq!(browse("bob"), busy);
    assert!(
        matches!(browse("carol"), Answer::Listed(_)),
        "another node has its turn"
    );
    let end = Instant::now() + PATIENCE;
    while held.len() < 8 {
        // That of carol may not have ended.
        assert!(Instant::now() < end);
        held.extend(take(&format!("peer{}", held.len())));
    }
    assert!(take("one more").is_none());
    assert_eq!(browse("carol"), busy);
    held.clear();
    assert!(matches!(browse("bob"), Answer::Listed(_)));
}

/// Plays a daemon that knows no node, and says what it was asked.
fn ignorant_daemon(sharer: &Sharer) -> mpsc::Receiver<String> {
    let listener = UnixListener::bind(sharer.path("none")).unwrap();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let refusal = r#"{"ok":false,"error":{"code":"unknown-peer","message":"no such node"}}"#;
            // The asking end may have closed the connection.
            let _ = writeln!(stream, "{refusal}");
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    asked
}

#[test]
fn a_node_that_the_daemon_does_not_know_reads_no_longer() {
    let sharer = Sharer::new();
    let asked = ignorant_daemon(&sharer);
    // The share names it by its key.
    let npub = "carol";
    let (mut stream, answer) = sharer.get(npub, 1, "closed", b"");
    assert_eq!(answer, Answer::Granted);
    sharer.wait_for(1);
    sharer.process.sweep_fetched();
    assert!(asked.recv_timeout(PATIENCE).unwrap().contains(npub));
    rest(&mut stream);
    sharer.wait_for(0);
    let kept = sharer.process.store.find_outgoing(TransferId([1; 16])).unwrap();
    let why = format!("{npub} may no longer read closed");
    assert_eq!((kept.state, kept.why), (TransferState::Failed, Some(why)));
}

#[test]
fn connections_beyond_those_of_a_transfer_are_closed() {
    let sharer = Sharer::new();
    let token = sharer.grant("bob");
    let (mut stream, answer) = sharer.ask(token, &get(1, "open", b""));
    assert_eq!(answer, Answer::Granted);
    // A second request is none with the same token, and no message of a receiver.
    let mut second = sharer.connect(token, Connection::Request);
    assert_eq!(second.read(&mut [0; 1]).unwrap_or(0), 0);
    let data: Vec<_> = (0..MAX_DATA + 4)
        .map(|_| sharer.connect(token, Connection::Data))
        .collect();
    let end = Instant::now() + PATIENCE;
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!((&*stream).read(&mut [0; 1]), Ok(0))
    };
    while data.iter().filter(|stream| is_closed(stream)).count() < 4 {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(data.iter().filter(|stream| is_closed(stream)).count(), 4);
    message::write(&mut stream, &get(2, "open", b"").to_bytes()).unwrap();
    rest(&mut stream);
    sharer.wait_for(0);
    let open = |stream: &&TcpStream| !is_closed(stream);
    while data.iter().filter(open).count() > 0 {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn patterns_of_a_peer_have_a_bound() {
    let sharer = Sharer::new();
    for pattern in [
        "{".repeat(1_000),
        "[!a]{[!b],[!c]}".repeat(60),
        "**/".repeat(300),
        "a[".to_owned(),
    ] {
        let request = Request::Get {
            id: TransferId([1; 16]),
            share: "open".to_owned(),
            path: Vec::new(),
            exclude: vec![pattern.clone(); 100],
        };
        let (_, answer) = sharer.ask(sharer.grant("bob"), &request);
        let is_answer = matches!(answer, Answer::Granted | Answer::Refused(Ended::Fault, _));
        assert!(is_answer, "{pattern}: {answer:?}");
        sharer.wait_for(0);
    }
}

#[test]
fn a_silent_peer_is_left() {
    let sharer = Sharer::new();
    let mut silent = sharer.connect(sharer.grant("bob"), Connection::Request);
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_peer_without_connections_for_data_is_left() {
    let sharer = Sharer::new();
    let (mut stream, answer) = sharer.get("bob", 1, "open", b"");
    assert_eq!(answer, Answer::Granted);
    hear(&mut stream);
    say(&mut stream, &FromReceiver::Accepted);
    let verdict = crate::wire::Verdict::Send;
    let FromSender::Entries(_, entries) = hear(&mut stream) else {
        panic!()
    };
    let file = entries.iter().position(|entry| entry.size > 0).unwrap();
    say(&mut stream, &FromReceiver::Verdicts(file as u64, vec![verdict]));
    rest(&mut stream);
    sharer.wait_for(0);
}

#[test]
fn all_of_a_share_arrives_and_stays_in_the_history() {
    let sharer = Sharer::new();
    fs::write(sharer.path("open/big"), vec![7; 3 << 20]).unwrap();
    let token = sharer.grant("bob");
    let (stream, answer) = sharer.ask(token, &get(1, "open", b""));
    assert_eq!(answer, Answer::Granted);
    let (stream, live) = (Arc::new(stream), Arc::new(Live::default()));
    let hello = receive::greet(&stream).unwrap();
    let folder = sharer.path("got");
    fs::create_dir(&folder).unwrap();
    let session = Session::new(Arc::clone(&live), Arc::clone(&stream), &hello, &folder, "").unwrap();
    let session = Arc::new(session);
    receive::tell(&stream, &FromReceiver::Accepted).unwrap();
    for _ in 0..connections()[1] {
        let (session, data) = (Arc::clone(&session), sharer.connect(token, Connection::Data));
        data.set_read_timeout(None).unwrap();
        thread::spawn(move || session.serve_data(&Arc::new(data)));
    }
    session.run(&|| Ok(())).unwrap();
    for file in ["file", "sub/deep", "big"] {
        let [here, there] = [folder.join("open"), sharer.path("open")].map(|top| fs::read(top.join(file)).unwrap());
        assert_eq!(here, there, "{file}");
    }
    assert!(!folder.join("open/link").exists() && !folder.join("open/out").is_symlink());
    sharer.wait_for(0);
    let kept = sharer.process.store.find_outgoing(TransferId([1; 16])).unwrap();
    assert_eq!((kept.state, kept.share.as_deref()), (TransferState::Done, Some("open")));
    assert_eq!(fs::read_dir(sharer.path("state/sent")).unwrap().count(), 0);
}

#[test]
fn a_peer_that_waits_for_what_it_has_asked_for_is_left() {
    let sharer = Sharer::new();
    let (mut stream, answer) = sharer.get("bob", 1, "open", b"");
    assert_eq!(answer, Answer::Granted);
    hear(&mut stream);
    say(&mut stream, &FromReceiver::Waiting);
    rest(&mut stream);
    sharer.wait_for(0);
}
