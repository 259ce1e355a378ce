//! Two lanes with a link and a session, and subnets behind both.

#![allow(dead_code, reason = "no test needs all of it")]

#[path = "lane.rs"]
mod lane;

pub(crate) use lane::*;
use weft_contract::{Command, FastKeys, TableCommand};
use weft_packet::Counters;
use weft_wire::virtio::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VirtioNetHdr};
use weft_wire::{NodeAddr, Subnet};

use crate::model::{Packet, UDP};

pub(crate) const WHOLE: VirtioNetHdr = VirtioNetHdr {
    flags: 0,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 0,
    csum_offset: 0,
};

pub(crate) fn subnets(texts: &[&str]) -> Vec<Subnet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The subnets behind both: the hosts of the model, numbers 1 and 2, and more.
pub(crate) const BEHIND_A: [&str; 3] = ["10.1.0.1/32", "10.7.0.0/16", "fdab::1/128"];
pub(crate) const BEHIND_B: [&str; 3] = ["10.1.0.2/32", "10.8.0.0/16", "fdab::2/128"];

impl End {
    pub(crate) fn new(me: NodeAddr, other: NodeAddr, mtu: u16) -> Self {
        let mut end = Self::connected(me, other, mtu);
        let (ours, theirs) = if me == A {
            (BEHIND_A, BEHIND_B)
        } else {
            (BEHIND_B, BEHIND_A)
        };
        end.apply(Command::Table(TableCommand::SetSubnets {
            ours: subnets(&ours),
            theirs: subnets(&theirs).into_iter().map(|subnet| (subnet, other)).collect(),
        }));
        end
    }

    pub(crate) fn install_fast(&mut self, reads_full: bool) {
        self.install_fast_of(reads_full, 1 << 20);
    }

    /// Installs keys whose phases have this many frames.
    pub(crate) fn install_fast_of(&mut self, reads_full: bool, phase_frames: u64) {
        let keys = self.fast_keys(0, phase_frames);
        self.install_fast_keys(FastKeys { reads_full, ..keys });
        self.confirm_fast(0);
    }

    pub(crate) fn send(&mut self, hdr: VirtioNetHdr, packet: &[u8]) -> Vec<Vec<u8>> {
        self.lane.outbound(self.now, hdr, packet, &mut self.train);
        self.take_sent()
    }

    /// Returns the packets for the TUN out of these frames, whole or in pieces.
    pub(crate) fn receive(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for frame in frames {
            let from = address(self.other);
            packets.extend(self.lane.inbound_alone(self.now, from, frame, &mut self.train));
            packets.extend(self.lane.poll_reply());
        }
        packets
    }

    pub(crate) fn counters(&self) -> Counters {
        *self.lane.counters()
    }
}

/// Makes two ends whose data goes in fast frames.
pub(crate) fn pair(mtu: u16) -> (End, End) {
    let (mut a, mut b) = (End::new(A, B, mtu), End::new(B, A, mtu));
    agree(&mut a, &mut b, true);
    (a, b)
}

pub(crate) fn agree(a: &mut End, b: &mut End, b_reads_full: bool) {
    a.install_fast(b_reads_full);
    b.install_fast(true);
    for _ in 0..3 {
        let frames = a.take_sent();
        b.receive(&frames);
        let frames = b.take_sent();
        a.receive(&frames);
    }
}

pub(crate) fn gso(packet: &Packet, size: u16) -> VirtioNetHdr {
    let whole = usize::from(size) >= packet.payload.len();
    VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type: match (packet.protocol, &packet.v4) {
            _ if whole => 0,
            (UDP, _) => GSO_UDP_L4,
            (_, Some(_)) => GSO_TCPV4,
            (_, None) => GSO_TCPV6,
        },
        hdr_len: 0,
        gso_size: if whole { 0 } else { size },
        csum_start: packet.transport_start() as u16,
        csum_offset: packet.checksum_offset() as u16,
    }
}
