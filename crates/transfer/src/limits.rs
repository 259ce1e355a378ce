//! The limits of a user: rates, quotas, free space, transfers at a time; and what is used of them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::document;
use crate::hash::GROUP;
use crate::pace::{Pace, Paces};

/// Free space that stays where none is set, in bytes.
pub const FLOOR: u64 = 256_000_000;
/// The transfers at a time where none is set: from here, and to here.
const AT_ONCE: (u8, u8) = (3, 4);
/// The transfers at a time that can be set.
pub const AT_ONCE_RANGE: RangeInclusive<u8> = 1..=32;
/// The schema of the file of what was used.
const SCHEMA: &str = "weft.transfer-usage/1";
/// The hours that count for a quota, the present one not among them.
const HOURS: u64 = 24;
/// The pause between two writes of what was used.
const SAVE: Duration = Duration::from_secs(2);

/// The limits, as the user has set them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes a second of all transfers from here.
    pub send: Option<u64>,
    /// Bytes a second of all transfers to here.
    pub receive: Option<u64>,
    /// Bytes a second of all transfers from here through relays.
    pub relay: Option<u64>,
    /// Bytes of files that may come within 24 hours.
    pub quota: Option<u64>,
    /// The same of one peer.
    pub peer_quota: Option<u64>,
    /// Free bytes that stay on the file system that gets the files.
    pub floor: u64,
    /// Transfers at a time in each direction.
    pub at_once: Option<u8>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            send: None,
            receive: None,
            relay: None,
            quota: None,
            peer_quota: None,
            floor: FLOOR,
            at_once: None,
        }
    }
}

impl Limits {
    /// Whether nothing is set.
    #[must_use]
    pub fn are_default(&self) -> bool {
        *self == Self::default()
    }

    /// Transfers at a time: from here, and to here.
    #[must_use]
    pub fn turns(&self) -> (u8, u8) {
        self.at_once.map_or(AT_ONCE, |both| (both, both))
    }
}

/// The hours since 1970 that count at `now`, in seconds: those of a clock that was ahead do not.
fn counting(now: u64) -> RangeInclusive<u64> {
    let hour = now / 3_600;
    hour.saturating_sub(HOURS)..=hour + 1
}

/// The bytes of files that came, by peer and hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    peers: BTreeMap<String, BTreeMap<u64, u64>>,
}

impl Usage {
    /// Adds what came from a peer at `now`, in seconds since 1970.
    pub fn add(&mut self, npub: &str, bytes: u64, now: u64) {
        let hours_that_count = counting(now);
        self.peers.retain(|_, hours| {
            hours.retain(|hour, _| hours_that_count.contains(hour));
            !hours.is_empty()
        });
        if bytes > 0 {
            let hours = self.peers.entry(npub.to_owned()).or_default();
            let all = hours.entry(now / 3_600).or_default();
            *all = all.saturating_add(bytes);
        }
    }

    /// What came within 24 hours, of each peer: an hour counts until it is 24 hours over.
    pub fn by_peer(&self, now: u64) -> impl Iterator<Item = (&str, u64)> {
        let counting = counting(now);
        self.peers.iter().map(move |(npub, hours)| {
            (
                npub.as_str(),
                hours.range(counting.clone()).map(|(_, bytes)| bytes).sum(),
            )
        })
    }

    /// How many more bytes may come from a peer; `None` without a quota.
    #[must_use]
    pub fn left(&self, limits: &Limits, npub: &str, now: u64) -> Option<u64> {
        let (mut all, mut own) = (0_u64, 0);
        for (peer, used) in self.by_peer(now) {
            all = all.saturating_add(used);
            own += if peer == npub { used } else { 0 };
        }
        let left = |quota: Option<u64>, used: u64| quota.map(|quota| quota.saturating_sub(used));
        let both = [left(limits.quota, all), left(limits.peer_quota, own)];
        both.into_iter().flatten().min()
    }
}

