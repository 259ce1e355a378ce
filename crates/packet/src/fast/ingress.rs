//! From the wire: fast frames of a session, to IP packets and messages.
//!
//! The frames of one receive under one set of keys are opened in one run, with the look-ups made
//! once. A frame that proves keys, begins a phase or is not a packet ends the run, because what it
//! requires needs the whole lane.

use std::net::SocketAddr;
use std::ops::Range;

use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::fast::{self, HEADROOM, Kind};

use super::border::Border;
use super::keys::Opened;
use crate::checksum::Checksum;
use crate::control::{EpochId, LinkId, Report, SessionReport};
use crate::counters::DropReason;
use crate::echo;
use crate::ecn::Seen;
use crate::lane::Lane;
use crate::meter::Arrival;
use crate::networks::Borders;
use crate::paths;
use crate::received::Received;
use crate::train::{Train, Transmit};

/// The offset of the content, behind the clock, in a frame.
pub(super) const CONTENT_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN;

/// The origin of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The source address of the datagram.
    pub(crate) from: SocketAddr,
    /// The neighbour that relayed the frames, unless the session's peer sent the datagram itself.
    pub(crate) via: Option<Via>,
}

/// The neighbour that relayed a frame to this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via {
    /// The link with it.
    pub(crate) link: LinkId,
    /// Whether it marked the frame as having experienced congestion.
    pub(crate) marked: bool,
}

impl Source {
    /// Returns the congestion that the frames have met. `outer` is the mark in the IP header of the
    /// datagram.
    fn seen(self, outer: Seen) -> Seen {
        self.via.map_or(outer, |via| Seen::marked(via.marked))
    }
}

/// The outcome of a run of frames.
#[derive(Default)]
struct Run {
    /// The number of frames that opened, and their bytes.
    frames: u64,
    bytes: usize,
    /// The number of packets made of them, and their bytes.
    packets: u64,
    packet_bytes: usize,
    /// Whether one of the frames has the highest counter of all.
    newest: bool,
    /// The sequence numbers of answers to this node's echo requests.
    echoes: Vec<u16>,
    /// The link that the session is bound to.
    link: Option<LinkId>,
}

/// A frame that opened and ended a run.
struct Odd {
    header: fast::Header,
    /// The epoch of its keys.
    id: u32,
    opened: Opened,
    /// Whether its keys were not proven, or only for relayed frames while this one arrived
    /// directly.
    unproven: bool,
}

impl Lane {
    /// Processes the frames of the session with `peer` at the front of `received`: all those with
    /// the receiver index of the first. Calls `deliver` for each IP packet for the TUN, with its
    /// range in the room.
    pub(crate) fn session_frames<T: Transmit>(
        &mut self,
        now: u64,
        source: Source,
        peer: NodeAddr,
        received: &mut Received<'_>,
        train: &mut Train<T>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        let Some(index) = received.head().and_then(|head| fast::index_of(head)) else {
            return;
        };
        let mut opened = None;
        loop {
            let (run, odd) = self.open_run(now, source, (peer, index), received, opened, deliver);
            self.end_run(now, source, peer, run);
            let Some(odd) = odd else { return };
            self.note_odd(now, source, peer, &odd, frame_content(received.head_in_room().1), train);
            opened = Some(odd.header).filter(|header| matches!(header.kind, Kind::Ipv6 | Kind::Full));
            if opened.is_none() {
                let room = received.head_in_room().1;
                let done = match odd.header.kind {
                    Kind::Fragment => self.fast_piece(now, peer, odd.id, room, source.seen(self.outer)),
                    _ => self.fast_message(now, peer, odd.id, frame_content(room), train),
                };
                self.counters.note(done);
                received.skip();
            }
        }
    }

