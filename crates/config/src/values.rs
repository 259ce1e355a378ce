//! The forms of texts in the file: addresses, subnets, names and keys.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_networks::reserved::{not_offered, reserved};
use weft_noise::PublicKey;
use weft_os::process::OVERFLOW_ID;
use weft_reach::candidate::check;
use weft_roster::rules::Rule;
use weft_wire::Subnet;
use weft_wire::subnet::BadSubnet;

use super::error::Problem;
use super::reader::printable;
use super::{DEFAULT_PORT, InterfaceAddress, Operator, ResolvConfSetting, STUN_PORT, Users};
use crate::host_name::{BadPeerAddress, PeerAddress};
use crate::peer::{NodeRef, PeerName};
use crate::relay::RelayUrl;

pub(super) fn public_key(text: &str) -> Result<PublicKey, Problem> {
    text.parse().map_err(Problem::BadKey)
}

/// A rule about flows.
pub(super) fn rule(text: &str) -> Result<Rule, Problem> {
    Rule::local(text).map_err(Problem::BadRule)
}

/// An address and a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, Problem> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = printable(text);
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    Err(match bare.parse::<IpAddr>() {
        Ok(ip) => Problem::NoPort {
            found,
            instead: SocketAddr::new(ip, DEFAULT_PORT).to_string(),
        },
        Err(_) if is_host_name(text) => Problem::HostName(found),
        Err(_) => Problem::NotAnAddress(found),
    })
}

/// A host name, with or without a port.
fn is_host_name(text: &str) -> bool {
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "1"));
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_name = name.bytes().all(allowed) && name.bytes().any(|b| b.is_ascii_alphabetic());
    is_name && port.parse::<u16>().is_ok()
}

/// An address to dial: one host, by address or name, and one port.
pub(super) fn peer_address(text: &str) -> Result<PeerAddress, Problem> {
    let address = text.parse().map_err(|why| match why {
        BadPeerAddress::NoPort(instead) => Problem::NoPort {
            found: printable(text),
            instead,
        },
        BadPeerAddress::Form => Problem::NotAnAddress(printable(text)),
        BadPeerAddress::Name(why) => Problem::BadHostName {
            found: printable(text),
            why,
        },
    })?;
    let dialable = match &address {
        PeerAddress::Named { port, .. } => *port != 0,
        PeerAddress::At(at) => {
            let ip = at.ip();
            let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
            at.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast
        }
    };
    if dialable {
        Ok(address)
    } else {
        Err(Problem::NotDialable(printable(text)))
    }
}

/// An address outside of NATs: one to which datagrams can be sent.
pub(super) fn external(text: &str) -> Result<SocketAddr, Problem> {
    let at = address(text)?;
    match weft_reach::candidate::check(at) {
        Ok(()) => Ok(at),
        Err(_) => Err(Problem::NotDialable(printable(text))),
    }
}

/// The URL of a relay of Nostr.
pub(super) fn relay(text: &str) -> Result<RelayUrl, Problem> {
    text.parse().map_err(|_| Problem::NotARelay(printable(text)))
}

/// A STUN server: one host, by address or name, and one port.
pub(super) fn stun_server(text: &str) -> Result<PeerAddress, Problem> {
    let address = peer_address(text).map_err(|problem| match problem {
        Problem::NoPort { found, instead } => {
            let port = format!(":{DEFAULT_PORT}");
            let host = instead.strip_suffix(&port).unwrap_or(&instead);
            let instead = format!("{host}:{STUN_PORT}");
            Problem::NoPort { found, instead }
        }
        other => other,
    })?;
    match address {
        PeerAddress::At(at) if check(at).is_err() => Err(Problem::NotDialable(printable(text))),
        address => Ok(address),
    }
}

