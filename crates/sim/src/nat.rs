//! Address translation between a host and the network: mapping and filtering.
//!
//! The kinds are those of RFC 3489 section 5, which are still common, in the terms of RFC 4787: a
//! mapping belongs to the inner endpoint or to a pair of endpoints, and a filter admits any host,
//! known addresses, or known endpoints.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// How long a mapping is kept after the last datagram of the inner side, ms. RFC 4787 requires at
/// least two minutes; NAT boxes with half a minute are common, and links have to survive them.
pub const MAPPING_LIFE: u64 = 30_000;
/// The first outer port that is assigned.
const FIRST_PORT: u16 = 40_000;

/// The behaviour of a NAT box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    /// One outer port for the host; any host may send to it.
    FullCone,
    /// One outer port for the host; addresses to which it has sent may send to it.
    Restricted,
    /// One outer port for the host; endpoints to which it has sent may send to it.
    PortRestricted,
    /// An outer port for each endpoint to which the host sends, and only that endpoint may send to
    /// it.
    Symmetric,
}

/// One NAT box with one host behind it. Times are ms.
#[derive(Debug)]
pub(crate) struct Nat {
    kind: NatKind,
    outer: IpAddr,
    next_port: u16,
    /// Outer ports: by destination endpoint if symmetric, else one.
    mappings: BTreeMap<Option<SocketAddr>, Mapping>,
}

#[derive(Debug)]
struct Mapping {
    port: u16,
    used: u64,
    /// The endpoints to which the host has sent.
    contacts: BTreeMap<SocketAddr, u64>,
}

impl Nat {
    pub(crate) fn new(kind: NatKind, outer: IpAddr) -> Self {
        Self {
            kind,
            outer,
            next_port: FIRST_PORT,
            mappings: BTreeMap::new(),
        }
    }

    /// The host sends to `dst`. Returns the source that the network sees.
    pub(crate) fn outbound(&mut self, now: u64, dst: SocketAddr) -> SocketAddr {
        self.expire(now);
        let key = (self.kind == NatKind::Symmetric).then_some(dst);
        let next_port = &mut self.next_port;
        let mapping = self.mappings.entry(key).or_insert_with(|| {
            let port = *next_port;
            *next_port = next_port.checked_add(1).unwrap_or(FIRST_PORT);
            let contacts = BTreeMap::new();
            Mapping {
                port,
                used: now,
                contacts,
            }
        });
        mapping.used = now;
        mapping.contacts.insert(dst, now);
        SocketAddr::new(self.outer, mapping.port)
    }

    /// Whether a datagram of `src` to the outer `port` reaches the host.
    pub(crate) fn admits(&self, now: u64, src: SocketAddr, port: u16) -> bool {
        let mapping = self.mappings.values().find(|m| m.port == port && is_live(now, m.used));
        mapping.is_some_and(|mapping| {
            let mut contacts = mapping.contacts.iter().filter(|(_, at)| is_live(now, **at));
            match self.kind {
                NatKind::FullCone => true,
                NatKind::Restricted => contacts.any(|(known, _)| known.ip() == src.ip()),
                NatKind::PortRestricted | NatKind::Symmetric => contacts.any(|(known, _)| *known == src),
            }
        })
    }

    fn expire(&mut self, now: u64) {
        self.mappings.retain(|_, mapping| {
            mapping.contacts.retain(|_, at| is_live(now, *at));
            is_live(now, mapping.used)
        });
    }
}

fn is_live(now: u64, at: u64) -> bool {
    now.saturating_sub(at) < MAPPING_LIFE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, host], port))
    }

    /// A NAT box whose host has sent to 203.0.113.1:10, and its outer port.
    fn after_one(kind: NatKind) -> (Nat, u16) {
        let mut nat = Nat::new(kind, IpAddr::from([198, 51, 100, 1]));
        let outer = nat.outbound(0, at(1, 10));
        (nat, outer.port())
    }

    #[test]
    fn each_kind_lets_in_what_its_name_says() {
        for (kind, admitted) in [
            (NatKind::FullCone, [true, true, true]),
            (NatKind::Restricted, [true, true, false]),
            (NatKind::PortRestricted, [true, false, false]),
            (NatKind::Symmetric, [true, false, false]),
        ] {
            let (nat, port) = after_one(kind);
            let got = [at(1, 10), at(1, 11), at(2, 10)].map(|src| nat.admits(1, src, port));
            assert_eq!(got, admitted, "{kind:?}");
            assert!(!nat.admits(1, at(1, 10), port + 1), "{kind:?}");
        }
    }

    #[test]
    fn only_a_symmetric_one_shows_another_port_to_another_endpoint() {
        for (kind, same) in [
            (NatKind::FullCone, true),
            (NatKind::Restricted, true),
            (NatKind::PortRestricted, true),
            (NatKind::Symmetric, false),
        ] {
            let (mut nat, port) = after_one(kind);
            assert_eq!(nat.outbound(1, at(1, 10)).port(), port, "{kind:?}");
            assert_eq!(nat.outbound(1, at(2, 10)).port() == port, same, "{kind:?}");
        }
    }

    #[test]
    fn silence_ends_a_mapping_and_a_new_one_has_another_port() {
        let (mut nat, port) = after_one(NatKind::FullCone);
        assert!(nat.admits(MAPPING_LIFE - 1, at(2, 10), port));
        assert!(!nat.admits(MAPPING_LIFE, at(2, 10), port));
        assert_ne!(nat.outbound(MAPPING_LIFE, at(1, 10)).port(), port);
    }
}
