//! Both sides of a real socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use super::*;
use crate::api::{ReceiveMode, ReceiveStatus, TRANSFERS};
use crate::client::{self, ClientError};

/// A process that has no transfers, and says in `why_not` what happens.
#[derive(Default)]
struct Double {
    requests: Mutex<Vec<Request>>,
    changes: Mutex<u64>,
    changed: Condvar,
    followed: AtomicU64,
}

impl Double {
    fn change(&self) {
        *self.changes.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

fn told(why: String) -> Transfers {
    Transfers {
        version: String::new(),
        schema: TRANSFERS.to_owned(),
        receive: ReceiveStatus {
            mode: ReceiveMode::Tag("family".to_owned()),
            for_s: None,
            folder: None,
            why_not: Some(why),
        },
        transfers: Vec::new(),
    }
}

impl Handler for Double {
    fn handle(&self, request: Request) -> Result<Answer, Refusal> {
        self.requests.lock().unwrap().push(request.clone());
        match request {
            Request::Cancel { id } => Err(Refusal {
                code: RefusalCode::UnknownTransfer,
                message: format!("no transfer begins with {id}"),
            }),
            _ => Ok(told("done".to_owned()).into()),
        }
    }

    fn follow(&self, id: &str, each: &mut dyn FnMut(Transfers) -> bool) -> Result<(), Refusal> {
        let mut changes = self.changes.lock().unwrap();
        while *changes < 3 {
            if !each(told(format!("{id} {changes}"))) {
                self.followed.fetch_add(1, Ordering::AcqRel);
                return Ok(());
            }
            changes = self.changed.wait_timeout(changes, Duration::from_millis(10)).unwrap().0;
        }
        drop(changes);
        Err(refused("that is all"))
    }
}

/// A server that runs, and its end.
struct Running {
    _directory: tempfile::TempDir,
    path: PathBuf,
    double: Arc<Double>,
    thread: Option<thread::JoinHandle<()>>,
    stopper: Stopper,
}

impl Running {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transfer/socket");
        let server = Server::bind(&path).unwrap();
        let (stopper, double) = (server.stopper(), Arc::new(Double::default()));
        let handler: Arc<dyn Handler> = double.clone();
        let thread = Some(thread::spawn(move || server.serve(handler)));
        Self {
            _directory: directory,
            path,
            double,
            thread,
            stopper,
        }
    }

    fn call(&self, request: &Request) -> Result<Transfers, ClientError> {
        client::call(&self.path, request)
    }

    /// Waits until the server has ended.
    fn wait(&mut self) {
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.path.exists());
        assert!(matches!(self.call(&list()), Err(ClientError::NotRunning(_))));
    }
}

fn list() -> Request {
    Request::Transfers {
        history: false,
        id: None,
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn requests_are_answered_or_refused_until_stop() {
    let mut running = Running::start();
    assert_eq!(running.call(&list()).unwrap(), told("done".to_owned()));
    let refused = running.call(&Request::Cancel { id: "0f".to_owned() }).unwrap_err();
    let ClientError::Refused(refusal) = refused else {
        panic!("{refused}")
    };
    assert_eq!(refusal.code, RefusalCode::UnknownTransfer);
    assert_eq!(refusal.to_string(), "no transfer begins with 0f");
    assert_eq!(running.double.requests.lock().unwrap().len(), 2);
    running.call(&Request::Stop {}).unwrap();
    running.wait();
}

#[test]
fn lines_are_as_the_api_says() {
    let running = Running::start();
    let mut stream = UnixStream::connect(&running.path).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |line: &[u8]| {
        stream.write_all(line).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        answer
    };
    assert_eq!(
        ask(b"{\"cmd\":\"transfers\"}\n"),
        "{\"ok\":true,\"data\":{\"schema\":\"weft.transfers/1\",\"version\":\"\",\
         \"receive\":{\"mode\":{\"tag\":\"family\"},\"for_s\":null,\"folder\":null,\"why_not\":\"done\"},\"transfers\":[]}}\n"
    );
    for wrong in [
        "nonsense\n",
        "{\"cmd\":\"fly\"}\n",
        "{\"cmd\":\"stop\",\"now\":true}\n",
        "\n",
        "\u{1}\n",
    ] {
        let answer = ask(wrong.as_bytes());
        assert!(
            answer.starts_with("{\"ok\":false,\"error\":{\"code\":\"bad-request\","),
            "{answer}"
        );
    }
    // The last line is not complete when its limit is reached.
    let answer = ask(&vec![b' '; MAX_REQUEST]);
    assert!(answer.contains("at most 1048576 bytes"), "{answer}");
    assert_eq!(running.double.requests.lock().unwrap().len(), 1);
}

#[test]
fn a_follower_gets_each_change_once_and_the_end() {
    let running = Running::start();
    let mut seen = Vec::new();
    let end = client::follow(&running.path, "0f12", &mut |transfers| {
        seen.push(transfers.receive.why_not.unwrap());
        running.double.change();
        true
    });
    assert_eq!(seen, ["0f12 0", "0f12 1", "0f12 2"]);
    assert_eq!(end.unwrap_err().to_string(), "that is all");
}

#[test]
fn a_follower_that_hangs_up_is_noticed_without_a_change() {
    let running = Running::start();
    client::follow(&running.path, "0f12", &mut |_| false).unwrap();
    wait_until("its place is free", || {
        running.double.followed.load(Ordering::Acquire) == 1
    });
}

#[test]
fn clients_have_bounded_places() {
    let running = Running::start();
    let mut followers: Vec<_> = (0..MAX_FOLLOWERS)
        .map(|_| {
            let mut stream = UnixStream::connect(&running.path).unwrap();
            stream.write_all(b"{\"cmd\":\"follow\",\"id\":\"0f12\"}\n").unwrap();
            let mut stream = BufReader::new(stream);
            stream.read_line(&mut String::new()).unwrap();
            stream
        })
        .collect();
    let refused = client::follow(&running.path, "0f12", &mut |_| true)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("12 commands follow"), "{refused}");
    running.call(&list()).unwrap();
    let idle: Vec<_> = (MAX_FOLLOWERS..MAX_CLIENTS)
        .map(|_| UnixStream::connect(&running.path).unwrap())
        .collect();
    let refused = running.call(&list()).unwrap_err().to_string();
    assert!(refused.contains("16 commands are connected"), "{refused}");
    drop(idle);
    wait_until("a place is free", || running.call(&list()).is_ok());
    followers.clear();
    wait_until("those of followers, too", || {
        client::follow(&running.path, "0f12", &mut |_| false).is_ok()
    });
}

#[test]
fn a_stopper_ends_the_server() {
    let mut running = Running::start();
    running.stopper.stop();
    running.wait();
}

#[test]
fn only_a_stale_socket_in_a_directory_of_its_own_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transfer/socket");
    let first = Server::bind(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let second = Server::bind(&path).unwrap();
    // The end of the first one, late, does not remove the socket of the second.
    drop(first);
    assert!(path.exists());
    drop(second);
    fs::write(&path, "text").unwrap();
    assert_eq!(Server::bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs::remove_file(&path).unwrap();
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(Server::bind(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}