/// Keeps what is used, and holds what runs to the limits.
#[derive(Debug)]
pub struct Keeper {
    path: PathBuf,
    inner: Mutex<(Limits, Usage)>,
    /// What was written last, and when. Who writes holds it.
    saved: Mutex<(Usage, Option<Instant>)>,
    /// All that is sent.
    send: Arc<Pace>,
    /// All that is received.
    receive: Arc<Pace>,
    /// All that is sent through relays.
    relay: Arc<Pace>,
}

impl Keeper {
    /// Reads what was used before from `path`. A file that cannot be used counts as used up in no way, and is reported.
    #[must_use]
    pub fn open(path: &Path, limits: Limits) -> Self {
        let usage = document::read(path, SCHEMA).unwrap_or_else(|why| {
            tracing::warn!(path = %path.display(), "what was used of the quotas is unknown: {why}");
            None
        });
        let usage: Usage = usage.unwrap_or_default();
        let now = Instant::now();
        let pace = |rate| Arc::new(Pace::new(rate, now));
        Self {
            path: path.to_owned(),
            send: pace(limits.send),
            receive: pace(limits.receive),
            relay: pace(limits.relay),
            saved: Mutex::new((usage.clone(), None)),
            inner: Mutex::new((limits, usage)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Limits, Usage)> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits that hold.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.lock().0.clone()
    }

    /// What was used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.lock().1.clone()
    }

    /// Changes the limits of what runs, too.
    pub fn set(&self, limits: Limits, now: Instant) {
        self.send.set_rate(limits.send, now);
        self.receive.set_rate(limits.receive, now);
        self.relay.set_rate(limits.relay, now);
        self.lock().0 = limits;
    }

    /// The limits of a transfer from here, with those of its own.
    #[must_use]
    pub fn of_sending(&self, own: Option<u64>, own_relay: Option<u64>, now: Instant) -> Paces {
        let pace = |rate: Option<u64>| rate.map(|rate| Arc::new(Pace::new(Some(rate), now)));
        let with = |own: Option<Arc<Pace>>, all: &Arc<Pace>| own.into_iter().chain([Arc::clone(all)]).collect();
        Paces {
            always: with(pace(own), &self.send),
            relayed: with(pace(own_relay), &self.relay),
        }
    }

    /// The limits of a transfer to here.
    #[must_use]
    pub fn of_receiving(&self) -> Paces {
        Paces {
            always: vec![Arc::clone(&self.receive)],
            relayed: Vec::new(),
        }
    }

    /// Takes bytes that are about to come from a peer at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// The words for both ends, if a quota does not let them come.
    pub fn take(&self, npub: &str, bytes: u64, now: u64) -> Result<(), String> {
        let mut inner = self.lock();
        let (limits, usage) = &mut *inner;
        if usage.left(limits, npub, now).is_some_and(|left| left < bytes) {
            return Err(used_up());
        }
        usage.add(npub, bytes, now);
        Ok(())
    }

    /// Checks before a transfer begins of which `left` bytes are still to come, and into whose file system `free`
    /// bytes fit.
    ///
    /// # Errors
    /// The words for both ends.
    pub fn admit(&self, npub: &str, left: Option<u64>, free: u64, now: u64) -> Result<(), String> {
        let inner = self.lock();
        let quota = inner.1.left(&inner.0, npub, now);
        if quota.is_some_and(|quota| quota < left.unwrap_or(GROUP).min(GROUP)) {
            return Err(used_up());
        }
        check_floor(inner.0.floor, free.saturating_sub(left.unwrap_or(0)))
    }

    /// Checks the free space while a transfer runs.
    ///
    /// # Errors
    /// The words for both ends.
    pub fn check_free(&self, free: u64) -> Result<(), String> {
        check_floor(self.lock().0.floor, free)
    }

    /// Writes what was used, if that is due at `now`.
    pub fn save(&self, now: Instant, at_once: bool) {
        // No code panics while it holds the lock.
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = self.usage();
        if usage == saved.0 || !at_once && saved.1.is_some_and(|last| now < last + SAVE) {
            return;
        }
        *saved = (usage, Some(now));
        if let Err(error) = document::write(&self.path, SCHEMA, &saved.0) {
            tracing::warn!(path = %self.path.display(), %error, "what is used of the quotas is not saved");
        }
    }
}

