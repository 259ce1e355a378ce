//! Commands about guests: to take one, to remove one, and the list.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_control::GuestSecret;
use weft_control::status::{
    Document as _, GuestAdded, GuestHere, GuestList, GuestStatus, WireGuardDrops, WireGuardStatus,
};
use weft_networks::reserved::of_mesh;
use weft_networks::{AddGuest, Network};
use weft_os::clock::boottime_ms;
use weft_reach::message::Kind;
use weft_reach::nat::is_private;
use weft_roster::guest::node_addr;
use weft_roster::names::Name;
use weft_roster::record::Guest;
use weft_wire::Subnet;
use weft_wireguard::keys::{PresharedKey, PublicKey};

use super::run::Daemon;
use super::wireguard::MTU;

/// A guest as its user describes it.
pub(super) struct NewGuest {
    pub(super) network: Option<String>,
    pub(super) name: String,
    pub(super) key: String,
    pub(super) preshared: Option<GuestSecret>,
    pub(super) tags: Vec<String>,
    pub(super) ipv4: Option<Ipv4Addr>,
}

impl Daemon {
    /// Takes a device as guest of this node. What the records do not have is kept before they change.
    pub(super) fn add_guest(&mut self, new: NewGuest, times: (u64, u64)) -> Result<GuestAdded, String> {
        let key: PublicKey = new.key.trim().parse().map_err(|_| {
            "the key of the guest is malformed; it is the public key that `wg pubkey` prints, 44 characters".to_owned()
        })?;
        let preshared = new.preshared.map(|secret| secret.0.parse::<PresharedKey>());
        let preshared = preshared
            .transpose()
            .map_err(|_| "the preshared key is malformed; `wg genpsk` makes one".to_owned())?;
        let name = Name::host(&new.name).map_err(|error| error.to_string())?;
        let guest = AddGuest {
            key: *key.as_bytes(),
            name: name.clone(),
            tags: Name::labels(&new.tags).map_err(|error| error.to_string())?,
            ipv4: new.ipv4,
            host: None,
        };
        if let Some(of) = self.network_of_guest(&key) {
            return Err(format!(
                "the key is that of a guest of {of} already; a device needs a key of its own in each network"
            ));
        }
        let (id, added) = self
            .networks
            .add_guest(new.network.as_deref(), guest, times)
            .map_err(|error| error.to_string())?;
        let (host_key, port) = self.prepare_wireguard(key, preshared)?;
        let network = self.networks.iter().find(|network| network.id() == id);
        let (endpoints, local_only) = self.endpoints(port)?;
        Ok(GuestAdded {
            schema: GuestAdded::SCHEMA.to_owned(),
            network: network.and_then(|network| Some(network.label()?.to_string())),
            name: name.to_string(),
            ipv4: added.ipv4,
            host_key: host_key.to_string(),
            endpoints,
            local_only,
            allowed_ips: network.map(|network| behind(network, added.ipv4)).unwrap_or_default(),
            mtu: MTU,
            file: None,
        })
    }

    /// Returns the network that has a guest with this key.
    fn network_of_guest(&self, key: &PublicKey) -> Option<String> {
        let has = |network: &&Network| network.guests().any(|(known, ..)| known == key.as_bytes());
        let network = self.networks.iter().find(has)?;
        let label = network.label().map(ToString::to_string);
        Some(label.unwrap_or_else(|| network.id().to_string()))
    }

    /// Keeps what a guest and this node share, and opens the socket. Returns the key of this node and the port. What was
    /// kept before stays if any of that fails.
    fn prepare_wireguard(
        &mut self,
        guest: PublicKey,
        preshared: Option<PresharedKey>,
    ) -> Result<(PublicKey, u16), String> {
        self.wireguard.prepare(guest, preshared)?;
        self.open_wireguard();
        if let (Some(host_key), Some(port)) = (self.wireguard.public(), self.wireguard.port()) {
            return Ok((host_key, port));
        }
        self.wireguard.forget(&guest);
        let why = self.wireguard.why_not();
        Err(why.unwrap_or("there is no socket for guests").to_owned())
    }

    /// Returns the addresses of this node for guests, those that other networks reach first, and whether there is none
    /// of those. A NAT in front of this node leads to the port only if its owner has it do so.
    fn endpoints(&self, port: u16) -> Result<(Vec<SocketAddr>, bool), String> {
        let (addresses, mut unsure) = self.own_addresses()?;
        unsure.extend(self.reaching.own_of(Kind::Mapped));
        let mut ips: Vec<IpAddr> = Vec::new();
        for at in addresses {
            if !ips.contains(&at.ip()) {
                ips.push(at.ip());
            }
        }
        // Files take one address, and a network without IPv6 is more common than one without IPv4.
        ips.sort_by_key(|ip| (is_private(*ip), ip.is_ipv6()));
        let of_router = |ip: IpAddr| unsure.iter().any(|at| at.ip() == ip);
        let local_only = ips.iter().all(|ip| is_private(*ip) || of_router(*ip));
        Ok((
            ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
            local_only,
        ))
    }