    /// Opens frames until one is odd or has another index. `opened`: the header of the first frame,
    /// if it is already open and accounted for.
    #[inline]
    fn open_run(
        &mut self,
        now: u64,
        source: Source,
        (peer, index): (NodeAddr, u32),
        received: &mut Received<'_>,
        mut opened: Option<fast::Header>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> (Run, Option<Odd>) {
        let mut run = Run::default();
        let mut odd = None;
        let (token, seen) = (self.echo_token, source.seen(self.outer));
        // `Lane::borders` would borrow the whole lane.
        let egress = self.egress(&peer);
        let borders = Borders {
            me: self.config.me,
            allowed: &self.allowed,
            networks: &self.networks,
        };
        let mut border = Border::new(borders, peer, egress);
        let Some(session) = self.sessions.get_mut(&peer) else {
            received.skip();
            self.counters.drops.count(DropReason::NoKeys);
            return (run, None);
        };
        let current = session.fast.current_id();
        let Some(keys) = session.fast.by_index_mut(index) else {
            received.skip();
            self.counters.drops.count(DropReason::FastUnknown);
            return (run, None);
        };
        let current = current == Some(keys.id);
        let unproven = !keys.proven || !keys.direct && source.via.is_none();
        loop {
            let (at, room) = received.head_in_room();
            let header = match opened.take() {
                Some(header) => header,
                None => {
                    let frame = room.get_mut(HEADROOM..).unwrap_or_default();
                    let header = match fast::Header::parse(frame) {
                        Ok(header) if header.receiver_index == index && header.kind != Kind::Relayed => header,
                        _ if fast::index_of(frame) != Some(index) => break,
                        _ => {
                            self.counters.drops.count(DropReason::Malformed);
                            received.skip();
                            continue;
                        }
                    };
                    let Some((aad, sealed)) = frame.split_at_mut_checked(fast::Header::LEN) else {
                        break;
                    };
                    let opened = match keys.open(now, &header, aad, sealed) {
                        Ok(opened) => opened,
                        Err(failure) => {
                            self.counters.drops.count(failure.of_fast());
                            received.skip();
                            continue;
                        }
                    };
                    run.frames += 1;
                    run.bytes += frame.len();
                    // Late frames under old keys may come from an earlier address of the peer, and
                    // reports are not about them.
                    if current {
                        run.newest |= opened.newest;
                        let arrived = arrival(keys.number(), &header, frame, seen);
                        session.meter.receive(now, arrived);
                    }
                    if unproven || opened.new_phase || !matches!(header.kind, Kind::Ipv6 | Kind::Full) {
                        let id = keys.id;
                        odd = Some(Odd {
                            header,
                            id,
                            opened,
                            unproven,
                        });
                        break;
                    }
                    header
                }
            };
            match border.packet(&header, room, seen, &mut self.counters) {
                Ok((range, checksum)) => {
                    run.packets += 1;
                    run.packet_bytes += range.len();
                    let packet = room.get(range.clone()).unwrap_or_default();
                    if let Some(token) = token.filter(|_| header.kind == Kind::Ipv6) {
                        run.echoes.extend(echo::reply(packet, token));
                    }
                    deliver(packet, at + range.start..at + range.end, checksum);
                }
                Err(reason) => self.counters.drops.count(reason),
            }
            received.skip();
        }
        if run.packets > 0 {
            session.received_packets(now, run.packets, run.packet_bytes);
        }
        run.link = session.link;
        (run, odd)
    }

    fn end_run(&mut self, now: u64, source: Source, peer: NodeAddr, run: Run) {
        self.counters.fast_rx += run.frames;
        self.counters.tun_tx += run.packets;
        match source.via {
            Some(via) => {
                self.counters.relayed_rx += run.frames;
                if run.newest {
                    self.note_arrival(now, via.link, peer);
                }
            }
            None if run.frames > 0 => self.heard(now, source.from, peer, &run),
            None => {}
        }
        for seq in run.echoes {
            self.report(Report::Session(peer, SessionReport::EchoReply { seq }));
        }
    }

    /// Records what a frame proves about its keys.
    fn note_odd<T: Transmit>(
        &mut self,
        now: u64,
        source: Source,
        peer: NodeAddr,
        odd: &Odd,
        content: &[u8],
        train: &mut Train<T>,
    ) {
        if odd.unproven
            && !asks(odd.header.kind, content)
            && let Some(session) = self.sessions.get_mut(&peer)
        {
            let (id, direct) = (EpochId(odd.id), source.via.is_none());
            session.fast.prove(odd.id, direct);
            session.splits = true;
            self.tables_changed();
            self.report(Report::Session(peer, SessionReport::FastProven { id, direct }));
            self.flush_queue(now, peer, train);
        }
        if odd.opened.new_phase {
            self.tell_phase(now, peer, Some(odd.id), train);
        }
    }

    /// Accounts for the frames of a run that the peer itself sent.
    fn heard(&mut self, now: u64, from: SocketAddr, peer: NodeAddr, run: &Run) {
        let Some(id) = self.direct_link(run.link, peer) else {
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        link.received(now, run.frames, run.bytes);
        link.received_payload(run.frames);
        if run.newest {
            if let Some(room) = link.paths.came_from(now, from, run.bytes) {
                self.report(paths::moved(id, from, room));
            }
            self.note_arrival(now, id, peer);
        }
    }

    /// Returns the link with this node itself, which is normally the one that its session is bound
    /// to.
    fn direct_link(&self, bound: Option<LinkId>, peer: NodeAddr) -> Option<LinkId> {
        let is_direct = |id: &LinkId| self.links.get(id).is_some_and(|link| link.peer == peer);
        let other = || self.links.iter().find(|(_, link)| link.peer == peer).map(|(id, _)| *id);
        bound.filter(is_direct).or_else(other)
    }
}

/// Returns what an opened frame shows about its path.
#[inline]
fn arrival(epoch: u32, header: &fast::Header, frame: &[u8], seen: Seen) -> Arrival {
    let clock = frame.get(fast::Header::LEN..).and_then(<[u8]>::first_chunk);
    Arrival {
        epoch,
        counter: header.counter,
        timestamp: clock.map_or(0, |clock| u32::from_le_bytes(*clock)),
        bytes: frame.len(),
        ce: seen.is_ce(),
    }
}

/// Returns whether this asks for a confirm. A peer that asks may not have received any frame of
/// this node, so it proves nothing about their arrival.
pub(super) fn asks(kind: Kind, content: &[u8]) -> bool {
    kind == Kind::Message && content == [fast::CONFIRM, fast::CONFIRM_ASKS]
}

/// Returns the opened content of the frame behind the headroom, without the clock.
pub(super) fn frame_content(room: &[u8]) -> &[u8] {
    let content = HEADROOM + CONTENT_AT..room.len().saturating_sub(TAG_LEN);
    room.get(content).unwrap_or_default()
}
