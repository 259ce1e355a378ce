//! Opening many: the packets of one receive under one set of keys, with the look-ups made once.

use std::net::SocketAddr;
use std::ops::Range;

use weft_wire::NodeAddr;
use weft_wire::fast::{self, HEADROOM, Kind};

use super::full::{self, Border};
use super::open::{arrival, expand};
use super::{FastIndex, Refusal};
use crate::checksum::Checksum;
use crate::control::Report;
use crate::echo;
use crate::lane::Lane;
use crate::meter::Arrival;
use crate::networks::Borders;

/// What came so far.
#[derive(Default)]
struct Run {
    /// Frames that opened, and their bytes.
    frames: u64,
    bytes: usize,
    /// Packets made of them, and their bytes.
    packets: u64,
    packet_bytes: usize,
    /// One of the frames is the newest of all.
    newest: bool,
    /// The echo requests of ours that were answered.
    echoes: Vec<u16>,
}

impl Lane {
    /// Takes the frames from `at` on, `step` bytes each but the last, as long as they are packets under the keys in use
    /// and nothing has to be answered. Frames start behind the first [`HEADROOM`] bytes of `room`, where `at` counts from.
    /// Returns where the first frame starts that is left, for [`Lane::inbound`] to take.
    pub(crate) fn fast_run(
        &mut self,
        now: u64,
        from: SocketAddr,
        room: &mut [u8],
        (mut at, step): (usize, usize),
        mut deliver: impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> usize {
        let total = room.len().saturating_sub(HEADROOM);
        let index = room.get(HEADROOM + at..).and_then(fast::index_of);
        let found = index.and_then(|index| Some((index, self.fast_indices.get(&index)?)));
        let Some((index, &FastIndex::Session(peer))) = found else {
            return at;
        };
        let ends = (peer.to_ipv6(), self.config.me.to_ipv6());
        if !self.allowed.contains_key(&ends.0.octets()) {
            return at;
        }
        let (token, seen) = (self.echo_token, self.outer);
        let room_to = self.room_to(&peer);
        let max_tcp = room_to.max_tcp();
        // Not `Lane::borders`, which would hold all of the lane.
        let borders = Borders {
            me: self.config.me,
            allowed: &self.allowed,
            networks: &self.networks,
        };
        let mut border = Border::new(borders, peer, room_to.full().max_tcp());
        let Some(session) = self.sessions.get_mut(&peer) else {
            return at;
        };
        // Until frames have come directly, each may be the first that does.
        let keys = session.fast.current_mut();
        let Some(keys) = keys.filter(|keys| keys.our_index == index && keys.direct) else {
            return at;
        };
        let mut run = Run::default();
        while at < total {
            let end = (at + step).min(total);
            let Some((frame, header)) = room.get_mut(HEADROOM + at..HEADROOM + end).and_then(|frame| {
                let header = fast::Header::parse(frame).ok()?;
                Some((frame, header))
            }) else {
                break;
            };
            let is_packet = matches!(header.kind, Kind::Ipv6 | Kind::Full);
            if !is_packet || header.receiver_index != index || !keys.is_in_phase(&header) {
                break;
            }
            let Some((aad, sealed)) = frame.split_at_mut_checked(fast::Header::LEN) else {
                break;
            };
            self.counters.udp_rx += 1;
            let begin = std::mem::replace(&mut at, end);
            match keys.open(now, &header, aad, sealed) {
                Ok(opened) => run.newest |= opened.newest,
                Err(failure) => {
                    self.counters.fast_open_failed(failure);
                    continue;
                }
            }
            let arrived = arrival(keys.number(), &header, frame);
            session.meter.receive(
                now,
                Arrival {
                    ce: seen.is_ce(),
                    ..arrived
                },
            );
            run.frames += 1;
            run.bytes += frame.len();
            let lone = room.get_mut(begin..HEADROOM + end).unwrap_or_default();
            let made = match header.kind {
                Kind::Full => full::place(lone).ok_or(Refusal::Malformed).and_then(|range| {
                    let packet = lone.get_mut(range.clone()).ok_or(Refusal::Malformed)?;
                    let checksum = border.let_in(packet, header.flags)?;
                    self.counters.full_rx += 1;
                    Ok((range, checksum))
                }),
                _ => expand(lone, header.flags, ends, || max_tcp).ok_or(Refusal::Malformed),
            };
            match made {
                Ok((range, _))
                    if !Self::tell_congestion(
                        &mut self.counters,
                        seen,
                        lone.get_mut(range.clone()).unwrap_or_default(),
                    ) => {}
                Ok((range, checksum)) => {
                    run.packets += 1;
                    run.packet_bytes += range.len();
                    let packet = lone.get(range.clone()).unwrap_or_default();
                    let token = token.filter(|_| header.kind == Kind::Ipv6);
                    run.echoes.extend(token.and_then(|token| echo::reply(packet, token)));
                    deliver(packet, begin + range.start..begin + range.end, checksum);
                }
                Err(refusal) => self.counters.refused(refusal),
            }
        }
        if run.frames > 0 {
            session.totals.received(now, run.packets, run.packet_bytes);
            session.totals.rx_payload += run.packets;
            session.last_data = now;
            self.end_run(now, from, peer, run);
        }
        at
    }

    fn end_run(&mut self, now: u64, from: SocketAddr, peer: NodeAddr, run: Run) {
        self.counters.fast_rx += run.frames;
        self.counters.tun_tx += run.packets;
        self.heard(now, from, peer, (run.frames, run.bytes), run.newest);
        for seq in run.echoes {
            self.report(Report::EchoReply { peer, seq });
        }
    }
}
