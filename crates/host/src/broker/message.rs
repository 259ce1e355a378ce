//! Requests and replies as bytes.
//!
//! ```text
//! message: length (4 bytes, big-endian; of what follows), version (1), kind, body
//! request 1, names of the system: port (2 bytes, big-endian, not 0), search
//! request 2, read the configuration: nothing
//! request 3, restore the configuration before a change: nothing
//! request 4, confirm the change: nothing
//! request 5, replace resolv.conf: search
//! request 6, put resolv.conf back: nothing
//! request 7, send by an exit: flags (1: IPv4, 2: IPv6, 4: strict, 8: local networks are reached
//!     directly, 16: connections that come in are answered, 32: directly for now), source and address of the
//!     exit, of IPv4 (4 bytes each; zeros for none) and of IPv6 (16 bytes each)
//! request 8, send by no exit: flags (1: connections by it end)
//! request 9, forward as an exit: flags (1: IPv4, 2: IPv6), own addresses and local networks: each length
//!     of the prefix (1 byte, of an IPv4 one with 96 more), address (16 bytes; of IPv4, mapped), at most 64
//! request 10, forward no more: nothing
//! request 11, the name servers of the system: nothing
//! request 12, switch IPv6 on for the interface: nothing
//! request 13, read back the names of the system: port, search, as in request 1
//! request 14, look for faults: flags (1: an exit for IPv4, 2: for IPv6, 4: sends by an exit for IPv4,
//!     8: for IPv6), number of UDP ports (1 byte), each port (2 bytes, big-endian), number of subnets
//!     behind this host (1 byte), each subnet as in request 9, addresses that lead into the interface
//!     (16 bytes each; of IPv4, mapped)
//! request 15, list known flows: number of subnets on this side (1 byte), those and the ones on the other
//!     side, each as in request 9, at most 32 of both
//! request 16, the number of a user of this system: its name, UTF-8, at most 256 bytes
//! reply 0, done: nothing
//! reply 1, failed: why, UTF-8 without control characters
//! reply 2, refused: nothing
//! reply 3, text: UTF-8
//! reply 4, flows: each flags (1: the other end began it, 2: IPv6), protocol, both ports (2 bytes each,
//!     big-endian) and both addresses, those of this side first
//! search: at most 16 names of networks, each behind its length (1 byte)
//! ```
//!
//! A request has at most 1,280 bytes behind its length, and a reply at most as many more than the
//! longest configuration, or what 65,536 flows take.
//!
//! Both processes run one program, started from one file. A different version therefore means that
//! the file was replaced in between, and the message is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;

use weft_wire::Subnet;

use crate::exit::{Ends, ServeExit, UseExit};
use crate::faults::Wanted;
use crate::flows::{Flow, Interest, MAX_FLOWS};

use crate::dns::Search;

/// The version of the messages.
const VERSION: u8 = 7;
/// The longest request in bytes, its length not counted, and the longest reply but a text.
pub const MAX_REQUEST: usize = 1280;
const _: () = assert!(2 + 2 + Search::MAX_BYTES <= MAX_REQUEST);
/// The maximum number of addresses of an exit and of local networks behind it.
pub const MAX_LANS: usize = 64;
const _: () = assert!(2 + 1 + MAX_LANS * 17 <= MAX_REQUEST);
/// The maximum number of UDP ports, subnets and addresses of a look for faults.
const MAX_LOOKED_AT: [usize; 3] = [16, 32, 32];
const _: () = assert!(2 + 1 + 2 + MAX_LOOKED_AT[0] * 2 + MAX_LOOKED_AT[1] * 17 + MAX_LOOKED_AT[2] * 16 <= MAX_REQUEST);
/// The longest name of a user, in bytes: that of Linux (`LOGIN_NAME_MAX`).
pub(super) const MAX_USER: usize = 256;
/// The maximum number of subnets on each side of known flows.
const MAX_INTEREST: usize = 32;
const _: () = assert!(2 + 1 + 2 * MAX_INTEREST * 17 <= MAX_REQUEST);
/// The bytes of a flow of IPv4, and of IPv6.
const FLOW_LEN: [usize; 2] = [6 + 2 * 4, 6 + 2 * 16];
/// The longest reply in bytes, its length not counted.
pub const MAX_REPLY: usize = {
    let (text, flows) = (MAX_REQUEST + weft_config::MAX_LEN, 2 + MAX_FLOWS * FLOW_LEN[1]);
    if text > flows { text } else { flows }
};

