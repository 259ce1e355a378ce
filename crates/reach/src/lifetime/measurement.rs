//! A measurement: sockets of their own send a peer probes, and then nothing for as long as each is to
//! find out about.

use std::collections::VecDeque;
use std::net::SocketAddr;

use weft_wire::NodeAddr;

use super::request::Request;
use super::{ASIDE, DELAYS, Filtering, Lifetime, Output, Scope};
use crate::probe::{Key, Probe};

/// Milliseconds from the request to the first probes.
const SOON: u64 = 1_000;
/// Milliseconds between two probes of a socket. Linux keeps a mapping for longer once datagrams have
/// passed in both directions for 2 s, as those of a link do.
const EVERY: u64 = 3_000;
/// Probes that have to be answered before a socket falls silent.
const ANSWERED: u8 = 2;
/// Probes of a socket at most.
const PROBES: u8 = 5;
/// What an answer may be late, in ms.
const LATE: u64 = 5_000;
/// What the clocks of two hosts may differ in a delay, in ms.
const EARLY: u64 = 1_000;
/// From the first answer until it is clear which datagrams from another socket of the peer arrive, in
/// ms.
const ASIDE_WAIT: u64 = 4_000;

/// The number of the socket that sends nothing; the others have that of their delay.
pub(super) const SILENT: u16 = DELAYS.len() as u16;

/// How a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is known how long silence may last.
    Known(Lifetime),
    /// The peer answered no probe.
    NoAnswer,
}

/// A measurement that goes on.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) peer: NodeAddr,
    pub(super) scope: Scope,
    pub(super) key: Key,
    /// The address of the peer's link.
    to: SocketAddr,
    tests: [Test; DELAYS.len()],
    /// When the first answer arrived.
    answered: Option<u64>,
    aside: Aside,
    is_judged: bool,
}

/// Which sockets of this node have received something from a socket of the peer to which none has sent
/// anything.
#[derive(Clone, Copy, Debug, Default)]
struct Aside {
    ordinary: bool,
    /// One that has sent the peer something.
    probing: bool,
    /// One that has sent nothing.
    silent: bool,
}

/// What one socket finds out.
#[derive(Clone, Copy, Debug)]
struct Test {
    stage: Stage,
    /// The sequence of the last probe. The lowest byte is the number of the test.
    sequence: u32,
    /// When the last probe was sent.
    last: u64,
    sent: u8,
    answered: u8,
    due: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Probing,
    Silent,
    Passed,
    Failed,
}

impl Measurement {
    /// Begins one with a peer whose link goes to `to`. `random` is a random number.
    pub(super) fn new(now: u64, peer: NodeAddr, to: SocketAddr, key: Key, random: u32) -> Self {
        let test = |number: u32| Test {
            stage: Stage::Probing,
            sequence: random & !0xff | number,
            last: now,
            sent: 0,
            answered: 0,
            due: now + SOON,
        };
        Self {
            peer,
            scope: Scope::of(to),
            key,
            to,
            tests: [test(0), test(1), test(2), test(3)],
            answered: None,
            aside: Aside::default(),
            is_judged: false,
        }
    }

    /// The request for the peer, if the socket that sends nothing has this port.
    pub(super) fn request(&self, silent: u16) -> Vec<u8> {
        let (key, delays) = (self.key, DELAYS.to_vec());
        Request { key, silent, delays }.emit()
    }

    /// Which datagrams reach the ordinary socket, once that is known.
    pub(super) fn filtering(&self) -> Option<Filtering> {
        self.is_judged
            .then(|| match (self.aside.is_open(), self.aside.ordinary) {
                (true, _) => Filtering::None,
                (false, true) => Filtering::AddressDependent,
                (false, false) => Filtering::AddressAndPortDependent,
            })
    }

    /// What is known so far: the longest silence after which an answer has arrived.
    pub(super) fn so_far(&self) -> Option<Lifetime> {
        let passed = self.tests.iter().take_while(|test| test.stage == Stage::Passed);
        let delay = DELAYS.get(passed.count().checked_sub(1)?);
        delay.map(|delay| Lifetime::AtLeast(*delay))
    }

