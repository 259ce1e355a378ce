//! What this node does for peers that measure: it answers their probes at once, and again after the
//! delays that they named.
//!
//! Everything goes to the host of the peer's link alone, whose address is proven, and the number of
//! datagrams is bounded by that of the probes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use weft_wire::NodeAddr;

use super::request::Request;
use super::{ASIDE, Output};
use crate::probe::{Key, Probe};
use crate::rate::Bucket;

/// Requests that are under way at most. Others are passed over, and their senders ask another peer.
const RUNNING: usize = 32;
/// Requests of a peer that are answered at once, and ms until one more is.
const REQUESTS: (u64, u64) = (3, 600_000);
/// For how long probes of a request are awaited, in ms.
const OPEN: u64 = 30_000;
/// Probes with one number that are answered.
const PROBES: u8 = 8;
/// Copies of a late answer, and ms between them: one may get lost.
const COPIES: u8 = 2;
const COPY_AFTER: u64 = 500;
/// Datagrams from a socket of their own, to each target, and ms between them.
const ASIDES: u8 = 3;
const ASIDE_AFTER: u64 = 1_000;

/// The requests of all peers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    running: BTreeMap<Key, Running>,
    rates: BTreeMap<NodeAddr, Bucket>,
}

/// A request.
#[derive(Debug)]
struct Running {
    /// The address of the peer's link.
    link: SocketAddr,
    silent: u16,
    tests: Vec<Test>,
    /// The end of the time in which probes are answered.
    closes: u64,
    is_open: bool,
    /// Datagrams from a socket of their own that were sent to each target, and when the next ones are due.
    asides: (u8, u64),
}

/// What came with one number.
#[derive(Debug)]
struct Test {
    /// In ms.
    delay: u64,
    probes: u8,
    /// The last probe: from where, and its sequence.
    last: Option<(SocketAddr, u32)>,
    /// When the next copy of the late answer is due, and how many were sent.
    due: u64,
    copies: u8,
}

impl Answers {
    /// Handles a request of a peer whose link goes to `link`. One beyond the limits is passed over.
    pub(super) fn begin(
        &mut self,
        now: u64,
        peer: NodeAddr,
        link: SocketAddr,
        request: &Request,
        out: &mut VecDeque<Output>,
    ) {
        self.rates.retain(|_, rate| !rate.is_full(now));
        let rate = self.rates.entry(peer);
        let rate = rate.or_insert_with(|| Bucket::new(REQUESTS.0, REQUESTS.1));
        if self.running.len() >= RUNNING || self.running.contains_key(&request.key) || !rate.take(now) {
            return;
        }
        let test = |delay: &u16| Test {
            delay: u64::from(*delay) * 1_000,
            probes: 0,
            last: None,
            due: u64::MAX,
            copies: 0,
        };
        let running = Running {
            link,
            silent: request.silent,
            tests: request.delays.iter().map(test).collect(),
            closes: now + OPEN,
            is_open: true,
            asides: (0, u64::MAX),
        };
        self.running.insert(request.key, running);
        out.push_back(Output::Listen { token: request.key });
    }

    /// Handles a probe. Returns whether it belongs to a request.
    pub(super) fn handle(&mut self, now: u64, from: SocketAddr, probe: Probe, out: &mut VecDeque<Output>) -> bool {
        let Some(running) = self.running.get_mut(&probe.key) else {
            return false;
        };
        let number = usize::from(super::number(probe.sequence));
        let is_of_peer = !probe.ack && from.ip() == running.link.ip();
        let test = running.tests.get_mut(number);
        let Some(test) = test.filter(|test| running.is_open && is_of_peer && test.probes < PROBES) else {
            return true;
        };
        test.probes += 1;
        test.last = Some((from, probe.sequence));
        test.due = now + test.delay;
        let datagram = Probe { ack: true, ..probe }.emit();
        out.push_back(Output::Send { to: from, datagram });
        if number == 0 && running.asides == (0, u64::MAX) {
            running.asides.1 = now;
        }
        true
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.running.values().map(Running::deadline).min()
    }

    /// Sends what is due.
    pub(super) fn drive(&mut self, now: u64, out: &mut VecDeque<Output>) {
        for (key, running) in &mut self.running {
            running.drive(now, *key, out);
        }
        self.running.retain(|_, running| running.deadline() != u64::MAX);
    }
}

impl Running {
    fn deadline(&self) -> u64 {
        let closes = if self.is_open { self.closes } else { u64::MAX };
        let tests = self.tests.iter().map(|test| test.due);
        tests.chain([closes, self.asides.1]).min().unwrap_or(u64::MAX)
    }

    fn drive(&mut self, now: u64, key: Key, out: &mut VecDeque<Output>) {
        if self.is_open && self.closes <= now {
            self.is_open = false;
            out.push_back(Output::Ignore { token: key });
        }
        let whole = |sequence| {
            let ack = false;
            Probe { ack, sequence, key }.emit()
        };
        if self.asides.1 <= now {
            let tested = self.tests.first().and_then(|test| test.last).map(|(at, _)| at);
            let silent = Some(SocketAddr::new(self.link.ip(), self.silent)).filter(|_| self.silent != 0);
            for to in [Some(self.link), tested, silent].into_iter().flatten() {
                let datagram = whole(ASIDE);
                out.push_back(Output::SendAside { to, datagram });
            }
            let sent = self.asides.0 + 1;
            let next = if sent < ASIDES { now + ASIDE_AFTER } else { u64::MAX };
            self.asides = (sent, next);
        }
        for test in &mut self.tests {
            let Some((to, sequence)) = test.last.filter(|_| test.due <= now) else {
                continue;
            };
            let datagram = whole(sequence);
            out.push_back(Output::Send { to, datagram });
            test.copies += 1;
            test.due = if test.copies < COPIES {
                now + COPY_AFTER
            } else {
                u64::MAX
            };
        }
    }
}
