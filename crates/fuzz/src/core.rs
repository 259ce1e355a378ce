//! Whole nodes on a network that the bytes control.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use weft_contract::{
    Command, CountedEpoch, EpochId, Layer, LinkActivity, LinkId, LinkReport, Measured, ProbeKind, Received,
    ReceiverIndex, Report, SendCommand, SessionActivity, SessionReport, Totals,
};
use weft_core::{Config, PeerConfig};
use weft_wire::NodeAddr;
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::mmp::ReceiverReport;

use super::hostile::Hostile;
use super::input::Input;
use weft_sim::Host;
use weft_sim::probe;

/// Number of honest nodes. Node 2 is the hostile one.
const HONEST: usize = 2;
const MAX_EVENTS: usize = 300;
/// Maximum number of datagrams in flight; above it the oldest is lost.
const MAX_FLIGHT: usize = 256;
/// Maximum number of datagrams kept for replay.
const MAX_HISTORY: usize = 512;
/// Delay of a datagram on the undisturbed network, ms.
const DELAY: u64 = 5;
/// Interval at which lanes report their activity, as in the daemon, ms.
const SAMPLE: u64 = 250;
/// After the last event the honest nodes must reach each other within this time, ms.
const RECOVERY: u64 = 60_000;

/// Runs two honest nodes, and a hostile one that both have configured. After every event: no
/// invariant is broken, node and lane hold the same keys, and each packet that a host received was
/// sent by one of its peers and received once. At the end the network is undisturbed, and packets
/// pass between the honest nodes.
pub fn core(data: &[u8]) {
    let mut input = Input::new(data);
    let mut net = Net::new(input.u8());
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            break;
        }
        net.event(&mut input);
        net.collect();
        net.check();
    }
    net.recover();
}

#[derive(Clone)]
struct Flying {
    due: u64,
    src: SocketAddr,
    dst: SocketAddr,
    bytes: Vec<u8>,
}

/// A packet by its number: from, to, bytes.
type Sent = (NodeAddr, NodeAddr, usize);

struct Net {
    now: u64,
    hosts: Vec<Host>,
    hostile: [Hostile; HONEST],
    flight: VecDeque<Flying>,
    history: VecDeque<Flying>,
    next_sample: u64,
    sent: Vec<Sent>,
    delivered: BTreeSet<u32>,
    knows: [Knows; HONEST],
}

/// The state of a core's knowledge about its lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Knows {
    /// It received all reports.
    All,
    /// Some reports were lost.
    TooLittle,
    /// Some reports were forged.
    Wrong,
}

impl Net {
    fn new(choice: u8) -> Self {
        let config = Config {
            rekey: [120_000, 31_000, 5_000][usize::from(choice) % 3],
            ..Config::default()
        };
        let mut hosts: Vec<Host> = (0..HONEST)
            .map(|id| Host::new(id as u64 + 1, home(id), config))
            .collect();
        let keys: Vec<_> = hosts.iter().map(|host| host.key).collect();
        let hostile = Hostile::identity().public();
        for (id, host) in hosts.iter_mut().enumerate() {
            let other = 1 - id;
            // One of them, or both, can dial.
            let dials = choice & 0x10 == 0 || id == 0;
            let addresses = if dials { vec![home(other).into()] } else { Vec::new() };
            let key = keys[other];
            host.add_peer(1_000, PeerConfig { key, addresses });
            let addresses = if choice & 0x20 == 0 {
                vec![home(2).into()]
            } else {
                Vec::new()
            };
            let key = hostile;
            host.add_peer(1_000, PeerConfig { key, addresses });
        }
        let mut net = Self {
            now: 1_000,
            hostile: [0, 1].map(|id: usize| Hostile::new(home(2 + id), keys[id], home(id))),
            hosts,
            flight: VecDeque::new(),
            history: VecDeque::new(),
            next_sample: 0,
            sent: Vec::new(),
            delivered: BTreeSet::new(),
            knows: [Knows::All; HONEST],
        };
        net.collect();
        net
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let id = input.below(HONEST);
        match input.below(19) {
            0 | 1 => {
                let ms = [10, 50, 300, 1_000, 5_000, 40_000][input.below(6)];
                self.run(ms);
            }
            2 => {
                let ms = [1, 30, 500, 3_000, 12_000, 60_000][input.below(6)];
                self.advance(ms);
            }
            3 | 4 => {
                let at = input.within(0..self.flight.len());
                if let Some(flying) = self.flight.remove(at) {
                    self.arrive(flying);
                }
            }
            5 => {
                let at = input.within(0..self.flight.len());
                self.flight.remove(at);
            }
            6 => {
                let at = input.within(0..self.flight.len());
                if let Some(again) = self.flight.get(at).cloned() {
                    self.flight.push_back(again);
                }
            }
            7 => {
                let at = input.within(0..self.flight.len());
                if let Some(flying) = self.flight.get_mut(at) {
                    spoil(input, &mut flying.bytes);
                }
            }
            8 => self.replay(input),
            9 => {
                self.hosts[id].restart(self.now);
                self.knows[id] = Knows::All;
            }
            10 => {
                self.hosts[id].addr = [home(id), away(id, 1), away(id, 2)][input.below(3)];
                if input.flag() {
                    let now = self.now;
                    self.hosts[id].node.handle_network_change(now);
                    self.hosts[id].settle(now);
                }
            }
            11 | 12 => {
                for _ in 0..=input.below(4) {
                    self.send(id, 1 - id, input.below(14) * 100);
                }
            }
            13 => {
                let (src, bytes) = (self.any_address(input), input.bytes().to_vec());
                self.launch(src, self.hosts[id].addr, bytes);
            }
            14 => self.mislead(id, input),
            15 => self.odd_message(id, input),
            16 => {
                let honest = self.hosts[1 - id].node_addr();
                if input.below(8) == 7 {
                    self.send_hostile(id);
                } else {
                    self.hostile[id].act(self.now, input, honest);
                }
            }
            17 => self.hosts[id].core_delay = [0, 0, 5, 60][input.below(4)],
            _ if self.hosts[id].next_report().is_some() => {
                self.hosts[id].lose_reports();
                self.knows[id] = self.knows[id].max(Knows::TooLittle);
            }
            _ => {}
        }
    }

