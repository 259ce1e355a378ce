//! Multicast DNS (RFC 6762) for the services (RFC 6763) of LAN discovery alone: what is announced, what is answered,
//! and the instances that others announce.
//!
//! It is no resolver and no responder for a whole host. Records of other services cost their parsing and are not kept;
//! names of instances and hosts are random or follow from a key, so they are not probed before they are announced;
//! all answers are multicast, each service at most once a second on a link. What a link may cost is bounded by what
//! arrives there ([`READ_BURST`]), not by what it says.
//!
//! Never here: sockets, clocks, and what the entries of an instance mean.

use std::net::{IpAddr, SocketAddr};

use weft_wire::Subnet;


mod found;
mod records;

pub use found::{ASK_PAUSE, LONGEST_LIFE, MAX_ADDRESSES, MAX_ASKED, MAX_INSTANCES, WITHDRAWN_LIFE};
pub use records::MAX_DATAGRAM;

/// The UDP port of mDNS.
pub const PORT: u16 = 5_353;
/// Links that are served, at most.
pub const MAX_LINKS: usize = 16;
/// Addresses of a link that are announced, at most.
pub const MAX_ANNOUNCED: usize = 8;
/// Datagrams of one link that are read at once, at most.
pub const READ_BURST: u64 = 128;
/// The interval in which one more datagram of a link is read, in ms.
pub const READ_INTERVAL: u64 = 20;
/// The least time between two multicasts of the same records on a link, in ms (RFC 6762, section 6).
pub const SEND_PAUSE: u64 = 1_000;
/// The pause before a service is asked for again, in ms. It triples up to [`LAST_QUERY`].
pub const FIRST_QUERY: u64 = 1_000;
/// The longest pause, in ms: three queries find an instance between half of its life and its end.
pub const LAST_QUERY: u64 = 720_000;
/// The least and the most of the delay of a first query and of an answer, in ms (RFC 6762, sections 5.2 and 6).
const DELAY: (u64, u64) = (20, 120);

/// A link on which services are announced and looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The index of its interface.
    pub index: u32,
    /// The name of its interface.
    pub name: String,
    /// The addresses of this host there, those first that are announced first.
    pub addresses: Vec<IpAddr>,
    /// The subnets of these addresses.
    pub subnets: Vec<Subnet>,
}

impl Link {
    /// Returns true if a host of the link has this address (RFC 6762, section 11).
    fn has(&self, from: IpAddr) -> bool {
        let is_local = matches!(from, IpAddr::V6(ip) if ip.is_unicast_link_local());
        is_local || self.subnets.iter().any(|subnet| subnet.contains(from))
    }
}

/// A service to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The type of service, as `_weft._udp.local`.
    pub service: &'static str,
    /// The name of the instance: lower case, at most 63 bytes.
    pub instance: String,
    /// The port.
    pub port: u16,
    /// The addresses at which this host serves it, of which each link has its own announced. An unspecified one stands
    /// for all of its version of IP.
    pub served: Vec<IpAddr>,
    /// The entries of the TXT record.
    pub entries: Vec<(String, String)>,
}

impl Service {
    /// Returns its full name.
    fn full_name(&self) -> String {
        format!("{}.{}", self.instance, self.service)
    }

    /// Returns the addresses of a link at which it is served, at most [`MAX_ANNOUNCED`].
    fn addresses<'a>(&'a self, link: &'a Link) -> impl Iterator<Item = IpAddr> + 'a {
        let serves =
            |served: &IpAddr, ip: &IpAddr| served == ip || served.is_unspecified() && served.is_ipv4() == ip.is_ipv4();
        let of_link = link.addresses.iter().copied();
        of_link
            .filter(move |ip| self.served.iter().any(|served| serves(served, ip)))
            .take(MAX_ANNOUNCED)
    }
}

/// An instance that another host announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The type of service, as `_weft._udp.local`.
    pub service: String,
    /// Its full name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Its addresses with the port; those of a link alone have the index of the interface.
    pub addresses: Vec<SocketAddr>,
    /// The entries of its TXT record.
    pub entries: Vec<(String, Vec<u8>)>,
}
