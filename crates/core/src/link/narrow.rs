//! A path that drops frames of the size that every path has to take, while small ones pass: a black hole
//! below the smallest size of full frames.
//!
//! The session finds that out for the path in use, and keeps no size of a path that it leaves for that
//! reason. So the link asks by probes of that size whether they pass again, less often each time. A path that
//! loses them again soon after is asked as if it had never recovered.

use super::choice::{Ends, MAX_RETRY, PENALTY_MEMORY, retry_after};

/// What is known of full frames on one path. Times are ms.
#[derive(Debug, Default)]
pub(super) struct Narrow {
    /// The ends whose full frames do not pass.
    pub(super) ends: Ends,
    /// When that is asked again for those of this end.
    next: u64,
    /// The number of questions without an answer.
    failures: u32,
    /// When they last passed again.
    ended_at: Option<u64>,
}

impl Narrow {
    /// Full frames of this end do not pass. Returns whether that is news.
    pub(super) fn begin(&mut self, now: u64) -> bool {
        if std::mem::replace(&mut self.ends.here, true) {
            return false;
        }
        let is_again = self.ended_at.is_some_and(|at| now < at.saturating_add(PENALTY_MEMORY));
        self.failures = if is_again { self.failures + 1 } else { 0 };
        self.next = now + retry_after(self.failures, MAX_RETRY);
        true
    }

    /// Full frames of this end pass.
    pub(super) fn end(&mut self, now: u64) {
        if std::mem::take(&mut self.ends.here) {
            self.ended_at = Some(now);
        }
    }

    /// A probe as large as a full frame was not answered.
    pub(super) fn fail(&mut self, now: u64) {
        self.failures += 1;
        self.next = now + retry_after(self.failures, MAX_RETRY);
    }

    /// Whether such a probe is due.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.ends.here && now >= self.next
    }

    /// Such a probe is due soon.
    pub(super) fn hurry(&mut self) {
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_path_is_asked_less_often_each_time() {
        let mut narrow = Narrow::default();
        let mut now = 1_000_000;
        assert!(!narrow.is_due(u64::MAX), "it is not narrow");
        assert!(narrow.begin(now) && !narrow.begin(now));
        let mut waits = Vec::new();
        for _ in 0..6 {
            waits.push((narrow.next - now) / 1_000);
            now = narrow.next;
            assert!(!narrow.is_due(now - 1) && narrow.is_due(now));
            narrow.fail(now);
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 600]);
        narrow.end(now);
        assert!(!narrow.is_due(u64::MAX));
        narrow.begin(now + PENALTY_MEMORY - 1);
        assert!(!narrow.is_due(now + PENALTY_MEMORY + MAX_RETRY - 2), "it is remembered");
        narrow.end(now);
        narrow.begin(now + PENALTY_MEMORY);
        assert!(narrow.is_due(now + PENALTY_MEMORY + 30_000));
    }
}
