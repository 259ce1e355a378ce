//! The thread that watches the tests of this process.

use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use super::{limit, stalls};

/// The time between two looks.
const SLEEP: Duration = Duration::from_millis(10);

/// Starts it, once.
pub(super) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let limit = limit::of_tests();
        // A system without a thread for it still runs tests.
        let _ = thread::Builder::new().name("watch".to_owned()).spawn(move || {
            loop {
                let before = Instant::now();
                thread::sleep(SLEEP);
                stalls::handle_sleep(before.elapsed());
                limit::enforce(limit);
            }
        });
    });
}
