//! The connections of this host that came in from other hosts, as the kernel knows them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;

use weft_os::netlink::{Netlink, NetlinkError, Tracked, tracked_connections};
use weft_wire::Subnet;
use weft_wire::ip::{PROTOCOL_TCP, PROTOCOL_UDP};

use crate::flows::{self, Flow, Interest, TRACKS};

/// The maximum number of connections that are kept.
const MOST: usize = 1_024;

/// A connection that another host has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
    /// The protocol, by its number.
    pub protocol: u8,
    /// The end at this host.
    pub local: SocketAddr,
    /// The end that opened it.
    pub remote: SocketAddr,
}

impl Session {
    /// Whether it is one of IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.local.is_ipv6()
    }
}

impl fmt::Display for Session {
    /// Writes it as an element of a set of nft(8).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            protocol,
            local,
            remote,
        } = self;
        write!(
            f,
            "{protocol} . {} . {} . {} . {}",
            local.ip(),
            local.port(),
            remote.ip(),
            remote.port()
        )
    }
}

/// Lists the connections of TCP that came in from other hosts to an address of this one, at most 1,024. Those whose
/// local address is one of `except` are left out.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub fn came_in(except: &[IpAddr]) -> Result<Vec<Session>, NetlinkError> {
    let here = addresses()?;
    Ok(of_flows(&known(&here, except), &here, PROTOCOL_TCP))
}

/// Lists those of TCP and UDP with the ends that their answers have in this host: a container behind a published port
/// answers under its own address. Those of UDP are known if the kernel tracks them.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub(super) fn answered(except: &[IpAddr]) -> Result<Vec<Session>, NetlinkError> {
    let mut here = addresses()?;
    let flows = known(&here, except);
    let mut answered = of_flows(&flows, &here, PROTOCOL_TCP);
    answered.extend(of_flows(&flows, &here, PROTOCOL_UDP));
    here.retain(|address| !except.contains(address));
    if Path::new(TRACKS).exists() {
        let most = answered.len() + MOST;
        tracked_connections(|tracked| {
            answered.extend(of_published(&tracked, &here));
            match answered.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
    }
    Ok(answered)
}

/// The addresses of this host.
fn addresses() -> Result<Vec<IpAddr>, NetlinkError> {
    let addresses = Netlink::open()?.all_addresses()?;
    Ok(addresses.into_iter().map(|of| of.address).collect())
}

/// The flows to addresses of this host.
fn known(here: &[IpAddr], except: &[IpAddr]) -> Vec<Flow> {
    let asked = here.iter().filter(|address| !except.contains(address));
    flows::read(&Interest {
        local: asked.copied().map(Subnet::host).collect(),
        remote: Vec::new(),
    })
}

/// The ends of answers of a container, if the connection came in at one of these addresses.
fn of_published(tracked: &Tracked, here: &[IpAddr]) -> Option<Session> {
    let (original, reply) = (tracked.original, tracked.reply);
    let has_ports = [PROTOCOL_TCP, PROTOCOL_UDP].contains(&tracked.protocol);
    let is_published = has_ports && original.dest != reply.source;
    let came_in = here.contains(&original.dest.ip()) && !here.contains(&original.source.ip());
    (is_published && came_in).then_some(Session {
        protocol: tracked.protocol,
        local: reply.source,
        remote: reply.dest,
    })
}

/// Those of one protocol. `here`: the addresses of this host.
fn of_flows(flows: &[Flow], here: &[IpAddr], protocol: u8) -> Vec<Session> {
    let came_in = |flow: &&Flow| flow.by_peer && flow.protocol == protocol && !here.contains(&flow.remote.ip());
    let session = |flow: &Flow| Session {
        protocol,
        local: flow.local,
        remote: flow.remote,
    };
    flows.iter().filter(came_in).map(session).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use weft_os::netlink::TrackedEnds;

    use super::*;

    #[test]
    fn a_container_answers_under_its_own_address() {
        let ends = |source: &str, dest: &str| TrackedEnds {
            source: source.parse().unwrap(),
            dest: dest.parse().unwrap(),
        };
        let published = Tracked {
            protocol: PROTOCOL_TCP,
            original: ends("192.0.2.80:50000", "192.168.1.10:8080"),
            reply: ends("172.17.0.2:80", "192.0.2.80:50000"),
        };
        let here = ["192.168.1.10".parse().unwrap()];
        let found = of_published(&published, &here).unwrap();
        assert_eq!(found.to_string(), "6 . 172.17.0.2 . 80 . 192.0.2.80 . 50000");
        let direct = Tracked {
            reply: ends("192.168.1.10:8080", "192.0.2.80:50000"),
            ..published
        };
        assert_eq!(of_published(&direct, &here), None);
        assert_eq!(of_published(&published, &["192.168.1.11".parse().unwrap()]), None);
    }

    #[test]
    fn connections_that_another_host_began_came_in() {
        let flow = |protocol, local: &str, remote: &str, by_peer| Flow {
            protocol,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            by_peer,
        };
        let tcp = |local, remote, by_peer| flow(PROTOCOL_TCP, local, remote, by_peer);
        let flows = vec![
            tcp("192.168.1.10:22", "192.0.2.80:50000", true),
            tcp("[2001:db8::1]:8080", "[2001:db8::2]:50006", true),
            // An outgoing connection, one within this host, and one of UDP.
            tcp("192.168.1.10:50001", "192.0.2.80:22", false),
            tcp("192.168.1.10:22", "127.0.0.1:50002", true),
            flow(17, "192.168.1.10:22", "192.0.2.80:50007", true),
        ];
        let here = ["127.0.0.1", "192.168.1.10", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let found: Vec<String> = of_flows(&flows, &here, PROTOCOL_TCP)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "6 . 192.168.1.10 . 22 . 192.0.2.80 . 50000",
                "6 . 2001:db8::1 . 8080 . 2001:db8::2 . 50006"
            ]
        );
    }
}
