//! Host names of the configuration: when each is asked for, and the addresses that it has.
//!
//! A state machine without clock and sockets: `now` is in ms on a clock that never goes back, and
//! [`Hosts::poll`] says which name to ask for. Answers come from servers that nothing proves, so an
//! address is only where a peer may be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_reach::candidate::{Refused, check};

use weft_config::host_name::HostName;

/// Maximum number of addresses of a name.
pub const MAX_ADDRESSES: usize = 8;
/// Maximum number of names that are asked for at the same time.
pub const AT_ONCE: usize = 8;
/// The bounds of the time after which a name is asked for again, in seconds.
pub const TTL: std::ops::RangeInclusive<u32> = 30..=3_600;
/// The pause after the first failure, in ms. It doubles with each further one.
pub const FIRST_PAUSE: u64 = 10_000;
/// The longest pause after a failure, in ms.
pub const LAST_PAUSE: u64 = 300_000;
/// The minimum interval between two questions for a name, in ms: a network that flaps asks no more.
const LEAST_INTERVAL: u64 = 1_000;

/// The addresses of one IP version that a name has, and for how many seconds they are known. No
/// address: the name has none of this version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The addresses, in the order of the server.
    pub addresses: Vec<IpAddr>,
    /// The least TTL of the records on the way to them, in seconds.
    pub ttl: u32,
}

/// What the servers say about IPv6 addresses and about IPv4 addresses.
pub type Answers = [Result<Answer, LookupError>; 2];

/// The reason why a name has no addresses. Its text is a part of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The system names no server.
    #[error("this system has no name server ({0})")]
    NoServer(String),
    /// The name does not exist.
    #[error("the name does not exist")]
    NoSuchName,
    /// The name has addresses of neither IP version.
    #[error("the name has no address")]
    NoAddress,
    /// No server has answered, or all have failed.
    #[error("no name server has an answer")]
    NoAnswer,
    /// The response cannot be read.
    #[error("the response of the name server is malformed")]
    Malformed,
    /// All addresses are refused; this is the first one.
    #[error("{0} cannot be dialled: {1}")]
    Refused(IpAddr, Refused),
}

/// All host names.
#[derive(Debug, Default)]
pub struct Hosts {
    entries: BTreeMap<HostName, Entry>,
    /// Questions without an answer yet, also those for names that were removed.
    in_flight: usize,
}

/// One name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The addresses of IPv6 and of IPv4.
    versions: [Vec<IpAddr>; 2],
    error: Option<LookupError>,
    /// When it is asked for, in ms.
    due: u64,
    /// When it was asked for last, in ms.
    asked: Option<u64>,
    asking: bool,
    /// It is asked for once more after the present question.
    again: bool,
    failures: u32,
}

impl Hosts {
    /// Makes `names` the names that are asked for. New ones are due at once.
    pub fn set(&mut self, names: &BTreeSet<HostName>, now: u64) {
        self.entries.retain(|name, _| names.contains(name));
        for name in names {
            self.entries.entry(name.clone()).or_insert_with(|| Entry {
                due: now,
                ..Entry::default()
            });
        }
    }

    /// Returns a name to ask for; [`Hosts::handle`] takes the answer, which must come.
    pub fn poll(&mut self, now: u64) -> Option<HostName> {
        if self.in_flight >= AT_ONCE {
            return None;
        }
        let mut entries = self.entries.iter_mut();
        let (name, entry) = entries.find(|(_, entry)| !entry.asking && entry.due <= now)?;
        (entry.asking, entry.asked) = (true, Some(now));
        self.in_flight += 1;
        Some(name.clone())
    }

    /// When a name is due, in ms.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        let idle = self.entries.values().filter(|entry| !entry.asking);
        let room = self.in_flight < AT_ONCE;
        room.then(|| idle.map(|entry| entry.due).min()).flatten()
    }

    /// Handles the answers to a question. Returns whether the addresses of the name changed.
    pub fn handle(&mut self, now: u64, name: &HostName, answers: Answers) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        let before = entry.addresses();
        entry.take(now, answers);
        entry.addresses() != before
    }

    /// Handles a change of this host's network: other servers may have other answers.
    pub fn handle_network_change(&mut self, now: u64) {
        for entry in self.entries.values_mut() {
            entry.failures = 0;
            entry.again = entry.asking;
            let earliest = entry.asked.map_or(0, |asked| asked + LEAST_INTERVAL);
            entry.due = entry.due.min(now.max(earliest));
        }
    }

    /// The addresses of a name at present; none if it is not known.
    #[must_use]
    pub fn addresses(&self, name: &HostName) -> Vec<IpAddr> {
        self.entries.get(name).map(Entry::addresses).unwrap_or_default()
    }

    /// What is known about a name.
    #[must_use]
    pub fn entry(&self, name: &HostName) -> Option<&Entry> {
        self.entries.get(name)
    }
}

