//! The table of flows that lanes have in common, while each lane applies a policy in its own time.

use std::net::SocketAddr;

use weft_contract::{HandshakeLimits, LaneConfig};

use super::*;
use crate::lane::Lane;

/// The lanes of a node, none of which has a policy.
fn lanes() -> ([Firewall; 2], Routes) {
    let common = Arc::new(CommonFlows::default());
    ([0; 2].map(|_| Firewall::new(common.clone())), Routes::new(ME))
}

fn policy(generation: u64, ports: &[u16]) -> Option<Arc<Policy>> {
    Some(Arc::new(Policy::new(ME, generation, rules(ports))))
}

fn first(known: Vec<KnownFlow>) -> FirstFlows {
    FirstFlows {
        hash_key: 7,
        known: KnownFlows {
            flows: known,
            ..KnownFlows::default()
        },
    }
}

fn at(node: NodeAddr, port: u16) -> SocketAddr {
    SocketAddr::new(node.to_ipv6().into(), port)
}

#[test]
fn rules_that_were_lifted_begin_with_no_earlier_flow() {
    let ([mut one, mut other], routes) = lanes();
    let nothing = first(Vec::new());
    for lane in [&mut one, &mut other] {
        lane.set(0, policy(1, &[22]), Some(&nothing));
    }
    assert_eq!(
        one.inbound(0, &routes, PEER, &to_me(TCP, (5000, 22), SYN)),
        Ok(Verdict::Pass)
    );
    assert_eq!(one.outbound(0, &from_me(UDP, (4000, 53), 0)), Ok(()));
    assert_eq!(
        one.inbound(0, &routes, PEER, &fragment(9, 3, false, 0)),
        Ok(Verdict::Held)
    );
    for lane in [&mut one, &mut other] {
        lane.set(0, None, None);
        assert!(lane.flows().is_none(), "it keeps none");
    }
    let again = policy(3, &[22]);
    one.set(0, again.clone(), Some(&nothing));
    let answer = to_me(UDP, (53, 4000), 0);
    assert_eq!(one.inbound(0, &routes, PEER, &answer), Err(DropReason::Denied));
    assert_eq!(one.outbound(0, &from_me(UDP, (4001, 53), 0)), Ok(()));
    // The other lane has what the first one has learnt since.
    other.set(0, again, Some(&nothing));
    let answer = to_me(UDP, (53, 4001), 0);
    assert_eq!(other.inbound(0, &routes, PEER, &answer), Ok(Verdict::Pass));
    assert_eq!(
        one.inbound(0, &routes, PEER, &fragment(9, 0, true, 22)),
        Ok(Verdict::Pass)
    );
    assert!(!one.has_settled(), "no fragment has waited");
}

#[test]
fn a_lane_behind_the_others_adds_nothing_to_their_flows() {
    let ([mut one, mut behind], routes) = lanes();
    for lane in [&mut one, &mut behind] {
        lane.set(0, policy(1, &[22]), Some(&first(Vec::new())));
    }
    let ssh = to_me(TCP, (5000, 22), ACK);
    assert_eq!(behind.inbound(0, &routes, PEER, &ssh), Ok(Verdict::Pass));
    let known = first(vec![KnownFlow {
        protocol: TCP,
        local: at(ME, 22),
        remote: at(PEER, 5000),
        by_peer: true,
    }]);
    let new = policy(3, &[]);
    one.set(0, None, None);
    one.set(0, new.clone(), Some(&known));
    for packet in [from_me(TCP, (22, 5000), ACK), from_me(UDP, (4000, 53), 0)] {
        assert_eq!(behind.outbound(0, &packet), Ok(()));
    }
    assert_eq!(one.flows().map(FlowTable::len), Some(1));
    behind.set(0, None, None);
    behind.set(0, new, Some(&known));
    for packet in [ssh, to_me(UDP, (53, 4000), 0)] {
        assert_eq!(behind.inbound(0, &routes, PEER, &packet), Err(DropReason::Denied));
    }
}

#[test]
fn a_policy_that_comes_late_displaces_no_younger_one() {
    let ([mut one, mut behind], routes) = lanes();
    let nothing = first(Vec::new());
    let (old, new) = (policy(1, &[22]), policy(3, &[22]));
    one.set(0, new.clone(), Some(&nothing));
    behind.set(0, old, Some(&nothing));
    assert_eq!(one.outbound(0, &from_me(UDP, (4000, 53), 0)), Ok(()));
    behind.set(0, None, None);
    behind.set(0, new, Some(&nothing));
    let answer = to_me(UDP, (53, 4000), 0);
    assert_eq!(behind.inbound(0, &routes, PEER, &answer), Ok(Verdict::Pass));
}

#[test]
fn the_lanes_of_a_node_know_the_same_flows() {
    let config = LaneConfig {
        me: ME,
        mtu: 1_280,
        probe: false,
        transit: false,
        handshakes: HandshakeLimits::default(),
    };
    let mut lanes = Lane::several(config, 3);
    let (policy, first) = (policy(1, &[]), first(Vec::new()));
    for lane in &mut lanes {
        lane.tables.firewall.set(0, policy.clone(), Some(&first));
    }
    let packet = from_me(UDP, (4000, 53), 0);
    assert_eq!(lanes[0].tables.firewall.outbound(0, &packet), Ok(()));
    let known: Vec<usize> = lanes.iter().map(Lane::known_flows).collect();
    assert_eq!(known, [1, 1, 1]);
}
