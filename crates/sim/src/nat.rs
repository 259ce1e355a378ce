//! Address translation between a host and the network: mapping and filtering.
//!
//! The kinds are those of RFC 3489 section 5, which are still common, in the terms of RFC 4787: a
//! mapping belongs to the inner endpoint or to a pair of endpoints, and a filter admits any host,
//! known addresses, or known endpoints.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;

/// How long a mapping is kept after the last datagram of the inner side, ms. RFC 4787 requires at
/// least two minutes; NAT boxes with half a minute are common, and links have to survive them.
pub const MAPPING_LIFE: u64 = 30_000;
/// The first outer port that is assigned in sequence.
const FIRST_PORT: u16 = 40_000;
/// The first outer port that is drawn at random.
const FIRST_RANDOM_PORT: u16 = 1_024;
/// The first outer port that a box maps on request.
const FIRST_GRANTED_PORT: u16 = 20_000;

/// The behaviour of a NAT box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NatKind {
    /// One outer port for each socket; any host may send to it.
    FullCone,
    /// One outer port for each socket; addresses to which it has sent may send to it.
    Restricted,
    /// One outer port for each socket; endpoints to which it has sent may send to it.
    PortRestricted,
    /// An outer port for each endpoint to which a socket sends, one after the other, and only that
    /// endpoint may send to it.
    Symmetric,
    /// The same with random ports, as `masquerade fully-random` of the kernel has them.
    SymmetricRandom,
    /// The same with the port of the socket for each endpoint, as `masquerade` of the kernel has it.
    SymmetricPreserving,
}

impl NatKind {
    /// Whether the outer port depends on the endpoint to which a socket sends.
    const fn is_symmetric(self) -> bool {
        matches!(
            self,
            Self::Symmetric | Self::SymmetricRandom | Self::SymmetricPreserving
        )
    }
}

/// One NAT box with one host behind it. Times are ms.
#[derive(Debug)]
pub(crate) struct Nat {
    kind: NatKind,
    pub(crate) outer: IpAddr,
    next_port: u16,
    rng: ChaCha20Rng,
    /// By inner endpoint, and the destination if the mapping depends on it.
    mappings: BTreeMap<(SocketAddr, Option<SocketAddr>), Mapping>,
    /// Inner endpoints by the outer port that was mapped to them on request.
    granted: BTreeMap<u16, SocketAddr>,
}

#[derive(Debug)]
struct Mapping {
    port: u16,
    used: u64,
    /// The endpoints to which the host has sent.
    contacts: BTreeMap<SocketAddr, u64>,
}

impl Nat {
    /// A box with this outer address. `rng` draws its random ports.
    pub(crate) fn new(kind: NatKind, outer: IpAddr, rng: ChaCha20Rng) -> Self {
        Self {
            kind,
            outer,
            next_port: FIRST_PORT,
            rng,
            mappings: BTreeMap::new(),
            granted: BTreeMap::new(),
        }
    }

    /// Forgets all mappings, as a box does that restarts. Ports go on where they were, so that new
    /// mappings have other ones unless the box keeps those of sockets.
    pub(crate) fn reboot(&mut self) {
        self.mappings.clear();
        self.granted.clear();
    }

    /// Maps an outer port to an inner endpoint, as PCP does on request. Any host may send to it.
    pub(crate) fn grant(&mut self, inner: SocketAddr) -> SocketAddr {
        let port = FIRST_GRANTED_PORT + self.granted.len() as u16;
        self.granted.insert(port, inner);
        SocketAddr::new(self.outer, port)
    }

    /// The host sends from `inner` to `dst`. Returns the source that the network sees.
    pub(crate) fn outbound(&mut self, now: u64, inner: SocketAddr, dst: SocketAddr) -> SocketAddr {
        self.expire(now);
        let answer = (inner, Some(dst));
        let key = match self.kind.is_symmetric() || self.mappings.contains_key(&answer) {
            true => answer,
            false => (inner, None),
        };
        if !self.mappings.contains_key(&key) {
            let port = self.new_port(inner, dst);
            self.mappings.insert(key, Mapping::new(now, port));
        }
        let Some(mapping) = self.mappings.get_mut(&key) else {
            return inner;
        };
        mapping.used = now;
        mapping.contacts.insert(dst, now);
        SocketAddr::new(self.outer, mapping.port)
    }

    /// A datagram of `src` arrives at the outer `port`. Returns the inner endpoint that it reaches.
    pub(crate) fn inbound(&mut self, now: u64, src: SocketAddr, port: u16) -> Option<SocketAddr> {
        let live = self.mappings.iter();
        let mut live = live.filter(|(_, mapping)| mapping.port == port && is_live(now, mapping.used));
        let admits = |mapping: &Mapping| {
            let mut contacts = mapping.contacts.iter().filter(|(_, at)| is_live(now, **at));
            match self.kind {
                NatKind::FullCone => true,
                NatKind::Restricted => contacts.any(|(known, _)| known.ip() == src.ip()),
                _ => contacts.any(|(known, _)| *known == src),
            }
        };
        if let Some(((inner, _), _)) = live.find(|(_, mapping)| admits(mapping)) {
            return Some(*inner);
        }
        let inner = *self.granted.get(&port)?;
        // Answers leave from the port that was asked.
        let mut answer = Mapping::new(now, port);
        answer.contacts.insert(src, now);
        self.mappings.insert((inner, Some(src)), answer);
        Some(inner)
    }

