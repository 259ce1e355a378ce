//! The door to the TUN: the last steps of every packet of a peer, whatever frame it came in.
//!
//! 1. Admission: IP packets of the peer pass at all.
//! 2. Ends: a packet with its whole header comes from an address of the peer, or behind it, and goes
//!    to this node, or behind it. Any other packet has a header that this node has rebuilt.
//! 3. Size and checksum: TCP learns what the path takes, and a checksum that the kernel completes is
//!    begun.
//! 4. Congestion: the marks of the path become marks of the packet, or a loss (RFC 6040).
//! 5. Rules: see [`firewall`](crate::firewall). Nothing changes a packet that they have judged.
//! 6. Echo: an answer to an echo request of the node itself is reported.
//!
//! A packet that comes to step 5 has arrived, and its peer learns that. docs/decisions/0078-one-door.md.

use std::net::{IpAddr, Ipv6Addr};

use weft_contract::SessionReport;
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use crate::checksum::{self, Checksum};
use crate::counters::{Counters, DropReason};
use crate::echo;
use crate::ecn::{self, Seen};
use crate::firewall::{Firewall, Settled, Verdict};
use crate::icmp::{IcmpError, MAX_ERROR_PACKET};
use crate::inner::{Inner, addresses};
use crate::mss;
use crate::sender::Sender;
use crate::session::Session;
use crate::tables::{Egress, Routes, SessionKey, Tables};
use crate::train::Transmit;
use crate::tun::TunPacket;

/// The form of a packet in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The packet is between both nodes. The frame has the upper layer and the part of the IPv6 header
    /// that does not follow from the session; this node has rebuilt the rest.
    Between,
    /// The frame has the packet with its whole header.
    Whole,
}

/// The check of the packets of one session, and what it has let through.
pub(crate) struct Door<'a> {
    now: u64,
    routes: &'a Routes,
    firewall: &'a mut Firewall,
    /// The frames to the peer, which bound the segments of TCP connections with it.
    egress: Egress,
    peer: NodeAddr,
    /// The address of the peer that follows from its key.
    source: Ipv6Addr,
    allowed: bool,
    /// The token of the node's own echo requests.
    echo: Option<u64>,
    /// What the path of the frames has met.
    seen: Seen,
    /// Source and destination of the last packet whose ends were right: packets of one flow arrive
    /// together.
    last: Option<((IpAddr, IpAddr), Way)>,
    tally: Tally,
}

/// What the packets of one session at the door call for.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of packets that have arrived, and their bytes.
    arrived: u64,
    arrived_bytes: usize,
    /// The number of those that go to the TUN now.
    passed: u64,
    /// What few packets call for.
    rare: Option<Box<Rare>>,
}

/// What few packets at the door call for.
#[derive(Debug, Default)]
struct Rare {
    /// The sequence numbers of answers to this node's echo requests.
    echoes: Vec<u16>,
    /// The first packet that the rules denied and that its sender learns of.
    denied: Option<Vec<u8>>,
    /// Packets that go on to other peers.
    onward: Vec<Onward>,
}

/// A packet that goes on to another peer: one of the two speaks WireGuard.
#[derive(Debug)]
pub(crate) struct Onward {
    /// The packet, with a complete checksum.
    pub(crate) packet: Vec<u8>,
    /// Whether the rules of this node have let it pass. A packet for another node is judged there.
    pub(crate) judged: bool,
}

/// Where an admitted packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To the TUN.
    Here,
    /// To a peer of this node that speaks WireGuard.
    Guest,
    /// From such a peer to another node.
    Onward,
}

impl Tally {
    /// Accounts for the packets that have arrived.
    #[inline]
    pub(crate) fn account(&self, now: u64, session: &mut Session) {
        if self.arrived > 0 {
            session.received_packets(now, self.arrived, self.arrived_bytes);
        }
    }

    /// Returns whether no packet has arrived.
    pub(crate) const fn is_empty(&self) -> bool {
        self.arrived == 0
    }
}

impl<'a> Door<'a> {
    /// Opens the door for packets of a session whose frames go as `egress` specifies. `echo`: the
    /// token of the node's own echo requests. `seen`: what the path of the frames has met.
    #[inline]
    pub(crate) fn new(
        now: u64,
        (routes, firewall): (&'a Routes, &'a mut Firewall),
        (session, egress): (&Session, Egress),
        echo: Option<u64>,
        seen: Seen,
    ) -> Self {
        Self {
            now,
            routes,
            firewall,
            egress,
            peer: session.peer,
            source: session.peer.to_ipv6(),
            allowed: session.allowed,
            echo,
            seen,
            last: None,
            tally: Tally::default(),
        }
    }

