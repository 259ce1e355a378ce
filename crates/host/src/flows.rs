//! Flows that the kernel knows, for a firewall that has no table of them yet: connected sockets, and
//! tracked connections.
//!
//! [`Known`] decides, and is pure. [`read`] asks the kernel; the broker calls it, since the lists need rights
//! that the daemon gives up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_os::netlink::{InetSocket, Tracked, sockets, tracked_connections};
use weft_wire::Subnet;

/// Flows of one answer, at most: as many as the table of the firewall has.
pub const MAX_FLOWS: usize = 65_536;
/// How long the kernel's lists are read. Of lists that take longer the rest stays unknown.
const READING: Duration = Duration::from_secs(1);
/// The number of entries between two looks at the clock.
const LOOK_EVERY: u32 = 1_024;
/// There where connections are tracked. To ask for them elsewhere would load the kernel's module.
pub(crate) const TRACKS: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const TCP: u8 = 6;

/// Addresses, one of which a flow has to have to be of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// On this side.
    pub local: Vec<Subnet>,
    /// On the other side.
    pub remote: Vec<Subnet>,
}

/// A flow that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its protocol, by its number.
    pub protocol: u8,
    /// Its end on this side; the port is 0 if the protocol has none.
    pub local: SocketAddr,
    /// Its other end.
    pub remote: SocketAddr,
    /// Whether the other end began it.
    pub by_peer: bool,
}

/// Protocol, local and remote end.
type Ends = (u8, SocketAddr, SocketAddr);

/// What the lists of the kernel say.
#[derive(Debug)]
pub struct Known<'a> {
    interest: &'a Interest,
    /// Which of the tracked connections the other end began.
    tracked: BTreeMap<Ends, bool>,
    connected: BTreeSet<Ends>,
    /// The ends at which TCP listens.
    listening: BTreeSet<SocketAddr>,
}

impl<'a> Known<'a> {
    /// Begins without anything.
    #[must_use]
    pub const fn new(interest: &'a Interest) -> Self {
        Self {
            interest,
            tracked: BTreeMap::new(),
            connected: BTreeSet::new(),
            listening: BTreeSet::new(),
        }
    }

    /// Adds a tracked connection. Where addresses are translated, packets at the interface have those of the
    /// end that is behind it: that of the source for what came in, and that of the reply for what left.
    pub fn track(&mut self, tracked: &Tracked) {
        let came_in = (tracked.original.dest, tracked.original.source, true);
        let left = (tracked.reply.dest, tracked.reply.source, false);
        for (local, remote, by_peer) in [came_in, left] {
            if self.is_of_interest(local, remote) && !self.is_full() {
                self.tracked.insert((tracked.protocol, local, remote), by_peer);
            }
        }
    }

    /// Adds a socket.
    pub fn add(&mut self, socket: &InetSocket) {
        match socket.remote {
            _ if self.is_full() => {}
            None => drop(self.listening.insert(socket.local)),
            Some(remote) if self.is_of_interest(socket.local, remote) => {
                self.connected.insert((socket.protocol, socket.local, remote));
            }
            Some(_) => {}
        }
    }

    /// Returns the flows. The entry of conntrack has precedence over the socket of a flow. The other end began a
    /// TCP connection if a socket listens at its local port, and this host began it otherwise.
    #[must_use]
    pub fn flows(self) -> Vec<Flow> {
        let was_accepted = |(protocol, local, _): &Ends| *protocol == TCP && self.has_listener(*local);
        let sockets = self.connected.iter().map(|ends| (*ends, was_accepted(ends)));
        let mut all: BTreeMap<Ends, bool> = sockets.collect();
        all.extend(&self.tracked);
        let flows = all.into_iter().map(|((protocol, local, remote), by_peer)| Flow {
            protocol,
            local,
            remote,
            by_peer,
        });
        flows.take(MAX_FLOWS).collect()
    }

    fn has_listener(&self, local: SocketAddr) -> bool {
        let any: [IpAddr; 2] = [[0; 4].into(), [0; 16].into()];
        let at = any.into_iter().chain([local.ip()]);
        at.into_iter()
            .any(|ip| self.listening.contains(&SocketAddr::new(ip, local.port())))
    }

    fn is_of_interest(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let within = |subnets: &[Subnet], end: SocketAddr| subnets.iter().any(|subnet| subnet.contains(end.ip()));
        within(&self.interest.local, local) || within(&self.interest.remote, remote)
    }

    fn is_full(&self) -> bool {
        self.tracked.len().max(self.connected.len()).max(self.listening.len()) >= MAX_FLOWS
    }
}

