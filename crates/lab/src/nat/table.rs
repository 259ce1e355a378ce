//! Mappings between outer ports and inner endpoints, and filters of senders.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use serde::Serialize;

use super::packet::Protocol;
use crate::random::SplitMix64;

/// The ports that are assigned if the inner one is not kept: Linux's ephemeral range.
const FIRST_PORT: u16 = 32_768;
const PORTS: u16 = 28_232;

/// Milliseconds between removals of expired mappings.
const SWEEP: u64 = 1000;

/// The mapping and filtering behaviour of a NAT box: the kinds of RFC 3489, section 5, which are
/// still common, in the terms of RFC 4787.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NatKind {
    /// One outer port for each inner endpoint (endpoint-independent mapping); any host may send to it
    /// (endpoint-independent filtering).
    FullCone,
    /// One outer port for each inner endpoint; addresses to which it has sent may send to it
    /// (address-dependent filtering).
    Restricted,
    /// One outer port for each inner endpoint; endpoints to which it has sent may send to it
    /// (address and port-dependent filtering).
    PortRestricted,
    /// An outer port for each pair of endpoints (address and port-dependent mapping), hard to
    /// guess; only the remote endpoint of the pair may send to it.
    Symmetric,
}

/// How long a mapping, and the permission to send to it, outlive the last packet, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingLife {
    /// UDP. RFC 4787 requires at least two minutes; NAT boxes with half a minute are common.
    pub udp_ms: u64,
    /// TCP, closed or not.
    pub tcp_ms: u64,
    /// ICMP echo.
    pub echo_ms: u64,
}

impl Default for MappingLife {
    /// 30 s for UDP, Linux's value for a flow in one direction; 2 h 4 min for TCP (RFC 5382); 60 s
    /// for echo (RFC 5508).
    fn default() -> Self {
        Self {
            udp_ms: 30_000,
            tcp_ms: 7_440_000,
            echo_ms: 60_000,
        }
    }
}

/// All mappings of a NAT box. Times are milliseconds.
#[derive(Debug)]
pub struct Table {
    kind: NatKind,
    life: MappingLife,
    random: SplitMix64,
    mappings: BTreeMap<Key, Mapping>,
    by_port: BTreeMap<(Protocol, u16), Key>,
    swept: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    protocol: Protocol,
    inside: SocketAddrV4,
    /// The remote endpoint, for a symmetric NAT box.
    remote: Option<SocketAddrV4>,
}

#[derive(Debug)]
struct Mapping {
    port: u16,
    used: u64,
    /// The endpoints to which the inner endpoint has sent, and when it last received from or sent
    /// to them.
    remotes: BTreeMap<SocketAddrV4, u64>,
}

impl Table {
    /// A table without mappings. The ports follow from `seed`.
    #[must_use]
    pub fn new(kind: NatKind, life: MappingLife, seed: u64) -> Self {
        Self {
            kind,
            life,
            random: SplitMix64::new(seed),
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
        let mapping = self.mappings.get_mut(&key)?;
        mapping.used = now;
        mapping.remotes.insert(remote, now);
        Some(mapping.port)
    }

    /// Returns the inner endpoint for a packet of `remote` to an outer port.
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
        let key = self.by_port.get(&(protocol, port)).copied();
        let mapping = key.and_then(|key| self.mappings.get_mut(&key));
        let (Some(key), Some(mapping)) = (key, mapping.filter(|mapping| is_live(now, mapping.used, life))) else {
            return Err(Refusal::NoMapping);
        };
        let mut known = mapping.remotes.iter().filter(|(_, at)| is_live(now, **at, life));
        let admitted = match self.kind {
            NatKind::FullCone => true,
            NatKind::Restricted => known.any(|(known, _)| known.ip() == remote.ip()),
            NatKind::PortRestricted | NatKind::Symmetric => known.any(|(known, _)| *known == remote),
        };
        if !admitted {
            return Err(Refusal::Filtered);
        }
        mapping.used = now;
        // A sender that is admitted because of another endpoint does not become a contacted one.
        let at = mapping.remotes.get_mut(&remote);
        if let Some(at) = at.filter(|at| is_live(now, **at, life)) {
            *at = now;
        }
        Ok(key.inside)
    }

    /// The inner endpoint of an outer port that has sent to `remote`, without counting as use: for
    /// errors about a packet.
    #[must_use]
    pub fn inside_of(&self, now: u64, protocol: Protocol, port: u16, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        let key = self.by_port.get(&(protocol, port))?;
        let mapping = self.mappings.get(key)?;
        let at = mapping.remotes.get(&remote)?;
        is_live(now, *at, self.life(protocol)).then_some(key.inside)
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

    fn make(&mut self, now: u64, key: Key) -> Option<()> {
        self.remove(key);
        let port = self.free_port(now, key)?;
        // The previous mapping of the port has expired.
        if let Some(old) = self.by_port.insert((key.protocol, port), key) {
            self.mappings.remove(&old);
        }
        let mapping = Mapping {
            port,
            used: now,
            remotes: BTreeMap::new(),
        };
        self.mappings.insert(key, mapping);
        Some(())
    }

    /// A cone keeps the inner port if possible. A symmetric NAT box never does: a peer that guesses
    /// the port would make it look like a cone.
    fn free_port(&mut self, now: u64, key: Key) -> Option<u16> {
        let inner = key.inside.port();
        if self.kind != NatKind::Symmetric && self.is_free(now, key.protocol, inner) {
            return Some(inner);
        }
        let start = self.random.below(u64::from(PORTS)) as u16;
        let mut ports =
            (0..PORTS).map(|step| FIRST_PORT + ((u32::from(start) + u32::from(step)) % u32::from(PORTS)) as u16);
        ports.find(|port| *port != inner && self.is_free(now, key.protocol, *port))
    }

    fn is_free(&self, now: u64, protocol: Protocol, port: u16) -> bool {
        let taken = self
            .by_port
            .get(&(protocol, port))
            .and_then(|key| self.mappings.get(key));
        taken.is_none_or(|mapping| !is_live(now, mapping.used, self.life(protocol)))
    }

    fn sweep(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let life = self.life;
        self.mappings.retain(|key, mapping| {
            let life = of(life, key.protocol);
            mapping.remotes.retain(|_, at| is_live(now, *at, life));
            is_live(now, mapping.used, life)
        });
        let mappings = &self.mappings;
        self.by_port.retain(|_, key| mappings.contains_key(key));
    }

    fn remove(&mut self, key: Key) {
        if let Some(old) = self.mappings.remove(&key) {
            self.by_port.remove(&(key.protocol, old.port));
        }
    }

    fn key(&self, protocol: Protocol, inside: SocketAddrV4, remote: SocketAddrV4) -> Key {
        Key {
            protocol,
            inside,
            remote: (self.kind == NatKind::Symmetric).then_some(remote),
        }
    }

    fn life(&self, protocol: Protocol) -> u64 {
        of(self.life, protocol)
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
