//! Receives and sends behind a firewall with many rules and many known flows, and the same receives
//! without one.

use std::sync::Arc;

use weft_contract::rules::{NetworkRules, PeerRules, Policy, Protocol, Rule, RuleSet, Scope};
use weft_contract::{Command, FirstFlows, TableCommand};
use weft_packet::{HEADROOM, Lane, Train};
use weft_wire::NodeAddr;

use super::{
    A, B, End, NOW, PAYLOAD, SEGMENTS, Sent, address, fast_pair, ip_packet, measured, receive, segments, send,
};

const RULES: u16 = 1_000;
/// Flows that have passed before, by source port.
const FLOWS: u16 = 10_000;
/// The first source port of those that have not.
const NEW: u16 = 20_000;

/// A super-packet of one flow, of which a packet has passed.
pub(super) fn one(count: usize) {
    receive(guarded_pair(), count);
}

/// Runs of 48 packets, each of another flow.
pub(super) fn runs(count: usize) {
    frames(guarded_pair(), count, |receive, _| receive as u16 % FLOWS);
}

/// Packets of all flows in turn.
pub(super) fn turns(count: usize) {
    frames(guarded_pair(), count, in_turn);
}

/// The same without rules.
pub(super) fn turns_without_rules(count: usize) {
    frames(fast_pair(), count, in_turn);
}

/// First packets of flows, which the last rule allows.
pub(super) fn first(count: usize) {
    frames(guarded_pair(), count, |receive, n| {
        NEW + (receive * SEGMENTS + n) as u16
    });
}

/// Packets of one flow to the peer.
pub(super) fn small(count: usize) {
    let [(mut lane, mut train), _] = fast_pair();
    guard(&mut lane, &mut train, A, B);
    let packet = ip_packet(40, 1);
    send(&mut lane, &mut train, &packet, 1);
    measured(|| send(&mut lane, &mut train, &packet, count));
}

fn in_turn(receive: usize, n: usize) -> u16 {
    ((receive * SEGMENTS + n) % usize::from(FLOWS)) as u16
}

/// Receives of 48 segments; `port` returns the source port of each.
fn frames([(mut sender, mut sent), (mut lane, mut train)]: [End; 2], count: usize, port: impl Fn(usize, usize) -> u16) {
    let mut segment = segments().remove(0);
    let mut receives: Vec<Vec<u8>> = Vec::new();
    for receive in 0..count {
        for n in 0..SEGMENTS {
            segment[40..42].copy_from_slice(&port(receive, n).to_be_bytes());
            send(&mut sender, &mut sent, &segment, 1);
        }
        receives.push([&[0; HEADROOM], &sent.out_mut().0.concat()[..]].concat());
        sent.out_mut().0.clear();
    }
    let step = usize::from(PAYLOAD) + 62;
    measured(|| {
        for room in &mut receives {
            let mut packets = 0;
            lane.inbound_train(NOW, address(1), room, step, &mut train, |_, _, _| packets += 1);
            assert_eq!(packets, SEGMENTS);
        }
    });
}

/// Makes a pair whose receiver has rules and knows the flows.
fn guarded_pair() -> [End; 2] {
    let [(mut sender, mut sent), (mut lane, mut train)] = fast_pair();
    guard(&mut lane, &mut train, B, A);
    let mut packet = ip_packet(0, 1);
    for port in 0..FLOWS {
        packet[40..42].copy_from_slice(&port.to_be_bytes());
        send(&mut sender, &mut sent, &packet, 1);
        for frame in sent.out_mut().0.drain(..) {
            let mut room = [&[0; HEADROOM], &frame[..]].concat();
            lane.inbound(NOW, address(1), &mut room, &mut train);
        }
    }
    assert_eq!(lane.known_flows(), usize::from(FLOWS));
    [(sender, sent), (lane, train)]
}

/// Sets a policy whose last rule alone allows the flows of these cases.
fn guard(lane: &mut Lane, train: &mut Train<Sent>, me: NodeAddr, peer: NodeAddr) {
    let list = (1..=RULES).map(|n| Rule {
        origin: 0,
        allow: true,
        to: Scope::Node,
        protocol: Protocol::Number(6),
        // The flows go to port 80.
        ports: Box::new(if n == RULES {
            [(80, 90)]
        } else {
            [(1_000 + n, 1_000 + n)]
        }),
    });
    let network = NetworkRules {
        origin: 0,
        ipv4: None,
        ours: Arc::default(),
        theirs: Arc::default(),
        rules: RuleSet {
            list: list.collect(),
            chosen: (0..RULES).collect(),
        },
        inside: false,
        exit: false,
    };
    let rules = PeerRules {
        networks: vec![network],
        ..PeerRules::default()
    };
    let policy = Arc::new(Policy::new(me, 1, [(peer, rules)].into()));
    let set = TableCommand::SetPolicy {
        policy: Some(policy),
        first: Some(Arc::new(FirstFlows {
            hash_key: 37,
            ..FirstFlows::default()
        })),
    };
    lane.apply(NOW, Command::Table(set), train);
}
