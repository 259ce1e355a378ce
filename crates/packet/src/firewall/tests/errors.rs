//! ICMP errors: the flows that they may be about, and the peers that they may come from.

use super::*;

#[test]
fn errors_about_known_flows_arrive_and_no_others() {
    let mut node = Node::new(&[]);
    let known = from_me(UDP, (4000, 53), 0);
    node.send(0, &known);
    let about = |packet: &[u8]| icmp(PEER, ME, 1, &[&[0; 4], packet].concat());
    assert_eq!(node.receive(0, &about(&known)), Ok(()));
    assert_eq!(node.receive(0, &about(&known[..48])), Ok(()), "the ports suffice");
    assert_eq!(node.receive(0, &about(&known[..43])), Err(DropReason::Denied));
    assert_eq!(
        node.receive(0, &about(&from_me(UDP, (4001, 53), 0))),
        Err(DropReason::Denied)
    );
    // A packet that the peer sent, as if this host had.
    assert_eq!(
        node.receive(0, &about(&to_me(UDP, (53, 4000), 0))),
        Err(DropReason::Denied)
    );
}

/// A message of ICMPv6 with the error that there is no route to the destination of a packet.
fn about(from: NodeAddr, packet: &[u8]) -> Vec<u8> {
    icmp(from, ME, 1, &[&[0; 4], packet].concat())
}

/// The same for IPv4, from a host on the way.
fn about4(from: [u8; 4], packet: &[u8]) -> Vec<u8> {
    let mut error = packet4(from, OF_ME, (0, 0))[..20].to_vec();
    error.extend([11, 0, 0, 0, 0, 0, 0, 0]);
    error.extend(packet);
    (error[3], error[9]) = (error.len() as u8, 1);
    error
}

const OF_ME: [u8; 4] = [10, 44, 0, 1];

#[test]
fn an_error_counts_only_from_where_its_flow_leads() {
    let mut node = Node::new(&[]);
    let known = from_me(UDP, (4000, 53), 0);
    node.send(0, &known);
    for (peer, source, outcome) in [
        (PEER, PEER, Ok(())),
        (OTHER, OTHER, Err(DropReason::Denied)),
        // The session decides, not the address in the packet.
        (OTHER, PEER, Err(DropReason::Denied)),
        (PEER, OTHER, Ok(())),
    ] {
        assert_eq!(node.receive_from(peer, 0, &about(source, &known)), outcome, "{peer:?}");
    }
}

/// Also where the rules allow everything.
#[test]
fn no_rule_lets_a_peer_speak_of_the_flows_of_others() {
    let mut open = rules(&[]);
    open.values_mut().for_each(|peer| peer.networks[0].inside = true);
    let mut node = Node::with(open);
    let sent = from_me(UDP, (4000, 53), 0);
    assert_eq!(node.receive_from(PEER, 0, &about(PEER, &sent)), Ok(()));
    let cut = [&sent[..], &about(PEER, &sent)[..]];
    for quoted in [cut[0], cut[1], &sent[..40]] {
        let (own, other) = (about(PEER, quoted), about(OTHER, quoted));
        let is_of_peer = quoted[24..40] == PEER.to_ipv6().octets();
        assert_eq!(node.receive_from(PEER, 0, &own).is_ok(), is_of_peer);
        assert_eq!(node.receive_from(OTHER, 0, &other), Err(DropReason::Denied));
    }
    assert_eq!(
        node.receive_from(OTHER, 0, &about(OTHER, &sent[..39])),
        Ok(()),
        "it quotes no destination"
    );
}

#[test]
fn an_error_from_behind_a_peer_is_about_what_is_behind_it() {
    let mut node = Node::new(&[]);
    let subnets = [("10.0.0.0/8", PEER), ("10.9.0.0/16", OTHER)];
    node.routes = Routes::new(ME);
    node.routes
        .set_subnets(&[], &subnets.map(|(subnet, peer)| (subnet.parse().unwrap(), peer)));
    for (dest, of, other) in [([10, 8, 0, 1], PEER, OTHER), ([10, 9, 0, 1], OTHER, PEER)] {
        let known = packet4(OF_ME, dest, (4000, 53));
        node.send(0, &known);
        let error = about4([10, 8, 0, 2], &known);
        assert_eq!(node.receive_from(of, 0, &error), Ok(()), "{dest:?}");
        assert_eq!(node.receive_from(other, 0, &error), Err(DropReason::Denied), "{dest:?}");
    }
}

#[test]
fn errors_of_hosts_behind_an_exit_pass() {
    let mut node = Node::new(&[]);
    let subnets = [("0.0.0.0/0", PEER), ("10.9.0.0/16", OTHER)];
    node.routes
        .set_subnets(&[], &subnets.map(|(subnet, peer)| (subnet.parse().unwrap(), peer)));
    let known = packet4(OF_ME, [198, 51, 100, 7], (4000, 443));
    node.send(0, &known);
    let error = about4([203, 0, 113, 1], &known);
    assert_eq!(node.receive(0, &error), Ok(()), "a router on the way");
    assert_eq!(node.receive_from(OTHER, 0, &error), Err(DropReason::Denied));
    let of_other = packet4(OF_ME, [10, 9, 0, 1], (4000, 443));
    node.send(0, &of_other);
    let error = about4([203, 0, 113, 1], &of_other);
    assert_eq!(
        node.receive(0, &error),
        Err(DropReason::Denied),
        "no packet for it goes by the exit"
    );
}
