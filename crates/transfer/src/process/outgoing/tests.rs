#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use weft_os::test_support::wait_until;

use super::super::Options;
use super::super::services::OfServices;
use super::*;
use crate::api::TransferId;
use crate::queue::Store;
use crate::settings::Settings;
use crate::shares::Shares;

/// A time limit for what takes seconds at most.
const PATIENCE: Duration = Duration::from_secs(60);

pub(in crate::process) fn process(directory: &tempfile::TempDir) -> Arc<Process> {
    let options = Options {
        directory: directory.path().to_owned(),
        control: directory.path().join("control"),
        home: None,
    };
    let store = Store::open(&options.directory).unwrap();
    let services = OfServices::load(&options).unwrap();
    Arc::new(Process::new(
        options,
        store,
        Settings::default(),
        Shares::default(),
        services,
    ))
}

#[test]
fn all_is_tried_at_once_when_a_peer_or_the_daemon_comes() {
    let directory = tempfile::tempdir().unwrap();
    let process = process(&directory);
    let id = TransferId([1; 16]);
    assert_eq!([0, 1, 2].map(|tries| process.plan_try(id, tries)), [1, 2, 3]);
    let listener = UnixListener::bind(directory.path().join("control")).unwrap();
    let hearing = Arc::clone(&process);
    let hears = thread::spawn(move || hearing.hear());
    let (mut daemon, _) = listener.accept().unwrap();
    BufReader::new(&daemon).read_line(&mut String::new()).unwrap();
    for event in ["listening", "peer-up"] {
        assert_eq!(
            process.plan_try(id, 5),
            if event == "listening" { 6 } else { 1 },
            "the pauses begin anew"
        );
        writeln!(
            daemon,
            r#"{{"ok":true,"data":{{"schema":"weft.event/1","event":"{event}"}}}}"#
        )
        .unwrap();
        wait_until(PATIENCE, event, || process.plan().next.is_empty());
    }
    process.stopping.store(true, std::sync::atomic::Ordering::Release);
    drop((daemon, listener));
    process.changed.notify_all();
    hears.join().unwrap();
}

#[test]
fn a_try_under_way_has_no_reason_of_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let process = process(&directory);
    let key = (Direction::Send, TransferId([1; 16]));
    let before = Outgoing {
        why: Some("nas is not reached".to_owned()),
        ..Outgoing::new(key.1, "nas".to_owned(), Vec::new(), 0)
    };
    process.store.save_outgoing(&before).unwrap();
    let shown = || process.status(key).map(|status| (status.state, status.why)).unwrap();
    assert_eq!(shown(), (TransferState::Queued, before.why.clone()));
    let live = Arc::new(Live::default());
    process.lives().insert(key, Arc::clone(&live));
    for state in [
        TransferState::Connecting,
        TransferState::Waiting,
        TransferState::Running,
    ] {
        live.set(state, None);
        assert_eq!(shown(), (state, None));
    }
}