const SET_RESOLVER: u8 = 1;
const READ_CONFIG: u8 = 2;
const RESTORE_CONFIG: u8 = 3;
const CONFIRM_CONFIG: u8 = 4;
const TAKE_RESOLV_CONF: u8 = 5;
const RELEASE_RESOLV_CONF: u8 = 6;
const USE_EXIT: u8 = 7;
const LEAVE_EXIT: u8 = 8;
const SERVE_EXIT: u8 = 9;
const STOP_SERVING: u8 = 10;
const NAME_SERVERS: u8 = 11;
const ENABLE_IPV6: u8 = 12;
const CHECK_RESOLVER: u8 = 13;
const EXAMINE: u8 = 14;
const LIST_FLOWS: u8 = 15;
const FIND_USER: u8 = 16;
const DONE: u8 = 0;
const FAILED: u8 = 1;
const REFUSED: u8 = 2;
const TEXT: u8 = 3;
const FLOWS: u8 = 4;

/// A request of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Configures systemd-resolved to send queries for names below `.fips` and `.weft` to this node:
    /// to its own address in the mesh, on this port, through its interface. The reply is a text without
    /// content if programs do not ask systemd-resolved.
    SetResolver {
        /// The port.
        port: NonZeroU16,
        /// The networks below which names without a dot are looked up.
        search: Search,
    },
    /// Reads the configuration file.
    ReadConfig,
    /// Puts the configuration back that the last change replaced, if that change waits for a
    /// confirmation.
    RestoreConfig,
    /// Confirms that change.
    ConfirmConfig,
    /// Puts a text that names this node in the place of resolv.conf, unless it is there already.
    /// The reply is the former text.
    TakeResolvConf {
        /// The networks below which names without a dot are looked up.
        search: Search,
    },
    /// Puts the former resolv.conf back.
    ReleaseResolvConf,
    /// Sends packets to other networks by an exit.
    UseExit(UseExit),
    /// Sends them as without an exit.
    LeaveExit {
        /// Connections of this host by it end.
        ends: bool,
    },
    /// Forwards packets of other nodes to other networks. Of more addresses and networks than [`MAX_LANS`],
    /// the first count.
    ServeExit(ServeExit),
    /// Forwards them no more.
    StopServing,
    /// Reads which name servers this system asks. The reply is a text with one address and port a line.
    NameServers,
    /// Switches IPv6 on for the interface.
    EnableIpv6,
    /// Reads back what [`SetResolver`](Self::SetResolver) has configured. The reply is the same if it is
    /// there.
    CheckResolver {
        /// The port.
        port: NonZeroU16,
        /// The networks below which names without a dot are looked up.
        search: Search,
    },
    /// Looks for what keeps packets from passing. Of more than 16 ports, 32 subnets and 32 addresses the
    /// first count. The reply is a document [`Examined`](crate::faults::Examined).
    Examine(Wanted),
    /// Lists the flows that the kernel knows. Of more than 32 subnets on a side the first
    /// count.
    ListFlows(Interest),
    /// Looks up the number of the user of this name. The reply is a text with the number, or an empty one.
    FindUser(String),
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The system refused; one line for the user.
    Failed(String),
    /// The request is not on the list, or its parameters are invalid.
    Refused,
    /// The file that was requested.
    Text(String),
    /// Flows.
    Flows(Vec<Flow>),
}

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Longer than its kind may be, or shorter than its head.
    #[error("a message of {0} bytes")]
    Length(usize),
    /// The version is unknown.
    #[error("version {0} of messages")]
    Version(u8),
    /// The kind is not on the list.
    #[error("an unknown kind of message, {0}")]
    Kind(u8),
    /// The parameters are not those of the kind.
    #[error("parameters that message {0} does not have")]
    Body(u8),
}