    /// Sends the output of all hosts.
    fn collect(&mut self) {
        for id in 0..HONEST {
            let src = self.hosts[id].addr;
            for sent in self.hosts[id].take_sent() {
                self.launch(src, sent.to.remote(), sent.bytes);
            }
            let src = self.hostile[id].addr;
            for (dst, bytes) in self.hostile[id].take_sent() {
                self.launch(src, dst, bytes);
            }
        }
    }

    fn launch(&mut self, src: SocketAddr, dst: SocketAddr, bytes: Vec<u8>) {
        let due = self.now + DELAY;
        let flying = Flying { due, src, dst, bytes };
        for (list, max) in [(&mut self.history, MAX_HISTORY), (&mut self.flight, MAX_FLIGHT)] {
            if list.len() == max {
                list.pop_front();
            }
            list.push_back(flying.clone());
        }
    }

    fn arrive(&mut self, mut flying: Flying) {
        let now = self.now;
        if let Some(host) = self.hosts.iter_mut().find(|host| host.addr == flying.dst) {
            host.receive(now, flying.src, &flying.bytes);
        }
        // One hostile node, with a separate state towards each honest node.
        if flying.dst == home(2) || flying.dst == home(3) {
            let from_second = self.hosts[1].addr == flying.src;
            self.hostile[usize::from(from_second)].receive(now, flying.src, &mut flying.bytes);
        }
        self.collect();
    }

    /// Advances time and delivers the datagrams that are due.
    fn run(&mut self, ms: u64) {
        self.pass(ms, true);
    }

    /// Advances time without deliveries.
    fn advance(&mut self, ms: u64) {
        self.pass(ms, false);
    }

    fn pass(&mut self, ms: u64, deliver: bool) {
        let end = self.now + ms;
        while let Some(at) = self.next_event(deliver).filter(|at| *at <= end) {
            self.now = at.max(self.now);
            while deliver && self.flight.front().is_some_and(|flying| flying.due <= self.now) {
                if let Some(flying) = self.flight.pop_front() {
                    self.arrive(flying);
                }
            }
            self.timers();
        }
        self.now = end;
    }

    fn next_event(&mut self, deliver: bool) -> Option<u64> {
        let arrival = self.flight.front().map(|flying| flying.due).filter(|_| deliver);
        let timers = self.hosts.iter_mut().filter_map(|h| Some(h.node.poll_timeout()?.0));
        let timer = timers.min();
        let reports = self.hosts.iter().filter_map(Host::next_report);
        reports.chain(timer).chain(arrival).chain([self.next_sample]).min()
    }

    fn timers(&mut self) {
        let now = self.now;
        let sample = now >= self.next_sample;
        if sample {
            self.next_sample = now + SAMPLE;
        }
        for (id, host) in self.hosts.iter_mut().enumerate() {
            if sample {
                host.timeout(now);
            }
            if host.next_report().is_some_and(|at| at <= now) {
                host.settle(now);
            }
            // Handles what is due; a timer that stays due would keep a daemon busy for ever.
            for turn in 0.. {
                let Some((_, why)) = host.node.poll_timeout().filter(|(at, _)| *at <= now) else {
                    break;
                };
                assert!(turn < 4, "host {id}: the timer \"{why}\" stays due");
                host.timeout(now);
            }
        }
        self.collect();
        self.check();
    }

