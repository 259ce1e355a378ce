//! Events for clients: the difference between two looks at the peers and the networks.
//!
//! States are compared, so that a client learns what a peer is now, however often that changed in
//! between, and a peer that flaps costs at most three events a look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weft_control::status::{AskedAtStatus, Event, EventKind};
use weft_control::{Reply, Subscriber};
use weft_core::{Path, PeerStatus, Standing};
use weft_networks::Mark;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_ms, unix_s};

use super::run::Daemon;
use super::saving::Problems;

/// The interval between two looks while a client listens.
const LOOK: Duration = Duration::from_secs(1);
/// The interval between two questions to the peers whether they are there.
const CHECK: Duration = Duration::from_secs(10);
/// The pause before a look that something has caused, so that one look covers what comes together.
const SOON: Duration = Duration::from_millis(100);
/// The most events of one look. Those beyond it come with the next one; a queue has room for several
/// looks.
const AT_ONCE: usize = 256;

/// The clients that listen, and what they know of the peers.
#[derive(Debug, Default)]
pub(super) struct Events {
    subscribers: Vec<Subscriber>,
    known: BTreeMap<PublicKey, Seen>,
    networks: Option<NetworksSeen>,
    next: Option<Instant>,
    /// When peers were last asked whether they are there.
    checked: Option<Instant>,
}

/// What clients know of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    up: bool,
    path: Option<Path>,
    /// Its name: after its removal the daemon has none.
    name: Option<String>,
}

impl Seen {
    fn new(peer: &PeerStatus, name: Option<String>) -> Self {
        Self {
            up: matches!(peer.standing, Standing::Connected | Standing::Active),
            path: peer.path,
            name,
        }
    }
}

/// What clients know of the networks: not the list of them, as that has a line for each member. Standings of members
/// and routes are left out, as other events tell of them, or they change all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NetworksSeen {
    mark: Mark,
    problems: Problems,
    asked_at: Vec<AskedAtStatus>,
}

/// A peer, and for how many ms it has given no answer.
type Judged = (PeerStatus, Option<u64>);

/// A change of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    key: PublicKey,
    name: Option<String>,
    kind: EventKind,
}

impl Events {
    /// Returns the time at which the next look is due; `None` if no client listens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Adds a client. Those that have gone make room for it.
    fn add(&mut self, subscriber: Subscriber, now: Instant) {
        self.subscribers.retain(|known| !known.is_gone());
        self.subscribers.push(subscriber);
        self.plan(now);
    }

    /// Plans the next look. One that is planned stays, however often clients come.
    fn plan(&mut self, now: Instant) {
        self.next = Some(self.next.map_or(now + LOOK, |next| next.min(now + LOOK)));
    }

    /// Notes that something has changed: the next look comes soon.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.next = self.next.map(|next| next.min(now + SOON));
    }

    /// Notes what is known of the networks. Returns whether that is something else than before; the first time it is
    /// no news.
    fn note_networks(&mut self, now: NetworksSeen) -> bool {
        let news = self.networks.as_ref().is_some_and(|before| *before != now);
        self.networks = Some(now);
        news
    }

    fn send(&mut self, event: &Event) {
        self.subscribers.retain(|subscriber| subscriber.send(event));
    }

    /// Returns the changes since the last look, [`AT_ONCE`] at most.
    fn changes(&mut self, now: &BTreeMap<PublicKey, Seen>) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut put = |key: &PublicKey, seen: &Seen, kind| {
            changes.push(Change {
                key: *key,
                name: seen.name.clone(),
                kind,
            });
            changes.len()
        };
        let gone: Vec<PublicKey> = self
            .known
            .keys()
            .filter(|key| !now.contains_key(key))
            .copied()
            .collect();
        let mut number = 0;
        for key in gone.into_iter().take(AT_ONCE) {
            if let Some(seen) = self.known.remove(&key) {
                number = put(&key, &seen, EventKind::MemberRemoved);
            }
        }
        for (key, seen) in now {
            if number >= AT_ONCE {
                break;
            }
            let before = self.known.insert(*key, seen.clone());
            if before.is_none() {
                number = put(key, seen, EventKind::MemberAdded);
            }
            let (up, path) = before.map_or((false, None), |before| (before.up, before.path));
            number = match (up, seen.up) {
                (false, true) => put(key, seen, EventKind::PeerUp),
                (true, false) => put(key, seen, EventKind::PeerDown),
                // A peer comes with its path, and goes with it.
                _ if path != seen.path => put(key, seen, EventKind::Path),
                _ => number,
            };
        }
        changes
    }
}

