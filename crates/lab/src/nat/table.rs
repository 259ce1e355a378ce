//! Mappings between outer ports and inner endpoints, and filters of senders.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use super::behaviour::{Behaviour, MappingLife, PortAssignment};
use super::packet::Protocol;
use crate::random::SplitMix64;

/// Milliseconds between removals of expired mappings.
const SWEEP: u64 = 1000;

/// All mappings of a NAT box. Times are milliseconds.
#[derive(Debug)]
pub struct Table {
    behaviour: Behaviour,
    random: SplitMix64,
    /// The place in the range of ports from which [`PortAssignment::Sequential`] goes on.
    next: u32,
    mappings: BTreeMap<Key, Mapping>,
    /// The mappings of each outer port: several only with [`PortAssignment::Overloading`].
    by_port: BTreeMap<(Protocol, u16), Vec<Key>>,
    swept: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    protocol: Protocol,
    inside: SocketAddrV4,
    /// What the mapping distinguishes of the remote endpoint.
    remote: Option<SocketAddrV4>,
}

#[derive(Debug)]
struct Mapping {
    port: u16,
    used: u64,
    /// The endpoints to which the inner endpoint has sent, and when a packet last refreshed the
    /// permission of each.
    remotes: BTreeMap<SocketAddrV4, u64>,
}

impl Table {
    /// A table without mappings. The ports follow from `seed`.
    #[must_use]
    pub fn new(behaviour: Behaviour, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        Self {
            next: random.below(count(behaviour.port_range).into()) as u32,
            behaviour,
            random,
            mappings: BTreeMap::new(),
            by_port: BTreeMap::new(),
            swept: 0,
        }
    }

    /// Returns the outer port for packets of the inner endpoint to `remote`, existing or new.
    /// `None` if all are taken.
    pub fn outbound(
        &mut self,
        now: u64,
        protocol: Protocol,
        inside: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Option<u16> {
        self.sweep(now);
        let key = self.key(protocol, inside, remote);
        let life = self.life(protocol);
        match self.mappings.get(&key) {
            Some(mapping) if is_live(now, mapping.used, life) => {}
            _ => self.make(now, key)?,
        }
        let refreshes = self.behaviour.refresh.is_outbound();
        let mapping = self.mappings.get_mut(&key)?;
        if refreshes {
            mapping.used = now;
        }
        let at = mapping.remotes.entry(remote).or_insert(now);
        if refreshes || !is_live(now, *at, life) {
            *at = now;
        }
        Some(mapping.port)
    }

    /// Returns the inner endpoint for a packet of `remote` to an outer port. Of several mappings of
    /// the port that admit the sender, that for its endpoint receives the packet, or else the one
    /// that was used last.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn inbound(
        &mut self,
        now: u64,
        protocol: Protocol,
        port: u16,
        remote: SocketAddrV4,
    ) -> Result<SocketAddrV4, Refusal> {
        let life = self.life(protocol);
        let part = self.behaviour.mapping.part(remote);
        let mut live = self.of_port(now, protocol, port).peekable();
        live.peek().ok_or(Refusal::NoMapping)?;
        let admitted = live.filter(|(_, mapping)| self.admits(now, life, mapping, remote));
        let best = admitted.max_by_key(|(key, mapping)| (key.remote == part, mapping.used, *key));
        let (key, _) = best.ok_or(Refusal::Filtered)?;
        if let Some(mapping) = self.mappings.get_mut(&key)
            && self.behaviour.refresh.is_inbound()
        {
            mapping.used = now;
            // A sender that is admitted because of another endpoint does not become a contacted one.
            let at = mapping.remotes.get_mut(&remote);
            if let Some(at) = at.filter(|at| is_live(now, **at, life)) {
                *at = now;
            }
        }
        Ok(key.inside)
    }

    /// The inner endpoint of an outer port that has sent to `remote`, without counting as use: for
    /// errors about a packet.
    #[must_use]
    pub fn inside_of(&self, now: u64, protocol: Protocol, port: u16, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        let life = self.life(protocol);
        let sent = |mapping: &Mapping| mapping.remotes.get(&remote).is_some_and(|at| is_live(now, *at, life));
        let mut live = self.of_port(now, protocol, port);
        live.find(|(_, mapping)| sent(mapping)).map(|(key, _)| key.inside)
    }

    /// The outer port of an inner endpoint towards `remote`, without counting as use.
    #[must_use]
    pub fn port_of(&self, now: u64, protocol: Protocol, inside: SocketAddrV4, remote: SocketAddrV4) -> Option<u16> {
        let mapping = self.mappings.get(&self.key(protocol, inside, remote))?;
        is_live(now, mapping.used, self.life(protocol)).then_some(mapping.port)
    }

