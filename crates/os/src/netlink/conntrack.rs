//! The connections that the kernel tracks, for its firewall and its NAT.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};

use super::NetlinkError;
use super::dump::{attribute, dump};

/// Header, and `struct nfgenmsg` (`linux/netfilter/nfnetlink.h`): address family, version, resource.
const REQUEST_LEN: u32 = 16 + 4;
/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_DELETE` of `linux/netfilter/nfnetlink_conntrack.h`.
const DELETE: u16 = (1 << 8) | 2;
/// `IPCTNL_MSG_CT_GET`.
const GET: u16 = (1 << 8) | 1;
/// The attributes of a connection, in `linux/netfilter/nfnetlink_conntrack.h`.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_PROTOINFO: u16 = 4;
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
    // `struct nfgenmsg`: all families.
    let list = (GET, &[0; 4][..]);
    dump("list the tracked connections", netlink::NETFILTER, list, |message| {
        let attributes = message.get(4..).unwrap_or_default();
        read(attributes).map_or(ControlFlow::Continue(()), &mut each)
    })
}

fn read(attributes: &[u8]) -> Option<Tracked> {
    let (protocol, original) = ends(attribute(attributes, CTA_TUPLE_ORIG)?)?;
    let (_, reply) = ends(attribute(attributes, CTA_TUPLE_REPLY)?)?;
    let tcp = attribute(attributes, CTA_PROTOINFO).and_then(|info| attribute(info, CTA_PROTOINFO_TCP));
    if let Some(tcp) = tcp {
        let first = |kind| attribute(tcp, kind).and_then(<[u8]>::first).copied();
        let over = first(CTA_PROTOINFO_TCP_STATE).is_none_or(|state| state >= TIME_WAIT);
        let late = first(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL).is_none_or(|flags| flags & BE_LIBERAL != 0);
        if over || late {
            return None;
        }
    }
    Some(Tracked {
        protocol,
        original,
        reply,
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

/// Deletes all tracked connections of the network namespace of the calling thread: a message that
/// names none means all. It needs the capability CAP_NET_ADMIN there.
///
/// # Errors
/// [`NetlinkError::Io`] if the system returns no netlink socket; the others if the kernel refuses the
/// request, as without connection tracking.
pub fn flush_connections() -> Result<(), NetlinkError> {
    const WHAT: &str = "delete the tracked connections";
    let protocol = Some(netlink::NETFILTER);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol);
    let mut socket = File::from(socket.map_err(|error| NetlinkError::Io(error.into()))?);
    let mut request = REQUEST_LEN.to_ne_bytes().to_vec();
    request.extend(DELETE.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence, port, and a family of 0: all.
    request.resize(REQUEST_LEN as usize, 0);
    socket.write_all(&request).map_err(NetlinkError::Io)?;
    let mut answer = [0; 64];
    let len = socket.read(&mut answer).map_err(NetlinkError::Io)?;
    // NLMSG_ERROR: a header, and the negated error, 0 for success (netlink(7)).
    let error = answer
        .get(..len)
        .and_then(|answer| answer.get(16..)?.first_chunk::<4>());
    match error.map(|error| i32::from_ne_bytes(*error)) {
        Some(0) => Ok(()),
        Some(error) => {
            let error = io::Error::from_raw_os_error(error.saturating_neg());
            Err(NetlinkError::refused(WHAT, error))
        }
        None => Err(NetlinkError::Io(io::ErrorKind::UnexpectedEof.into())),
    }
}