impl Daemon {
    /// Adds a client that listens.
    pub(super) fn subscribe(&mut self, reply: Reply) {
        let subscriber = reply.stream();
        if !subscriber.send(&Event::listening(unix_ms())) {
            return;
        }
        if self.events.subscribers.is_empty() {
            self.events.known = self.seen();
            self.events.networks = Some(self.seen_networks());
        } else {
            // The new client knows what the others know.
            self.look_for_events();
        }
        self.events.add(subscriber, Instant::now());
    }

    /// Looks at the peers if that is due.
    pub(super) fn drive_events(&mut self, now: Instant) {
        if self.events.next.is_none_or(|next| now < next) {
            return;
        }
        self.events.subscribers.retain(|subscriber| !subscriber.is_gone());
        if self.events.subscribers.is_empty() {
            self.events = Events::default();
            return;
        }
        self.events.next = Some(now + LOOK);
        if self.events.checked.is_none_or(|at| now >= at + CHECK) {
            self.events.checked = Some(now);
            self.check_peers(None);
        }
        if self.look_for_events() >= AT_ONCE {
            self.events.hurry(now);
        }
    }

    /// Says that the daemon ends.
    pub(super) fn end_events(&mut self) {
        self.events.send(&Event::of_daemon(EventKind::Stopping, unix_ms()));
    }

    /// Sends what has changed, and returns how many events about peers that were.
    fn look_for_events(&mut self) -> usize {
        let networks = self.seen_networks();
        if self.events.note_networks(networks) {
            self.events.send(&Event::of_daemon(EventKind::Networks, unix_ms()));
        }
        let changes = self.events.changes(&self.seen());
        if changes.is_empty() {
            return 0;
        }
        let changed: BTreeSet<PublicKey> = changes.iter().map(|change| change.key).collect();
        let now = boottime_ms();
        let peers = self.node.peer_status(now).filter(|peer| changed.contains(&peer.key));
        let peers = peers.map(|mut peer| {
            let silence = self.facts.judge(&mut peer, now);
            (peer.key, (peer, silence))
        });
        let peers: BTreeMap<PublicKey, Judged> = peers.collect();
        let number = changes.len();
        for change in changes {
            let event = self.describe(&peers, change);
            self.events.send(&event);
        }
        number
    }

    fn seen(&self) -> BTreeMap<PublicKey, Seen> {
        let now = boottime_ms();
        let seen = |mut peer: PeerStatus| {
            self.facts.judge(&mut peer, now);
            let name = self.facts.names.get(&peer.key).map(ToString::to_string);
            (peer.key, Seen::new(&peer, name))
        };
        self.node.peer_status(now).map(seen).collect()
    }

    fn seen_networks(&self) -> NetworksSeen {
        NetworksSeen {
            mark: self.networks.mark(unix_s()),
            problems: self.saving.problems(),
            asked_at: self.all_asked_at(boottime_ms()),
        }
    }

