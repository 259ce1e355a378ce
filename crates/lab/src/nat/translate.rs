//! Translation: a packet arrives on one side, and leaves on one side or is dropped.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::Serialize;

use super::behaviour::Behaviour;
use super::packet::{End, Packet, Unfit};
use super::table::{Refusal, Table};

/// The sides of a NAT box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side whose addresses are hidden.
    Inside,
    /// The side on which the NAT box has one address.
    Outside,
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    /// It cannot be translated.
    Unfit(Unfit),
    /// From outside to a port without a mapping, or whose mapping does not admit the sender.
    Refused(Refusal),
    /// From outside to another address than that of the NAT box.
    NotOurs,
    /// From inside to the outer address, while hairpinning is off.
    Hairpin,
    /// All outer ports are taken.
    NoPort,
    /// Its time to live expired.
    Expired,
}

/// Counters of packets so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NatCounts {
    /// From inside to outside.
    pub out: u64,
    /// From outside to inside.
    pub r#in: u64,
    /// From inside to another host inside.
    pub hairpinned: u64,
    /// From outside, to a port without a mapping.
    pub unmapped: u64,
    /// From outside, to a mapping that does not admit the sender.
    pub filtered: u64,
    /// Dropped for another reason.
    pub dropped: u64,
}

/// A translator with one outer address. Pure: times are milliseconds from any start, and packets
/// are changed in place.
#[derive(Debug)]
pub struct Translator {
    table: Table,
    hairpin: bool,
    outer: Ipv4Addr,
    counts: NatCounts,
}

impl Translator {
    /// A translator without mappings.
    #[must_use]
    pub fn new(behaviour: Behaviour, seed: u64, outer: Ipv4Addr) -> Self {
        Self {
            table: Table::new(behaviour, seed),
            hairpin: behaviour.hairpin,
            outer,
            counts: NatCounts::default(),
        }
    }

    /// Translates an IPv4 packet that arrived on a side. Returns the side on which it leaves, and
    /// its length, without padding behind it.
    ///
    /// # Errors
    /// [`Drop`]: the packet must not be forwarded.
    pub fn translate(&mut self, now: u64, from: Side, bytes: &mut [u8]) -> Result<(Side, usize), Drop> {
        let result = self.decide(now, from, bytes);
        let count = match (from, &result) {
            (Side::Inside, Ok((Side::Outside, _))) => &mut self.counts.out,
            (Side::Outside, Ok(_)) => &mut self.counts.r#in,
            (Side::Inside, Ok(_)) => &mut self.counts.hairpinned,
            (_, Err(Drop::Refused(Refusal::NoMapping))) => &mut self.counts.unmapped,
            (_, Err(Drop::Refused(Refusal::Filtered))) => &mut self.counts.filtered,
            (_, Err(_)) => &mut self.counts.dropped,
        };
        *count += 1;
        result
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> NatCounts {
        self.counts
    }

    /// The mappings.
    pub fn table(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Deletes the mappings and sets the outer address.
    pub(super) fn restart(&mut self, outer: Ipv4Addr) {
        self.table.clear();
        self.outer = outer;
    }

    fn decide(&mut self, now: u64, from: Side, bytes: &mut [u8]) -> Result<(Side, usize), Drop> {
        let mut packet = Packet::new(bytes).map_err(Drop::Unfit)?;
        if !packet.hop() {
            return Err(Drop::Expired);
        }
        let to = match (from, packet.is_error()) {
            (Side::Inside, false) => self.leave(now, &mut packet)?,
            (Side::Outside, false) => self.arrive(now, &mut packet)?,
            (Side::Inside, true) => self.report_out(now, &mut packet)?,
            (Side::Outside, true) => self.report_in(now, &mut packet)?,
        };
        Ok((to, packet.bytes().len()))
    }

    fn leave(&mut self, now: u64, packet: &mut Packet<'_>) -> Result<Side, Drop> {
        let protocol = packet.protocol();
        let inside = packet.end(End::Source, End::Source);
        let remote = packet.end(End::Destination, End::Source);
        if *remote.ip() == self.outer {
            return self.turn_back(now, packet);
        }
        let port = self.table.outbound(now, protocol, inside, remote);
        let outer = SocketAddrV4::new(self.outer, port.ok_or(Drop::NoPort)?);
        packet.set_end(End::Source, End::Source, outer);
        Ok(Side::Outside)
    }

    fn arrive(&mut self, now: u64, packet: &mut Packet<'_>) -> Result<Side, Drop> {
        let outer = packet.end(End::Destination, End::Destination);
        let remote = packet.end(End::Source, End::Destination);
        if *outer.ip() != self.outer {
            return Err(Drop::NotOurs);
        }
        let inside = self.table.inbound(now, packet.protocol(), outer.port(), remote);
        packet.set_end(End::Destination, End::Destination, inside.map_err(Drop::Refused)?);
        Ok(Side::Inside)
    }

    /// RFC 4787, section 6: the packet is delivered inside with the outer endpoint of its sender as
    /// source.
    fn turn_back(&mut self, now: u64, packet: &mut Packet<'_>) -> Result<Side, Drop> {
        let protocol = packet.protocol();
        // An echo has one identifier, which can stand for one end only.
        if !self.hairpin || protocol == super::packet::Protocol::Echo {
            return Err(Drop::Hairpin);
        }
        let sender = packet.end(End::Source, End::Source);
        let target = packet.end(End::Destination, End::Source);
        let port = self.table.outbound(now, protocol, sender, target);
        let outer = SocketAddrV4::new(self.outer, port.ok_or(Drop::NoPort)?);
        let inside = self.table.inbound(now, protocol, target.port(), outer);
        packet.set_end(End::Destination, End::Source, inside.map_err(Drop::Refused)?);
        packet.set_end(End::Source, End::Source, outer);
        Ok(Side::Inside)
    }

    /// An error about a packet that left through the NAT box: it quotes the outer endpoint as its
    /// source.
    fn report_in(&mut self, now: u64, packet: &mut Packet<'_>) -> Result<Side, Drop> {
        let outer = packet.end(End::Source, End::Source);
        let remote = packet.end(End::Destination, End::Source);
        if *outer.ip() != self.outer || packet.address(End::Destination) != self.outer {
            return Err(Drop::NotOurs);
        }
        let inside = self.table.inside_of(now, packet.protocol(), outer.port(), remote);
        let inside = inside.ok_or(Drop::Refused(Refusal::NoMapping))?;
        packet.set_end(End::Source, End::Source, inside);
        packet.set_error_address(End::Destination, *inside.ip());
        Ok(Side::Inside)
    }

    /// An error about a packet that entered through the NAT box: it quotes the inner endpoint as
    /// its destination.
    fn report_out(&mut self, now: u64, packet: &mut Packet<'_>) -> Result<Side, Drop> {
        let inside = packet.end(End::Destination, End::Destination);
        let remote = packet.end(End::Source, End::Destination);
        let port = self.table.port_of(now, packet.protocol(), inside, remote);
        let port = port.ok_or(Drop::Refused(Refusal::NoMapping))?;
        packet.set_end(End::Destination, End::Destination, SocketAddrV4::new(self.outer, port));
        packet.set_error_address(End::Source, self.outer);
        Ok(Side::Outside)
    }
}
