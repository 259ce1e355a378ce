//! Packets that only software sends which breaks the protocol: from addresses of others, to
//! addresses of groups, and from a node that is no member any longer.

use std::net::IpAddr;

use weft_contract::{Command, TableCommand};
use weft_packet::DropReason;
use weft_wire::{NodeAddr, Subnet};

use crate::line::{A, B};
use crate::packets::{Content, Probe, Shape, UDP};
use crate::policy::Rules;
use crate::{Ends, Way};

/// A third member, of which B knows an address and a subnet.
const C: NodeAddr = NodeAddr::new([0xfd; 16]);
const OF_C: [&str; 3] = ["10.7.0.3/32", "10.5.0.0/16", "fdab:3::/64"];

const WITH_HEADER: [Way; 4] = [Way::Fast, Way::Pieces, Way::Relayed, Way::RelayedPieces];

fn subnets(texts: &[&str]) -> Vec<Subnet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Both ends, where A sends whatever its host gives it, from and to any address.
pub(crate) fn ends(way: Way) -> Ends {
    let mut ends = Ends::new(way, Some(Rules::Open));
    let [a, _, b] = &mut ends.line.0;
    let all = subnets(&["0.0.0.0/0", "::/0"]);
    let theirs = all.into_iter().map(|subnet| (subnet, B)).collect();
    // As an exit it would have only what no peer has.
    let ours = subnets(&["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"]);
    a.apply(Command::Table(TableCommand::SetSubnets { ours, theirs }));
    a.apply(Command::Table(TableCommand::SetPolicy {
        policy: None,
        first: None,
    }));
    let of_a = subnets(&["10.6.0.0/16", "fdab:1::/64", "10.7.0.1/32"]);
    let of_a = of_a.into_iter().map(|subnet| (subnet, A));
    let of_c = subnets(&OF_C).into_iter().map(|subnet| (subnet, C));
    b.apply(Command::Table(TableCommand::AllowPeer { peer: C }));
    b.apply(Command::Table(TableCommand::SetSubnets {
        ours: subnets(&["10.8.0.0/16", "fdab:2::/64", "10.7.0.2/32"]),
        theirs: of_a.chain(of_c).collect(),
    }));
    ends
}

fn probe(from: &str, to: &str) -> Probe {
    Probe {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        content: Content::Ports(UDP, (1, 2)),
        shape: Shape::Plain,
    }
}

/// Asserts that B drops what A sends, for this reason and without an answer.
fn assert_dropped(way: Way, probe: &Probe, reason: DropReason) {
    let mut ends = ends(way);
    let arrived = ends.exchange(0, probe);
    let what = format!("{way:?} {probe:?}");
    assert_eq!((arrived.at_a.len(), arrived.at_b.len()), (0, 0), "{what}");
    assert_eq!(ends.line.0[2].lane.counters().drops[reason], 1, "{what}");
}

#[test]
fn allowed_packets_pass() {
    for way in WITH_HEADER {
        for (from, to) in [("10.7.0.1", "10.7.0.2"), ("fdab:1::1", "fdab:2::1")] {
            assert_eq!(ends(way).exchange(0, &probe(from, to)).at_b.len(), 1, "{way:?} {from}");
        }
    }
}

#[test]
fn a_member_sends_to_no_group() {
    let me: IpAddr = A.to_ipv6().into();
    for way in WITH_HEADER {
        for (from, to) in [
            ("10.7.0.1", "255.255.255.255"),
            ("10.7.0.1", "10.7.255.255"),
            ("10.7.0.1", "10.44.255.255"),
            ("10.7.0.1", "224.0.0.251"),
            ("10.7.0.1", "0.0.0.0"),
            ("10.7.0.1", "127.0.0.1"),
            (&me.to_string(), "ff02::1"),
            (&me.to_string(), "ff05::2"),
            ("fdab:1::1", "ff0e::1"),
            ("fdab:1::1", "::1"),
        ] {
            assert_dropped(way, &probe(from, to), DropReason::ForeignDestination);
        }
    }
}

#[test]
fn a_member_sends_from_no_address_of_another() {
    let (of_b, of_c): (IpAddr, IpAddr) = (B.to_ipv6().into(), C.to_ipv6().into());
    for way in WITH_HEADER {
        for (from, to) in [
            // Of a third member, of B itself, and of no node.
            ("10.7.0.3", "10.7.0.2"),
            ("10.5.0.9", "10.8.0.1"),
            ("10.7.0.2", "10.7.0.2"),
            ("10.8.0.7", "10.7.0.2"),
            ("10.44.9.9", "10.7.0.2"),
            ("0.0.0.0", "10.7.0.2"),
            ("255.255.255.255", "10.7.0.2"),
            ("224.0.0.1", "10.7.0.2"),
            ("127.0.0.1", "10.7.0.2"),
            ("fdab:3::1", "fdab:2::1"),
            ("::1", "fdab:2::1"),
            ("ff02::1", "fdab:2::1"),
            (&of_b.to_string(), "fdab:2::1"),
            (&of_c.to_string(), "fdab:2::1"),
            (&of_c.to_string(), &of_b.to_string()),
        ] {
            assert_dropped(way, &probe(from, to), DropReason::ForeignSource);
        }
    }
}

#[test]
fn a_removed_member_that_keeps_sending_reaches_nothing() {
    let nodes = [A, B].map(|node| IpAddr::from(node.to_ipv6()).to_string());
    let between_nodes = probe(&nodes[0], &nodes[1]);
    let with_header = probe("10.7.0.1", "10.7.0.2");
    let every_way = [Way::Fast, Way::Pieces, Way::Relayed, Way::RelayedPieces, Way::Fips];
    let doors = every_way.map(|way| (way, &between_nodes));
    for (way, probe) in doors.into_iter().chain(WITH_HEADER.map(|way| (way, &with_header))) {
        let mut ends = ends(way);
        assert_eq!(ends.exchange(0, probe).at_b.len(), 1, "{way:?}");
        ends.line.0[2].apply(Command::Table(TableCommand::DenyPeer { peer: A }));
        let mut dropped = ends.line.0[2].lane.counters().drops;
        for _ in 1..=3 {
            let arrived = ends.exchange(0, probe);
            assert_eq!((arrived.at_a.len(), arrived.at_b.len()), (0, 0), "{way:?}");
            let now = ends.line.0[2].lane.counters().drops;
            assert_ne!(now, dropped, "{way:?}");
            dropped = now;
        }
    }
}
