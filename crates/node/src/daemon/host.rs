//! The host: what changes of its network mean for the node, and the node's own interface.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_discovery::port_mapping::place::place;
use weft_host::broker::{Broker, Client};
use weft_host::interest::{Concern, Interest};
use weft_host::interface::{Fact, Keeper, Outcome};
use weft_host::surroundings::Surroundings;
use weft_host::tun::mesh_route;
use weft_host::uplinks::uplinks;
use weft_host::watch::Watch;
use weft_os::clock::boottime_ms;
use weft_os::netlink::{Netlink, Route};

use super::run::Daemon;

/// How long a change of addresses or routes waits for further ones before the node reacts to all of
/// them.
const SETTLE: Duration = Duration::from_millis(50);
/// The least time between two looks at a network that changes too fast to be told of.
const LOST_EVERY: Duration = Duration::from_secs(2);
/// The share of the time that looks at the network may take: one in this number.
const LOOK_SHARE: u32 = 20;

/// The watch over the host's network, and what is known of it.
pub(super) struct HostWatch {
    pub(super) watch: Watch<Interest>,
    pub(super) keeper: Keeper,
    broker: Option<Client>,
    /// The changes to react to, and when.
    due: Concern,
    at: Option<Instant>,
    /// No look at the network of others before.
    next_look: Instant,
    /// The peers' addresses have changed since the watch has learnt of them.
    peers_changed: bool,
    /// The errors of the last look, so that each is logged once.
    logged: BTreeSet<String>,
}

impl HostWatch {
    pub(super) fn new(watch: Watch<Interest>, keeper: Keeper, broker: Option<&Broker>) -> Self {
        Self {
            watch,
            keeper,
            broker: broker.map(Broker::client),
            due: Concern::default(),
            at: None,
            next_look: Instant::now(),
            peers_changed: true,
            logged: BTreeSet::new(),
        }
    }

    /// Notes that something has changed.
    pub(super) fn note_changes(&mut self) {
        self.due |= self.watch.take();
        let soon = Instant::now() + SETTLE;
        // A look at the interface waits for none at the network of others.
        match self.at {
            Some(at) if !self.due.interface || at <= soon => {}
            _ => self.at = Some(soon),
        }
    }

    /// Notes that the node sends to other addresses than before.
    pub(super) const fn note_peers(&mut self) {
        self.peers_changed = true;
    }

    /// Notes that what must hold was not passed to the system: it is applied again soon.
    pub(super) fn apply_again(&mut self) {
        self.due.subnets = true;
        self.react_at(Instant::now() + LOST_EVERY);
    }

    /// Notes that other hosts may be reached in other ways than before.
    pub(super) fn note_paths(&mut self) {
        self.due.paths = true;
        self.react_at(Instant::now() + SETTLE);
    }

    fn react_at(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    /// Returns the time at which to react to changes.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// Returns the time at which to look at the interface, in ms.
    pub(super) const fn timeout(&self) -> u64 {
        self.keeper.timeout()
    }

    /// Takes the changes that it is time to react to. While looks are not allowed, those that need one
    /// wait.
    fn take_due(&mut self, now: Instant) -> Concern {
        if self.at.is_none_or(|at| at > now) {
            return Concern::default();
        }
        let Concern {
            subnets, paths, lost, ..
        } = self.due;
        let waits = (subnets || paths || lost) && now < self.next_look;
        self.at = waits.then_some(self.next_look);
        match waits {
            true => Concern {
                interface: std::mem::take(&mut self.due.interface) || lost,
                ..Concern::default()
            },
            false => std::mem::take(&mut self.due),
        }
    }

    /// Logs an error, unless the last look had it, too.
    pub(super) fn refuse(&mut self, error: &str) {
        if self.logged.insert(error.to_owned()) {
            tracing::warn!(
                error,
                "the interface does not have all that it needs; `weft doctor` looks again"
            );
        }
    }

    /// Logs the errors of a look that the one before did not have.
    fn refuse_all(&mut self, errors: &BTreeSet<String>) {
        self.logged.retain(|error| errors.contains(error));
        errors.iter().for_each(|error| self.refuse(error));
    }
}

impl Daemon {
    /// Reacts to changes of the host's network.
    pub(super) fn drive_host(&mut self, now: Instant) {
        if std::mem::take(&mut self.host.peers_changed) {
            let last = self.addresses.iter().map(|(_, address)| address.ip());
            let peers: BTreeSet<IpAddr> = last
                .chain(self.desired.members.addresses().map(|address| address.ip()))
                .collect();
            self.host.watch.with(|interest| interest.set_peers(peers));
        }
        let due = self.host.take_due(now);
        if due.interface || due.lost {
            self.host.keeper.look_soon(boottime_ms());
        }
        if due.subnets || due.paths || due.lost {
            let before = self.system.surroundings.clone();
            if !self.read_system() {
                return;
            }
            if due.lost {
                self.host.next_look = self.host.next_look.max(now + LOST_EVERY);
            }
            let paths = due.paths || !before.leads_as(&self.system.surroundings, self.system.interface);
            match paths {
                true => self.handle_network_change(),
                // This host may have come into a subnet that is also behind a peer, or have left it.
                false => drop(self.apply()),
            }
        }
        if boottime_ms() >= self.host.timeout() {
            self.look_at_interface();
        }
    }