    /// Removes a guest from its network, and returns its key.
    pub(super) fn remove_guest(
        &mut self,
        network: Option<&str>,
        named: &str,
        times: (u64, u64),
    ) -> Result<PublicKey, String> {
        let removed = self.networks.remove_guest(network, named, times);
        removed.map(PublicKey::from_bytes).map_err(|error| error.to_string())
    }

    /// Forgets the secret of a guest that was removed, unless another network has a guest with its key.
    pub(super) fn forget_guest(&mut self, key: &PublicKey) {
        if self.network_of_guest(key).is_none() {
            self.wireguard.forget(key);
        }
    }

    /// Lists the guests of all networks of this node.
    pub(super) fn guest_list(&self) -> GuestList {
        let own = self.networks.own();
        let networks = self.networks.in_order().filter(|network| network.is_member(own));
        let mut guests: Vec<GuestStatus> = networks
            .flat_map(|network| {
                let of = network.guests();
                of.filter_map(|(key, guest, name)| self.guest_status(network, (key, guest, name)))
            })
            .collect();
        guests.sort_by(|one, other| (&one.network, &one.name).cmp(&(&other.network, &other.name)));
        GuestList {
            schema: GuestList::SCHEMA.to_owned(),
            here: self.wireguard_status(),
            guests,
        }
    }

    fn wireguard_status(&self) -> Option<WireGuardStatus> {
        let counters = self.wireguard.counters();
        Some(WireGuardStatus {
            public_key: self.wireguard.public()?.to_string(),
            port: self.wireguard.port(),
            why_not: self.wireguard.why_not().map(ToOwned::to_owned),
            dropped: WireGuardDrops {
                malformed: counters.malformed,
                not_for_us: counters.not_for_us,
                too_many: counters.too_many,
                cookies: counters.cookies,
                forged: counters.forged,
                strangers: counters.strangers,
                replayed: counters.replayed,
                unasked: counters.unasked,
            },
        })
    }

    fn guest_status(
        &self,
        network: &Network,
        (key, guest, name): (&[u8; 32], &Guest, Option<&Name>),
    ) -> Option<GuestStatus> {
        let (host, ipv4) = (guest.host?, guest.ipv4?);
        let of_host = network.state().names.get(&host);
        Some(GuestStatus {
            network: network.label().map(ToString::to_string),
            name: name.map(ToString::to_string),
            public_key: PublicKey::from_bytes(*key).to_string(),
            ipv4,
            tags: guest.tags.iter().map(ToString::to_string).collect(),
            host: host.to_string(),
            host_name: of_host.map(ToString::to_string),
            here: (host == *self.networks.own()).then(|| self.guest_here(key)),
        })
    }

    fn guest_here(&self, key: &[u8; 32]) -> GuestHere {
        let now = boottime_ms();
        let since = |at: u64| now.saturating_sub(at) / 1_000;
        let public = PublicKey::from_bytes(*key);
        let found = self.wireguard.guest(node_addr(key));
        let up = found.is_some_and(|(guest, _)| guest.is_up(now));
        let why = match (found, self.wireguard.why_not()) {
            _ if up => None,
            (_, Some(why)) => Some(why.to_owned()),
            (None, None) if self.wireguard.public().is_none() => {
                Some("this node has no key for guests; remove the guest and add it again".to_owned())
            }
            (None, None) => Some("its address is in use on this host, or in another network".to_owned()),
            (Some((guest, _)), None) if guest.handshake.is_none() => {
                Some("no handshake since this daemon started; is its file in use, and its Endpoint right?".to_owned())
            }
            (Some((guest, _)), None) if guest.unreachable => Some("it does not answer".to_owned()),
            (Some(_), None) => Some("silent; a device in use sends when it has something to send".to_owned()),
        };
        let guest = found.map(|(guest, _)| guest);
        GuestHere {
            up,
            why,
            endpoint: found.and_then(|(_, endpoint)| endpoint),
            handshake_s: guest.and_then(|guest| guest.handshake).map(since),
            received_s: guest.map(|guest| guest.totals.last_rx).filter(|at| *at > 0).map(since),
            rx_bytes: guest.map_or(0, |guest| guest.totals.rx_bytes),
            tx_bytes: guest.map_or(0, |guest| guest.totals.tx_bytes),
            preshared: self.wireguard.is_preshared(&public),
        }
    }
}

/// Returns what a guest reaches in a network: all addresses of members, and the subnets behind them.
fn behind(network: &Network, guest: Ipv4Addr) -> Vec<String> {
    let members = network.state().addresses.of.values();
    let of_networks = of_mesh().find(|range| range.address().is_ipv4());
    let outside = |ip: &Ipv4Addr| of_networks.is_none_or(|all| !all.contains(IpAddr::V4(*ip)));
    let others = members.filter(|ip| outside(ip)).map(|ip| Subnet::host(IpAddr::V4(*ip)));
    let routes = network.routes().map(|(subnet, _)| *subnet);
    let routes = routes.filter(|subnet| subnet.address().is_ipv4() && !subnet.contains(IpAddr::V4(guest)));
    let all: BTreeSet<Subnet> = of_networks.into_iter().chain(others).chain(routes).collect();
    all.iter().map(ToString::to_string).collect()
}
