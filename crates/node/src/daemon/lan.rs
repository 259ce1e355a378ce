//! LAN discovery: what this node announces, and the peers that it finds (docs/protocol/lan.md).

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weft_config::Announce;
use weft_core::HintSource;
use weft_desired::Announced;
use weft_discovery::mdns::{Found, Mdns, Seen, Service};
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_os::random::random_bytes;
use weft_reach::lan::sightings::{Dial, Sightings, on_link};
use weft_reach::lan::{Announcement, SERVICE};

use super::run::Daemon;

/// The type of service that FIPS announces.
const FIPS_SERVICE: &str = "_fips._udp.local.";
/// The scopes of FIPS and of nvpn, each with what its instance has behind the name.
const SCOPES: [(&str, &str); 2] = [("", "fips-overlay-v1"), ("-nvpn", "nostr-vpn")];
/// Characters of the npub in the name of an instance of FIPS.
const NPUB_CHARACTERS: usize = 16;
/// The most services that are kept. The oldest one is dropped first.
const MAX_SEEN: usize = 256;
/// The pause before mDNS is tried again that did not start.
const AGAIN: Duration = Duration::from_secs(30);

/// LAN discovery of a node.
pub(super) struct Lan {
    mdns: Option<Mdns>,
    sightings: Sightings,
    /// The name of the instance, and of the host: another one for each start.
    name: String,
    /// Services that were found, the oldest first, and whether each was looked at with the members and
    /// secrets of now: an announcement may come before the record of the member that it is of.
    seen: VecDeque<(Seen, bool)>,
    /// When mDNS is tried again.
    again: Option<Instant>,
    /// Peers whose links may have changed.
    changed: BTreeSet<PublicKey>,
}

impl Lan {
    /// Creates the state. Nothing is announced before [`Daemon::announce`].
    pub(super) fn new() -> Self {
        let mut name = [0; 8];
        // A constant name would only be recognised again.
        let _ = random_bytes(&mut name);
        Self {
            mdns: None,
            sightings: Sightings::default(),
            name: hex::encode(name),
            seen: VecDeque::new(),
            again: None,
            changed: BTreeSet::new(),
        }
    }

    /// Waits for a service that was found; for ever while nothing is looked for.
    pub(super) async fn next(&mut self) -> Option<Found> {
        match &mut self.mdns {
            Some(mdns) => mdns.next().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the time at which a peer is to be dialled, or a service to be looked at, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        let unlooked = self.seen.iter().any(|(_, looked)| !looked);
        let look = unlooked.then(|| self.sightings.next_look(boottime_ms()));
        self.sightings.timeout().into_iter().chain(look).min()
    }

    /// Returns the time at which mDNS is tried again.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// Notes that the link of a peer may have changed.
    pub(super) fn note(&mut self, peer: PublicKey) {
        self.changed.insert(peer);
    }

    /// Takes back what is announced, before the process ends.
    pub(super) fn end(&mut self) {
        if let Some(mdns) = self.mdns.take() {
            mdns.stop().wait();
        }
    }

    fn stop(&mut self) {
        self.seen.clear();
        self.mdns.take().map(Mdns::stop);
    }
}

impl Daemon {
    /// Looks at all services again: members, secrets or subnets are others than before.
    pub(super) fn look_again_in_lan(&mut self) {
        self.lan.seen.iter_mut().for_each(|(_, looked)| *looked = false);
        let members = &self.desired.members;
        self.lan.sightings.retain(|key| {
            let key = PublicKey::from_bytes(key);
            key.is_ok_and(|key| members.contains(&key))
        });
    }

    /// Announces what is to be announced now.
    pub(super) fn announce(&mut self) {
        self.lan.again = None;
        let announced = self.desired.announced.clone();
        if let Err(error) = self.try_to_announce(&announced) {
            tracing::info!(%error, "peers in the LAN are not found by mDNS; trying again");
            self.lan.stop();
            self.lan.again = Some(Instant::now() + AGAIN);
        }
    }

    fn try_to_announce(&mut self, wanted: &Announced) -> Result<(), mdns_sd::Error> {
        let fips = wanted.announce == Announce::Everyone;
        if !fips && wanted.secrets.is_empty() {
            self.lan.stop();
            return Ok(());
        }
        let (port, addresses) = served(&self.facts.listen);
        let service = |service, instance, entries| Service {
            service,
            instance,
            port,
            addresses: addresses.clone(),
            entries,
        };
        let (mut browsed, mut services) = (Vec::new(), Vec::new());
        if !wanted.secrets.is_empty() {
            let mut nonce = [0; 8];
            random_bytes(&mut nonce).map_err(|error| mdns_sd::Error::Msg(error.to_string()))?;
            let announcement = Announcement::new(nonce, port, self.facts.key.as_bytes(), &wanted.secrets);
            services.push(service(SERVICE, self.lan.name.clone(), announcement.entries()));
            browsed.push(SERVICE);
        }
        if fips {
            services.extend(fips_entries(&self.facts.key).map(|(name, entries)| service(FIPS_SERVICE, name, entries)));
            browsed.push(FIPS_SERVICE);
        }
        let tunnel = self.facts.tunnel();
        let mdns = match self.lan.mdns.take() {
            Some(mdns) => mdns,
            None => Mdns::start(tunnel)?,
        };
        let mdns = self.lan.mdns.insert(mdns);
        mdns.announce(&self.lan.name, &services)?;
        mdns.browse(&browsed)
    }

