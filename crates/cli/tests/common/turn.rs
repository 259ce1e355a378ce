//! The schedule of tests: a lock that tests that measure hold alone, and tests that wait hold
//! together.
//!
//! It is a lock of a file, because `interop_fips` is another program, and another checkout may test
//! on this machine.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

use weft_os::test_support::{in_namespaces, in_namespaces_alone_again, is_started_again, report, running_test};

/// The name of the lock among temporary files.
const LOCK: &str = "weft-e2e.lock";
/// The name of the lock that a test holds while it waits for the other. It makes the wait fair:
/// behind a test that waits to run alone, no further test takes the lock.
const QUEUE: &str = "weft-e2e.queue";
/// The time between two looks at a lock.
const LOOK: Duration = Duration::from_millis(10);
/// A wait that is reported: all tests together take less.
const LONG: Duration = Duration::from_secs(600);

/// Runs the body of a test that measures, or that loads the processors: in namespaces
/// ([`in_namespaces`]), while no other test runs.
pub fn alone<F: FnOnce()>(body: F) {
    // The process that started this one holds the lock.
    let _turn = (!is_started_again()).then(turn);
    in_namespaces(body);
}

/// Runs the body of a test that mostly waits: in namespaces, with others of its kind beside it. If
/// it fails, it is repeated alone.
pub fn beside<F: FnOnce()>(body: F) {
    if is_started_again() {
        in_namespaces(body);
        return;
    }
    let mut shared = Some(shared_turn());
    in_namespaces_alone_again(body, || {
        shared.take();
        turn()
    });
}

/// Waits until no other test, of this process or another, holds the lock. It is released when the
/// file is closed.
pub fn turn() -> File {
    let _queue = queue();
    locked(LOCK, File::try_lock)
}

/// Waits until no test runs alone, and prevents such a test from starting.
pub fn shared_turn() -> File {
    let _queue = queue();
    locked(LOCK, File::try_lock_shared)
}

fn queue() -> File {
    locked(QUEUE, File::try_lock)
}

/// Waits for a lock. A long wait says what it waits for: another checkout may hold it for hours.
fn locked(name: &str, lock: impl Fn(&File) -> Result<(), TryLockError>) -> File {
    let file = open(name);
    let mut said = Instant::now();
    loop {
        match lock(&file) {
            Ok(()) => return file,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            Err(TryLockError::Error(error)) => panic!("{name}: {error}"),
        }
        if said.elapsed() > LONG {
            said = Instant::now();
            let path = std::env::temp_dir().join(name);
            report(&format!(
                "{} waits for other end-to-end tests: {}\n",
                running_test(),
                path.display()
            ));
        }
    }
}

/// Opens a file that tests of other users can open, too.
fn open(name: &str) -> File {
    let path = std::env::temp_dir().join(name);
    // A reader can lock: the file of another user is only opened for that.
    if let Ok(file) = File::open(&path) {
        return file;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o644).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let _ = file.set_permissions(Permissions::from_mode(0o644));
    file
}
