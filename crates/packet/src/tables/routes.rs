//! Routes: the peer that a packet goes to, and the packets that a peer may send ("cryptokey
//! routing", as WireGuard calls it).
//!
//! The address of a node in `fd00::/8` follows from its key. Subnets behind nodes are configured.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use weft_wire::ip::{Ipv6Header, version};
use weft_wire::{FIPS_PREFIX, NodeAddr, Subnet};

use super::slab::Key;

/// The session key of a peer.
type Peer = Key<NodeAddr>;

/// The tables that decide which peer a packet goes to, and between which addresses packets pass.
#[derive(Debug)]
pub(crate) struct Routes {
    me: Ipv6Addr,
    /// The peers that IP packets may go to and come from, by their IPv6 address.
    peers: BTreeMap<[u8; 16], Peer>,
    /// The peers that speak WireGuard, whose packets do not pass the TUN on their way to other peers.
    guests: BTreeSet<NodeAddr>,
    subnets: Subnets,
}

impl Routes {
    /// Makes the tables of the node with this address, without peers.
    pub(crate) fn new(me: NodeAddr) -> Self {
        Self {
            me: me.to_ipv6(),
            peers: BTreeMap::new(),
            guests: BTreeSet::new(),
            subnets: Subnets::default(),
        }
    }

    /// Returns the address of this node.
    pub(crate) fn me(&self) -> Ipv6Addr {
        self.me
    }

    /// Lets IP packets go to a peer and come from it.
    pub(crate) fn allow(&mut self, peer: NodeAddr, key: Peer) {
        self.peers.insert(peer.to_ipv6().octets(), key);
    }

    /// Ends what [`Routes::allow`] has begun.
    pub(crate) fn deny(&mut self, peer: NodeAddr) {
        self.peers.remove(&peer.to_ipv6().octets());
        self.guests.remove(&peer);
    }

    /// Records that a peer speaks WireGuard.
    pub(crate) fn add_guest(&mut self, peer: NodeAddr) {
        self.guests.insert(peer);
    }

    /// Returns whether a peer speaks WireGuard.
    pub(crate) fn is_guest(&self, peer: NodeAddr) -> bool {
        !self.guests.is_empty() && self.guests.contains(&peer)
    }

    /// Returns whether this is the address of a peer that speaks WireGuard.
    pub(crate) fn is_of_guest(&self, address: IpAddr) -> bool {
        !self.guests.is_empty() && self.subnets.behind(address).is_some_and(|peer| self.is_guest(peer))
    }

    /// Replaces all subnets. `ours` are those that peers may send to, including further addresses
    /// of this node; `theirs` are behind peers. Of two equal subnets the last is used. All addresses
    /// of an IP version (an exit) are those that no subnet of a peer and no node has.
    pub(crate) fn set_subnets(&mut self, ours: &[Subnet], theirs: &[(Subnet, NodeAddr)]) {
        self.subnets = Subnets::new(ours, theirs);
    }

    /// Returns whether there are subnets.
    pub(crate) fn has_subnets(&self) -> bool {
        !self.subnets.is_empty()
    }

    /// Returns the peer that a packet from the address of this node to that of a peer goes to.
    #[inline]
    pub(crate) fn between_nodes(&self, packet: &[u8]) -> Option<Peer> {
        let header = packet.first_chunk::<{ Ipv6Header::LEN }>()?;
        let [source, dest] = header.get(Ipv6Header::SRC_AT..)?.as_chunks::<16>().0.first_chunk()?;
        let ours = version(packet) == Some(6) && *source == self.me.octets();
        self.peers.get(dest).filter(|_| ours).copied()
    }

    /// Returns whether peers may send to this address, and packets from it may go to them.
    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        address == IpAddr::V6(self.me) || self.subnets.is_ours(address)
    }

    /// Returns whether this is an address of this node itself, rather than in a subnet behind it.
    pub(crate) fn is_of_this_node(&self, address: IpAddr) -> bool {
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let is_own = address == IpAddr::V6(self.me) || self.subnets.ours.longest(address) == Some(whole);
        is_own && !self.is_of_guest(address)
    }

    /// Returns whether packets to this address go to this peer.
    pub(crate) fn leads_to(&self, address: IpAddr, peer: NodeAddr) -> bool {
        address == IpAddr::V6(peer.to_ipv6()) || self.subnets.behind(address) == Some(peer)
    }

    /// Returns the node whose subnet contains this address with the longest prefix.
    pub(crate) fn node_behind(&self, address: IpAddr) -> Option<NodeAddr> {
        self.subnets.behind(address)
    }

    /// Returns whether this is the address of this peer, or in a subnet behind it other than all
    /// addresses.
    pub(crate) fn is_near(&self, address: IpAddr, peer: NodeAddr) -> bool {
        let near = || self.subnets.theirs.longest(address) != Some(0);
        self.leads_to(address, peer) && (address == IpAddr::V6(peer.to_ipv6()) || near())
    }

    /// Returns the peer that has this address, or whose subnet contains it with the longest
    /// prefix.
    pub(crate) fn peer_behind(&self, address: IpAddr) -> Option<Peer> {
        if let IpAddr::V6(ip) = address
            && let Some(peer) = self.peers.get(&ip.octets())
        {
            return Some(*peer);
        }
        let node = self.subnets.behind(address)?;
        self.peers.get(&node.to_ipv6().octets()).copied()
    }
}

