//! Which tests run beside each other: a lock that tests that measure hold alone, and tests that wait
//! hold together.
//!
//! It is a lock of a file, because `interop_fips` is another program.

use std::fs::File;

use weft_os::test_support::{in_namespaces, is_started_again};

/// Where the lock is.
const LOCK: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/e2e.lock");

/// Runs the body of a test that measures, or that loads the processors: in namespaces
/// ([`in_namespaces`]), while no other test has a turn.
pub fn alone<F: FnOnce()>(body: F) {
    // The process that started this one has the turn.
    let _turn = (!is_started_again()).then(turn);
    in_namespaces(body);
}

/// Runs the body of a test that mostly waits: in namespaces, with others of its kind beside it.
pub fn beside<F: FnOnce()>(body: F) {
    let _turn = (!is_started_again()).then(shared_turn);
    in_namespaces(body);
}

/// Waits until no other test, of this process or another, has a turn. It ends when the file is closed.
pub fn turn() -> File {
    let file = File::create(LOCK).unwrap();
    file.lock().unwrap();
    file
}

/// Waits until no test runs alone, and keeps those from it.
pub fn shared_turn() -> File {
    let file = File::create(LOCK).unwrap();
    file.lock_shared().unwrap();
    file
}