    fn replay(&mut self, input: &mut Input<'_>) {
        let at = input.within(0..self.history.len());
        // The latest are the most interesting.
        let Some(mut again) = self.history.iter().rev().nth(at).cloned() else {
            return;
        };
        match input.below(4) {
            0 => {}
            1 => again.src = self.any_address(input),
            2 => again.dst = self.hosts[input.below(HONEST)].addr,
            _ => spoil(input, &mut again.bytes),
        }
        self.arrive(again);
    }

    fn send(&mut self, from: usize, to: usize, len: usize) {
        let (from_addr, to_addr) = (self.hosts[from].node_addr(), self.hosts[to].node_addr());
        let packet = probe(from_addr, to_addr, self.sent.len() as u32, len);
        self.sent.push((from_addr, to_addr, packet.len()));
        self.hosts[from].send_ip(self.now, &packet);
        self.collect();
    }

    fn send_hostile(&mut self, to: usize) {
        let (from, to_addr) = (self.hostile[to].node_addr(), self.hosts[to].node_addr());
        let packet = probe(from, to_addr, self.sent.len() as u32, 100);
        self.sent.push((from, to_addr, packet.len()));
        self.hostile[to].send_ip(self.now, &packet);
    }

    /// A link message that no honest node sends, under the keys of an honest node.
    fn odd_message(&mut self, id: usize, input: &mut Input<'_>) {
        let link = LinkId(1 + input.below(2) as u32);
        let nodes = self.nodes();
        let (msg_type, body) = if input.flag() {
            (input.u8(), input.bytes().to_vec())
        } else {
            let datagram = SessionDatagram {
                ttl: 1,
                path_mtu: 0,
                src: nodes[input.below(3)],
                dest: nodes[input.below(3)],
                payload: input.bytes(),
            };
            let mut body = vec![0; datagram.wire_len()];
            datagram.emit(&mut body).unwrap();
            (LinkMessageType::SessionDatagram.to_byte(), body)
        };
        let (host, epoch) = (&mut self.hosts[id], None);
        let command = Command::Send(SendCommand::OnLink {
            link,
            epoch,
            msg_type,
            body,
        });
        host.apply(self.now, command);
    }

    /// Passes a core a report that its lane never sent.
    fn mislead(&mut self, id: usize, input: &mut Input<'_>) {
        let (nodes, from) = (self.nodes(), self.any_address(input));
        let (peer, link) = (nodes[input.below(3)], LinkId(1 + input.below(3) as u32));
        let held = self.hosts[id].node.held_links();
        let indices: Vec<u32> = held.values().flat_map(|(ids, _)| ids.iter().copied()).collect();
        let index = input.latest(&indices).copied().unwrap_or(7);
        let epoch = EpochId(u32::from(input.u8()) & 15);
        let totals = Totals {
            tx_frames: u64::from(input.u8()),
            rx_frames: u64::from(input.u8()),
            rx_payload: u64::from(input.u8()),
            last_tx: u64::from(input.u16()),
            last_payload_tx: u64::from(input.u16()) * 64,
            last_rx: u64::from(input.u16()) * 64,
            ..Totals::default()
        };
        let received = Received {
            epoch: CountedEpoch::fips(index),
            highest: totals.rx_payload,
            frames: totals.rx_frames,
            ..Received::default()
        };
        let report = match input.below(15) {
            0 => Report::Handshake {
                from: from.into(),
                datagram: input.bytes().to_vec(),
            },
            1 => match self.history.iter().rev().nth(input.below(64)) {
                Some(old) => Report::Handshake {
                    from: from.into(),
                    datagram: old.bytes.clone(),
                },
                None => return,
            },
            2 => Report::Link(
                link,
                LinkReport::EarlyFrame {
                    index: ReceiverIndex(index),
                },
            ),
            3 => Report::Link(
                link,
                LinkReport::Proven {
                    index: ReceiverIndex(index),
                    path: from.into(),
                    proven: input.flag(),
                },
            ),
            4 => Report::Session(peer, SessionReport::Proven { id: epoch }),
            5 => Report::Session(peer, SessionReport::Confirmed { id: epoch }),
            6 => Report::Link(
                link,
                LinkReport::Message {
                    index: ReceiverIndex(index),
                    msg_type: input.u8(),
                    body: input.bytes().to_vec(),
                },
            ),
            7 => Report::Session(
                peer,
                SessionReport::Message {
                    id: epoch,
                    msg_type: input.u8(),
                    body: input.bytes().to_vec(),
                },
            ),
            8 => Report::Link(link, LinkReport::UnknownSession { src: peer }),
            9 => Report::Session(peer, SessionReport::EchoReply { seq: input.u16() }),
            10 => Report::Session(peer, SessionReport::Wanted),
            11 => Report::Link(
                link,
                LinkReport::Roamed {
                    path: from.into(),
                    room: u32::from(input.u8()),
                },
            ),
            12 => Report::Link(
                link,
                LinkReport::Probed {
                    from: from.into(),
                    number: u64::from(input.u32()),
                    kind: match input.u8() % 5 {
                        0 => ProbeKind::Plain,
                        1 => ProbeKind::Spare,
                        2 => ProbeKind::Narrow,
                        3 => ProbeKind::Full,
                        _ => ProbeKind::Bonded,
                    },
                },
            ),
            13 => Report::Measured(
                if input.flag() {
                    Layer::Link(link)
                } else {
                    Layer::Session(peer)
                },
                Measured {
                    epoch: CountedEpoch::fips(index),
                    sent: u64::from(input.u32()),
                    clock: input.u32(),
                    report: ReceiverReport {
                        highest_counter: u64::from(input.u16()),
                        cumulative_packets_recv: u64::from(input.u16()),
                        timestamp_echo: input.u32(),
                        dwell_time: input.u16(),
                        ..ReceiverReport::default()
                    },
                },
            ),
            _ => Report::Activity {
                links: vec![LinkActivity { link, totals, received }],
                sessions: vec![SessionActivity {
                    peer,
                    totals,
                    received,
                    last_data: totals.last_rx,
                    last_data_tx: totals.last_payload_tx,
                    last_large_tx: totals.last_payload_tx,
                    path_mtu: input.flag().then(|| input.u16()),
                }],
            },
        };
        let host = &mut self.hosts[id];
        host.node.handle_report(self.now, report);
        host.settle(self.now);
        self.knows[id] = Knows::Wrong;
    }