impl Request {
    /// Returns the message with its length in front.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::SetResolver { port, search } => frame(SET_RESOLVER, &resolver(*port, search)),
            Self::CheckResolver { port, search } => frame(CHECK_RESOLVER, &resolver(*port, search)),
            Self::ReadConfig => frame(READ_CONFIG, &[]),
            Self::RestoreConfig => frame(RESTORE_CONFIG, &[]),
            Self::ConfirmConfig => frame(CONFIRM_CONFIG, &[]),
            Self::TakeResolvConf { search } => frame(TAKE_RESOLV_CONF, &search.to_bytes()),
            Self::ReleaseResolvConf => frame(RELEASE_RESOLV_CONF, &[]),
            Self::UseExit(exit) => frame(USE_EXIT, &use_exit(exit)),
            Self::LeaveExit { ends } => frame(LEAVE_EXIT, &[bits([*ends])]),
            Self::ServeExit(exit) => frame(SERVE_EXIT, &serve_exit(exit)),
            Self::StopServing => frame(STOP_SERVING, &[]),
            Self::NameServers => frame(NAME_SERVERS, &[]),
            Self::EnableIpv6 => frame(ENABLE_IPV6, &[]),
            Self::Examine(wanted) => frame(EXAMINE, &examine(wanted)),
            Self::ListFlows(interest) => frame(LIST_FLOWS, &list_flows(interest)),
            Self::FindUser(name) => frame(FIND_USER, name.as_bytes()),
        }
    }

    /// Reads a message without its length.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (kind, body) = parts(message, MAX_REQUEST)?;
        match (kind, body) {
            (SET_RESOLVER | CHECK_RESOLVER, body) => {
                let (port, search) = read_resolver(body).ok_or(BadMessage::Body(kind))?;
                Ok(match kind {
                    SET_RESOLVER => Self::SetResolver { port, search },
                    _ => Self::CheckResolver { port, search },
                })
            }
            (READ_CONFIG, []) => Ok(Self::ReadConfig),
            (RESTORE_CONFIG, []) => Ok(Self::RestoreConfig),
            (CONFIRM_CONFIG, []) => Ok(Self::ConfirmConfig),
            (TAKE_RESOLV_CONF, search) => {
                let search = Search::from_bytes(search).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::TakeResolvConf { search })
            }
            (RELEASE_RESOLV_CONF, []) => Ok(Self::ReleaseResolvConf),
            (USE_EXIT, body) => read_use_exit(body).map(Self::UseExit).ok_or(BadMessage::Body(kind)),
            (LEAVE_EXIT, [bits]) => {
                let [ends] = flags(*bits).ok_or(BadMessage::Body(kind))?;
                Ok(Self::LeaveExit { ends })
            }
            (SERVE_EXIT, body) => read_serve_exit(body).map(Self::ServeExit).ok_or(BadMessage::Body(kind)),
            (STOP_SERVING, []) => Ok(Self::StopServing),
            (NAME_SERVERS, []) => Ok(Self::NameServers),
            (ENABLE_IPV6, []) => Ok(Self::EnableIpv6),
            (EXAMINE, body) => read_examine(body).map(Self::Examine).ok_or(BadMessage::Body(kind)),
            (LIST_FLOWS, body) => read_list_flows(body).map(Self::ListFlows).ok_or(BadMessage::Body(kind)),
            (FIND_USER, name) if name.len() <= MAX_USER => {
                let name = std::str::from_utf8(name).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::FindUser(name.to_owned()))
            }
            (SET_RESOLVER..=FIND_USER, _) => Err(BadMessage::Body(kind)),
            _ => Err(BadMessage::Kind(kind)),
        }
    }
}

