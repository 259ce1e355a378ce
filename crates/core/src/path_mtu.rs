//! The largest frame that a session's path takes, learned at both of its ends.
//!
//! Each datagram of a session records the smallest link on its path; the receiver reports it to the
//! sender. A node on the path that had to drop a frame reports that itself. Source: FIPS fips-mtu
//! and `proto/mmp/path_mtu.rs`. The differences:
//!
//! - Confirmations follow packets, so that an idle session stays idle.
//! - A claim by a node on the path is believed down to [`MIN_HINTED`] only: no part of it is
//!   sealed, and every path under IPv6 takes that much.
//! - The peer's report is sealed, but it repeats the value that nodes on the path wrote into the
//!   frame. It is believed down to [`LEAST_PAYLOAD`]: a smaller size is refused. Hosts ignore a
//!   path of less than 1,280 bytes, so believing it would only let a node on the path make their
//!   packets "too big" for ever (docs/decisions/0021-told-sizes-and-queues.md).

use weft_wire::fast::LEAST_PAYLOAD;

/// The size down to which an unsealed claim can lower a path, in bytes of UDP payload: IPv6
/// requires links of 1,280 bytes (RFC 8200 section 5), less its header and UDP's.
pub(crate) const MIN_HINTED: u16 = 1_232;
/// A smaller claim describes no usable path (FIPS `MIN_ACTIONABLE_PATH_MTU` is 256).
pub(crate) const MIN_TOLD: u16 = LEAST_PAYLOAD;
/// Minimum time between two confirmations of the same value, in ms; also five round trips.
const CONFIRM_EVERY: u64 = 10_000;
/// Number of higher values in a row that raise the size again.
const RAISE_AFTER: u32 = 3;
/// Minimum time between two claims of nodes on the path that count, in ms: each makes local senders
/// retry.
const HINT_PAUSE: u64 = 100;

/// The size of sent frames, in bytes of UDP payload.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// The size of this node's own link.
    link: u16,
    current: u16,
    /// A higher value that was reported: the value, how often in a row, and since when.
    higher: Option<(u16, u32, u64)>,
    hinted_at: Option<u64>,
}

impl PathMtu {
    pub(crate) fn new(link: u16) -> Self {
        Self {
            link,
            current: link,
            higher: None,
            hinted_at: None,
        }
    }

    /// Returns the size in use.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Handles the peer's report on the smallest link that frames of this node have passed. Returns
    /// whether that changes the size.
    pub(crate) fn handle_told(&mut self, now: u64, told: u16, srtt: Option<u64>) -> bool {
        if told < MIN_TOLD {
            return false;
        }
        let told = told.min(self.link);
        if told == self.current {
            self.higher = None;
            return false;
        }
        if told < self.current {
            return self.lower(told);
        }
        let (times, since) = match self.higher {
            Some((value, times, since)) if value == told => (times + 1, since),
            _ => (1, now),
        };
        self.higher = Some((told, times, since));
        if times < RAISE_AFTER || now.saturating_sub(since) < 2 * confirm_every(srtt) {
            return false;
        }
        self.higher = None;
        self.current = told;
        true
    }

    /// Handles the claim of a node on the path that a frame was too large for its next link.
    /// Returns whether that changes the size.
    pub(crate) fn handle_hint(&mut self, now: u64, claimed: u16) -> bool {
        let paused = self.hinted_at.is_some_and(|at| now.saturating_sub(at) < HINT_PAUSE);
        if claimed < MIN_TOLD || paused {
            return false;
        }
        self.hinted_at = Some(now);
        let claimed = claimed.max(MIN_HINTED);
        claimed < self.current && self.lower(claimed)
    }

    /// Handles a changed path, of which nothing is known. Returns whether that changes the size.
    pub(crate) fn handle_moved(&mut self) -> bool {
        self.higher = None;
        std::mem::replace(&mut self.current, self.link) != self.link
    }

    fn lower(&mut self, to: u16) -> bool {
        self.higher = None;
        self.current = to;
        true
    }
}

/// The reports to the peer on the path to this node.
#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    /// The smallest link that the last frame passed.
    seen: Option<u16>,
    /// The last report: its value, its time, and the number of packets received by then.
    told: Option<(u16, u64, u64)>,
}

impl PathWatch {
    /// Records the smallest link that the last frame passed.
    pub(crate) fn handle_seen(&mut self, path_mtu: Option<u16>) {
        self.seen = path_mtu.filter(|mtu| *mtu >= MIN_TOLD);
    }

    /// Returns the smallest link that the last frame passed.
    pub(crate) fn seen(&self) -> Option<u16> {
        self.seen
    }