/// A user of this host, by name or number; none if the text is empty.
pub(super) fn operator(text: &str, users: Users<'_>) -> Result<Option<Operator>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused = |why| Problem::BadOperator {
        found: printable(text),
        why,
    };
    let number = || {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
    };
    let uid = match users(text) {
        Ok(Some(uid)) => uid,
        // A user of a directory service is not in the file, so a number is taken as it is.
        Ok(None) => number().ok_or_else(|| refused("is no user of /etc/passwd"))?,
        Err(_) => number().ok_or_else(|| refused("cannot be looked up: /etc/passwd cannot be read"))?,
    };
    if uid == OVERFLOW_ID {
        return Err(refused("stands for all users that this system does not know"));
    }
    Ok(Some(Operator {
        name: text.to_owned(),
        uid,
    }))
}

/// An address that only this host can reach.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, Problem> {
    let address: Option<SocketAddr> = text.parse().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| Problem::NotLoopback(printable(text)))
}

/// The file that may be replaced.
pub(super) fn resolv_conf(text: &str) -> Result<ResolvConfSetting, Problem> {
    match text {
        "auto" => Ok(ResolvConfSetting::Auto),
        "off" => Ok(ResolvConfSetting::Off),
        path if path.len() > 1 && path.starts_with('/') && !path.ends_with('/') => {
            Ok(ResolvConfSetting::At(path.into()))
        }
        other => Err(Problem::NotResolvConf(printable(other))),
    }
}

/// The member that is used as exit; none if the text is empty.
pub(super) fn exit(text: &str) -> Result<Option<NodeRef>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    NodeRef::of_node(text).map(Some).map_err(|why| Problem::BadExit {
        found: printable(text),
        why,
    })
}

pub(super) fn peer_name(text: &str) -> Result<PeerName, Problem> {
    text.parse().map_err(|why| Problem::BadName {
        found: printable(text),
        why,
        instead: name_like(text),
    })
}

/// A valid name that resembles `text`.
fn name_like(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let bare = lower.strip_suffix(".fips").unwrap_or(&lower);
    let letters = bare.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = letters.take(PeerName::MAX_LEN).collect();
    let name = name.trim_matches('-').parse::<PeerName>();
    name.map_or_else(|_| "my-laptop".to_owned(), |name| name.to_string())
}

/// Checks a name by the rules of Linux. With `%` in it the kernel would number the interface by
/// itself.
pub(super) fn interface_name(name: &str) -> Result<String, Problem> {
    let forbidden = |b: u8| !b.is_ascii_graphic() || matches!(b, b'/' | b':' | b'%');
    if (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.bytes().any(forbidden) {
        return Ok(name.to_owned());
    }
    Err(Problem::BadInterface(printable(name)))
}

/// A subnet that may lie behind a node.
pub(super) fn subnet(text: &str) -> Result<Subnet, Problem> {
    let subnet: Subnet = text.parse().map_err(|why| match why {
        BadSubnet::HostBits(subnet) => Problem::HostBits {
            found: printable(text),
            instead: subnet.to_string(),
        },
        BadSubnet::Form | BadSubnet::PrefixLen => Problem::NotASubnet(printable(text)),
    })?;
    if subnet.prefix_len() == 0 {
        return Err(Problem::DefaultRoute);
    }
    refuse_reserved(&subnet, text).map(|()| subnet)
}

/// An address that the interface may have.
pub(super) fn interface_address(text: &str) -> Result<InterfaceAddress, Problem> {
    let address: Option<InterfaceAddress> = text.parse().ok();
    let address = address.filter(|address| address.prefix_len > 0);
    let address = address.ok_or_else(|| Problem::NotAnInterfaceAddress(printable(text)))?;
    refuse_reserved(&Subnet::host(address.address), text).map(|()| address)
}

/// A subnet that a member of a network may offer.
pub(super) fn offered(text: &str) -> Result<Subnet, Problem> {
    let subnet = subnet(text)?;
    match not_offered(&subnet) {
        Some(what) => Err(Problem::Reserved {
            found: printable(text),
            what,
        }),
        None => Ok(subnet),
    }
}

/// Refuses a subnet that overlaps a range with a special meaning: no host there, or another use.
fn refuse_reserved(subnet: &Subnet, text: &str) -> Result<(), Problem> {
    reserved(subnet).map_or(Ok(()), |what| {
        Err(Problem::Reserved {
            found: printable(text),
            what,
        })
    })
}
