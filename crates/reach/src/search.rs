//! The search for a port of a NAT whose mappings depend on the endpoint.
//!
//! The node behind such a NAT cannot say from which port it will reach its peer. It opens many
//! sockets, and sends a probe from each to the one address of the peer: as many ports are then open
//! for the peer. The peer probes random ports. Both find one after some hundred probes, as two of
//! many people share a birthday. `docs/protocol/reach.md`, "Search".

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crate::history::{Outcome, Source, Tried};

/// Milliseconds from the moment when both tokens are known until a search begins: the ordinary probes
/// of two nodes with a round trip of 300 ms were answered by then.
pub(crate) const AFTER: u64 = 600;
/// Milliseconds from the moment when both tokens are known until other nodes are asked where they
/// see the peer.
pub(crate) const ASK_AFTER: u64 = 300;
/// Addresses of a peer about which other nodes are asked, at most.
pub(crate) const ASKED: usize = 4;
/// Milliseconds that a search takes at most.
pub(crate) const LIFE: u64 = 20_000;
/// Probes and acks of a search at most.
pub(crate) const PROBES: u32 = 2_048;
/// Sockets of a search at most.
pub const SOCKETS: u16 = 256;
/// Milliseconds between two searches with a peer, and between two for one address.
pub(crate) const PAUSE: u64 = 600_000;
/// Milliseconds between two probes of a search: a target that is due in between goes first.
const PACE: u64 = 7;
/// Milliseconds between the beginnings of two rounds through all sockets.
const AGAIN: u64 = 6_000;
/// Milliseconds between two probes of a socket that has received one.
const HEARD_AGAIN: u64 = 200;
/// Sockets that have received a probe and are remembered.
const HEARD: usize = 8;
/// Probes from one socket.
const PER_SOCKET: u8 = 8;
/// NATs give the ports from here on.
const FIRST_PORT: u16 = 1_024;
const PORTS: u32 = 65_536 - FIRST_PORT as u32;

/// What is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shot {
    /// From which socket, if not from the ordinary one.
    pub(crate) socket: Option<u16>,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
}

/// A search, by what this node does in it.
#[derive(Debug)]
pub(crate) struct Search {
    started: u64,
    /// Probes and acks that may still be sent.
    left: u32,
    /// Probes that were sent.
    sent: u32,
    /// Random; the sequences of all probes follow from it.
    base: u32,
    answered: bool,
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// To probe ports of this address, in a random order: the n-th is `start + n * step`.
    Ports {
        ip: IpAddr,
        start: u32,
        step: u32,
        due: u64,
    },
    /// To probe one address from many sockets.
    Sockets(Sockets),
}

#[derive(Debug)]
struct Sockets {
    to: SocketAddr,
    /// The probes that were sent from each; empty while none is open.
    sent: Vec<u8>,
    /// The next socket of the present round, and when that is due.
    next: usize,
    due: u64,
    round: u64,
    /// Those that have received a probe, and when each sends the next one.
    heard: VecDeque<(u64, u16)>,
}

impl Search {
    /// Begins to probe random ports of an address. `random` are three random numbers.
    pub(crate) fn of_ports(now: u64, ip: IpAddr, random: [u32; 3]) -> Self {
        let [base, start, step] = random;
        // All ports come once: 64,512 is 2^10 * 3^2 * 7, and the step has no divisor of it.
        let step = (0..)
            .map(|n| step % PORTS + n)
            .find(|step| [2, 3, 7].iter().all(|prime| step % prime != 0));
        let (start, step) = (start % PORTS, step.unwrap_or(1));
        let due = now;
        Self::new(now, base, Part::Ports { ip, start, step, due })
    }

    /// Begins to probe one address from many sockets, which are not open yet.
    pub(crate) fn of_sockets(now: u64, to: SocketAddr, base: u32) -> Self {
        let sockets = Sockets {
            to,
            sent: Vec::new(),
            next: 0,
            due: now,
            round: now,
            heard: VecDeque::new(),
        };
        Self::new(now, base, Part::Sockets(sockets))
    }

    fn new(now: u64, base: u32, part: Part) -> Self {
        Self {
            started: now,
            left: PROBES,
            sent: 0,
            base,
            answered: false,
            part,
        }
    }

    /// So many sockets are open.
    pub(crate) fn open(&mut self, now: u64, count: u16) {
        if let Part::Sockets(sockets) = &mut self.part
            && sockets.sent.is_empty()
        {
            sockets.sent = vec![0; usize::from(count.min(SOCKETS))];
            (sockets.due, sockets.round) = (now, now);
        }
    }

    /// Whether this node has sockets open, or has asked for them.
    pub(crate) fn has_sockets(&self) -> bool {
        matches!(self.part, Part::Sockets(_))
    }

