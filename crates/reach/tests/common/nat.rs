//! A NAT with hosts behind it, in the terms of RFC 4787: mapping and filtering, each by endpoint.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::PORT;

/// How long a mapping is kept after the last datagram of the inner side, ms.
const LIFE: u64 = 30_000;

/// What an outer port belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// There is no translation: the host has the outer address. Filtering is that of a firewall.
    None,
    /// The inner endpoint.
    EndpointIndependent,
    /// It and the address of the destination.
    AddressDependent,
    /// It and the destination.
    AddressAndPortDependent,
}

/// Who may send to an outer port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filtering {
    /// All.
    EndpointIndependent,
    /// Addresses to which the port has sent.
    AddressDependent,
    /// Endpoints to which the port has sent.
    AddressAndPortDependent,
}

#[derive(Clone, Debug)]
pub(crate) struct Nat {
    mapping: Mapping,
    filtering: Filtering,
    number: u8,
    /// The next port, if they come in steps; else they are random.
    step: Option<u16>,
    last_port: u16,
    random: u64,
    /// By inner endpoint, and what of the destination the mapping depends on.
    ports: BTreeMap<(SocketAddr, Option<(IpAddr, u16)>), Port>,
}

#[derive(Clone, Debug)]
struct Port {
    port: u16,
    used: u64,
    contacts: BTreeMap<SocketAddr, u64>,
}

impl Nat {
    pub(crate) fn new(number: u8, mapping: Mapping, filtering: Filtering) -> Self {
        Self {
            mapping,
            filtering,
            number,
            step: None,
            last_port: 40_000,
            random: u64::from(number) << 32 | 1,
            ports: BTreeMap::new(),
        }
    }

    /// Gives ports in equal steps.
    pub(crate) fn in_steps(self, step: u16) -> Self {
        let step = Some(step);
        Self { step, ..self }
    }

    /// Gives ports by another random order.
    pub(crate) fn seeded(self, seed: u64) -> Self {
        let random = seed << 1 | 1;
        Self { random, ..self }
    }

    fn next_port(&mut self) -> u16 {
        loop {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let random = 1_024 + ((self.random >> 33) % 64_512) as u16;
            self.last_port = self.step.map_or(random, |step| self.last_port + step);
            let last = self.last_port;
            if self.ports.values().all(|port| port.port != last) {
                return last;
            }
        }
    }

    pub(crate) fn outer(&self) -> IpAddr {
        IpAddr::from([203, 0, 113, self.number])
    }

    /// The address of a host behind it.
    pub(crate) fn inner(&self, host: u8) -> SocketAddr {
        match self.mapping {
            Mapping::None => SocketAddr::new(self.outer(), PORT),
            _ => SocketAddr::from(([10, 0, self.number, host + 1], PORT)),
        }
    }

    /// A host sends. Returns the source that the network sees.
    pub(crate) fn outbound(&mut self, now: u64, from: SocketAddr, to: SocketAddr) -> SocketAddr {
        let live = |at: u64| now < at + LIFE;
        self.ports.retain(|_, port| {
            port.contacts.retain(|_, at| live(*at));
            live(port.used)
        });
        let part = match self.mapping {
            Mapping::None | Mapping::EndpointIndependent => None,
            Mapping::AddressDependent => Some((to.ip(), 0)),
            Mapping::AddressAndPortDependent => Some((to.ip(), to.port())),
        };
        let fresh = match self.mapping {
            Mapping::None => from.port(),
            _ if self.ports.contains_key(&(from, part)) => 0,
            _ => self.next_port(),
        };
        let port = self.ports.entry((from, part)).or_insert_with(|| Port {
            port: fresh,
            used: now,
            contacts: BTreeMap::new(),
        });
        port.used = now;
        port.contacts.insert(to, now);
        let number = port.port;
        SocketAddr::new(self.outer(), number)
    }

    /// A datagram arrives. Returns the host that it reaches.
    pub(crate) fn inbound(&self, now: u64, from: SocketAddr, port: u16) -> Option<SocketAddr> {
        if self.mapping == Mapping::None && self.filtering == Filtering::EndpointIndependent {
            return Some(SocketAddr::new(self.outer(), port));
        }
        let live = |at: u64| now < at + LIFE;
        let ((inner, _), found) = self
            .ports
            .iter()
            .find(|(_, found)| found.port == port && live(found.used))?;
        let mut contacts = found.contacts.iter().filter(|(_, at)| live(**at));
        let admitted = match self.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => contacts.any(|(known, _)| known.ip() == from.ip()),
            Filtering::AddressAndPortDependent => contacts.any(|(known, _)| *known == from),
        };
        admitted.then_some(*inner)
    }
}