fn used_up() -> String {
    "the quota of 24 hours is used up at the receiving end".to_owned()
}

fn check_floor(floor: u64, free: u64) -> Result<(), String> {
    match free < floor {
        true => Err(format!("less than {} are free at the receiving end", size(floor))),
        false => Ok(()),
    }
}

/// A size in words.
fn size(bytes: u64) -> String {
    let units = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    const HOUR: u64 = 3_600;

    fn limits() -> Limits {
        Limits {
            quota: Some(1_000),
            peer_quota: Some(600),
            ..Limits::default()
        }
    }

    #[test]
    fn quotas_count_all_peers_and_each_for_a_day() {
        let mut usage = Usage::default();
        assert_eq!(usage.left(&limits(), "a", 0), Some(600));
        assert_eq!(usage.left(&Limits::default(), "a", 0), None);
        usage.add("a", 500, 100 * HOUR);
        usage.add("b", 450, 101 * HOUR);
        let left = |hour: u64| ["a", "b", "c"].map(|peer| usage.left(&limits(), peer, hour * HOUR).unwrap());
        assert_eq!(left(101), [50, 50, 50]);
        assert_eq!(left(124), [50, 50, 50]);
        assert_eq!(left(125), [550, 150, 550]);
        assert_eq!(left(126), [600, 600, 600]);
    }

    #[test]
    fn hours_of_a_clock_that_was_ahead_do_not_count() {
        let mut usage = Usage::default();
        usage.add("a", 600, 900 * HOUR);
        assert_eq!(usage.left(&limits(), "a", 100 * HOUR), Some(600));
        usage.add("a", 100, 100 * HOUR);
        assert_eq!(usage.left(&limits(), "a", 100 * HOUR), Some(500));
        assert_eq!(usage.left(&limits(), "a", 900 * HOUR), Some(600), "it is forgotten");
    }

    #[test]
    fn usage_survives_and_old_hours_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("usage.json");
        let keeper = Keeper::open(&path, limits());
        keeper.take("a", 600, 100 * HOUR).unwrap();
        let refused = keeper.take("a", 1, 100 * HOUR).unwrap_err();
        assert_eq!(refused, "the quota of 24 hours is used up at the receiving end");
        keeper.save(Instant::now(), true);
        let again = Keeper::open(&path, limits());
        assert!(again.take("a", 1, 101 * HOUR).is_err());
        again.take("b", 400, 101 * HOUR).unwrap();
        assert!(again.take("c", 1, 101 * HOUR).is_err());
        again.take("a", 600, 140 * HOUR).unwrap();
        assert_eq!(again.usage().peers.len(), 1);
        again.set(Limits::default(), Instant::now());
        again.take("a", u64::MAX, 140 * HOUR).unwrap();
    }

    #[test]
    fn free_space_stays() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = Keeper::open(&directory.path().join("usage.json"), Limits::default());
        keeper.check_free(FLOOR).unwrap();
        let words = "less than 256 MB are free at the receiving end";
        assert_eq!(keeper.check_free(FLOOR - 1).unwrap_err(), words);
        keeper.admit("a", Some(10), FLOOR + 10, 0).unwrap();
        assert_eq!(keeper.admit("a", Some(11), FLOOR + 10, 0).unwrap_err(), words);
        keeper.admit("a", None, FLOOR, 0).unwrap();
        assert_eq!(size(1_500_000_000), "1.5 GB");
        assert_eq!(size(999), "999 bytes");
    }

    #[test]
    fn nothing_begins_that_has_no_room_for_its_first_group() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = Keeper::open(&directory.path().join("usage.json"), limits());
        keeper.admit("a", Some(600), u64::MAX, 0).unwrap();
        assert!(keeper.admit("a", Some(601), u64::MAX, 0).is_err());
        assert!(keeper.admit("a", None, u64::MAX, 0).is_err());
        keeper.set(
            Limits {
                quota: Some(2 * GROUP),
                ..Limits::default()
            },
            Instant::now(),
        );
        keeper.admit("a", Some(100 * GROUP), u64::MAX, 0).unwrap();
    }
}