    /// Whether a socket has this number.
    pub(crate) fn is_open(&self, socket: u16) -> bool {
        matches!(&self.part, Part::Sockets(sockets) if usize::from(socket) < sockets.sent.len())
    }

    pub(crate) fn ends(&self) -> u64 {
        self.started + LIFE
    }

    /// Returns when the next probe is due; `u64::MAX` for never.
    pub(crate) fn due(&self) -> u64 {
        match &self.part {
            _ if self.left == 0 => u64::MAX,
            Part::Ports { due, .. } => *due,
            Part::Sockets(sockets) => sockets.due(),
        }
    }

    /// Returns the probe that is due, and counts it.
    pub(crate) fn shot(&mut self, now: u64) -> Option<Shot> {
        if self.due() > now {
            return None;
        }
        let shot = match &mut self.part {
            Part::Ports { ip, start, step, due } => {
                *due = now + PACE;
                Shot {
                    socket: None,
                    to: SocketAddr::new(*ip, port(*start, *step, self.sent)),
                    sequence: self.base.wrapping_add(self.sent),
                }
            }
            Part::Sockets(sockets) => {
                let socket = sockets.take(now)?;
                let sent = sockets.sent.get_mut(usize::from(socket))?;
                let number = u32::from(socket) * u32::from(PER_SOCKET) + u32::from(*sent);
                *sent += 1;
                Shot {
                    socket: Some(socket),
                    to: sockets.to,
                    sequence: self.base.wrapping_add(number),
                }
            }
        };
        self.left -= 1;
        self.sent += 1;
        Some(shot)
    }

    /// A probe of the peer came from this address to a socket: that socket probes at once.
    pub(crate) fn hear(&mut self, now: u64, socket: u16, from: SocketAddr) {
        if let Part::Sockets(sockets) = &mut self.part
            && sockets.to == from
            && usize::from(socket) < sockets.sent.len()
            && sockets.heard.len() < HEARD
            && sockets.heard.iter().all(|(_, heard)| *heard != socket)
        {
            sockets.heard.push_front((now, socket));
        }
    }

    /// Whether a probe with this sequence was sent.
    pub(crate) fn has_sent(&self, sequence: u32) -> bool {
        let number = sequence.wrapping_sub(self.base);
        match &self.part {
            Part::Ports { .. } => number < self.sent,
            Part::Sockets(sockets) => sockets.sender(number).is_some(),
        }
    }

    /// Handles an answer. Returns whether a probe with that sequence was sent to its source, from
    /// the socket that received it.
    pub(crate) fn handle_ack(&mut self, socket: Option<u16>, from: SocketAddr, sequence: u32) -> bool {
        let number = sequence.wrapping_sub(self.base);
        let fits = match &self.part {
            Part::Ports { ip, start, step, .. } => {
                let to = SocketAddr::new(*ip, port(*start, *step, number));
                socket.is_none() && number < self.sent && to == from
            }
            Part::Sockets(sockets) => socket.is_some() && sockets.sender(number) == socket && sockets.to == from,
        };
        self.answered |= fits;
        fits
    }

    /// Takes an ack to this address out of the budget. Returns whether there is one: the address
    /// belongs to the search, and the budget is not spent.
    pub(crate) fn spend(&mut self, to: SocketAddr) -> bool {
        let own = match &self.part {
            Part::Ports { ip, .. } => *ip == to.ip(),
            Part::Sockets(sockets) => sockets.to == to,
        };
        let spends = own && self.left > 0;
        self.left -= u32::from(spends);
        spends
    }

    /// Returns what was tried. The port is 0 if many were.
    pub(crate) fn tried(&self, over: bool) -> Tried {
        let at = match &self.part {
            Part::Ports { ip, .. } => SocketAddr::new(*ip, 0),
            Part::Sockets(sockets) => sockets.to,
        };
        let outcome = match (self.answered, over) {
            (true, _) => Outcome::Answered,
            (false, true) => Outcome::Silent,
            (false, false) => Outcome::Probing,
        };
        Tried {
            at,
            source: Source::Searched,
            last: None,
            probes: self.sent,
            outcome,
        }
    }
}

impl Sockets {
    fn due(&self) -> u64 {
        let heard = self.heard.iter().map(|(due, _)| *due);
        let round = if self.sent.is_empty() { u64::MAX } else { self.due };
        heard.chain([round]).min().unwrap_or(u64::MAX)
    }