impl Reply {
    /// Returns the message with its length in front. A reason is cut to the space that is left, and
    /// control characters are removed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => frame(DONE, &[]),
            Self::Refused => frame(REFUSED, &[]),
            Self::Failed(why) => frame(FAILED, printable(why).as_bytes()),
            Self::Text(text) => frame(TEXT, text.as_bytes()),
            Self::Flows(flows) => frame(FLOWS, &flows.iter().flat_map(flow).collect::<Vec<u8>>()),
        }
    }

    /// Reads a message without its length.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (kind, body) = parts(message, MAX_REPLY)?;
        match (kind, body) {
            (DONE, []) => Ok(Self::Done),
            (REFUSED, []) => Ok(Self::Refused),
            (FAILED, why) => {
                let why = std::str::from_utf8(why).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::Failed(printable(why)))
            }
            (TEXT, text) => {
                let text = std::str::from_utf8(text).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::Text(text.to_owned()))
            }
            (FLOWS, body) => read_flows(body).map(Self::Flows).ok_or(BadMessage::Body(kind)),
            (DONE | REFUSED, _) => Err(BadMessage::Body(kind)),
            _ => Err(BadMessage::Kind(kind)),
        }
    }
}

/// A bit for each flag, the first one the lowest.
fn bits<const N: usize>(flags: [bool; N]) -> u8 {
    flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag))
}

/// The flags of a byte; `None` if others are set.
fn flags<const N: usize>(bits: u8) -> Option<[bool; N]> {
    (bits >> N == 0).then(|| std::array::from_fn(|at| bits >> at & 1 == 1))
}

fn resolver(port: NonZeroU16, search: &Search) -> Vec<u8> {
    [&port.get().to_be_bytes()[..], &search.to_bytes()].concat()
}

fn read_resolver(body: &[u8]) -> Option<(NonZeroU16, Search)> {
    let (port, search) = body.split_first_chunk()?;
    Some((
        NonZeroU16::new(u16::from_be_bytes(*port))?,
        Search::from_bytes(search).ok()?,
    ))
}

fn use_exit(exit: &UseExit) -> Vec<u8> {
    let flags = bits([exit.ipv4, exit.ipv6, exit.strict, exit.lan, exit.inbound, exit.direct]);
    let ipv4 = exit.ends.unwrap_or(Ends::of(Ipv4Addr::UNSPECIFIED));
    let ipv6 = exit.ends6.unwrap_or(Ends::of(Ipv6Addr::UNSPECIFIED));
    [
        &[flags][..],
        &ipv4.own.octets(),
        &ipv4.exit.octets(),
        &ipv6.own.octets(),
        &ipv6.exit.octets(),
    ]
    .concat()
}

fn read_use_exit(body: &[u8]) -> Option<UseExit> {
    let (&bits, addresses) = body.split_first()?;
    let [ipv4, ipv6, strict, lan, inbound, direct] = flags(bits)?;
    let (own, rest) = addresses.split_first_chunk::<4>()?;
    let (exit, rest) = rest.split_first_chunk::<4>()?;
    let ends = Ends {
        own: Ipv4Addr::from(*own),
        exit: Ipv4Addr::from(*exit),
    };
    let ([own, exit], []) = rest.as_chunks::<16>() else {
        return None;
    };
    let ends6 = Ends {
        own: Ipv6Addr::from(*own),
        exit: Ipv6Addr::from(*exit),
    };
    Some(UseExit {
        ipv4,
        ipv6,
        strict,
        lan,
        inbound,
        direct,
        ends: Some(ends).filter(|ends| *ends != Ends::of(Ipv4Addr::UNSPECIFIED)),
        ends6: Some(ends6).filter(|ends| *ends != Ends::of(Ipv6Addr::UNSPECIFIED)),
    })
}

/// An address in the form of IPv6 (RFC 4291 section 2.5.5.2).
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn unmapped(octets: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
}

fn serve_exit(exit: &ServeExit) -> Vec<u8> {
    let mut body = vec![bits([exit.ipv4, exit.ipv6])];
    for lan in exit.lans.iter().take(MAX_LANS) {
        body.extend_from_slice(&subnet(*lan));
    }
    body
}