    /// Returns an outer port that has no mapping for this destination yet.
    fn new_port(&mut self, inner: SocketAddr, dst: SocketAddr) -> u16 {
        let taken = |port: u16| {
            let mut same = self.mappings.iter().filter(|(_, mapping)| mapping.port == port);
            self.granted.contains_key(&port) || same.any(|((_, to), _)| to.is_none_or(|to| to == dst))
        };
        match self.kind {
            NatKind::SymmetricPreserving if !taken(inner.port()) => inner.port(),
            NatKind::SymmetricRandom => loop {
                let ports = u32::from(u16::MAX - FIRST_RANDOM_PORT) + 1;
                let port = FIRST_RANDOM_PORT + (self.rng.next_u32() % ports) as u16;
                if !taken(port) {
                    return port;
                }
            },
            _ => {
                let port = self.next_port;
                self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
                port
            }
        }
    }

    fn expire(&mut self, now: u64) {
        self.mappings.retain(|_, mapping| {
            mapping.contacts.retain(|_, at| is_live(now, *at));
            is_live(now, mapping.used)
        });
    }
}

impl Mapping {
    const fn new(used: u64, port: u16) -> Self {
        let contacts = BTreeMap::new();
        Self { port, used, contacts }
    }
}

fn is_live(now: u64, at: u64) -> bool {
    now.saturating_sub(at) < MAPPING_LIFE
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;

    use super::*;

    const KINDS: [NatKind; 6] = [
        NatKind::FullCone,
        NatKind::Restricted,
        NatKind::PortRestricted,
        NatKind::Symmetric,
        NatKind::SymmetricRandom,
        NatKind::SymmetricPreserving,
    ];

    fn at(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, host], port))
    }

    fn inner(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 168, 1, 2], port))
    }

    /// A NAT box whose host has sent to 203.0.113.1:10, and its outer port.
    fn after_one(kind: NatKind) -> (Nat, u16) {
        let mut nat = Nat::new(kind, IpAddr::from([198, 51, 100, 1]), ChaCha20Rng::seed_from_u64(1));
        let outer = nat.outbound(0, inner(2121), at(1, 10));
        (nat, outer.port())
    }

    #[test]
    fn each_kind_lets_in_what_its_name_says() {
        for kind in KINDS {
            let admitted = match kind {
                NatKind::FullCone => [true, true, true],
                NatKind::Restricted => [true, true, false],
                _ => [true, false, false],
            };
            let (mut nat, port) = after_one(kind);
            let got = [at(1, 10), at(1, 11), at(2, 10)].map(|src| nat.inbound(1, src, port));
            assert_eq!(
                got,
                admitted.map(|admitted| admitted.then_some(inner(2121))),
                "{kind:?}"
            );
            assert_eq!(nat.inbound(1, at(1, 10), port + 1), None, "{kind:?}");
        }
    }

    #[test]
    fn some_symmetric_boxes_keep_the_port_of_a_socket() {
        for kind in KINDS {
            let same = !matches!(kind, NatKind::Symmetric | NatKind::SymmetricRandom);
            let (mut nat, port) = after_one(kind);
            assert_eq!(nat.outbound(1, inner(2121), at(1, 10)).port(), port, "{kind:?}");
            assert_eq!(nat.outbound(1, inner(2121), at(2, 10)).port() == port, same, "{kind:?}");
            assert_ne!(nat.outbound(1, inner(2122), at(1, 10)).port(), port, "{kind:?}");
        }
    }

    #[test]
    fn silence_ends_a_mapping_and_a_new_one_has_another_port() {
        let (mut nat, port) = after_one(NatKind::FullCone);
        assert!(nat.inbound(MAPPING_LIFE - 1, at(2, 10), port).is_some());
        assert!(nat.inbound(MAPPING_LIFE, at(2, 10), port).is_none());
        assert_ne!(nat.outbound(MAPPING_LIFE, inner(2121), at(1, 10)).port(), port);
    }

    #[test]
    fn a_granted_port_lets_in_all_and_answers() {
        for kind in KINDS {
            let (mut nat, port) = after_one(kind);
            let granted = nat.grant(inner(2121));
            assert_ne!(granted.port(), port);
            assert_eq!(nat.inbound(1, at(9, 9), granted.port()), Some(inner(2121)));
            assert_eq!(nat.outbound(2, inner(2121), at(9, 9)), granted, "{kind:?}");
            assert_eq!(nat.outbound(2, inner(2121), at(1, 10)).port(), port, "{kind:?}");
            let later = MAPPING_LIFE * 9;
            assert_eq!(nat.inbound(later, at(8, 8), granted.port()), Some(inner(2121)));
        }
    }
}
