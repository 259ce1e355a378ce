//! LAN discovery: what this node announces, and the peers that it finds (docs/protocol/lan.md).

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weft_config::Announce;
use weft_discovery::mdns::{Found, Mdns, Seen, Service};
use weft_host::surroundings::Surroundings;
use weft_networks::hints::HintSource;
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_os::random::random_bytes;
use weft_reach::lan::sightings::{Dial, Sightings, on_link};
use weft_reach::lan::{Announcement, MAX_NETWORKS, SERVICE, Secret};
use weft_wire::Subnet;

use super::run::Daemon;

/// The type of service that FIPS announces.
const FIPS_SERVICE: &str = "_fips._udp.local.";
/// The scopes of FIPS and of nvpn, each with what its instance has behind the name.
const SCOPES: [(&str, &str); 2] = [("", "fips-overlay-v1"), ("-nvpn", "nostr-vpn")];
/// Characters of the npub in the name of an instance of FIPS.
const NPUB_CHARACTERS: usize = 16;
/// Services that are kept, at most. The oldest one goes first.
const MAX_SEEN: usize = 256;
/// The pause before mDNS is tried again that did not start.
const AGAIN: Duration = Duration::from_secs(30);

/// What the node announces follows from this.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    announce: Announce,
    /// The secrets of the networks that this node is a member of.
    secrets: Vec<Secret>,
}

/// LAN discovery of a node.
pub(super) struct Lan {
    mdns: Option<Mdns>,
    sightings: Sightings,
    /// What is announced now.
    wanted: Option<Wanted>,
    /// The name of the instance, and of the host: another one for each start.
    name: String,
    /// The subnets of the interfaces of this host.
    subnets: Vec<Subnet>,
    /// Services that were found, the oldest first, and whether each was looked at with the members and
    /// secrets of now: an announcement may come before the record of the member that it is of.
    seen: VecDeque<(Seen, bool)>,
    /// When mDNS is tried again.
    again: Option<Instant>,
    /// Peers whose links may have changed.
    changed: BTreeSet<PublicKey>,
}

impl Lan {
    /// Nothing is announced before [`Daemon::follow_lan`].
    pub(super) fn new() -> Self {
        let mut name = [0; 8];
        // A constant name would only be recognised again.
        let _ = random_bytes(&mut name);
        Self {
            mdns: None,
            sightings: Sightings::default(),
            wanted: None,
            name: hex::encode(name),
            subnets: Vec::new(),
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

    /// When a peer is to be dialled, or a service to be looked at, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        let unlooked = self.seen.iter().any(|(_, looked)| !looked);
        let look = unlooked.then(|| self.sightings.next_look(boottime_ms()));
        self.sightings.timeout().into_iter().chain(look).min()
    }

    /// When mDNS is tried again.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// The link of a peer may have changed.
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
    /// Announces what follows from configuration and networks, if that is something else than before.
    pub(super) fn follow_lan(&mut self) {
        let announce = self.configuration.config.lan.announce;
        let secrets = self.networks.secrets().take(MAX_NETWORKS).map(|(_, secret)| *secret);
        let secrets = secrets.filter(|_| announce != Announce::Off).collect();
        let wanted = Wanted { announce, secrets };
        self.lan.seen.iter_mut().for_each(|(_, looked)| *looked = false);
        let members = &self.members;
        self.lan.sightings.retain(|key| {
            let key = PublicKey::from_bytes(key);
            key.is_ok_and(|key| members.contains(&key))
        });
        if self.lan.wanted.as_ref() == Some(&wanted) && self.lan.again.is_none() {
            return;
        }
        self.lan.again = None;
        if let Err(error) = self.announce(&wanted) {
            tracing::info!(%error, "peers in the LAN are not found by mDNS; trying again");
            self.lan.stop();
            self.lan.again = Some(Instant::now() + AGAIN);
        }
        self.lan.wanted = Some(wanted);
    }

    fn announce(&mut self, wanted: &Wanted) -> Result<(), mdns_sd::Error> {
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
            self.follow_lan();
        }
    }

