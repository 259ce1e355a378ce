//! The TCP connections of this host that came in from other hosts, as the kernel lists them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The states of a connection in `/proc/net/tcp` (`include/net/tcp_states.h` of Linux).
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";
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
/// listens at. Those whose local address is one of `except` are left out, and those within this host.
#[must_use]
pub fn came_in(except: &[IpAddr]) -> Vec<Session> {
    let read = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    of_listings(&[read("tcp"), read("tcp6")], except)
}

fn of_listings(listings: &[String], except: &[IpAddr]) -> Vec<Session> {
    let lines = || listings.iter().flat_map(|text| text.lines().skip(1)).filter_map(line);
    let listening: BTreeSet<u16> = lines()
        .filter(|(_, state)| *state == LISTEN)
        .map(|(ends, _)| ends.local.port())
        .collect();
    let all: BTreeSet<IpAddr> = lines().map(|(ends, _)| ends.local.ip()).collect();
    let from_outside = |ends: &Session| {
        let (local, remote) = (ends.local.ip(), ends.remote.ip());
        !local.is_loopback() && !all.contains(&remote) && !except.contains(&local)
    };
    let established = lines().filter(|(_, state)| *state == ESTABLISHED);
    let accepted = established.map(|(ends, _)| ends);
    accepted
        .filter(|ends| listening.contains(&ends.local.port()) && from_outside(ends))
        .take(MOST)
        .collect()
}

/// Reads both ends and the state from a line.
fn line(line: &str) -> Option<(Session, &str)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote, state) = (end(words.next()?)?, end(words.next()?)?, words.next()?);
    Some((Session { local, remote }, state))
}

/// Reads an address and a port. The address is in words of four bytes in the order of the machine.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].map(u32::to_ne_bytes);
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing with these ends and states.
    fn listing(lines: &[(&str, &str, &str)]) -> String {
        let line = |(local, remote, state): &(&str, &str, &str)| {
            format!("   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 1\n")
        };
        let lines: String = lines.iter().map(line).collect();
        format!("  sl  local_address rem_address   st tx_queue\n{lines}")
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn connections_to_a_listening_port_came_in() {
        let tcp = listing(&[
            ("00000000:0016", "00000000:0000", "0A"),
            ("0A01A8C0:0016", "502000C0:C350", "01"),
            // An outgoing connection, one that has ended, one within this host, and one of the mesh.
            ("0A01A8C0:C351", "502000C0:0016", "01"),
            ("0A01A8C0:0016", "502000C0:C352", "06"),
            ("0100007F:0016", "0100007F:C353", "01"),
            ("07002C0A:0016", "09002C0A:C354", "01"),
        ]);
        let tcp6 = listing(&[
            (
                "00000000000000000000000000000000:1F90",
                "00000000000000000000000000000000:0000",
                "0A",
            ),
            (
                "0000000000000000FFFF00000A01A8C0:1F90",
                "0000000000000000FFFF0000502000C0:C355",
                "01",
            ),
            (
                "B80D0120000000000000000001000000:1F90",
                "B80D0120000000000000000002000000:C356",
                "01",
            ),
            ("short:1F90", "0:1", "01"),
        ]);
        let found = of_listings(&[tcp, tcp6], &["10.44.0.7".parse().unwrap()]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "192.168.1.10 . 22 . 192.0.32.80 . 50000",
                "192.168.1.10 . 8080 . 192.0.32.80 . 50005",
                "2001:db8::1 . 8080 . 2001:db8::2 . 50006"
            ]
        );
    }
}