    fn nodes(&self) -> [NodeAddr; 3] {
        [
            self.hosts[0].node_addr(),
            self.hosts[1].node_addr(),
            self.hostile[0].node_addr(),
        ]
    }

    fn any_address(&self, input: &mut Input<'_>) -> SocketAddr {
        let hosts = [self.hosts[0].addr, self.hosts[1].addr];
        match input.below(6) {
            at @ 0..2 => hosts[at],
            at @ 2..4 => home(at),
            at => away(9, at),
        }
    }

    fn check(&mut self) {
        for (id, host) in self.hosts.iter_mut().enumerate() {
            let (node, lane) = (&host.node, &host.lane);
            if let Err(broken) = node.check_invariants().and_then(|()| lane.check_invariants()) {
                panic!("host {id} at {} ms: {broken}", self.now);
            }
            if self.knows[id] == Knows::All && host.next_report().is_none() {
                assert_eq!(node.held_links(), lane.inspect().links(), "host {id}: core and lane");
                assert_eq!(
                    node.held_sessions(),
                    lane.inspect().sessions(),
                    "host {id}: core and lane"
                );
            }
            let me = host.node_addr();
            for (_, got) in host.received.drain(..) {
                let sent = self.sent.get(got.seq as usize);
                assert_eq!(sent, Some(&(got.from, me, got.len)), "{got:?} was not sent like this");
                assert!(self.delivered.insert(got.seq), "{got:?} is delivered twice");
            }
            assert_eq!(host.garbled, 0, "host {id} received a packet that no host sent");
            host.events.clear();
        }
    }

    /// Restores the network, every host's first address and honest behaviour, and checks that
    /// packets pass.
    fn recover(&mut self) {
        for id in 0..HONEST {
            self.hosts[id].addr = home(id);
            self.hosts[id].core_delay = 0;
            if self.knows[id] == Knows::Wrong {
                self.hosts[id].restart(self.now);
                self.knows[id] = Knows::All;
            }
        }
        self.collect();
        let (end, first) = (self.now + RECOVERY, self.sent.len() as u32);
        let mut reached = [false; HONEST];
        while reached != [true; HONEST] {
            assert!(self.now < end, "after {RECOVERY} ms packets passed: {reached:?}");
            for id in 0..HONEST {
                self.send(id, 1 - id, 100);
            }
            self.run(1_000);
            for seq in self.delivered.range(first..) {
                let to = usize::from(self.sent[*seq as usize].1 == self.hosts[1].node_addr());
                reached[1 - to] = true;
            }
        }
    }
}

fn spoil(input: &mut Input<'_>, bytes: &mut Vec<u8>) {
    match input.below(3) {
        0 => {
            let at = input.within(0..bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (input.u8() & 7);
            }
        }
        1 => bytes.truncate(input.within(0..bytes.len() + 1)),
        _ => bytes.extend(input.bytes()),
    }
}

fn home(id: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, id as u8 + 1], 2121))
}

fn away(id: usize, place: usize) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, (id * 10 + place) as u8], 2121))
}
