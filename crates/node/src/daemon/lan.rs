//! LAN discovery: what this node announces, and the peers that it finds (docs/protocol/lan.md).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weft_config::Announce;
use weft_core::HintSource;
use weft_discovery::mdns::Mdns;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::random::random_bytes;
use weft_reach::lan::mdns::{Seen, Service};
use weft_reach::lan::sightings::{Dial, Sightings, on_link};
use weft_reach::lan::{Announcement, Day, SERVICE};

use super::run::Daemon;

/// The type of service that FIPS announces.
const FIPS_SERVICE: &str = "_fips._udp.local";
/// The scopes of FIPS and of nvpn, each with what its instance has behind the name.
const SCOPES: [(&str, &str); 2] = [("", "fips-overlay-v1"), ("-nvpn", "nostr-vpn")];
/// Characters of the npub in the name of an instance of FIPS.
const NPUB_CHARACTERS: usize = 16;
/// The pause before mDNS is tried again that did not start.
const AGAIN: Duration = Duration::from_secs(30);
/// The pause between two looks at the addresses that are kept.
const LOOK_AGAIN: Duration = Duration::from_secs(3_600);

/// LAN discovery of a node.
pub(super) struct Lan {
    mdns: Option<Mdns>,
    sightings: Sightings,
    /// The name of the instance, and of the host: another one for each start.
    name: String,
    /// The time of the next try to start mDNS, or of the next look at the addresses that are kept.
    again: Option<Instant>,
    /// The day that the announcement is of.
    day: Option<Day>,
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
            again: None,
            day: None,
            changed: BTreeSet::new(),
        }
    }

    /// Waits until a service is found, or is gone; for ever while nothing is looked for.
    pub(super) async fn next(&mut self) {
        match &mut self.mdns {
            Some(mdns) => mdns.next().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the time at which a peer is to be dialled, or a service to be looked at, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        let waits = self.mdns.as_ref().is_some_and(Mdns::has_changed);
        let look = waits.then(|| self.sightings.next_look(boottime_ms()));
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

    /// Takes back what is announced, and forgets what was found.
    pub(super) fn end(&mut self) {
        if let Some(mdns) = self.mdns.take() {
            mdns.stop();
        }
        self.sightings.retain(|_| false);
    }

    /// Ends mDNS for a while if no socket of it opens.
    fn check(&mut self, opened: io::Result<()>) {
        if let Err(error) = opened {
            tracing::info!(%error, "peers in the LAN are not found by mDNS; trying again");
            self.end();
            self.again = Some(Instant::now() + AGAIN);
        }
    }

    /// Forgets the services that are gone.
    pub(super) fn handle_gone(&mut self) {
        while let Some(name) = self.mdns.as_mut().and_then(Mdns::next_gone) {
            self.sightings.lose(&name);
        }
    }
}

impl Daemon {
    /// Looks at all services again: members, secrets or subnets are others than before.
    pub(super) fn look_again_in_lan(&mut self) {
        if let Some(mdns) = &mut self.lan.mdns {
            mdns.look_again();
        }
        let members = &self.desired.members;
        self.lan.sightings.retain(|key| {
            let key = PublicKey::from_bytes(key);
            key.is_ok_and(|key| members.contains(&key))
        });
    }

    /// Announces what is to be announced now, on the links of now.
    pub(super) fn announce(&mut self) {
        self.lan.again = None;
        let announced = self.try_to_announce();
        self.lan.check(announced);
    }

    fn try_to_announce(&mut self) -> io::Result<()> {
        let wanted = &self.desired.announced;
        let fips = wanted.announce == Announce::Everyone;
        if !fips && wanted.secrets.is_empty() {
            self.lan.end();
            return Ok(());
        }
        let (port, served) = served(&self.facts.listen);
        let service = |service, instance, entries| Service {
            service,
            instance,
            port,
            served: served.clone(),
            entries,
        };
        let (mut browsed, mut services) = (Vec::new(), Vec::new());
        let mut random = [0; 8];
        random_bytes(&mut random)?;
        let day = Day::of(unix_s());
        if !wanted.secrets.is_empty() {
            let announcement = Announcement::new(random, port, day, self.facts.key.as_bytes(), &wanted.secrets);
            services.push(service(SERVICE, self.lan.name.clone(), announcement.entries()));
            browsed.push(SERVICE);
        }
        (self.lan.day, self.lan.again) = (Some(day), Some(Instant::now() + LOOK_AGAIN));
        if fips {
            services.extend(fips_entries(&self.facts.key).map(|(name, entries)| service(FIPS_SERVICE, name, entries)));
            browsed.push(FIPS_SERVICE);
        }
        let new = || Mdns::new(self.lan.name.clone(), u64::from_be_bytes(random));
        let mdns = self.lan.mdns.take().unwrap_or_else(new);
        let mdns = self.lan.mdns.insert(mdns);
        mdns.set_links(&self.desired.links)?;
        mdns.announce(services);
        mdns.browse(&browsed);
        Ok(())
    }

    /// Serves the links of now.
    pub(super) fn apply_links_of_lan(&mut self) {
        let links = &self.desired.links;
        match self.lan.mdns.as_mut().map(|mdns| mdns.set_links(links)) {
            Some(served) => self.lan.check(served),
            None if self.lan.again.is_some() => self.announce(),
            None => {}
        }
    }

    /// Tries again what did not start, announces anew on another day, and forgets where peers were whose announcement
    /// had to make room for others.
    pub(super) fn retry_lan(&mut self, now: Instant) {
        // A clock that is set a while after the start makes another day of it at any time.
        let other_day = self.lan.mdns.is_some() && self.lan.day != Some(Day::of(unix_s()));
        if !other_day && self.lan.again.is_none_or(|at| at > now) {
            return;
        }
        self.lan.again = Some(now + LOOK_AGAIN);
        match &self.lan.mdns {
            Some(mdns) if !other_day => {
                self.lan.sightings.retain_instances(|name| mdns.knows(name));
                self.apply_links_of_lan();
            }
            _ => {
                self.look_again_in_lan();
                self.announce();
            }
        }
    }

    /// Looks at the services that wait for it, as far as the budget allows.
    fn look_at_seen(&mut self, now: u64) {
        while self.lan.mdns.as_ref().is_some_and(Mdns::has_changed) && self.lan.sightings.may_look(now) {
            if let Some(seen) = self.lan.mdns.as_mut().and_then(Mdns::next_changed) {
                self.look_at(now, &seen);
            }
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
        let found = announcement.members(seen.port, Day::of(unix_s()), networks);
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

/// Returns the port that is announced, that of the first socket, and the addresses at which it is served.
fn served(listen: &[SocketAddr]) -> (u16, Vec<IpAddr>) {
    let port = listen.first().map_or(0, SocketAddr::port);
    let same_port = listen.iter().filter(|at| at.port() == port);
    (port, same_port.map(SocketAddr::ip).collect())
}