fn read_serve_exit(body: &[u8]) -> Option<ServeExit> {
    let (&bits, rest) = body.split_first()?;
    let [ipv4, ipv6] = flags(bits)?;
    let (lans, []) = rest.as_chunks::<17>() else {
        return None;
    };
    Some(ServeExit {
        ipv4,
        ipv6,
        lans: lans.iter().map(read_subnet).collect::<Option<_>>()?,
    })
}

fn subnet(subnet: Subnet) -> [u8; 17] {
    let more = if subnet.address().is_ipv4() { 96 } else { 0 };
    let mut bytes = [subnet.prefix_len() + more; 17];
    let (_, address) = bytes.split_at_mut(1);
    address.copy_from_slice(&mapped(subnet.address()));
    bytes
}

fn read_subnet(&[len, ref octets @ ..]: &[u8; 17]) -> Option<Subnet> {
    let address = unmapped(*octets);
    let len = if address.is_ipv4() { len.checked_sub(96)? } else { len };
    Subnet::new(address, len).ok()
}

fn examine(wanted: &Wanted) -> Vec<u8> {
    let [ports, behind, inside] = MAX_LOOKED_AT;
    let ports = wanted.ports.get(..ports).unwrap_or(&wanted.ports);
    let behind = wanted.behind.get(..behind).unwrap_or(&wanted.behind);
    let [exit4, exit6] = wanted.exit;
    let [by4, by6] = wanted.by_exit;
    let mut body = vec![bits([exit4, exit6, by4, by6]), ports.len() as u8];
    body.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    body.push(behind.len() as u8);
    body.extend(behind.iter().flat_map(|behind| subnet(*behind)));
    body.extend(wanted.inside.iter().take(inside).flat_map(|address| mapped(*address)));
    body
}

fn read_examine(body: &[u8]) -> Option<Wanted> {
    let (&[bits, ports], rest) = body.split_first_chunk()?;
    let [exit4, exit6, by4, by6] = flags(bits)?;
    let (ports, rest) = rest.split_at_checked(usize::from(ports) * 2)?;
    let (&behind, rest) = rest.split_first()?;
    let (behind, rest) = rest.split_at_checked(usize::from(behind) * 17)?;
    let (inside, []) = rest.as_chunks::<16>() else {
        return None;
    };
    let [most_ports, most_behind, most_inside] = MAX_LOOKED_AT;
    let fits = ports.len() <= most_ports * 2 && behind.len() <= most_behind * 17 && inside.len() <= most_inside;
    fits.then_some(())?;
    let behind = behind.as_chunks::<17>().0.iter().map(read_subnet);
    Some(Wanted {
        ports: ports
            .as_chunks()
            .0
            .iter()
            .map(|port| u16::from_be_bytes(*port))
            .collect(),
        exit: [exit4, exit6],
        by_exit: [by4, by6],
        behind: behind.collect::<Option<_>>()?,
        inside: inside.iter().map(|address| unmapped(*address)).collect(),
    })
}

fn list_flows(interest: &Interest) -> Vec<u8> {
    let [local, remote] = [&interest.local, &interest.remote].map(|side| side.get(..MAX_INTEREST).unwrap_or(side));
    let subnets = local.iter().chain(remote).flat_map(|of| subnet(*of));
    std::iter::once(local.len() as u8).chain(subnets).collect()
}

fn read_list_flows(body: &[u8]) -> Option<Interest> {
    let (&local, rest) = body.split_first()?;
    let (subnets, []) = rest.as_chunks::<17>() else {
        return None;
    };
    let (local, remote) = subnets.split_at_checked(usize::from(local))?;
    let fits = local.len() <= MAX_INTEREST && remote.len() <= MAX_INTEREST;
    fits.then_some(())?;
    Some(Interest {
        local: local.iter().map(read_subnet).collect::<Option<_>>()?,
        remote: remote.iter().map(read_subnet).collect::<Option<_>>()?,
    })
}

fn flow(flow: &Flow) -> Vec<u8> {
    let ends = [flow.local, flow.remote];
    let v6 = ends.iter().any(SocketAddr::is_ipv6);
    let mut bytes = vec![bits([flow.by_peer, v6]), flow.protocol];
    bytes.extend(ends.iter().flat_map(|end| end.port().to_be_bytes()));
    for end in ends {
        let octets = mapped(end.ip());
        bytes.extend_from_slice(octets.get(if v6 { 0 } else { 12 }..).unwrap_or_default());
    }
    bytes
}

