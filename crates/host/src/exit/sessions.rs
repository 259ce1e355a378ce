//! The TCP connections of this host that came in from other hosts, as the kernel lists them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

use weft_os::netlink::{InetSocket, sockets};
use weft_wire::ip::PROTOCOL_TCP;

/// The maximum number of sockets that are read.
const LISTED: usize = 100_000;
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

/// Lists the connections that came in from other hosts, at most 1,024: their local port is one that a program
/// listens at. Those whose local address is one of `except` are left out, and those within this host. Without the
/// kernel's list there are none.
#[must_use]
pub fn came_in(except: &[IpAddr]) -> Vec<Session> {
    let mut all = Vec::new();
    let listed = sockets(|socket| {
        all.push(socket);
        match all.len() < LISTED {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    listed.map_or_else(|_| Vec::new(), |()| of_sockets(&all, except))
}

fn of_sockets(all: &[InetSocket], except: &[IpAddr]) -> Vec<Session> {
    let tcp = || all.iter().filter(|socket| socket.protocol == PROTOCOL_TCP);
    let listening: BTreeSet<u16> = tcp()
        .filter(|socket| socket.remote.is_none())
        .map(|socket| socket.local.port())
        .collect();
    let here: BTreeSet<IpAddr> = tcp().map(|socket| socket.local.ip()).collect();
    let ends = |socket: &InetSocket| {
        Some(Session {
            local: socket.local,
            remote: socket.remote?,
        })
    };
    let from_outside = |ends: &Session| {
        let (local, remote) = (ends.local.ip(), ends.remote.ip());
        !local.is_loopback() && !here.contains(&remote) && !except.contains(&local)
    };
    let accepted = tcp()
        .filter_map(ends)
        .filter(|ends| listening.contains(&ends.local.port()));
    accepted.filter(from_outside).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(protocol: u8, local: &str, remote: Option<&str>) -> InetSocket {
        InetSocket {
            protocol,
            local: local.parse().unwrap(),
            remote: remote.map(|remote| remote.parse().unwrap()),
        }
    }

    #[test]
    fn connections_to_a_listening_port_came_in() {
        let tcp = |local, remote| socket(PROTOCOL_TCP, local, remote);
        let all = [
            tcp("0.0.0.0:22", None),
            tcp("[::]:8080", None),
            tcp("192.168.1.10:22", Some("192.0.2.80:50000")),
            tcp("192.168.1.10:8080", Some("192.0.2.80:50005")),
            tcp("[2001:db8::1]:8080", Some("[2001:db8::2]:50006")),
            // An outgoing connection, two within this host, one of the mesh, and one of UDP.
            tcp("192.168.1.10:50001", Some("192.0.2.80:22")),
            tcp("127.0.0.1:22", Some("127.0.0.1:50002")),
            tcp("192.168.1.10:22", Some("192.168.1.10:50003")),
            tcp("10.44.0.7:22", Some("10.44.0.9:50004")),
            socket(17, "192.168.1.10:22", Some("192.0.2.80:50007")),
        ];
        let found = of_sockets(&all, &["10.44.0.7".parse().unwrap()]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "192.168.1.10 . 22 . 192.0.2.80 . 50000",
                "192.168.1.10 . 8080 . 192.0.2.80 . 50005",
                "2001:db8::1 . 8080 . 2001:db8::2 . 50006"
            ]
        );
    }
}