    fn describe(&self, peers: &BTreeMap<PublicKey, Judged>, change: Change) -> Event {
        let peer = peers.get(&change.key);
        Event {
            npub: Some(change.key.to_string()),
            name: change.name,
            address: Some(change.key.node_addr().to_ipv6()),
            standing: peer.map(|(peer, _)| peer.standing),
            path: peer.and_then(|(peer, _)| Some(self.facts.path(&peer.path?))),
            why: peer.map(|(peer, silence)| self.facts.why_judged(peer, *silence)),
            ..Event::of_daemon(change.kind, unix_ms())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_networks::Networks;
    use weft_noise::{Identity, SecretKey};
    use weft_os::random::SystemRng;
    use weft_roster::names::Name;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    fn seen(up: bool, port: Option<u16>) -> Seen {
        let address = |port| Path::Direct(([192, 0, 2, 1], port).into());
        Seen {
            up,
            path: port.map(address),
            name: Some("bob".to_owned()),
        }
    }

    fn kinds(changes: Vec<Change>) -> Vec<(PublicKey, EventKind)> {
        assert!(changes.iter().all(|change| change.name.as_deref() == Some("bob")));
        changes.into_iter().map(|change| (change.key, change.kind)).collect()
    }

    #[test]
    fn a_look_has_the_differences_and_no_more() {
        let mut events = Events::default();
        let mut now = BTreeMap::new();
        assert!(events.changes(&now).is_empty());
        now.insert(key(1), seen(false, None));
        assert_eq!(kinds(events.changes(&now)), [(key(1), EventKind::MemberAdded)]);
        assert!(events.changes(&now).is_empty(), "the same once more");
        for (state, kind) in [
            (seen(true, Some(1)), EventKind::PeerUp),
            (seen(true, Some(2)), EventKind::Path),
            (seen(false, None), EventKind::PeerDown),
            (seen(false, Some(2)), EventKind::Path),
        ] {
            now.insert(key(1), state.clone());
            assert_eq!(kinds(events.changes(&now)), [(key(1), kind)], "{state:?}");
        }
        now.clear();
        assert_eq!(kinds(events.changes(&now)), [(key(1), EventKind::MemberRemoved)]);
        now.insert(key(2), seen(true, Some(1)));
        let both = [(key(2), EventKind::MemberAdded), (key(2), EventKind::PeerUp)];
        assert_eq!(kinds(events.changes(&now)), both);
    }

    #[test]
    fn clients_that_come_again_and_again_defer_no_look() {
        let mut events = Events::default();
        let begun = Instant::now();
        for tenths in 0..10 {
            events.plan(begun + tenths * LOOK / 10);
        }
        assert_eq!(events.deadline(), Some(begun + LOOK));
    }

    #[test]
    fn networks_are_news_only_where_they_differ() {
        let identity = Arc::new(Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap()));
        let mut networks = Networks::new(identity, Vec::new(), Box::new(SystemRng));
        let seen = |networks: &Networks, problems: Problems| NetworksSeen {
            mark: networks.mark(0),
            problems,
            asked_at: Vec::new(),
        };
        let mut events = Events::default();
        let none = Problems::default;
        assert!(!events.note_networks(seen(&networks, none())), "the first look");
        assert!(!events.note_networks(seen(&networks, none())), "the same once more");
        let home = Name::network("home").unwrap();
        let id = networks.create(home, None, [7; 16], 0).unwrap();
        assert!(events.note_networks(seen(&networks, none())));
        assert!(!events.note_networks(seen(&networks, none())));
        let unsaved = || Problems {
            unsaved: BTreeMap::from([(id, "the disk is full".to_owned())]),
            ..none()
        };
        assert!(events.note_networks(seen(&networks, unsaved())));
        assert!(!events.note_networks(seen(&networks, unsaved())));
    }

    #[test]
    fn what_exceeds_a_look_comes_with_the_next_one() {
        let mut events = Events::default();
        let keys = (1..=200).map(key);
        let now: BTreeMap<_, _> = keys.map(|key| (key, seen(true, None))).collect();
        let mut all = Vec::new();
        loop {
            let changes = events.changes(&now);
            assert!(changes.len() <= AT_ONCE + 1);
            if changes.is_empty() {
                break;
            }
            all.extend(changes);
        }
        assert_eq!(all.len(), 2 * 200);
    }
}
