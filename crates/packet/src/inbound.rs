//! From the wire: each datagram to the owner of its keys.

use std::ops::Range;

use weft_contract::Endpoint;
use weft_wire::fast::{self, HEADROOM};

use crate::checksum::Checksum;
use crate::counters::DropReason;
use crate::ecn::Seen;
use crate::fast::{HopIngress, SessionIngress, Source};
use crate::fips::FipsIngress;
use crate::lane::Lane;
use crate::received::{Inbound, Received};
use crate::tables::FastOwner;
use crate::train::{Train, Transmit};
use crate::wireguard::WireGuardIngress;

/// The owner of the keys of a datagram.
enum Owner {
    /// A session or a hop, of which it is a fast frame.
    Fast(FastOwner),
    /// None: a fast frame with an index that is not in use.
    Unknown,
    /// A link, if it is a FIPS frame.
    Fips,
}

/// One receive, and what its processing needs.
struct Ingress<'a, T> {
    lane: &'a mut Lane,
    /// The present time, in ms.
    now: u64,
    /// The source address of the datagrams.
    from: Endpoint,
    train: &'a mut Train<T>,
}

impl Lane {
    /// Processes the datagrams of one receive: `step` bytes each but the last, one behind the
    /// other, from offset [`HEADROOM`] of `room` on. Calls `deliver` for each IP packet for the
    /// TUN, with the packet, its range in `room`, where it stays, and the state of its checksum.
    /// Datagrams for other lanes are copied for [`Lane::foreign`].
    pub fn inbound_train<T: Transmit>(
        &mut self,
        now: u64,
        from: impl Into<Endpoint>,
        room: &mut [u8],
        step: usize,
        train: &mut Train<T>,
        mut deliver: impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        self.foreign.clear();
        let mut received = Received::new(room, step);
        if self.outer == Seen::Ce {
            self.out.counters.ce_underlay += received.count() as u64;
        }
        let mut ingress = Ingress {
            lane: self,
            now,
            from: from.into(),
            train,
        };
        if !ingress.from.socket().is_ordinary() && ingress.lane.takes_wireguard(ingress.from) {
            ingress.wireguard(&mut received, &mut deliver);
        }
        while let Some(head) = received.head() {
            let owner = ingress.lane.owner(head);
            if !matches!(owner, Owner::Fast(_))
                && let Some(other) = ingress.lane.place.other_owner(head)
            {
                ingress.lane.out.counters.foreign += 1;
                ingress.lane.foreign.push(other, head);
                received.skip();
                continue;
            }
            ingress.take(&owner, &mut received, &mut deliver);
        }
        self.outer = Seen::Nothing;
    }

    /// Processes one datagram and opens it in place. The datagram is in `room` behind [`HEADROOM`]
    /// bytes, which may be overwritten. These bytes may be the end of a datagram that was processed
    /// before, of which only the tag lies there.
    ///
    /// Packets that waited for what this datagram proves are committed to `train`.
    pub fn inbound<T: Transmit>(
        &mut self,
        now: u64,
        from: impl Into<Endpoint>,
        room: &mut [u8],
        train: &mut Train<T>,
    ) -> Inbound {
        let mut inbound = Inbound::Done;
        let mut received = Received::new(room, usize::MAX);
        let Some(head) = received.head() else {
            self.out.counters.udp_rx += 1;
            self.out.count(DropReason::Malformed);
            return inbound;
        };
        let (from, owner) = (from.into(), self.owner(head));
        let mut ingress = Ingress {
            lane: self,
            now,
            from,
            train,
        };
        if ingress.lane.takes_wireguard(from) {
            ingress.wireguard(&mut received, &mut |_, range, checksum| {
                inbound = Inbound::Packet(range, checksum);
            });
            return inbound;
        }
        ingress.take(&owner, &mut received, &mut |_, range, checksum| {
            inbound = Inbound::Packet(range, checksum);
        });
        inbound
    }

    /// Like [`Lane::inbound`] for a datagram without headroom: returns the IP packet for the TUN in
    /// it, if there is one, with a complete checksum. It copies, and is for tests and simulations.
    pub fn inbound_alone<T: Transmit>(
        &mut self,
        now: u64,
        from: impl Into<Endpoint>,
        datagram: &[u8],
        train: &mut Train<T>,
    ) -> Option<Vec<u8>> {
        let mut room = [&[0; HEADROOM], datagram].concat();
        let Inbound::Packet(range, checksum) = self.inbound(now, from, &mut room, train) else {
            return None;
        };
        let mut packet = room.get(range)?.to_vec();
        if checksum == Checksum::Partial {
            crate::checksum::complete(&mut packet);
        }
        Some(packet)
    }

    /// Returns whether datagrams from here are messages of WireGuard.
    fn takes_wireguard(&self, from: Endpoint) -> bool {
        self.tables.wireguard.socket == Some(from.socket())
    }

    fn owner(&self, datagram: &[u8]) -> Owner {
        match fast::index_of(datagram).map(|index| self.tables.fast_indices.get(&index)) {
            Some(Some(owner)) => Owner::Fast(*owner),
            Some(None) => Owner::Unknown,
            None => Owner::Fips,
        }
    }
}

impl<T: Transmit> Ingress<'_, T> {
    #[cold]
    fn wireguard(&mut self, received: &mut Received<'_>, deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum)) {
        let mut wireguard = WireGuardIngress {
            lane: &mut *self.lane,
            now: self.now,
            from: self.from,
            train: &mut *self.train,
        };
        wireguard.all(received, deliver);
    }

    /// Processes the first remaining datagram, and those behind it under the same keys.
    #[inline]
    fn take(
        &mut self,
        owner: &Owner,
        received: &mut Received<'_>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        let before = received.count();
        let (now, from) = (self.now, self.from);
        let (lane, train) = (&mut *self.lane, &mut *self.train);
        match *owner {
            Owner::Fast(FastOwner::Session(key)) => {
                let source = Source { from, via: None };
                let mut session = SessionIngress {
                    lane,
                    now,
                    source,
                    key,
                    train,
                };
                session.frames(received, deliver);
            }
            Owner::Fast(FastOwner::Hop(key)) => {
                let mut hop = HopIngress {
                    lane,
                    now,
                    from,
                    key,
                    train,
                };
                hop.frames(received, deliver);
            }
            Owner::Unknown => {
                let parsed = received.head().map(|head| fast::Header::parse(head));
                lane.out.count(match parsed {
                    Some(Ok(_)) => DropReason::FastUnknown,
                    Some(Err(_)) | None => DropReason::Malformed,
                });
                received.skip();
            }
            Owner::Fips => {
                let (at, room) = received.head_in_room();
                let datagram = room.get_mut(HEADROOM..).unwrap_or_default();
                let mut fips = FipsIngress { lane, now, train };
                match fips.datagram(from, datagram) {
                    Ok(Inbound::Packet(range, checksum)) => {
                        let packet = datagram.get(range.clone()).unwrap_or_default();
                        let at = at + HEADROOM;
                        deliver(packet, at + range.start..at + range.end, checksum);
                    }
                    Ok(Inbound::Done) => {}
                    Err(reason) => self.lane.out.count(reason),
                }
                received.skip();
            }
        }
        self.lane.out.counters.udp_rx += (before - received.count()) as u64;
    }
}