    /// Returns when a report is due; `u64::MAX` while there is none. `packets` is the number of
    /// received packets.
    pub(crate) fn due(&self, packets: u64, srtt: Option<u64>) -> u64 {
        let Some(seen) = self.seen else { return u64::MAX };
        match self.told {
            None if packets > 0 => 0,
            None => u64::MAX,
            Some((told, ..)) if seen < told => 0,
            // Any other value is reported with packets; without them no report is needed.
            Some((_, at, before)) if packets > before => at.saturating_add(confirm_every(srtt)),
            Some(_) => u64::MAX,
        }
    }

    /// Takes the value that is reported now.
    pub(crate) fn tell(&mut self, now: u64, packets: u64) -> Option<u16> {
        let seen = self.seen?;
        self.told = Some((seen, now, packets));
        Some(seen)
    }
}

fn confirm_every(srtt: Option<u64>) -> u64 {
    srtt.unwrap_or(0).saturating_mul(5).max(CONFIRM_EVERY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn down_at_once_and_up_after_three_words_over_two_intervals() {
        let mut mtu = PathMtu::new(1_400);
        assert!(mtu.handle_told(0, 1_280, None));
        for at in [10_000, 20_000] {
            assert!(!mtu.handle_told(at, 1_400, None));
        }
        assert!(!mtu.handle_told(29_999, 1_400, None));
        assert!(mtu.handle_told(30_000, 1_400, None));
        assert_eq!(mtu.current(), 1_400);
    }

    #[test]
    fn a_word_in_between_begins_the_count_anew() {
        let mut mtu = PathMtu::new(1_400);
        mtu.handle_told(0, 1_280, None);
        for (at, told) in [
            (10_000, 1_400),
            (20_000, 1_400),
            (25_000, 1_300),
            (30_000, 1_400),
            (60_000, 1_400),
        ] {
            assert!(!mtu.handle_told(at, told, None));
        }
        assert!(mtu.handle_told(61_000, 1_400, None));
    }

    #[test]
    fn a_slow_path_takes_longer_to_be_sure_of() {
        let mut mtu = PathMtu::new(1_400);
        mtu.handle_told(0, 1_280, None);
        for at in [0, 20_000, 40_000] {
            assert!(!mtu.handle_told(at, 1_400, Some(5_000)));
        }
        assert!(mtu.handle_told(50_000, 1_400, Some(5_000)));
    }

    #[test]
    fn more_than_our_own_link_is_our_own_link() {
        let mut mtu = PathMtu::new(1_280);
        assert!(!mtu.handle_told(0, 9_000, None));
        assert_eq!(mtu.current(), 1_280);
    }

    #[test]
    fn hints_are_believed_so_far_and_so_often() {
        let mut mtu = PathMtu::new(1_400);
        for nonsense in [0, 68, 256, 1_199] {
            assert!(!mtu.handle_hint(0, nonsense));
            assert!(!mtu.handle_told(0, nonsense, None));
        }
        assert!(mtu.handle_hint(0, 1_300));
        assert!(!mtu.handle_hint(99, 1_250), "too soon");
        assert!(mtu.handle_hint(100, 1_210));
        assert_eq!(mtu.current(), MIN_HINTED);
        assert!(!mtu.handle_hint(300, 1_210), "no lower");
        assert!(mtu.handle_told(400, 1_210, None), "but by the other end");
        assert!(mtu.handle_moved() && mtu.current() == 1_400);
        assert!(!mtu.handle_moved());
    }

    #[test]
    fn the_other_end_is_told_first_lower_and_now_and_then() {
        let mut watch = PathWatch::default();
        assert_eq!(watch.due(1, None), u64::MAX);
        watch.handle_seen(Some(1_199));
        assert_eq!((watch.due(1, None), watch.seen()), (u64::MAX, None));
        watch.handle_seen(Some(1_280));
        assert_eq!((watch.due(0, None), watch.due(1, None)), (u64::MAX, 0));
        assert_eq!(watch.tell(1_000, 1), Some(1_280));
        assert_eq!(watch.due(1, None), u64::MAX, "silence");
        assert_eq!(watch.due(2, None), 11_000);
        assert_eq!(watch.due(2, Some(3_000)), 16_000);
        watch.handle_seen(Some(1_279));
        assert_eq!(watch.due(1, None), 0);
    }

    proptest! {
        /// Whatever is reported: never above this node's own link, never below the minimum for the
        /// reporter.
        #[test]
        fn any_words(link in 1_200_u16..9_000, words in prop::collection::vec((any::<u16>(), any::<bool>(), 0..20_000_u64), 0..60)) {
            let (mut mtu, mut now) = (PathMtu::new(link), 0);
            for (word, hint, pause) in words {
                now += pause;
                let before = mtu.current();
                let changed = if hint { mtu.handle_hint(now, word) } else { mtu.handle_told(now, word, None) };
                prop_assert_eq!(changed, mtu.current() != before);
                prop_assert!((MIN_TOLD..=link).contains(&mtu.current()));
                prop_assert!(!hint || mtu.current() >= MIN_HINTED.min(before));
            }
        }
    }
}