    /// Handles a datagram with the key that `socket` has received, the ordinary one if `None`.
    pub(super) fn handle(&mut self, now: u64, socket: Option<u16>, from: SocketAddr, probe: Probe) {
        if !probe.ack && probe.sequence == ASIDE {
            if from.ip() == self.to.ip() && from != self.to {
                self.handle_aside(socket);
            }
            return;
        }
        let number = socket.map(usize::from);
        let test = number.and_then(|number| Some((self.tests.get_mut(number)?, DELAYS.get(number)?)));
        let Some((test, delay)) = test.filter(|(test, _)| from == self.to && test.sequence == probe.sequence) else {
            return;
        };
        let silence = u64::from(*delay) * 1_000;
        match test.stage {
            Stage::Probing if probe.ack && test.sent > test.answered => {
                self.answered.get_or_insert(now);
                test.answered += 1;
                if test.answered == ANSWERED {
                    (test.stage, test.due) = (Stage::Silent, test.last + silence + LATE);
                }
            }
            Stage::Silent if !probe.ack && now + EARLY >= test.last + silence => test.stage = Stage::Passed,
            _ => {}
        }
    }

    fn handle_aside(&mut self, socket: Option<u16>) {
        match socket {
            None => self.aside.ordinary = true,
            Some(0) => self.aside.probing = true,
            Some(SILENT) => self.aside.silent = true,
            Some(_) => {}
        }
    }

    pub(super) fn deadline(&self) -> u64 {
        let judged = self.answered.filter(|_| !self.is_judged).map(|at| at + ASIDE_WAIT);
        let going = |test: &&Test| matches!(test.stage, Stage::Probing | Stage::Silent);
        let tests = self.tests.iter().filter(going).map(|test| test.due);
        tests.chain(judged).min().unwrap_or(0)
    }

    /// Sends what is due. Returns the end once it has come.
    pub(super) fn drive(&mut self, now: u64, out: &mut VecDeque<Output>) -> Option<End> {
        if self.answered.is_some_and(|at| at + ASIDE_WAIT <= now) && !self.is_judged {
            self.is_judged = true;
            if self.aside.is_open() {
                return Some(End::Known(Lifetime::Open));
            }
        }
        for (socket, test) in (0..).zip(&mut self.tests) {
            if let Some(sequence) = test.drive(now) {
                let probe = Probe {
                    ack: false,
                    sequence,
                    key: self.key,
                };
                let (to, datagram) = (self.to, probe.emit());
                out.push_back(Output::SendFrom { socket, to, datagram });
            }
        }
        // What passes after a longer silence says nothing if a shorter one was too long.
        let open = self.tests.iter().find(|test| test.stage != Stage::Passed);
        match open.map(|test| test.stage) {
            Some(Stage::Probing | Stage::Silent) => None,
            _ if self.answered.is_none() => Some(End::NoAnswer),
            _ => Some(End::Known(self.so_far().unwrap_or(Lifetime::Short))),
        }
    }
}

impl Test {
    /// Returns the sequence of a probe that is due.
    fn drive(&mut self, now: u64) -> Option<u32> {
        if self.due > now {
            return None;
        }
        match self.stage {
            Stage::Probing if self.sent < PROBES => {
                self.sequence = self.sequence.wrapping_add(0x100);
                self.sent += 1;
                (self.last, self.due) = (now, now + EVERY);
                return Some(self.sequence);
            }
            Stage::Probing | Stage::Silent => self.stage = Stage::Failed,
            Stage::Passed | Stage::Failed => {}
        }
        None
    }
}

impl Aside {
    /// Whether datagrams of strangers reach the ordinary socket. If they reach any socket that has sent
    /// something to the same host, its silence counts as well.
    const fn is_open(self) -> bool {
        self.ordinary && (!self.probing || self.silent)
    }
}