    /// Reads what the system says again. Returns false if it does not say; then it is tried again soon.
    pub(super) fn read_system(&mut self) -> bool {
        let begin = Instant::now();
        let subnets = self.of_interest.clone();
        // Changes during the look are told after it.
        self.host.watch.with(|interest| interest.set_subnets(subnets.clone()));
        let read = Netlink::open().and_then(|mut netlink| Surroundings::read(&mut netlink, &subnets));
        let end = Instant::now();
        match read {
            Ok(read) => {
                self.host.next_look = end + (end - begin) * LOOK_SHARE;
                self.host.watch.with(|interest| interest.set_surroundings(&read));
                let interface = self.system.interface;
                self.system.place = place(&read, interface, &self.system.listen);
                self.system.uplinks = uplinks(&read, interface).unwrap_or_else(|error| {
                    self.uplinks.refuse(error.to_string());
                    Vec::new()
                });
                self.system.surroundings = read;
                true
            }
            Err(error) => {
                tracing::info!(%error, "the network of this host is not known");
                self.host.next_look = end + LOST_EVERY;
                self.host.due.lost = true;
                self.host.at = Some(self.host.next_look);
                false
            }
        }
    }

    /// Reacts to other addresses, default routes, or routes to peers.
    fn handle_network_change(&mut self) {
        tracing::debug!("addresses or routes changed");
        self.apply();
        self.follow_local_ends();
        let now = boottime_ms();
        self.node.handle_network_change(now);
        self.reaching.handle_network_change(now);
        self.stun.handle_network_change(now);
        self.resolvers.handle_network_change();
        self.lifetimes.handle_network_change(now);
        self.mapping.handle_network_change(now);
        self.tell_mapped(now);
        self.facts.hosts.handle_network_change(now);
        self.nostr.handle_network_change();
        self.ask_for_names();
    }

    /// Reads the interface back, and sets up what it has lost.
    pub(super) fn look_at_interface(&mut self) {
        let now = boottime_ms();
        let looked = Netlink::open().and_then(|mut netlink| self.host.keeper.handle_timeout(now, &mut netlink));
        match looked {
            Ok(None) => {}
            Ok(Some(outcome)) => self.handle_outcome(&outcome),
            Err(error) => self.host.refuse(&error.to_string()),
        }
    }

    /// Reads the interface back for a client, after setting up what can be. Returns what it lacks, and
    /// the alarm.
    pub(super) fn probe_interface(&mut self) -> (Vec<String>, Option<String>) {
        self.host.keeper.look_soon(boottime_ms());
        self.look_at_interface();
        let probed = Netlink::open().and_then(|mut netlink| self.host.keeper.probe(&mut netlink));
        let lacks = match probed {
            Ok(facts) => facts.iter().map(Fact::to_string).collect(),
            Err(error) => vec![format!("everything: {error}")],
        };
        (lacks, self.host.keeper.alarm(boottime_ms()))
    }

    fn handle_outcome(&mut self, outcome: &Outcome) {
        if !outcome.repaired.is_empty() {
            let words: Vec<String> = outcome.repaired.iter().map(Fact::to_string).collect();
            tracing::warn!("the interface had lost {}, and has it again", words.join(", "));
        }
        let refused = outcome.refused.iter().map(|(fact, error)| format!("{fact}: {error}"));
        let mesh = mesh_route(self.system.interface);
        let is_mesh = |route: &Route| (route.destination, route.prefix_len) == (mesh.destination, mesh.prefix_len);
        let taken = outcome
            .taken
            .iter()
            .any(is_mesh)
            .then(|| "another program has a route to fd00::/8; `ip -6 route show fd00::/8` names it".to_owned());
        self.host.refuse_all(&refused.chain(taken).collect());
        if outcome.lacks_ipv6() {
            self.enable_ipv6();
        }
    }

    /// Has the broker switch IPv6 on for the interface, on which another program has switched it off.
    fn enable_ipv6(&self) {
        if let Some(broker) = self.host.broker.clone() {
            tokio::spawn(async move {
                if let Err(error) = broker.enable_ipv6().await {
                    tracing::info!(error, "IPv6 stays off on the interface");
                }
            });
        }
    }
}
