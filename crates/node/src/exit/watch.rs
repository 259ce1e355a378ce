//! When to look whether another program has changed what exits consist of.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::system_changes::SystemChanges;

/// The least time between two looks: two programs that undo each other's changes use no more.
const PACE: Duration = Duration::from_secs(1);

/// Waits for changes of nftables and of the rules for routes, by any program.
pub(crate) struct Watch {
    changes: SystemChanges,
    /// When the next look is allowed.
    next: Instant,
    /// Whether there was a change, or something undone, since the last look.
    due: bool,
}

impl Watch {
    /// Starts to listen.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self {
            changes: SystemChanges::of_rules()?,
            next: Instant::now(),
            due: false,
        })
    }

    /// Returns when it is time to look: after a change, also one by this program, or after
    /// [`again`](Self::again). Safe to cancel.
    pub(crate) async fn changed(&mut self) {
        if !self.due {
            self.changes.changed().await;
            self.due = true;
        }
        sleep_until(self.next).await;
        self.next = Instant::now() + PACE;
        self.due = false;
    }

    /// Makes [`changed`](Self::changed) return once more, without a change.
    pub(crate) const fn again(&mut self) {
        self.due = true;
    }
}