    /// Chooses a socket: one that has received a probe, or the next one.
    fn take(&mut self, now: u64) -> Option<u16> {
        if let Some(n) = self.heard.iter().position(|(due, _)| *due <= now) {
            let (_, socket) = self.heard.remove(n)?;
            let sent = self.sent.get(usize::from(socket)).copied().unwrap_or(PER_SOCKET);
            if sent + 1 < PER_SOCKET {
                self.heard.push_back((now + HEARD_AGAIN, socket));
            }
            return (sent < PER_SOCKET).then_some(socket);
        }
        let socket = self.next;
        self.next += 1;
        self.due = now + PACE;
        if self.next >= self.sent.len() {
            self.next = 0;
            self.round = now.max(self.round + AGAIN);
            self.due = self.round;
        }
        let sent = self.sent.get(socket).copied().unwrap_or(PER_SOCKET);
        (sent < PER_SOCKET).then_some(socket as u16)
    }

    /// Which socket has sent the probe with this number.
    fn sender(&self, number: u32) -> Option<u16> {
        let socket = u16::try_from(number / u32::from(PER_SOCKET)).ok()?;
        let sent = self.sent.get(usize::from(socket))?;
        (number % u32::from(PER_SOCKET) < u32::from(*sent)).then_some(socket)
    }
}

fn port(start: u32, step: u32, n: u32) -> u16 {
    let offset = (u64::from(start) + u64::from(n) * u64::from(step)) % u64::from(PORTS);
    // Below PORTS.
    FIRST_PORT + offset as u16
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn ports_come_once_in_any_order(random: [u32; 3]) {
            let mut search = Search::of_ports(0, at("203.0.113.1:0").ip(), random);
            let mut ports = BTreeSet::new();
            let mut now = 0;
            while let Some(shot) = search.shot(now) {
                prop_assert_eq!(search.shot(now), None);
                now += PACE;
                prop_assert!(shot.to.port() >= FIRST_PORT && ports.insert(shot.to.port()));
                prop_assert!(search.has_sent(shot.sequence));
                let answered = search.handle_ack(None, shot.to, shot.sequence);
                prop_assert!(answered);
                let (other, ip) = (shot.to.port() ^ 1, shot.to.ip());
                prop_assert!(!search.handle_ack(None, SocketAddr::new(ip, other), shot.sequence));
                prop_assert!(!search.handle_ack(Some(0), shot.to, shot.sequence));
                prop_assert!(!search.handle_ack(None, shot.to, shot.sequence.wrapping_add(1)));
            }
            prop_assert_eq!(ports.len(), PROBES as usize);
        }

        /// All sockets send once in each round, and those that heard something more often.
        #[test]
        fn sockets_take_turns(count in 1u16..400, heard: u16, base: u32) {
            let to = at("203.0.113.1:2121");
            let mut search = Search::of_sockets(0, to, base);
            prop_assert_eq!(search.due(), u64::MAX);
            search.open(0, count);
            let count = count.min(SOCKETS);
            let mut sequences = BTreeSet::new();
            let first: Vec<_> = (0..count).map(|n| search.shot(u64::from(n) * PACE).unwrap()).collect();
            prop_assert_eq!(search.due(), AGAIN);
            for (n, shot) in (0..count).zip(&first) {
                prop_assert_eq!((shot.socket, shot.to), (Some(n), to));
                prop_assert!(sequences.insert(shot.sequence));
                prop_assert!(!search.handle_ack(None, to, shot.sequence));
                prop_assert!(!search.handle_ack(Some(n + 1), to, shot.sequence));
                prop_assert!(!search.handle_ack(Some(n), at("203.0.113.1:2122"), shot.sequence));
                prop_assert!(search.handle_ack(Some(n), to, shot.sequence));
            }
            let heard = heard % count;
            search.hear(2_000, heard, at("203.0.113.9:2121"));
            prop_assert_eq!(search.due(), AGAIN);
            search.hear(2_000, heard, to);
            search.hear(2_000, heard, to);
            for n in 0..7 {
                let now = 2_000 + n * HEARD_AGAIN;
                let shot = search.shot(now).unwrap();
                prop_assert_eq!((shot.socket, search.shot(now)), (Some(heard), None));
                prop_assert!(sequences.insert(shot.sequence));
            }
            prop_assert_eq!(search.due(), AGAIN);
        }
    }

    #[test]
    fn probes_and_acks_have_one_budget() {
        let (ip, to) = (at("203.0.113.1:0").ip(), at("203.0.113.1:99"));
        let mut search = Search::of_ports(0, ip, [1, 2, 3]);
        assert!(!search.spend(at("203.0.113.2:99")));
        assert!((0..1_000).all(|_| search.spend(to)));
        let probes = (0..50_000).filter(|now| search.shot(*now).is_some()).count();
        assert_eq!((probes, search.due()), (1_048, u64::MAX));
        assert!(!search.spend(to));
    }
}
