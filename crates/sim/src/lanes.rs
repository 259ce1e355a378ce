//! Several lanes of one host, with the division of packets and datagrams of kernel and threads in
//! the daemon.

use std::iter;

use weft_contract::{Audience, Command, Endpoint, Place};
use weft_packet::checksum::{self, Checksum};
use weft_packet::{HEADROOM, Lane, Outbound};
use weft_wire::virtio::VirtioNetHdr;

use crate::host::Host;

impl Host {
    /// The place of the first lane among all.
    pub(crate) fn place(&self) -> Place {
        let count = 1 + self.others.len() as u8;
        Place::new(0, count).unwrap_or(Place::ALONE)
    }

    /// A counter of each lane, lane 0 first.
    pub fn counter_of_each(&self, name: &str) -> Vec<u64> {
        let lanes = iter::once(&self.lane).chain(&self.others);
        let count = |lane: &Lane| lane.counters().named().find(|(known, _)| *known == name);
        lanes.map(|lane| count(lane).map_or(0, |(_, count)| count)).collect()
    }

    pub(crate) fn check_lanes(&self) -> Result<(), String> {
        let mut lanes = iter::once(&self.lane).chain(&self.others);
        lanes.try_for_each(Lane::check_invariants)
    }

    pub(crate) fn each_lane(&mut self) -> impl Iterator<Item = &mut Lane> {
        iter::once(&mut self.lane).chain(&mut self.others)
    }

    /// The next output of any lane, and that lane's number.
    pub(crate) fn next_of_lanes<T>(&mut self, poll: impl Fn(&mut Lane) -> Option<T>) -> Option<(u8, T)> {
        (0..)
            .zip(self.each_lane())
            .find_map(|(number, lane)| Some((number, poll(lane)?)))
    }

    /// A packet is read from the TUN. Its queues alternate, so that every lane has something to
    /// send.
    pub(crate) fn outbound(&mut self, now: u64, packet: &[u8]) {
        let (hdr, train) = (VirtioNetHdr::default(), &mut self.train);
        self.queue = (self.queue + 1) % (1 + self.others.len() as u8);
        let lane = numbered(&mut self.lane, &mut self.others, self.queue);
        if let Outbound::HandOver(owner) = lane.outbound(now, hdr, packet, train) {
            let owner = numbered(&mut self.lane, &mut self.others, owner);
            owner.send_packet(now, hdr, packet, train);
        }
    }

    /// A datagram arrives at the socket of a lane, which hands what it does not own to the owner.
    /// Returns the IP packets in it.
    pub(crate) fn inbound(&mut self, now: u64, socket: u8, from: Endpoint, datagram: &[u8]) -> Vec<Vec<u8>> {
        if self.others.is_empty() {
            let packet = self.lane.inbound_alone(now, from, datagram, &mut self.train);
            return packet.into_iter().collect();
        }
        let mut packets = Vec::new();
        let mut take = |number: u8, datagram: &[u8]| {
            let lane = numbered(&mut self.lane, &mut self.others, number);
            let mut room = [&[0; HEADROOM], datagram].concat();
            let step = datagram.len();
            lane.inbound_train(now, from, &mut room, step, &mut self.train, |packet, _, sum| {
                let mut packet = packet.to_vec();
                if sum == Checksum::Partial {
                    checksum::complete(&mut packet);
                }
                packets.push(packet);
            });
            let foreign = lane.foreign().map(|(owner, datagram)| (owner, datagram.to_vec()));
            foreign.collect::<Vec<_>>()
        };
        for (owner, datagram) in take(socket, datagram) {
            take(owner, &datagram);
        }
        packets
    }

    /// Executes a command in the lanes that it concerns, and sends what they write.
    pub fn apply(&mut self, now: u64, command: Command) {
        let (first, others) = match command.audience() {
            Audience::First => (true, 0..0),
            Audience::One(0) => (true, 0..0),
            Audience::One(number) => (false, usize::from(number) - 1..usize::from(number)),
            Audience::Others => (false, 0..self.others.len()),
            Audience::All => (true, 0..self.others.len()),
        };
        for lane in self.others.get_mut(others).unwrap_or_default() {
            lane.apply(now, command.clone(), &mut self.train);
        }
        if first {
            self.lane.apply(now, command, &mut self.train);
        }
        self.train.flush();
    }
}

/// The lane of this number, or the first if there is none.
pub(crate) fn numbered<'l>(first: &'l mut Lane, others: &'l mut [Lane], number: u8) -> &'l mut Lane {
    let other = usize::from(number).checked_sub(1).and_then(|at| others.get_mut(at));
    other.unwrap_or(first)
}
