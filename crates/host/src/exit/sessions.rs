//! The TCP connections of this host that came in from other hosts, as the kernel knows them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;

use weft_os::netlink::{Netlink, NetlinkError, Tracked, tracked_connections};
use weft_wire::Subnet;
use weft_wire::ip::PROTOCOL_TCP;

use crate::flows::{self, Flow, Interest, TRACKS};

/// The maximum number of connections that are kept.
const MOST: usize = 1_024;

/// A connection that another host has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
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
        let Self { local, remote } = self;
        write!(
            f,
            "{} . {} . {} . {}",
            local.ip(),
            local.port(),
            remote.ip(),
            remote.port()
        )
    }
}

/// Lists the connections that came in from other hosts to an address of this one, at most 1,024. Those whose local
/// address is one of `except` are left out.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub fn came_in(except: &[IpAddr]) -> Result<Vec<Session>, NetlinkError> {
    let addresses = Netlink::open()?.all_addresses()?;
    let here: Vec<IpAddr> = addresses.into_iter().map(|of| of.address).collect();
    let asked = here.iter().filter(|address| !except.contains(address));
    let interest = Interest {
        local: asked.copied().map(Subnet::host).collect(),
        remote: Vec::new(),
    };
    Ok(of_flows(flows::read(&interest), &here))
}

/// Lists the connections that came in, with the ends that their answers have in this host: a container behind a
/// published port answers under its own address.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub(super) fn answered(except: &[IpAddr]) -> Result<Vec<Session>, NetlinkError> {
    let mut answered = came_in(except)?;
    if Path::new(TRACKS).exists() {
        let here: Vec<IpAddr> = answered.iter().map(|session| session.local.ip()).collect();
        tracked_connections(|tracked| {
            answered.extend(of_published(&tracked, &here));
            match answered.len() < 2 * MOST {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
    }
    Ok(answered)
}

/// The ends of answers of a container, if the connection came in at one of these addresses.
fn of_published(tracked: &Tracked, here: &[IpAddr]) -> Option<Session> {
    let (original, reply) = (tracked.original, tracked.reply);
    let is_published = tracked.protocol == PROTOCOL_TCP && original.dest != reply.source;
    let came_in = here.contains(&original.dest.ip()) && !here.contains(&original.source.ip());
    (is_published && came_in).then_some(Session {
        local: reply.source,
        remote: reply.dest,
    })
}

/// `here`: the addresses of this host.
fn of_flows(flows: Vec<Flow>, here: &[IpAddr]) -> Vec<Session> {
    let came_in = |flow: &Flow| flow.by_peer && flow.protocol == PROTOCOL_TCP && !here.contains(&flow.remote.ip());
    let session = |flow: Flow| Session {
        local: flow.local,
        remote: flow.remote,
    };
    flows.into_iter().filter(came_in).map(session).take(MOST).collect()
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
        assert_eq!(found.to_string(), "172.17.0.2 . 80 . 192.0.2.80 . 50000");
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
        let found: Vec<String> = of_flows(flows, &here).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "192.168.1.10 . 22 . 192.0.2.80 . 50000",
                "2001:db8::1 . 8080 . 2001:db8::2 . 50006"
            ]
        );
    }
}
