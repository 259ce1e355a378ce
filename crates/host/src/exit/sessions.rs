//! The TCP connections of this host that came in from other hosts, as the kernel knows them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use weft_os::netlink::{Netlink, NetlinkError};
use weft_wire::Subnet;
use weft_wire::ip::PROTOCOL_TCP;

use crate::flows::{self, Flow, Interest};

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
    use super::*;

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