impl Entry {
    /// Its addresses, IPv6 and IPv4 in turn; at most [`MAX_ADDRESSES`].
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let [v6, v4] = &self.versions;
        let longest = v6.len().max(v4.len());
        let in_turn = (0..longest).flat_map(|at| [v6.get(at), v4.get(at)]);
        in_turn.flatten().copied().take(MAX_ADDRESSES).collect()
    }

    /// Why the last question failed; the addresses are then those of the answer before.
    #[must_use]
    pub const fn error(&self) -> Option<&LookupError> {
        self.error.as_ref()
    }

    /// Whether it has been asked for, and an answer or a failure came.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.asked.is_some() && (!self.asking || self.error.is_some())
    }

    /// When it is asked for again, in ms; `None` while a question is open.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        (!self.asking).then_some(self.due)
    }

    fn take(&mut self, now: u64, answers: Answers) {
        self.asking = false;
        let (mut ttl, mut failed, mut refused) = (*TTL.end(), None, None);
        for (version, answer) in self.versions.iter_mut().zip(answers) {
            match answer {
                Ok(answer) => {
                    let (usable, first) = usable(answer.addresses);
                    if !usable.is_empty() {
                        ttl = ttl.min(answer.ttl);
                    }
                    refused = refused.or(first);
                    *version = usable;
                }
                // The addresses of this version may be those of the last answer still.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let is_empty = self.versions.iter().all(Vec::is_empty);
        let nothing = || refused.map_or(LookupError::NoAddress, |(ip, why)| LookupError::Refused(ip, why));
        self.error = failed.or_else(|| is_empty.then(nothing));
        let fresh = u64::from(ttl.clamp(*TTL.start(), *TTL.end())) * 1_000;
        let pause = match &self.error {
            None => {
                self.failures = 0;
                fresh
            }
            Some(_) => {
                let pause = FIRST_PAUSE << self.failures.min(5);
                self.failures = self.failures.saturating_add(1);
                pause.min(LAST_PAUSE)
            }
        };
        let again = std::mem::take(&mut self.again);
        self.due = now + if again { LEAST_INTERVAL } else { pause };
    }
}

/// The addresses that can be dialled, and the first of the others.
fn usable(addresses: Vec<IpAddr>) -> (Vec<IpAddr>, Option<(IpAddr, Refused)>) {
    let (mut usable, mut refused) = (Vec::new(), None);
    for ip in addresses {
        // The port is the configuration's, which was checked there.
        match check(SocketAddr::new(ip, 1)) {
            Ok(()) if usable.len() < MAX_ADDRESSES && !usable.contains(&ip) => usable.push(ip),
            Ok(()) => {}
            Err(why) => refused = refused.or(Some((ip, why))),
        }
    }
    (usable, refused)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn hosts(names: &[&str]) -> Hosts {
        let mut hosts = Hosts::default();
        hosts.set(&names.iter().map(|text| name(text)).collect(), 0);
        hosts
    }

    fn found(addresses: &[&str], ttl: u32) -> Result<Answer, LookupError> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Ok(Answer { addresses, ttl })
    }

    fn failed() -> Answers {
        [Err(LookupError::NoAnswer), Err(LookupError::NoAnswer)]
    }

    fn text(hosts: &Hosts, of: &HostName) -> Vec<String> {
        hosts.addresses(of).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_asked_for_again_with_its_ttl_within_bounds() {
        let a = name("a.example");
        for (ttl, pause) in [(0, 30), (29, 30), (60, 60), (3_600, 3_600), (86_400, 3_600)] {
            let mut hosts = hosts(&["a.example"]);
            assert_eq!((hosts.poll(0), hosts.poll(0)), (Some(a.clone()), None));
            assert_eq!(hosts.timeout(), None, "the answer is awaited");
            assert!(hosts.handle(5, &a, [found(&["2001:db8::1"], 9_999), found(&["192.0.2.1"], ttl)]));
            assert_eq!(hosts.timeout(), Some(5 + pause * 1_000));
            assert_eq!(hosts.poll(4 + pause * 1_000), None);
            assert!(hosts.poll(5 + pause * 1_000).is_some());
            let same = [found(&["2001:db8::1"], 9_999), found(&["192.0.2.1"], ttl)];
            assert!(!hosts.handle(6, &a, same), "nothing changed");
        }
    }

    #[test]
    fn failures_keep_addresses_and_wait_longer_each_time() {
        let (mut hosts, a) = (hosts(&["a.example"]), name("a.example"));
        hosts.poll(0);
        hosts.handle(0, &a, [found(&[], 0), found(&["192.0.2.1"], 60)]);
        let mut now = 60_000;
        for pause in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(hosts.timeout(), Some(now));
            assert!(hosts.poll(now).is_some());
            assert!(!hosts.handle(now, &a, failed()));
            assert_eq!(hosts.entry(&a).unwrap().error(), Some(&LookupError::NoAnswer));
            now += pause * 1_000;
        }
        assert_eq!(text(&hosts, &a), ["192.0.2.1"]);
        hosts.poll(now);
        let half = [Err(LookupError::NoAnswer), found(&["192.0.2.2"], 60)];
        assert!(hosts.handle(now, &a, half), "one version alone");
        assert_eq!(text(&hosts, &a), ["192.0.2.2"]);
        hosts.poll(now + LAST_PAUSE);
        assert!(hosts.handle(now, &a, [found(&[], 0), found(&[], 0)]));
        assert_eq!(hosts.entry(&a).unwrap().error(), Some(&LookupError::NoAddress));
    }

    #[test]
    fn a_change_of_network_asks_at_once_but_once_a_second_at_most() {
        let (mut hosts, a) = (hosts(&["a.example"]), name("a.example"));
        hosts.poll(0);
        hosts.handle_network_change(10);
        assert_eq!(hosts.poll(20), None, "one question at a time");
        hosts.handle(30, &a, failed());
        assert_eq!(hosts.timeout(), Some(30 + LEAST_INTERVAL), "that of the network before");
        hosts.poll(30 + LEAST_INTERVAL);
        hosts.handle(2_000, &a, [found(&[], 0), found(&["192.0.2.1"], 600)]);
        hosts.handle_network_change(2_010);
        assert_eq!(hosts.timeout(), Some(30 + 2 * LEAST_INTERVAL));
        hosts.handle_network_change(9_000);
        assert_eq!(hosts.poll(9_000), Some(a));
    }

    #[test]
    fn addresses_that_lead_nowhere_or_into_the_mesh_are_refused() {
        let (mut hosts, a) = (hosts(&["a.example"]), name("a.example"));
        hosts.poll(0);
        let v6 = found(&["fd12::1", "::1", "fe80::1", "::ffff:192.0.2.1"], 60);
        let v4 = found(&["127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"], 60);
        assert!(!hosts.handle(0, &a, [v6, v4]));
        let error = hosts.entry(&a).unwrap().error().cloned();
        assert_eq!(
            error,
            Some(LookupError::Refused("fd12::1".parse().unwrap(), Refused::Mesh))
        );
        hosts.poll(FIRST_PAUSE);
        hosts.handle(FIRST_PAUSE, &a, [found(&["fd12::1", "2001:db8::1"], 60), found(&[], 0)]);
        assert_eq!(
            (text(&hosts, &a), hosts.entry(&a).unwrap().error()),
            (vec!["2001:db8::1".to_owned()], None)
        );
    }

    #[test]
    fn an_answer_for_a_name_that_was_removed_changes_nothing() {
        let mut hosts = hosts(&["a.example"]);
        let a = hosts.poll(0).unwrap();
        hosts.set(&BTreeSet::new(), 1);
        assert!(!hosts.handle(2, &a, [found(&[], 0), found(&["192.0.2.1"], 60)]));
        assert_eq!((hosts.timeout(), hosts.in_flight), (None, 0));
    }

    proptest! {
        #[test]
        fn bounds_hold_in_any_order(steps in proptest::collection::vec((0_u8..4, 0_usize..30, 0_u8..20), 1..200)) {
            let names: Vec<HostName> = (0..30).map(|n| name(&format!("n{n}.example"))).collect();
            let mut hosts = Hosts::default();
            hosts.set(&names.iter().cloned().collect(), 0);
            let (mut now, mut open) = (0, Vec::new());
            for (step, which, count) in steps {
                match step {
                    0 => while let Some(name) = hosts.poll(now) { open.push(name) },
                    1 if !open.is_empty() => {
                        let name = open.swap_remove(which % open.len());
                        let v4 = (0..count).map(|n| IpAddr::from([192, 0, 2, n])).collect();
                        let v4 = Ok(Answer { addresses: v4, ttl: u32::from(count) * 10 });
                        hosts.handle(now, &name, [Err(LookupError::NoAnswer), v4]);
                    }
                    2 => hosts.handle_network_change(now),
                    _ => now += u64::from(count) * 1_000,
                }
                prop_assert!(open.len() <= AT_ONCE && hosts.in_flight == open.len());
                prop_assert!(names.iter().all(|name| hosts.addresses(name).len() <= MAX_ADDRESSES));
            }
        }
    }
}
