//! The firewall behind every door: each flow of a table goes from A to B in frames of every kind, and
//! has the same outcome in all of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

#[path = "rules/forged.rs"]
mod forged;
#[path = "ends/line.rs"]
mod line;
#[path = "rules/order.rs"]
mod order;
#[path = "rules/packets.rs"]
mod packets;
#[path = "rules/policy.rs"]
mod policy;
#[path = "rules/table.rs"]
mod table;

use std::collections::BTreeMap;

use line::{A, B, Line};
use packets::{Content, Probe, Shape, UDP};
use policy::Rules;
use table::Case;
use weft_contract::Report;
use weft_packet::{Counters, DropReason};
use weft_wire::fast;

/// The frames that packets arrive in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Fast,
    Pieces,
    Relayed,
    RelayedPieces,
    Fips,
}

/// Frames, and whether they have the whole header.
type Door = (Way, bool);

/// Every door, and the number of flows that at least have to go through it.
const DOORS: [(Door, usize); 9] = [
    ((Way::Fast, false), 52),
    ((Way::Fast, true), 32),
    ((Way::Pieces, false), 52),
    ((Way::Pieces, true), 32),
    ((Way::Relayed, false), 52),
    ((Way::Relayed, true), 32),
    ((Way::RelayedPieces, false), 52),
    ((Way::RelayedPieces, true), 32),
    ((Way::Fips, false), 52),
];

/// Both ends, with a way between them.
struct Ends {
    way: Way,
    line: Line,
}

impl Ends {
    fn new(way: Way, rules: Option<Rules>) -> Self {
        let mut line = match way {
            Way::Fast | Way::Pieces => Line::direct(true),
            Way::Fips => Line::direct(false),
            Way::Relayed | Way::RelayedPieces => Line::new(1 << 20, line::MTU),
        };
        let [a, _, b] = &mut line.0;
        policy::set_both(a, b, rules);
        Self { way, line }
    }

    fn is_in_pieces(&self) -> bool {
        matches!(self.way, Way::Pieces | Way::RelayedPieces)
    }

    /// The datagrams of a packet, long enough for this way.
    fn datagrams(&self, probe: &Probe) -> Vec<Vec<u8>> {
        let len = match (self.is_in_pieces(), probe.from.is_ipv4()) {
            (false, _) => 0,
            (true, false) => 1_280,
            (true, true) => 4_000,
        };
        probe.datagrams(len)
    }

    /// Sends from A (0) or B (2), lets all frames arrive, and returns the packets for both TUNs.
    fn exchange(&mut self, from: usize, probe: &Probe) -> Arrived {
        let packets = self.datagrams(probe);
        let before = *self.line.0[from].lane.counters();
        for packet in &packets {
            self.line.0[from].send(packet);
        }
        self.assert_pieces(&before, from, packets.len() as u64);
        let relayed = self.line.relayed();
        let mut arrived = Arrived::default();
        loop {
            let mut quiet = true;
            for at in 0..3 {
                let from = self.line.0[at].me;
                for (to, frame) in self.line.0[at].sent() {
                    quiet = false;
                    assert_eq!(fast::is_fast(&frame), self.way != Way::Fips);
                    let host = self.line.at(to);
                    let mut packets: Vec<_> = host.receive(from, &frame).into_iter().collect();
                    packets.extend(std::iter::from_fn(|| host.lane.poll_reply()));
                    match host.me {
                        A => arrived.at_a.extend(packets),
                        B => arrived.at_b.extend(packets),
                        _ => assert!(packets.is_empty()),
                    }
                }
            }
            if quiet {
                let through_relay = matches!(self.way, Way::Relayed | Way::RelayedPieces);
                assert_eq!(self.line.relayed() > relayed, through_relay);
                return arrived;
            }
        }
    }

    /// The packets left in pieces, or none of them did.
    fn assert_pieces(&self, before: &Counters, from: usize, packets: u64) {
        let counters = self.line.0[from].lane.counters();
        let pieces = counters.fast_fragmented - before.fast_fragmented;
        assert_eq!(pieces, if self.is_in_pieces() { packets } else { 0 });
    }

    fn denied(&self) -> (u64, u64) {
        let counters = self.line.0[2].lane.counters();
        (counters.drops[DropReason::Denied], counters.icmp_denied)
    }
}

#[derive(Default)]
struct Arrived {
    at_a: Vec<Vec<u8>>,
    at_b: Vec<Vec<u8>>,
}

/// Sends what B sent before the flow. It is lost on its way.
fn before(ends: &mut Ends, case: &Case) {
    let packets = case.before.as_ref().map(|probe| ends.datagrams(probe));
    for packet in packets.unwrap_or_default() {
        ends.line.0[2].send(&packet);
    }
    assert_eq!(ends.line.0[2].sent().is_empty(), case.before.is_none());
}

/// Fragments that waited follow the first one.
fn sorted(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.sort();
    packets
}

