//! The schedule of tests: a lock that tests that measure hold alone, and tests that wait hold
//! together.
//!
//! It is a lock of a file, because `interop_fips` is another program.

use std::fs::File;

use weft_os::test_support::{in_namespaces, is_started_again};

/// The path of the lock.
const LOCK: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/e2e.lock");

/// Runs the body of a test that measures, or that loads the processors: in namespaces
/// ([`in_namespaces`]), while no other test runs.
pub fn alone<F: FnOnce()>(body: F) {
    // The process that started this one holds the lock.
    let _turn = (!is_started_again()).then(turn);
    in_namespaces(body);
}

/// Runs the body of a test that mostly waits: in namespaces, with others of its kind beside it.
pub fn beside<F: FnOnce()>(body: F) {
    let _turn = (!is_started_again()).then(shared_turn);
    in_namespaces(body);
}

/// Waits until no other test, of this process or another, holds the lock. It is released when the
/// file is closed.
pub fn turn() -> File {
    let file = File::create(LOCK).unwrap();
    file.lock().unwrap();
    file
}

/// Waits until no test runs alone, and prevents such a test from starting.
pub fn shared_turn() -> File {
    let file = File::create(LOCK).unwrap();
    file.lock_shared().unwrap();
    file
}