    /// Returns source and destination of packets between both nodes, if packets of the peer pass at
    /// all.
    #[inline]
    pub(crate) fn ends(&self) -> Result<(Ipv6Addr, Ipv6Addr), DropReason> {
        if self.allowed {
            Ok((self.source, self.routes.me()))
        } else {
            Err(DropReason::NotAllowed)
        }
    }

    /// Admits a packet out of an opened frame, and makes it what the TUN takes. `partial`: the kernel
    /// completes its checksum. Returns the state of the checksum, or `None` for a fragment that waits
    /// for the first one of its packet, of which there is a copy.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        form: Form,
        partial: bool,
        packet: &mut [u8],
        counters: &mut Counters,
    ) -> Result<Option<Checksum>, DropReason> {
        if !self.allowed {
            return Err(DropReason::NotAllowed);
        }
        let whole = form == Form::Whole;
        let way = if whole { self.check_ends(packet)? } else { Way::Here };
        if way != Way::Here {
            return self.send_on(way, partial, packet, counters);
        }
        self.clamp(form, packet);
        let checksum = match (partial, whole) {
            (false, _) => Checksum::Full,
            (true, false) if checksum::start(packet) => Checksum::Partial,
            (true, true) if checksum::start_full(packet) => Checksum::Partial,
            (true, _) => return Err(DropReason::Malformed),
        };
        ecn::apply(counters, self.seen, packet)?;
        counters.full_rx += u64::from(whole);
        self.tally.arrived += 1;
        self.tally.arrived_bytes += packet.len();
        match self.firewall.inbound(self.now, self.routes, self.peer, packet) {
            Ok(Verdict::Pass) => {}
            Ok(Verdict::Held) => return Ok(None),
            Err(reason) => return Err(self.refuse(reason, packet)),
        }
        self.tally.passed += 1;
        if let Some(token) = self.echo.filter(|_| !whole)
            && let Some(seq) = echo::reply(packet, token)
        {
            self.note_echo(seq);
        }
        Ok(Some(checksum))
    }

    /// Closes the door, and returns what is left to do.
    #[inline]
    pub(crate) fn close(self) -> Tally {
        self.tally
    }

    /// Checks that the peer may send from the source of a packet with its whole header, and that its
    /// destination is this node or behind it.
    #[inline]
    fn check_ends(&mut self, packet: &[u8]) -> Result<Way, DropReason> {
        let whole = Inner::parse(packet).is_ok_and(|inner| inner.packet().len() == packet.len());
        let ends = addresses(packet).filter(|_| whole).ok_or(DropReason::Malformed)?;
        if let Some((_, way)) = self.last.filter(|(last, _)| *last == ends) {
            return Ok(way);
        }
        // A guest has an IPv4 address alone. The IPv6 address that its entry in the tables gives belongs to nothing.
        let is_foreign = ends.0.is_ipv6() && self.routes.is_guest(self.peer);
        if is_foreign || self.routes.peer_behind(ends.0) != Some(self.egress.session) {
            return Err(DropReason::ForeignSource);
        }
        let way = match (self.routes.is_ours(ends.1), self.routes.is_guest(self.peer)) {
            (true, _) if self.routes.is_of_guest(ends.1) => Way::Guest,
            (true, _) => Way::Here,
            // A packet to a guest is judged here, whatever the tables say of its address.
            (false, true) if self.routes.is_of_guest(ends.1) => return Err(DropReason::ForeignDestination),
            (false, true) if self.routes.peer_behind(ends.1).is_some() => Way::Onward,
            (false, _) => return Err(DropReason::ForeignDestination),
        };
        self.last = Some((ends, way));
        Ok(way)
    }

    /// Admits a packet that goes on to another peer. It has no place in the TUN.
    #[cold]
    fn send_on(
        &mut self,
        way: Way,
        partial: bool,
        packet: &mut [u8],
        counters: &mut Counters,
    ) -> Result<Option<Checksum>, DropReason> {
        if partial && !checksum::start_full(packet) {
            return Err(DropReason::Malformed);
        }
        ecn::apply(counters, self.seen, packet)?;
        self.tally.arrived += 1;
        self.tally.arrived_bytes += packet.len();
        let judged = way == Way::Guest;
        if judged {
            match self.firewall.inbound(self.now, self.routes, self.peer, packet) {
                Ok(Verdict::Pass) => {}
                Ok(Verdict::Held) => return Ok(None),
                Err(reason) => return Err(self.refuse(reason, packet)),
            }
        }
        let mut packet = packet.to_vec();
        if partial {
            checksum::complete(&mut packet);
        }
        self.tally
            .rare
            .get_or_insert_default()
            .onward
            .push(Onward { packet, judged });
        Ok(None)
    }

    /// Lowers the MSS in the first packets of a TCP connection to what the path takes.
    #[inline]
    fn clamp(&self, form: Form, packet: &mut [u8]) {
        match form {
            Form::Between if mss::opens_connection(packet) => mss::clamp(packet, self.egress.max_tcp()),
            Form::Whole if mss::opens_connection_full(packet) => mss::clamp(packet, self.egress.whole().max_tcp()),
            Form::Between | Form::Whole => false,
        };
    }

    #[cold]
    fn note_echo(&mut self, seq: u16) {
        self.tally.rare.get_or_insert_default().echoes.push(seq);
    }

    /// Keeps the first packet of a run that the rules deny, within the rate of errors to the peer. One
    /// about the first fragment of a packet suffices for all (RFC 1122 section 3.2.2).
    #[cold]
    fn refuse(&mut self, reason: DropReason, packet: &[u8]) -> DropReason {
        let first = self.tally.rare.as_ref().is_none_or(|rare| rare.denied.is_none());
        let is_later = || Inner::parse(packet).is_ok_and(|inner| inner.is_later_fragment());
        if reason == DropReason::Denied && first && !is_later() && self.firewall.may_answer(self.now, self.peer, packet)
        {
            self.tally.rare.get_or_insert_default().denied = Some(packet.to_vec());
        }
        reason
    }
}