    /// Tries again what did not start.
    pub(super) fn retry_lan(&mut self, now: Instant) {
        if self.lan.again.is_some_and(|at| at <= now) {
            self.announce();
        }
    }

    /// Handles a service that was found.
    pub(super) fn handle_lan(&mut self, found: Found) {
        match found {
            Found::Gone(name) => {
                self.lan.seen.retain(|(seen, _)| seen.name != name);
                self.lan.sightings.lose(&name);
            }
            Found::Seen(seen) if self.lan.mdns.as_ref().is_some_and(|mdns| mdns.is_own(&seen.name)) => {}
            Found::Seen(seen) => {
                self.lan.seen.retain(|(known, _)| known.name != seen.name);
                if self.lan.seen.len() >= MAX_SEEN {
                    self.lan.seen.pop_front();
                }
                self.lan.seen.push_back((seen, false));
            }
        }
    }

    /// Looks at the services that wait for it, as far as the budget allows.
    fn look_at_seen(&mut self, now: u64) {
        for at in 0..self.lan.seen.len() {
            let waits = self.lan.seen.get(at).filter(|(_, looked)| !looked);
            let Some(seen) = waits.map(|(seen, _)| seen.clone()) else {
                continue;
            };
            if !self.lan.sightings.may_look(now) {
                return;
            }
            if let Some((_, looked)) = self.lan.seen.get_mut(at) {
                *looked = true;
            }
            self.look_at(now, &seen);
        }
    }

    fn look_at(&mut self, now: u64, seen: &Seen) {
        let keys = match seen.service.as_str() {
            SERVICE => self.members_of(seen),
            FIPS_SERVICE => npub(seen).into_iter().collect(),
            _ => return,
        };
        let on_link = |at: &SocketAddr| on_link(*at, &self.desired.lan) && self.is_served(*at);
        let addresses: Vec<SocketAddr> = seen.addresses.iter().copied().filter(on_link).collect();
        for key in keys
            .into_iter()
            .filter(|key| *key != self.facts.key && self.desired.members.contains(key))
        {
            let linked = self.is_linked(&key);
            let sightings = &mut self.lan.sightings;
            sightings.sight(now, *key.as_bytes(), &seen.name, &addresses, linked);
        }
    }

    /// Returns the members of the networks of this node that the announcement may be.
    fn members_of(&self, seen: &Seen) -> Vec<PublicKey> {
        let entries = seen.entries.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        let announcement = match Announcement::read(entries) {
            Ok(announcement) => announcement,
            Err(error) => {
                tracing::debug!(%error, "an announcement in the LAN is ignored");
                return Vec::new();
            }
        };
        let networks = self.networks.secrets().map(|(network, secret)| {
            let members = network.state().members.keys().map(|key| *key.as_bytes());
            (secret, members)
        });
        let found = announcement.members(seen.port, networks);
        found.iter().filter_map(|key| PublicKey::from_bytes(key).ok()).collect()
    }

    /// Returns true if a socket of this node sends to addresses of this IP version.
    fn is_served(&self, at: SocketAddr) -> bool {
        self.facts.listen.iter().any(|listen| listen.is_ipv4() == at.is_ipv4())
    }

    /// Returns true if a node has a link.
    pub(super) fn is_linked(&self, key: &PublicKey) -> bool {
        let peer = self.node.status_of(boottime_ms(), key.node_addr());
        peer.is_some_and(|peer| peer.link.is_some())
    }

    /// Dials the peers whose turn it is. Returns whether the core has something to do because of it.
    pub(super) fn drive_lan(&mut self) -> bool {
        let now = boottime_ms();
        let mut changed = std::mem::take(&mut self.lan.changed);
        changed.retain(|peer| self.lan.sightings.contains(peer.as_bytes()));
        for peer in changed {
            let linked = self.is_linked(&peer);
            self.lan.sightings.set_linked(now, peer.as_bytes(), linked);
        }
        self.look_at_seen(now);
        let mut active = false;
        while let Some(Dial { key, at }) = self.lan.sightings.poll(now) {
            let Ok(key) = PublicKey::from_bytes(&key) else { continue };
            active = true;
            tracing::debug!(peer = self.facts.name(&key), %at, "seen in the LAN");
            self.node.dial(now, &key, at, HintSource::Lan);
        }
        active
    }
}

/// Returns what FIPS announces of a node, once for each scope: instance and entries.
fn fips_entries(key: &PublicKey) -> impl Iterator<Item = (String, Vec<(String, String)>)> {
    let npub = key.to_string();
    SCOPES.into_iter().map(move |(suffix, scope)| {
        let name = format!("fips-{}{suffix}", &npub[..NPUB_CHARACTERS]);
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let entries = vec![entry("npub", &npub), entry("v", "1"), entry("scope", scope)];
        (name, entries)
    })
}

/// Returns the key that a service of FIPS names.
fn npub(seen: &Seen) -> Option<PublicKey> {
    let (_, value) = seen.entries.iter().find(|(key, _)| key == "npub")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Returns the port that is announced, that of the first socket, and the addresses: none means all.
fn served(listen: &[SocketAddr]) -> (u16, Vec<IpAddr>) {
    let port = listen.first().map_or(0, SocketAddr::port);
    let same_port = listen.iter().filter(|at| at.port() == port);
    let addresses: Vec<IpAddr> = same_port.map(SocketAddr::ip).collect();
    match addresses.iter().any(IpAddr::is_unspecified) {
        true => (port, Vec::new()),
        false => (port, addresses),
    }
}