fn runs(case: &Case, way: Way) {
    let what = format!("{} {way:?} {case:?}", case.name);
    let mut ends = Ends::new(way, Some(case.rules));
    before(&mut ends, case);
    let datagrams = ends.datagrams(&case.probe);
    let again = case.probe.reply().filter(|_| case.passes);
    for round in 1..=2 {
        let arrived = ends.exchange(0, &case.probe);
        if case.passes {
            assert_eq!(
                (sorted(arrived.at_b), arrived.at_a.len()),
                (sorted(datagrams.clone()), 0),
                "{what}"
            );
            assert_eq!(ends.denied(), (0, 0), "{what}");
        } else {
            assert_eq!((arrived.at_b.len(), arrived.at_a.len()), (0, case.errors()), "{what}");
            let is_reversed = case.probe.shape == Shape::Reversed;
            let all = round * datagrams.len() as u64;
            // The last fragment waits for a first one.
            let dropped = match case.probe.shape {
                Shape::Later => 0,
                Shape::Fragments => all - 1,
                _ => all,
            };
            assert_eq!(ends.denied(), (dropped, round * case.errors() as u64), "{what}");
            arrived
                .at_a
                .iter()
                .for_each(|error| assert_prohibited(error, &datagrams[usize::from(is_reversed)]));
        }
        if let Some(reply) = &again {
            let arrived = ends.exchange(2, reply);
            let expected = ends.datagrams(reply);
            assert_eq!(
                (sorted(arrived.at_a), arrived.at_b.len()),
                (sorted(expected), 0),
                "the reply of {what}"
            );
        }
    }
    if !case.passes {
        // Nothing but the rules keeps it out.
        let arrived = Ends::new(way, None).exchange(0, &case.probe);
        assert_eq!(arrived.at_b, datagrams, "{what}");
    }
}

/// Asserts that this is the error "administratively prohibited" about a packet.
fn assert_prohibited(error: &[u8], about: &[u8]) {
    let (kind, at) = match error[0] >> 4 {
        4 => ([3, 13], 20),
        _ => ([1, 1], 40),
    };
    assert_eq!(error[at..at + 2], kind);
    let quoted = &error[at + 8..];
    assert_eq!(quoted, &about[..quoted.len()]);
}

#[test]
fn every_door_has_the_same_outcome() {
    let cases = table::cases();
    assert!(cases.len() >= 70, "{}", cases.len());
    let mut ran: BTreeMap<Door, usize> = BTreeMap::new();
    for ((way, full), _) in DOORS {
        for case in cases.iter().filter(|case| case.is_full() == full) {
            runs(case, way);
            *ran.entry((way, full)).or_default() += 1;
        }
    }
    for (door, least) in DOORS {
        assert!(ran[&door] >= least, "{door:?}: {} of {least}", ran[&door]);
    }
}

#[test]
fn errors_about_denied_packets_have_a_rate() {
    for way in [Way::Fast, Way::Pieces, Way::Relayed, Way::Fips] {
        let mut ends = Ends::new(way, Some(Rules::Nothing));
        for expected in [10, 20] {
            let mut errors = 0;
            for port in 0..30 {
                let probe = Probe {
                    from: A.to_ipv6().into(),
                    to: B.to_ipv6().into(),
                    content: Content::Ports(UDP, (1, port)),
                    shape: Shape::Plain,
                };
                errors += ends.exchange(0, &probe).at_a.len();
            }
            assert_eq!(errors, 10, "{way:?}");
            assert_eq!(ends.denied(), (expected * 3, expected), "{way:?}");
            ends.line.0.iter_mut().for_each(|host| host.now += 1_000);
        }
    }
}

/// The peer that sends them is told that they arrive, and takes the path for a working one.
#[test]
fn denied_packets_count_as_received() {
    for way in [Way::Fast, Way::Pieces, Way::Relayed, Way::RelayedPieces, Way::Fips] {
        let mut ends = Ends::new(way, Some(Rules::Nothing));
        for port in 0..3 {
            let probe = Probe {
                from: A.to_ipv6().into(),
                to: B.to_ipv6().into(),
                content: Content::Ports(UDP, (1, port)),
                shape: Shape::Plain,
            };
            ends.exchange(0, &probe);
        }
        assert_eq!(ends.denied().0, 3, "{way:?}");
        let host = &mut ends.line.0[2];
        host.lane.sample(host.now);
        let reports = std::iter::from_fn(|| host.lane.poll_report());
        let received = reports.filter_map(|report| match report {
            Report::Activity { sessions, .. } => Some(sessions[0].totals.rx_payload),
            _ => None,
        });
        assert_eq!(received.last(), Some(3), "{way:?}");
    }
}

#[test]
fn packets_leave_only_within_a_common_network() {
    for way in [Way::Fast, Way::Pieces, Way::Relayed, Way::RelayedPieces] {
        for (rules, ends, leaves) in [
            (Rules::Some, ["10.7.0.2", "10.7.0.1"], true),
            (Rules::Some, ["10.8.0.1", "10.6.0.1"], true),
            (Rules::Some, ["10.9.0.2", "10.9.0.1"], true),
            (Rules::Some, ["10.9.0.2", "10.7.0.1"], false),
            (Rules::Some, ["10.7.0.2", "10.9.0.1"], false),
            (Rules::Some, ["10.8.0.1", "10.9.0.1"], false),
            (Rules::Some, ["10.9.0.2", "10.6.0.1"], false),
            (Rules::Open, ["10.7.0.2", "10.7.0.1"], true),
            (Rules::Open, ["10.9.0.2", "10.7.0.1"], false),
            (Rules::ByHand, ["10.8.0.1", "10.6.0.1"], true),
            (Rules::ByHand, ["10.9.0.2", "10.6.0.1"], false),
        ] {
            let mut node = Ends::new(way, Some(rules));
            let [from, to] = ends.map(|address| address.parse().unwrap());
            let (content, shape) = (Content::Ports(UDP, (1, 2)), Shape::Plain);
            let probe = Probe {
                from,
                to,
                content,
                shape,
            };
            let what = format!("{rules:?} {ends:?} {way:?}");
            for packet in node.datagrams(&probe) {
                node.line.0[2].send(&packet);
            }
            assert_eq!(node.line.0[2].sent().is_empty(), !leaves, "{what}");
            let dropped = node.line.0[2].lane.counters().drops[DropReason::WrongSource];
            assert_eq!(dropped, u64::from(!leaves), "{what}");
        }
    }
}