    /// Takes the subnets of this host into account, which may have changed.
    pub(super) fn follow_lan_subnets(&mut self) {
        let subnets = subnets(&self.surroundings, self.routes.index());
        if subnets != self.lan.subnets {
            self.lan.subnets = subnets;
            self.lan.seen.iter_mut().for_each(|(_, looked)| *looked = false);
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
        let on_link = |at: &SocketAddr| on_link(*at, &self.lan.subnets) && self.is_served(*at);
        let addresses: Vec<SocketAddr> = seen.addresses.iter().copied().filter(on_link).collect();
        for key in keys
            .into_iter()
            .filter(|key| *key != self.facts.key && self.members.contains(key))
        {
            let linked = self.is_linked(&key);
            let sightings = &mut self.lan.sightings;
            sightings.sight(now, *key.as_bytes(), &seen.name, &addresses, linked);
        }
    }

    /// The members of the networks of this node that the announcement may be.
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

    /// Whether a socket of this node sends to addresses of this IP version.
    fn is_served(&self, at: SocketAddr) -> bool {
        self.facts.listen.iter().any(|listen| listen.is_ipv4() == at.is_ipv4())
    }

    /// Whether a node has a link.
    pub(super) fn is_linked(&self, key: &PublicKey) -> bool {
        let peer = self.node.status_of(boottime_ms(), key.node_addr());
        peer.is_some_and(|peer| peer.link_age.is_some())
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
            self.facts.hints.give(key, at, HintSource::Lan);
            self.node.dial(now, &key, at);
        }
        active
    }
}

/// What FIPS announces of a node, once for each scope: instance and entries.
fn fips_entries(key: &PublicKey) -> impl Iterator<Item = (String, Vec<(String, String)>)> {
    let npub = key.to_string();
    SCOPES.into_iter().map(move |(suffix, scope)| {
        let name = format!("fips-{}{suffix}", &npub[..NPUB_CHARACTERS]);
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let entries = vec![entry("npub", &npub), entry("v", "1"), entry("scope", scope)];
        (name, entries)
    })
}

/// The key that a service of FIPS names.
fn npub(seen: &Seen) -> Option<PublicKey> {
    let (_, value) = seen.entries.iter().find(|(key, _)| key == "npub")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The port that is announced, that of the first socket, and the addresses: none means all.
fn served(listen: &[SocketAddr]) -> (u16, Vec<IpAddr>) {
    let port = listen.first().map_or(0, SocketAddr::port);
    let same_port = listen.iter().filter(|at| at.port() == port);
    let addresses: Vec<IpAddr> = same_port.map(SocketAddr::ip).collect();
    match addresses.iter().any(IpAddr::is_unspecified) {
        true => (port, Vec::new()),
        false => (port, addresses),
    }
}

/// The subnets of all interfaces but that with the index `own`.
fn subnets(surroundings: &Surroundings, own: u32) -> Vec<Subnet> {
    let others = surroundings.addresses.iter().filter(|of| of.index != own);
    others
        .filter_map(|of| Subnet::around(of.address, of.prefix_len))
        .collect()
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn fips_sees_one_instance_for_each_scope() {
        let key = SecretKey::from_bytes(&[1; 32]).unwrap().public();
        let [first, second]: [_; 2] = fips_entries(&key).collect::<Vec<_>>().try_into().unwrap();
        let start = &key.to_string()[..16];
        assert_eq!(first.0, format!("fips-{start}"));
        assert_eq!(second.0, format!("fips-{start}-nvpn"));
        for ((name, entries), scope) in [(first, "fips-overlay-v1"), (second, "nostr-vpn")] {
            assert!(name.len() <= 63);
            assert_eq!(entries[2], ("scope".to_owned(), scope.to_owned()));
            let bytes = entries.into_iter().map(|(key, value)| (key, value.into_bytes()));
            let seen = Seen {
                service: FIPS_SERVICE.to_owned(),
                name,
                port: 2121,
                addresses: Vec::new(),
                entries: bytes.collect(),
            };
            assert_eq!(npub(&seen), Some(key));
        }
    }

    #[test]
    fn sockets_of_all_addresses_announce_all() {
        let all = ["0.0.0.0:2121", "[::]:2121"].map(|at| at.parse().unwrap());
        assert_eq!(served(&all), (2121, Vec::new()));
        let one = ["192.168.1.2:7", "192.168.2.2:8"].map(|at| at.parse().unwrap());
        assert_eq!(served(&one), (7, vec!["192.168.1.2".parse().unwrap()]));
    }
}
