//! Flows that the kernel knew before the table.

use std::net::SocketAddr;

use super::*;

/// A policy in which nothing is allowed, with flows that were known before it.
fn node(flows: Vec<KnownFlow>) -> Node {
    let subnet = |text: &str| text.parse().unwrap();
    let known = KnownFlows {
        flows,
        ours: vec![subnet("10.44.0.1/32"), subnet("192.168.7.0/24")],
        theirs: vec![
            (subnet("10.44.0.2/32"), PEER),
            (subnet("10.9.0.0/16"), PEER),
            (subnet("0.0.0.0/0"), PEER),
        ],
    };
    Node::of(rules(&[]), Some(known))
}

fn at(node: NodeAddr, port: u16) -> SocketAddr {
    SocketAddr::new(node.to_ipv6().into(), port)
}

fn flow(protocol: u8, local: SocketAddr, remote: SocketAddr, by_peer: bool) -> KnownFlow {
    KnownFlow {
        protocol,
        local,
        remote,
        by_peer,
    }
}

#[test]
fn earlier_flows_of_this_host_continue() {
    for protocol in [TCP, UDP] {
        let mut node = node(vec![flow(protocol, at(ME, 4000), at(PEER, 80), false)]);
        assert_eq!(node.receive(1, &to_me(protocol, (80, 4000), ACK)), Ok(()));
        assert_eq!(
            node.receive(1, &to_me(protocol, (80, 4001), ACK)),
            Err(DropReason::Denied)
        );
    }
}

#[test]
fn earlier_flows_of_a_peer_are_decided_about_again() {
    let mut node = node(vec![flow(TCP, at(ME, 22), at(PEER, 5000), true)]);
    let (ssh, answer) = (to_me(TCP, (5000, 22), ACK), from_me(TCP, (22, 5000), ACK));
    // The host retransmits first, which makes the flow none of its own.
    for now in (0..200).map(|n| 1 + n * 60_000) {
        node.send(now, &answer);
        assert_eq!(node.receive(now, &ssh), Err(DropReason::Denied), "{now}");
    }
    node.change(&[22]);
    assert_eq!(node.receive(200 * 60_000, &ssh), Ok(()));
}

#[test]
fn only_flows_between_here_and_a_peer_are_remembered() {
    let v4 = |text: &str| text.parse::<SocketAddr>().unwrap();
    let stranger = NodeAddr::new([9; 16]);
    for (local, remote, remembered) in [
        (v4("10.44.0.1:4000"), v4("10.44.0.2:80"), true),
        (v4("192.168.7.5:4000"), v4("10.9.0.1:80"), true),
        (v4("10.44.0.1:4000"), v4("198.51.100.7:443"), true),
        (at(ME, 4000), at(PEER, 80), true),
        (at(ME, 4000), at(stranger, 80), false),
        (at(OTHER, 4000), at(PEER, 80), false),
        (v4("192.168.1.5:4000"), v4("198.51.100.7:443"), false),
        (v4("127.0.0.1:4000"), v4("127.0.0.1:80"), false),
        // Both ends are on this side.
        (v4("10.44.0.1:4000"), v4("192.168.7.5:80"), false),
        (at(ME, 4000), at(ME, 80), false),
    ] {
        let node = node(vec![flow(TCP, local, remote, false)]);
        assert_eq!(node.flows().len(), usize::from(remembered), "{local} {remote}");
    }
}

#[test]
fn the_first_word_about_a_flow_counts_and_the_table_is_bounded() {
    let of = |by_peer| flow(TCP, at(ME, 22), at(PEER, 5000), by_peer);
    let mut node_of_host = node(vec![of(false), of(true)]);
    assert_eq!(node_of_host.receive(1, &to_me(TCP, (5000, 22), ACK)), Ok(()));
    let many = (0..200_000_u32).map(|n| {
        let remote = SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], (n >> 16) as u16));
        flow(TCP, "10.44.0.1:22".parse().unwrap(), remote, n & 1 == 0)
    });
    let node = node(many.collect());
    let len = node.flows().len();
    assert!((MAX_FLOWS / 2..=MAX_FLOWS).contains(&len), "{len}");
}