fn read_flows(mut body: &[u8]) -> Option<Vec<Flow>> {
    let mut flows = Vec::new();
    while let Some(&bits) = body.first() {
        let [by_peer, v6] = flags(bits)?;
        let (bytes, rest) = body.split_at_checked(FLOW_LEN[usize::from(v6)])?;
        let end = |number: usize| {
            let port = bytes.get(2 + 2 * number..)?.first_chunk()?;
            let ip = match v6 {
                true => unmapped(*bytes.get(6 + 16 * number..)?.first_chunk()?),
                false => IpAddr::from(*bytes.get(6 + 4 * number..)?.first_chunk::<4>()?),
            };
            Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
        };
        flows.push(Flow {
            protocol: *bytes.get(1)?,
            local: end(0)?,
            remote: end(1)?,
            by_peer,
        });
        body = rest;
    }
    Some(flows)
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, VERSION, kind];
    bytes.extend_from_slice(body);
    let len = (bytes.len() - 4) as u32;
    if let Some(front) = bytes.first_chunk_mut() {
        *front = len.to_be_bytes();
    }
    bytes
}

fn parts(message: &[u8], longest: usize) -> Result<(u8, &[u8]), BadMessage> {
    if message.len() > longest {
        return Err(BadMessage::Length(message.len()));
    }
    match message {
        [VERSION, kind, body @ ..] => Ok((*kind, body)),
        [version, _, ..] => Err(BadMessage::Version(*version)),
        _ => Err(BadMessage::Length(message.len())),
    }
}

