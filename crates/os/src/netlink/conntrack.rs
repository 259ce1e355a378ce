//! The connections that the kernel tracks, for its firewall and its NAT.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

use rustix::net::netlink;

use super::NetlinkError;
use super::dump::{attribute, dump, order};

/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_DELETE` of `linux/netfilter/nfnetlink_conntrack.h`.
const DELETE: u16 = (1 << 8) | 2;
/// `IPCTNL_MSG_CT_GET`.
const GET: u16 = (1 << 8) | 1;
/// The attributes of a connection, in `linux/netfilter/nfnetlink_conntrack.h`.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_PROTOINFO: u16 = 4;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
/// `NLA_F_NESTED` of `linux/netlink.h`.
const NESTED: u16 = 1 << 15;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
/// `IP_CT_TCP_FLAG_BE_LIBERAL` of `linux/netfilter/nf_conntrack_tcp.h`: set for a connection whose first
/// packets were not seen.
const BE_LIBERAL: u8 = 8;
/// `TCP_CONNTRACK_TIME_WAIT` and the states behind it: the connection is over.
const TIME_WAIT: u8 = 7;

/// The ends of the packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackedEnds {
    /// The end that they come from.
    pub source: SocketAddr,
    /// The end that they go to.
    pub dest: SocketAddr,
}

/// A connection that the kernel tracks. Addresses and ports differ between the directions where they are
/// translated. Protocols other than TCP and UDP have the port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// The protocol, by its number.
    pub protocol: u8,
    /// The packets of the end that began it.
    pub original: TrackedEnds,
    /// Those of the other end.
    pub reply: TrackedEnds,
}

/// Passes the connections whose beginning the kernel has seen to `each` until that breaks, in the network
/// namespace of the calling thread. It needs the capability CAP_NET_ADMIN there.
///
/// # Errors
/// A [`NetlinkError`], as without connection tracking.
pub fn tracked_connections(mut each: impl FnMut(Tracked) -> ControlFlow<()>) -> Result<(), NetlinkError> {
    list(|_, tracked, began| match began {
        true => each(tracked),
        false => ControlFlow::Continue(()),
    })
}

/// Passes the message about each connection to `each` until that breaks, with what it says, and whether the kernel has
/// seen the beginning of the connection and not its end.
fn list(mut each: impl FnMut(&[u8], Tracked, bool) -> ControlFlow<()>) -> Result<(), NetlinkError> {
    // `struct nfgenmsg`: all families.
    let request = (GET, &[0; 4][..]);
    dump("list the tracked connections", netlink::NETFILTER, request, |message| {
        let attributes = message.get(4..).unwrap_or_default();
        match read(attributes) {
            Some(tracked) => each(message, tracked, has_begun(attributes)),
            None => ControlFlow::Continue(()),
        }
    })
}

fn read(attributes: &[u8]) -> Option<Tracked> {
    let (protocol, original) = ends(attribute(attributes, CTA_TUPLE_ORIG)?)?;
    let (_, reply) = ends(attribute(attributes, CTA_TUPLE_REPLY)?)?;
    Some(Tracked {
        protocol,
        original,
        reply,
    })
}

/// Whether the kernel has seen the beginning of a connection of TCP, and not its end. Other protocols have neither.
fn has_begun(attributes: &[u8]) -> bool {
    let tcp = attribute(attributes, CTA_PROTOINFO).and_then(|info| attribute(info, CTA_PROTOINFO_TCP));
    tcp.is_none_or(|tcp| {
        let first = |kind| attribute(tcp, kind).and_then(<[u8]>::first).copied();
        let over = first(CTA_PROTOINFO_TCP_STATE).is_none_or(|state| state >= TIME_WAIT);
        let late = first(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL).is_none_or(|flags| flags & BE_LIBERAL != 0);
        !over && !late
    })
}

/// The protocol and the ends of a tuple.
fn ends(tuple: &[u8]) -> Option<(u8, TrackedEnds)> {
    let (ip, proto) = (attribute(tuple, CTA_TUPLE_IP)?, attribute(tuple, CTA_TUPLE_PROTO)?);
    let port = |kind| attribute(proto, kind).and_then(|port| Some(u16::from_be_bytes(*port.first_chunk()?)));
    let address = |further: u16| -> Option<IpAddr> {
        match attribute(ip, CTA_IP_V4_SRC + further) {
            Some(octets) => Some(Ipv4Addr::from(*octets.first_chunk()?).into()),
            None => Some(Ipv6Addr::from(*attribute(ip, CTA_IP_V6_SRC + further)?.first_chunk()?).into()),
        }
    };
    let protocol = *attribute(proto, CTA_PROTO_NUM)?.first()?;
    let has_ports = matches!(i32::from(protocol), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
    let port = |kind| port(kind).filter(|_| has_ports).unwrap_or(0);
    let source = SocketAddr::new(address(0)?, port(CTA_PROTO_SRC_PORT));
    let dest = SocketAddr::new(address(1)?, port(CTA_PROTO_DST_PORT));
    Some((protocol, TrackedEnds { source, dest }))
}

/// Deletes the tracked connections that a condition holds for, in the network namespace of the calling thread: the next
/// packet of one begins another, whose addresses are translated as rules say then. It needs the capability
/// CAP_NET_ADMIN there. Returns how many there were.
///
/// # Errors
/// A [`NetlinkError`], as without connection tracking.
pub fn forget_connections(mut condition: impl FnMut(&Tracked) -> bool) -> Result<usize, NetlinkError> {
    let mut requests = Vec::new();
    list(|message, tracked, _| {
        if condition(&tracked) {
            requests.push(request_for(message));
        }
        ControlFlow::Continue(())
    })?;
    let orders = requests.iter().map(Vec::as_slice);
    order("forget the connection", netlink::NETFILTER, DELETE, orders)
}

/// The request about a connection that was listed: its family, its ends, and that by which it differs from a later
/// one with the same ends.
fn request_for(message: &[u8]) -> Vec<u8> {
    let family = message.first().copied().unwrap_or_default();
    let mut request = vec![family, 0, 0, 0];
    for kind in [CTA_TUPLE_ORIG, CTA_ID, CTA_ZONE] {
        let attributes = message.get(4..).unwrap_or_default();
        let Some(value) = attribute(attributes, kind) else {
            continue;
        };
        let flags = if kind == CTA_TUPLE_ORIG { NESTED } else { 0 };
        request.extend((value.len() as u16 + 4).to_ne_bytes());
        request.extend((kind | flags).to_ne_bytes());
        request.extend_from_slice(value);
        request.resize(request.len().next_multiple_of(4), 0);
    }
    request
}

/// Deletes all tracked connections of the network namespace of the calling thread: a message that
/// names none means all. It needs the capability CAP_NET_ADMIN there.
///
/// # Errors
/// A [`NetlinkError`], as without connection tracking.
pub fn flush_connections() -> Result<(), NetlinkError> {
    // `struct nfgenmsg`: all families.
    let all = [&[0; 4][..]].into_iter();
    order("delete the tracked connections", netlink::NETFILTER, DELETE, all).map(drop)
}