/// The subnets behind nodes.
#[derive(Debug, Default)]
struct Subnets {
    ours: Table<()>,
    theirs: Table<NodeAddr>,
}

impl Subnets {
    fn new(ours: &[Subnet], theirs: &[(Subnet, NodeAddr)]) -> Self {
        Self {
            ours: ours.iter().map(|subnet| (*subnet, ())).collect(),
            theirs: theirs.iter().copied().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.ours.is_empty() && self.theirs.is_empty()
    }

    fn is_ours(&self, address: IpAddr) -> bool {
        match self.ours.longest(address) {
            Some(0) => !is_node(address) && self.behind(address).is_none(),
            longest => longest.is_some(),
        }
    }

    fn behind(&self, address: IpAddr) -> Option<NodeAddr> {
        self.theirs.get(address).copied()
    }
}

/// Values by subnet, found by the longest prefix.
#[derive(Debug)]
struct Table<T> {
    v4: Vec<Level<T>>,
    v6: Vec<Level<T>>,
}

/// All subnets of one prefix length. A table has the longest first.
#[derive(Debug)]
struct Level<T> {
    prefix_len: u8,
    mask: u128,
    subnets: BTreeMap<u128, T>,
}

impl<T> Table<T> {
    fn get(&self, address: IpAddr) -> Option<&T> {
        self.find(address).map(|(_, value)| value)
    }

    /// Returns the prefix length of the longest subnet that contains this address.
    fn longest(&self, address: IpAddr) -> Option<u8> {
        self.find(address).map(|(prefix_len, _)| prefix_len)
    }

    fn find(&self, address: IpAddr) -> Option<(u8, &T)> {
        let bits = bits(address);
        let mut levels = match address {
            IpAddr::V4(_) => self.v4.iter(),
            IpAddr::V6(_) => self.v6.iter(),
        };
        levels.find_map(|level| Some((level.prefix_len, level.subnets.get(&(bits & level.mask))?)))
    }

    fn insert(&mut self, subnet: Subnet, value: T) {
        let levels = match subnet.address() {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        };
        let prefix_len = subnet.prefix_len();
        let at = levels.partition_point(|level| level.prefix_len > prefix_len);
        if levels.get(at).is_none_or(|level| level.prefix_len != prefix_len) {
            let level = Level {
                prefix_len,
                mask: u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0),
                subnets: BTreeMap::new(),
            };
            levels.insert(at, level);
        }
        if let Some(level) = levels.get_mut(at) {
            level.subnets.insert(bits(subnet.address()), value);
        }
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            v4: Vec::new(),
            v6: Vec::new(),
        }
    }
}

impl<T> FromIterator<(Subnet, T)> for Table<T> {
    fn from_iter<I: IntoIterator<Item = (Subnet, T)>>(subnets: I) -> Self {
        let mut table = Self::default();
        for (subnet, value) in subnets {
            table.insert(subnet, value);
        }
        table
    }
}

/// Returns whether this is the address of a node, known or not.
fn is_node(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if ip.octets()[0] == FIPS_PREFIX)
}

/// Returns the address from the highest bit down.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few distinct bits, so that subnets nest and contain the addresses.
    fn subnet() -> impl Strategy<Value = Subnet> {
        (any::<bool>(), 0_u8..8, 0_u8..=32).prop_map(|(v4, bits, prefix_len)| {
            let address = address(v4, u32::from(bits) << 28 | u32::from(bits));
            Subnet::around(address, prefix_len).unwrap()
        })
    }

    fn address(v4: bool, bits: u32) -> IpAddr {
        if v4 {
            IpAddr::V4(bits.into())
        } else {
            IpAddr::V6((u128::from(bits) << 96).into())
        }
    }

    proptest! {
        #[test]
        fn the_longest_prefix_wins(
            subnets in prop::collection::vec((subnet(), any::<u8>()), 0..20), v4: bool, high in 0_u32..8, low in 0_u32..8,
        ) {
            let theirs: Vec<_> = subnets.iter().map(|(n, node)| (*n, NodeAddr::new([*node; 16]))).collect();
            let table = Subnets::new(&[], &theirs);
            let address = address(v4, high << 28 | low);
            // The last of two equal subnets is used, as in a map.
            let slow = theirs
                .iter()
                .enumerate()
                .filter(|(_, (n, _))| n.contains(address))
                .max_by_key(|(i, (n, _))| (n.prefix_len(), *i))
                .map(|(_, (_, node))| *node);
            prop_assert_eq!(table.behind(address), slow);
            let ours: Vec<_> = theirs.iter().map(|(n, _)| *n).collect();
            prop_assert_eq!(Subnets::new(&ours, &[]).is_ours(address), slow.is_some());
            // An exit has what no peer has.
            let all = [Subnet::around(address, 0).unwrap()];
            prop_assert_eq!(Subnets::new(&all, &theirs).is_ours(address), slow.is_none());
            prop_assert_eq!(table.is_empty(), theirs.is_empty());
        }

        #[test]
        fn no_exit_leads_to_nodes(mut address: [u8; 16]) {
            address[0] = FIPS_PREFIX;
            let table = Subnets::new(&["::/0".parse().unwrap()], &[]);
            prop_assert!(!table.is_ours(IpAddr::V6(address.into())));
        }
    }
}