/// The part of a text that fits into a message, without control characters.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > MAX_REQUEST - 2 {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_round_trip(port in 1..=u16::MAX) {
            let port = NonZeroU16::new(port).unwrap();
            for request in [
                Request::SetResolver { port, search: Search::default() },
                Request::SetResolver { port, search: Search::new(["home", "work"]) },
                Request::CheckResolver { port, search: Search::new(["home"]) },
                Request::ReadConfig, Request::RestoreConfig, Request::ConfirmConfig,
                Request::TakeResolvConf { search: Search::new(["home"]) }, Request::ReleaseResolvConf,
                Request::LeaveExit { ends: port.get() & 1 == 1 }, Request::StopServing, Request::NameServers, Request::EnableIpv6, Request::ServeExit(ServeExit::default()),
                Request::UseExit(UseExit { ipv4: port.get() & 1 == 1, strict: port.get() & 2 == 2, ..UseExit::default() }),
                Request::UseExit(UseExit {
                    ipv6: true,
                    lan: true,
                    inbound: port.get() & 1 == 1,
                    ends: Some(Ends { own: [10, 44, 0, 1].into(), exit: [10, 44, 0, 2].into() }),
                    ends6: Some(Ends { own: "fd00::1".parse().unwrap(), exit: "fd00::2".parse().unwrap() }),
                    ..UseExit::default()
                }),
                Request::ServeExit(ServeExit {
                    ipv4: true,
                    ipv6: port.get() & 1 == 1,
                    lans: vec!["10.1.0.0/16".parse().unwrap(), "fd12::/64".parse().unwrap()],
                }),
                Request::ListFlows(Interest::default()),
                Request::ListFlows(Interest {
                    local: vec!["10.1.0.0/16".parse().unwrap(), "fd12::/64".parse().unwrap()],
                    remote: vec!["10.44.0.0/16".parse().unwrap(); usize::from(port.get() % 33)],
                }),
                Request::Examine(Wanted::default()),
                Request::FindUser("alice".to_owned()),
                Request::Examine(Wanted {
                    ports: vec![2121, port.get()],
                    exit: [true, false],
                    by_exit: [port.get() & 1 == 1, true],
                    behind: vec!["10.1.0.0/16".parse().unwrap(), "fd12::/64".parse().unwrap()],
                    inside: vec!["10.44.0.1".parse().unwrap(), "fd00::7".parse().unwrap()],
                }),
            ] {
                let bytes = request.encode();
                let (len, message) = bytes.split_first_chunk().unwrap();
                prop_assert_eq!(u32::from_be_bytes(*len) as usize, message.len());
                prop_assert_eq!(Request::decode(message), Ok(request));
            }
        }

        #[test]
        fn replies_round_trip(why in any::<String>()) {
            let failed = Reply::Failed(printable(&why));
            prop_assert!(failed.encode().len() <= 4 + MAX_REQUEST);
            let flow = |local: &str, remote: &str, by_peer| Flow {
                protocol: 6,
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
                by_peer,
            };
            let flows = Reply::Flows(vec![
                flow("10.44.0.1:22", "10.44.0.2:5000", true),
                flow("[fd01::1]:4000", "[fd02::1]:80", false),
            ]);
            for reply in [Reply::Done, Reply::Refused, failed, flows, Reply::Flows(Vec::new()), Reply::Text(why)] {
                prop_assert_eq!(Reply::decode(&reply.encode()[4..]), Ok(reply));
            }
        }
    }

    #[test]
    fn requests_that_are_not_on_the_list_are_refused() {
        let decode = Request::decode;
        assert_eq!(decode(&[]), Err(BadMessage::Length(0)));
        assert_eq!(decode(&[7]), Err(BadMessage::Length(1)));
        assert_eq!(decode(&[2, 1, 0, 53]), Err(BadMessage::Version(2)));
        assert_eq!(decode(&[7, 0, 0, 53]), Err(BadMessage::Kind(0)));
        assert_eq!(decode(&[7, 99]), Err(BadMessage::Kind(99)));
        for body in [&[][..], &[0, 0], &[53], &[0, 53, 0], b"; rm -rf /"] {
            assert_eq!(decode(&[&[7, 1], body].concat()), Err(BadMessage::Body(1)), "{body:?}");
        }
        for kind in [
            READ_CONFIG,
            RESTORE_CONFIG,
            CONFIRM_CONFIG,
            TAKE_RESOLV_CONF,
            RELEASE_RESOLV_CONF,
            USE_EXIT,
            LEAVE_EXIT,
            SERVE_EXIT,
            STOP_SERVING,
            NAME_SERVERS,
        ] {
            assert_eq!(decode(&[7, kind, b'/']), Err(BadMessage::Body(kind)));
        }
        for body in [&[][..], &[1], &[0, 1], &[33]] {
            let body = [
                &[7, LIST_FLOWS],
                body,
                &[0; 33 * 17][..if body == [33] { 33 * 17 } else { 0 }],
            ]
            .concat();
            assert_eq!(decode(&body), Err(BadMessage::Body(LIST_FLOWS)), "{body:?}");
        }
        for name in [&[0xff; 2][..], &[b'a'; MAX_USER + 1]] {
            let body = [&[7, FIND_USER], name].concat();
            assert_eq!(decode(&body), Err(BadMessage::Body(FIND_USER)));
        }
        for flows in [&[0; 13][..], &[2; 37], &[4; 14], &[0; 15]] {
            let reply = [&[7, FLOWS], flows].concat();
            assert_eq!(Reply::decode(&reply), Err(BadMessage::Body(FLOWS)), "{flows:?}");
        }
        // Counts of ports and subnets above the maximum, and counts without the bytes that they announce.
        for body in [&[0][..], &[0, 1, 0], &[0, 0, 1], &[0, 17], &[16, 0, 0], &[0, 0, 0, 1]] {
            let body = [&[7, EXAMINE], body, &[0; 40][..usize::from(body == [0, 17]) * 35]].concat();
            assert_eq!(decode(&body), Err(BadMessage::Body(EXAMINE)), "{body:?}");
        }
        assert_eq!(decode(&[3; MAX_REQUEST + 1]), Err(BadMessage::Length(MAX_REQUEST + 1)));
        assert_eq!(Reply::decode(&[7, TEXT, 0xff]), Err(BadMessage::Body(TEXT)));
    }
}