/// Asks the kernel. A list that it does not have is empty.
#[must_use]
pub fn read(interest: &Interest) -> Vec<Flow> {
    let mut known = Known::new(interest);
    let end = Instant::now() + READING;
    let mut count = 0;
    let mut goes_on = || {
        count += 1;
        match count % LOOK_EVERY == 0 && Instant::now() >= end {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let listed = sockets(|socket| {
        known.add(&socket);
        goes_on()
    });
    let tracked = match Path::new(TRACKS).exists() {
        true => tracked_connections(|tracked| {
            known.track(&tracked);
            goes_on()
        }),
        false => Ok(()),
    };
    for error in [listed.err(), tracked.err()].into_iter().flatten() {
        tracing::debug!(%error, "flows of before the start stay unknown");
    }
    known.flows()
}

#[cfg(test)]
mod tests {
    use weft_os::netlink::TrackedEnds;

    use super::*;

    const UDP: u8 = 17;

    fn interest(remote: &[&str]) -> Interest {
        Interest {
            local: vec!["10.44.0.1/32".parse().unwrap(), "fd01::1/128".parse().unwrap()],
            remote: remote.iter().map(|subnet| subnet.parse().unwrap()).collect(),
        }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn socket(protocol: u8, local: &str, remote: Option<&str>) -> InetSocket {
        InetSocket {
            protocol,
            local: at(local),
            remote: remote.map(at),
        }
    }

    fn tracked(original: (&str, &str), reply: (&str, &str)) -> Tracked {
        let ends = |(source, dest)| TrackedEnds {
            source: at(source),
            dest: at(dest),
        };
        Tracked {
            protocol: TCP,
            original: ends(original),
            reply: ends(reply),
        }
    }

    /// The flows, each with the end that began it: `<` for the other one.
    fn flows(fill: impl FnOnce(&mut Known<'_>)) -> Vec<String> {
        flows_to(&[], fill)
    }

    /// The same, also those whose other end is in these subnets.
    fn flows_to(remote: &[&str], fill: impl FnOnce(&mut Known<'_>)) -> Vec<String> {
        let interest = interest(remote);
        let mut known = Known::new(&interest);
        fill(&mut known);
        let shown = |flow: Flow| {
            let by = if flow.by_peer { '<' } else { '>' };
            format!("{} {} {by} {}", flow.protocol, flow.local, flow.remote)
        };
        known.flows().into_iter().map(shown).collect()
    }

    #[test]
    fn a_socket_whose_port_has_a_listener_was_accepted() {
        for listener in ["10.44.0.1:22", "0.0.0.0:22", "[::]:22"] {
            let found = flows(|known| {
                known.add(&socket(TCP, "10.44.0.1:22", Some("10.44.0.2:5000")));
                known.add(&socket(TCP, "10.44.0.1:4000", Some("10.44.0.2:22")));
                known.add(&socket(UDP, "10.44.0.1:22", Some("10.44.0.2:5001")));
                known.add(&socket(TCP, listener, None));
            });
            let expected = [
                "6 10.44.0.1:22 < 10.44.0.2:5000",
                "6 10.44.0.1:4000 > 10.44.0.2:22",
                "17 10.44.0.1:22 > 10.44.0.2:5001",
            ];
            assert_eq!(found, expected, "{listener}");
        }
        let elsewhere = flows(|known| {
            known.add(&socket(TCP, "10.44.0.1:22", Some("10.44.0.2:5000")));
            known.add(&socket(TCP, "127.0.0.1:22", None));
        });
        assert_eq!(elsewhere, ["6 10.44.0.1:22 > 10.44.0.2:5000"]);
    }

    #[test]
    fn tracked_flows_take_precedence_over_those_of_sockets() {
        let found = flows(|known| {
            known.add(&socket(TCP, "10.44.0.1:22", None));
            known.add(&socket(TCP, "10.44.0.1:22", Some("10.44.0.2:5000")));
            known.track(&tracked(
                ("10.44.0.1:22", "10.44.0.2:5000"),
                ("10.44.0.2:5000", "10.44.0.1:22"),
            ));
        });
        // A program that dials from the port at which it listens.
        assert_eq!(found, ["6 10.44.0.1:22 > 10.44.0.2:5000"]);
    }

    #[test]
    fn translated_connections_have_the_ends_of_the_interface() {
        // A member by this exit: the source is translated behind the interface.
        let by_exit = tracked(
            ("10.44.0.2:5000", "198.51.100.7:443"),
            ("198.51.100.7:443", "203.0.113.10:5000"),
        );
        // This host by its exit, and a query that is sent elsewhere.
        let out = tracked(
            ("192.168.1.10:4000", "192.168.1.53:53"),
            ("10.44.0.2:53", "10.44.0.1:4000"),
        );
        let found = flows_to(&["10.44.0.0/16"], |known| {
            [by_exit, out].iter().for_each(|tracked| known.track(tracked));
        });
        let expected = ["6 10.44.0.1:4000 > 10.44.0.2:53", "6 198.51.100.7:443 < 10.44.0.2:5000"];
        assert_eq!(found, expected);
    }

    #[test]
    fn flows_of_other_networks_are_left_out_and_there_is_a_bound() {
        let found = flows(|known| {
            known.add(&socket(TCP, "192.168.1.10:4000", Some("198.51.100.7:443")));
            known.track(&tracked(
                ("192.168.1.10:4001", "198.51.100.7:443"),
                ("198.51.100.7:443", "192.168.1.10:4001"),
            ));
        });
        assert!(found.is_empty(), "{found:?}");
        let many = flows(|known| {
            for n in 0..100_000_u32 {
                let remote = format!("10.44.{}.{}:{}", n >> 8 & 255, n & 255, 1 + (n >> 16));
                known.add(&socket(TCP, "10.44.0.1:4000", Some(&remote)));
            }
        });
        assert_eq!(many.len(), MAX_FLOWS);
    }
}