impl Tables {
    /// Opens the door for packets of a session; see [`Door::new`].
    #[inline]
    pub(crate) fn door(
        &mut self,
        now: u64,
        key: SessionKey,
        echo: Option<u64>,
        seen: Seen,
    ) -> Result<Door<'_>, DropReason> {
        let egress = self.egress(key);
        let session = self.sessions.get(key).ok_or(DropReason::NoKeys)?;
        let checks = (&self.routes, &mut self.firewall);
        Ok(Door::new(now, checks, (session, egress), echo, seen))
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Does what the packets of a session at the door call for: passes on the fragments that waited for
    /// them, answers the first denied one, and reports answers to echoes.
    #[inline]
    pub(crate) fn settle(&mut self, key: SessionKey, tally: Tally) {
        self.out.counters.tun_tx += tally.passed;
        if self.tables.firewall.has_settled() {
            self.pass_settled();
        }
        if let Some(rare) = tally.rare {
            self.respond(key, *rare);
        }
    }

    #[cold]
    fn pass_settled(&mut self) {
        let Settled { passed, dropped } = self.tables.firewall.take_settled();
        self.out.count_many(DropReason::Denied, dropped);
        for packet in passed {
            if addresses(&packet).is_some_and(|(_, dest)| self.tables.routes.is_of_guest(dest)) {
                self.onward(Onward { packet, judged: true });
                continue;
            }
            self.out.counters.tun_tx += 1;
            self.out.reply(packet);
        }
    }

    #[cold]
    fn respond(&mut self, key: SessionKey, rare: Rare) {
        let Some(peer) = self.tables.sessions.get(key).map(|session| session.peer) else {
            return;
        };
        for packet in rare.onward {
            self.onward(packet);
        }
        if let Some(packet) = rare.denied {
            self.answer_denied(&packet);
        }
        for seq in rare.echoes {
            self.out.report_session(peer, SessionReport::EchoReply { seq });
        }
    }

    /// Sends the peer that a denied packet came from an ICMP error about it.
    fn answer_denied(&mut self, packet: &[u8]) {
        let mut error = vec![0; MAX_ERROR_PACKET];
        let me = self.tables.config.me.to_ipv6();
        if let Some(len) = IcmpError::AdminProhibited.build(me, packet, &mut error) {
            self.out.counters.icmp_denied += 1;
            let bytes = error.get(..len).unwrap_or_default();
            let hdr = VirtioNetHdr::default();
            self.send(TunPacket { hdr, bytes });
        }
    }
}