    /// The number of mappings, including those that have expired and are not yet removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mappings.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Deletes all mappings, as a restart of the NAT box does.
    pub fn clear(&mut self) {
        self.mappings.clear();
        self.by_port.clear();
    }

    /// Whether a mapping lets packets of `remote` in.
    fn admits(&self, now: u64, life: u64, mapping: &Mapping, remote: SocketAddrV4) -> bool {
        let filtering = self.behaviour.filtering;
        let part = filtering.part(remote);
        let mut contacted = mapping.remotes.iter().filter(|(_, at)| is_live(now, **at, life));
        part.is_none() || contacted.any(|(contacted, _)| filtering.part(*contacted) == part)
    }

    /// The live mappings of an outer port.
    fn of_port(&self, now: u64, protocol: Protocol, port: u16) -> impl Iterator<Item = (Key, &Mapping)> {
        let life = self.life(protocol);
        let keys = self.by_port.get(&(protocol, port)).into_iter().flatten();
        keys.filter_map(|key| Some((*key, self.mappings.get(key)?)))
            .filter(move |(_, mapping)| is_live(now, mapping.used, life))
    }

    fn make(&mut self, now: u64, key: Key) -> Option<()> {
        self.remove(key);
        let port = self.free_port(now, key)?;
        // The other mappings of the port have expired, or may share it.
        let live: Vec<_> = self.of_port(now, key.protocol, port).map(|(key, _)| key).collect();
        let keys = self.by_port.entry((key.protocol, port)).or_default();
        let expired: Vec<_> = keys.extract_if(.., |other| !live.contains(other)).collect();
        keys.push(key);
        for other in expired {
            self.mappings.remove(&other);
        }
        let mapping = Mapping {
            port,
            used: now,
            remotes: BTreeMap::new(),
        };
        self.mappings.insert(key, mapping);
        Some(())
    }

    fn free_port(&mut self, now: u64, key: Key) -> Option<u16> {
        let inner = key.inside.port();
        let ports = self.behaviour.ports;
        let keeps = matches!(ports, PortAssignment::Preserving | PortAssignment::Overloading);
        if keeps && self.is_free(now, key, inner) {
            return Some(inner);
        }
        let [first, _] = self.behaviour.port_range;
        let count = count(self.behaviour.port_range);
        let start = match ports {
            PortAssignment::Sequential => self.next,
            _ => self.random.below(count.into()) as u32,
        };
        let mut places = (0..count).map(|step| (start + step) % count);
        let place = places.find(|place| {
            let port = first + *place as u16;
            port != inner && self.is_free(now, key, port)
        })?;
        if ports == PortAssignment::Sequential {
            self.next = (place + 1) % count;
        }
        Some(first + place as u16)
    }

    /// Whether a mapping may get an outer port.
    fn is_free(&self, now: u64, key: Key, port: u16) -> bool {
        let overloads = self.behaviour.ports == PortAssignment::Overloading;
        let mut live = self.of_port(now, key.protocol, port);
        live.all(|(other, _)| overloads && other.remote != key.remote)
    }

    fn sweep(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let life = self.behaviour.life;
        self.mappings.retain(|key, mapping| {
            let life = of(life, key.protocol);
            mapping.remotes.retain(|_, at| is_live(now, *at, life));
            is_live(now, mapping.used, life)
        });
        let mappings = &self.mappings;
        self.by_port.retain(|_, keys| {
            keys.retain(|key| mappings.contains_key(key));
            !keys.is_empty()
        });
    }

    fn remove(&mut self, key: Key) {
        let Some(old) = self.mappings.remove(&key) else {
            return;
        };
        if let Some(keys) = self.by_port.get_mut(&(key.protocol, old.port)) {
            keys.retain(|other| *other != key);
        }
    }

    fn key(&self, protocol: Protocol, inside: SocketAddrV4, remote: SocketAddrV4) -> Key {
        Key {
            protocol,
            inside,
            remote: self.behaviour.mapping.part(remote),
        }
    }

    fn life(&self, protocol: Protocol) -> u64 {
        of(self.behaviour.life, protocol)
    }
}

/// Why a packet from outside reaches no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The port has no mapping.
    NoMapping,
    /// The port's inner endpoint has not sent to this sender.
    Filtered,
}

/// The number of ports in a range; 0 if it is empty.
fn count([first, last]: [u16; 2]) -> u32 {
    (u32::from(last) + 1).saturating_sub(first.into())
}

fn of(life: MappingLife, protocol: Protocol) -> u64 {
    match protocol {
        Protocol::Udp => life.udp_ms,
        Protocol::Tcp => life.tcp_ms,
        Protocol::Echo => life.echo_ms,
    }
}

fn is_live(now: u64, at: u64, life: u64) -> bool {
    now.saturating_sub(at) < life
}
