//! Networks behind nodes: `[tun] addresses` and `networks`, and those of peers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use weft_wire::network::{self, BadNetwork};
use weft_wire::{FIPS_PREFIX, Network};

use super::error::Problem;
use super::reader::{Fault, Item, Section, printable};
use super::{Config, line_of};

/// An address of the node's interface, and the prefix length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
}

impl FromStr for InterfaceAddress {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix_len) = network::split(text)?;
        Ok(Self { address, prefix_len })
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// The networks read so far, each with its line in the file: no two may be the same.
#[derive(Default)]
pub(super) struct Taken(BTreeMap<Network, usize>);

impl Taken {
    /// Adds a network of the owner of `item`.
    fn take(&mut self, network: Network, item: &Item<String>, text: &str) -> Result<(), Fault> {
        let line = line_of(text.as_bytes(), item.at());
        match self.0.insert(network, line) {
            Some(line) => Err(item.fault(Problem::Duplicate { line })),
            None => Ok(()),
        }
    }
}

impl Config {
    /// `[tun] addresses` and `networks`.
    pub(super) fn read_own_networks(
        &mut self,
        section: &mut Section<'_>,
        taken: &mut Taken,
        text: &str,
    ) -> Result<(), Fault> {
        if let Some(list) = section.strings("addresses")? {
            for item in &list.value {
                let address = item.map(|text| interface_address(text))?;
                taken.take(Network::host(address.address), item, text)?;
                self.tun.addresses.push(address);
            }
        }
        if let Some(list) = section.strings("networks")? {
            self.tun.networks = networks(&list.value, taken, text)?;
        }
        Ok(())
    }

    /// `networks` of a peer, which need fast frames.
    pub(super) fn read_peer_networks(
        &self,
        section: &mut Section<'_>,
        taken: &mut Taken,
        text: &str,
    ) -> Result<Vec<Network>, Fault> {
        let Some(list) = section.strings("networks")? else {
            return Ok(Vec::new());
        };
        if !self.fast.enabled && !list.value.is_empty() {
            return Err(list.fault(Problem::Needs {
                other: "fast.enabled = true",
            }));
        }
        networks(&list.value, taken, text)
    }

    /// All addresses and networks to which peers may send: the node's further addresses, and the
    /// networks behind it.
    #[must_use]
    pub fn own_networks(&self) -> Vec<Network> {
        let addresses = self.tun.addresses.iter().map(|own| Network::host(own.address));
        addresses.chain(self.tun.networks.iter().copied()).collect()
    }
}

fn networks(list: &[Item<String>], taken: &mut Taken, text: &str) -> Result<Vec<Network>, Fault> {
    let mut networks = Vec::new();
    for item in list {
        let network = item.map(|text| routable(text))?;
        taken.take(network, item, text)?;
        networks.push(network);
    }
    Ok(networks)
}

/// Parses a network that may lie behind a node.
fn routable(text: &str) -> Result<Network, Problem> {
    let found = || printable(text);
    let network: Network = text.parse().map_err(|why| match why {
        BadNetwork::HostBits(network) => Problem::HostBits {
            found: found(),
            instead: network.to_string(),
        },
        BadNetwork::Form | BadNetwork::PrefixLen => Problem::NotANetwork { found: found() },
    })?;
    if network.prefix_len() == 0 {
        return Err(Problem::DefaultRoute);
    }
    match reserved(&network) {
        Some(what) => Err(Problem::Reserved { found: found(), what }),
        None => Ok(network),
    }
}

/// Parses an address that the interface may have.
fn interface_address(text: &str) -> Result<InterfaceAddress, Problem> {
    let found = || printable(text);
    let bad = || Problem::NotAnInterfaceAddress { found: found() };
    let address: InterfaceAddress = text.parse().map_err(|_| bad())?;
    if address.prefix_len == 0 {
        return Err(bad());
    }
    match reserved(&Network::host(address.address)) {
        Some(what) => Err(Problem::Reserved { found: found(), what }),
        None => Ok(address),
    }
}

/// The range with a special meaning that a network overlaps, if there is one: no host there, or
/// another use.
fn reserved(network: &Network) -> Option<&'static str> {
    let nodes = Network::around(IpAddr::V6(Ipv6Addr::from([FIPS_PREFIX; 16])), 8);
    let special = [
        (nodes, "in fd00::/8, where the addresses of nodes are"),
        ("0.0.0.0/8".parse().ok(), "no address of a host"),
        ("127.0.0.0/8".parse().ok(), "loopback"),
        ("169.254.0.0/16".parse().ok(), "link-local"),
        ("224.0.0.0/4".parse().ok(), "multicast"),
        ("240.0.0.0/4".parse().ok(), "no address of a host"),
        ("::/96".parse().ok(), "no address of a host"),
        ("::ffff:0.0.0.0/96".parse().ok(), "no address of a host"),
        ("fe80::/10".parse().ok(), "link-local"),
        ("ff00::/8".parse().ok(), "multicast"),
    ];
    let overlap = special
        .iter()
        .find(|(other, _)| other.is_some_and(|other: Network| network.overlaps(&other)));
    overlap.map(|(_, what)| *what)
}
