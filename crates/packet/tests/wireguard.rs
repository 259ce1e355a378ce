//! Data messages of WireGuard: a guest with a session in the lane, another node with a link, and the TUN between them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test ends where its ground is missing, and the model has more than is needed here"
)]

#[path = "offload/model.rs"]
mod model;
#[path = "ends/pair.rs"]
mod pair;

use std::collections::BTreeMap;
use std::sync::Arc;

use pair::*;
use weft_contract::rules::{Addresses, NetworkRules, PeerRules, Policy, RuleSet};
use weft_contract::{
    Command, Endpoint, LaneConfig, Report, SessionReport, SocketId, TableCommand, WireGuardCommand, WireGuardKeys,
    WireGuardTraffic,
};
use weft_noise::Key;
use weft_packet::{DropReason, Lane, Outbound, Train};
use weft_wire::NodeAddr;
use weft_wire::ip::Ipv4Header;
use weft_wire::virtio::{GSO_TCPV4, NEEDS_CSUM, VirtioNetHdr};
use weft_wireguard::transport::{Keys, Session, packet};

const GUEST: NodeAddr = NodeAddr::new([9; 16]);
const OTHER_GUEST: NodeAddr = NodeAddr::new([8; 16]);
/// Addresses of the host, of its guests, and of the other node.
const HOST_IP: [u8; 4] = [10, 1, 0, 1];
const GUEST_IP: [u8; 4] = [10, 44, 0, 9];
const OTHER_GUEST_IP: [u8; 4] = [10, 44, 0, 8];
const NODE_IP: [u8; 4] = [10, 1, 0, 2];
const MTU: u16 = 1_420;

fn socket() -> SocketId {
    SocketId::ORDINARY.following()
}

fn at(port: u16) -> Endpoint {
    socket().path(([192, 0, 2, 77], port))
}

fn wireguard_key(kind: u8, of: NodeAddr, number: u32) -> Key {
    key(kind, of, number)
}

/// The keys of a handshake between a guest and its host, for the host.
fn keys(guest: NodeAddr, number: u32) -> WireGuardKeys {
    let local = u32::from(guest.as_bytes()[0]) << 8 | number;
    WireGuardKeys {
        local,
        remote: local + 100,
        send: wireguard_key(5, guest, number),
        receive: wireguard_key(6, guest, number),
    }
}

/// The same for the guest.
fn device(guest: NodeAddr, number: u32) -> Session {
    let host = keys(guest, number);
    Session::new(&Keys {
        local: host.remote,
        remote: host.local,
        send: host.receive,
        receive: host.send,
    })
}

fn udp(source: [u8; 4], dest: [u8; 4], len: usize) -> Vec<u8> {
    let total = (28 + len) as u16;
    let [high, low] = total.to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0];
    packet.extend([source, dest].concat());
    let sum = weft_wire::checksum::checksum_finish(weft_wire::checksum::checksum_add(0, &packet));
    packet[Ipv4Header::CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x10, 0, 0x20, 0]);
    packet.extend(((8 + len) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((0..len).map(|n| n as u8));
    packet
}

/// What a packet is behind one hop.
fn aged(mut packet: Vec<u8>) -> Vec<u8> {
    packet[Ipv4Header::TTL_AT] -= 1;
    packet[Ipv4Header::CHECKSUM_AT..][..2].fill(0);
    let sum = weft_wire::checksum::checksum_finish(weft_wire::checksum::checksum_add(0, &packet[..20]));
    packet[Ipv4Header::CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The rules of one network that has the host, the node and both guests, in which all flows pass or none.
fn policy(inside: bool) -> Arc<Policy> {
    let network = |theirs: [u8; 4]| NetworkRules {
        origin: 0,
        ipv4: Some(Addresses {
            ours: HOST_IP.into(),
            theirs: theirs.into(),
        }),
        ours: subnets(&["10.44.0.8/32", "10.44.0.9/32"]).into(),
        theirs: Arc::default(),
        rules: RuleSet::default(),
        inside,
        exit: false,
    };
    let rules = |theirs| PeerRules {
        networks: vec![network(theirs)],
        ..PeerRules::default()
    };
    let peers = [(B, NODE_IP), (GUEST, GUEST_IP), (OTHER_GUEST, OTHER_GUEST_IP)];
    let peers: BTreeMap<_, _> = peers.map(|(peer, ip)| (peer, rules(ip))).into();
    Arc::new(Policy::new(A, 1, peers))
}

/// The settings of the host.
fn config() -> LaneConfig {
    LaneConfig {
        me: A,
        mtu: 1_452,
        probe: false,
        transit: false,
        handshakes: weft_contract::HandshakeLimits::default(),
    }
}

impl End {
    /// Makes the host of two guests, of which one has keys, without the other node.
    fn host(inside: bool) -> Self {
        let mut end = Self {
            now: 1_000,
            me: A,
            other: B,
            lane: Lane::new(config()),
            train: Train::new(Sent::default(), 64),
        };
        end.add_guests(inside);
        end
    }

    fn add_guests(&mut self, inside: bool) {
        self.apply(Command::Table(TableCommand::TakeWireGuard {
            socket: Some(socket()),
            mtu: MTU,
        }));
        self.apply(Command::Table(TableCommand::SetPolicy {
            policy: Some(policy(inside)),
            first: Some(Arc::default()),
        }));
        self.apply(Command::Table(TableCommand::SetSubnets {
            ours: subnets(&["10.1.0.1/32", "10.44.0.8/32", "10.44.0.9/32"]),
            theirs: vec![
                ("10.1.0.2/32".parse().unwrap(), B),
                ("10.44.0.9/32".parse().unwrap(), GUEST),
                ("10.44.0.8/32".parse().unwrap(), OTHER_GUEST),
            ],
        }));
        for guest in [GUEST, OTHER_GUEST] {
            self.apply(Command::Table(TableCommand::AllowPeer { peer: guest }));
            self.wireguard(guest, WireGuardCommand::Add);
        }
        let keys = keys(GUEST, 1);
        self.wireguard(GUEST, WireGuardCommand::Install { keys, use_now: true });
        self.wireguard(GUEST, WireGuardCommand::Place { path: at(1) });
        self.take_sent();
    }

    fn wireguard(&mut self, guest: NodeAddr, command: WireGuardCommand) {
        self.apply(Command::WireGuard(guest, command));
    }

    /// Takes a datagram at the socket of WireGuard.
    fn take(&mut self, from: Endpoint, datagram: &[u8]) -> Option<Vec<u8>> {
        let packet = self.lane.inbound_alone(self.now, from, datagram, &mut self.train);
        self.lane.check_invariants().unwrap();
        packet
    }

    fn traffic(&mut self) -> Vec<WireGuardTraffic> {
        let reports = std::iter::from_fn(|| self.lane.poll_report());
        let traffic = reports.filter_map(|report| match report {
            Report::WireGuardTraffic(_, traffic) => Some(traffic),
            _ => None,
        });
        traffic.collect()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.counters().drops[reason]
    }
}

fn sealed(device: &mut Session, packet: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    device.seal(packet, MTU.into(), &mut message).unwrap();
    message
}

fn opened(device: &mut Session, mut message: Vec<u8>) -> Vec<u8> {
    let content = device.open(&mut message).unwrap();
    packet(content).unwrap_or_default().to_vec()
}

#[test]
fn packets_pass_between_a_guest_and_its_host() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    for len in [0, 1, 3, 4, 5, 100, 1_391, 1_392] {
        let to_host = udp(GUEST_IP, HOST_IP, len);
        let message = sealed(&mut guest, &to_host);
        assert_eq!(host.take(at(1), &message), Some(to_host), "{len}");
        let to_guest = udp(HOST_IP, GUEST_IP, len);
        let sent = host.send(WHOLE, &to_guest);
        let [message] = &sent[..] else {
            panic!("{len}: {sent:?}")
        };
        let filled = to_guest.len().next_multiple_of(16).min(MTU.into());
        assert_eq!(message.len(), filled + 32, "{len}");
        assert_eq!(opened(&mut guest, message.clone()), to_guest, "{len}");
    }
}

#[test]
fn a_super_packet_leaves_as_a_train_of_whole_segments() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    let mut packet = udp(HOST_IP, GUEST_IP, 4_000);
    // The header of TCP in place of that of UDP: 20 bytes, with the flag ACK.
    packet[9] = 6;
    packet[20 + 12] = 5 << 4;
    packet[20 + 13] = 0x10;
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 40,
        gso_size: 1_380,
        csum_start: 20,
        csum_offset: 16,
    };
    let sent = host.send(hdr, &packet);
    let lengths: Vec<usize> = sent.iter().map(Vec::len).collect();
    let rest = packet.len() - 40 - 2 * 1_380;
    assert_eq!(lengths, [1_452, 1_452, (rest + 40).next_multiple_of(16) + 32]);
    let data: Vec<u8> = sent
        .into_iter()
        .flat_map(|message| opened(&mut guest, message)[40..].to_vec())
        .collect();
    assert_eq!(data, packet[40..]);
}

#[test]
fn a_packet_above_the_mtu_has_an_error_or_goes_in_fragments() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    let mut packet = udp(HOST_IP, GUEST_IP, 2_000);
    assert_eq!(host.send(WHOLE, &packet), [] as [Vec<u8>; 0]);
    let error = host.lane.poll_reply().unwrap();
    assert_eq!((error[20], error[21], &error[26..28]), (3, 4, &MTU.to_be_bytes()[..]));
    packet[6] = 0;
    packet[10..12].fill(0);
    let sum = weft_wire::checksum::checksum_finish(weft_wire::checksum::checksum_add(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let sent = host.send(WHOLE, &packet);
    let parts: Vec<Vec<u8>> = sent.into_iter().map(|message| opened(&mut guest, message)).collect();
    assert_eq!(parts.len(), 2);
    let data: Vec<u8> = parts.iter().flat_map(|part| part[20..].to_vec()).collect();
    assert_eq!(data, packet[20..]);
}

#[test]
fn forged_and_repeated_messages_are_dropped_and_counted() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    let packet = udp(GUEST_IP, HOST_IP, 50);
    let message = sealed(&mut guest, &packet);
    for bit in [0, 77, message.len() * 8 - 1] {
        let mut forged = message.clone();
        forged[16 + (bit / 8) % (message.len() - 16)] ^= 1 << (bit % 8);
        assert_eq!(host.take(at(1), &forged), None);
    }
    assert_eq!(host.drops(DropReason::WireGuardForged), 3);
    assert_eq!(host.take(at(1), &message), Some(packet.clone()));
    assert_eq!(host.take(at(1), &message), None);
    assert_eq!(host.drops(DropReason::WireGuardReplay), 1);
    let mut unknown = sealed(&mut guest, &packet);
    unknown[4] ^= 1;
    assert_eq!(host.take(at(1), &unknown), None);
    assert_eq!(host.drops(DropReason::WireGuardUnknown), 1);
    for malformed in [&[][..], &[4], &[4, 0, 0, 0], &message[..31], &[5; 148], &[1; 148]] {
        assert_eq!(host.take(at(1), malformed), None);
    }
    assert_eq!(host.drops(DropReason::Malformed), 6);
    let not_ip = sealed(&mut guest, &[0x45, 0, 1, 0, 0]);
    assert_eq!(host.take(at(1), &not_ip), None);
    assert_eq!(host.drops(DropReason::Malformed), 7);
}

#[test]
fn a_guest_sends_from_its_own_address_alone() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    for source in [OTHER_GUEST_IP, HOST_IP, NODE_IP, [192, 0, 2, 1]] {
        let message = sealed(&mut guest, &udp(source, HOST_IP, 9));
        assert_eq!(host.take(at(1), &message), None);
    }
    assert_eq!(host.drops(DropReason::ForeignSource), 4);
    let mut ipv6 = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
    ipv6.extend([GUEST.to_ipv6().octets(), A.to_ipv6().octets()].concat());
    let message = sealed(&mut guest, &ipv6);
    assert_eq!(host.take(at(1), &message), None);
    assert_eq!(host.drops(DropReason::ForeignSource), 5, "it has an IPv4 address alone");
    let message = sealed(&mut guest, &udp(GUEST_IP, [192, 0, 2, 9], 9));
    assert_eq!(host.take(at(1), &message), None);
    assert_eq!(host.drops(DropReason::ForeignDestination), 1);
}

#[test]
fn the_socket_decides_which_datagrams_are_of_wireguard() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    let message = sealed(&mut guest, &udp(GUEST_IP, HOST_IP, 9));
    let elsewhere = Endpoint::from(([192, 0, 2, 77], 1));
    assert_eq!(host.take(elsewhere, &message), None, "at an ordinary socket");
    assert_eq!(host.drops(DropReason::WireGuardUnknown), 0);
    let mut initiation = vec![0; 148];
    initiation[0] = 1;
    assert_eq!(host.take(at(5), &initiation), None);
    let report = host.lane.poll_report();
    assert!(
        matches!(&report, Some(Report::WireGuard { from, datagram }) if *from == at(5) && *datagram == initiation),
        "{report:?}"
    );
    host.apply(Command::Table(TableCommand::TakeWireGuard { socket: None, mtu: 0 }));
    assert_eq!(host.take(at(1), &message), None, "once it is not taken");
}

#[test]
fn rules_apply_to_what_comes_from_a_guest_and_goes_to_one() {
    let (mut host, mut guest) = (End::host(false), device(GUEST, 1));
    let message = sealed(&mut guest, &udp(GUEST_IP, HOST_IP, 9));
    assert_eq!(host.take(at(1), &message), None);
    assert_eq!(host.drops(DropReason::Denied), 1);
    assert_eq!(host.take_sent().len(), 1, "the guest has an error");
    // What the host has begun is answered.
    assert_eq!(host.send(WHOLE, &udp(HOST_IP, GUEST_IP, 9)).len(), 1);
    let mut answer = udp(GUEST_IP, HOST_IP, 9);
    answer[20..24].copy_from_slice(&[0x20, 0, 0x10, 0]);
    let message = sealed(&mut guest, &answer);
    assert_eq!(host.take(at(1), &message), Some(answer));
    // A guest to a guest of the same host.
    let message = sealed(&mut guest, &udp(GUEST_IP, OTHER_GUEST_IP, 9));
    assert_eq!(host.take(at(1), &message), None);
    assert!(host.drops(DropReason::Denied) >= 2);
}

#[test]
fn a_guest_reaches_another_one_of_its_host() {
    let (mut host, mut guest, mut other) = (End::host(true), device(GUEST, 1), device(OTHER_GUEST, 1));
    let keys = keys(OTHER_GUEST, 1);
    host.wireguard(OTHER_GUEST, WireGuardCommand::Install { keys, use_now: true });
    host.wireguard(OTHER_GUEST, WireGuardCommand::Place { path: at(2) });
    let packet = udp(GUEST_IP, OTHER_GUEST_IP, 500);
    let message = sealed(&mut guest, &packet);
    assert_eq!(host.take(at(1), &message), None);
    let sent = host.take_sent();
    assert_eq!(opened(&mut other, sent[0].clone()), aged(packet));
    let mut last = udp(GUEST_IP, OTHER_GUEST_IP, 500);
    last[Ipv4Header::TTL_AT] = 1;
    let message = sealed(&mut guest, &last);
    assert_eq!(host.take(at(1), &message), None);
    assert_eq!((host.drops(DropReason::Ttl), host.take_sent().len()), (1, 0));
}

#[test]
fn a_guest_reaches_another_node_and_back_past_the_tun() {
    let (mut host, mut node) = pair(1_480);
    let mut guest = device(GUEST, 1);
    host.add_guests(true);
    node.apply(Command::Table(TableCommand::SetSubnets {
        ours: subnets(&["10.1.0.2/32"]),
        theirs: subnets(&["10.1.0.1/32", "10.44.0.9/32"])
            .into_iter()
            .map(|subnet| (subnet, A))
            .collect(),
    }));
    let packet = udp(GUEST_IP, NODE_IP, 300);
    let message = sealed(&mut guest, &packet);
    assert_eq!(host.take(at(1), &message), None);
    let frames = host.take_sent();
    assert_eq!(node.receive(&frames), [aged(packet)]);
    let answer = udp(NODE_IP, GUEST_IP, 300);
    let frames = node.send(WHOLE, &answer);
    assert_eq!(host.receive(&frames), [] as [Vec<u8>; 0], "nothing for the TUN");
    let sent = host.take_sent();
    assert_eq!(opened(&mut guest, sent[0].clone()), aged(answer));
    // A packet that does not fit has an error, which goes to the node.
    let frames = node.send(WHOLE, &udp(NODE_IP, GUEST_IP, 1_400));
    host.receive(&frames);
    let errors = host.take_sent();
    let errors = node.receive(&errors);
    assert_eq!(
        (errors[0][20], errors[0][21], &errors[0][12..16]),
        (3, 4, &GUEST_IP[..])
    );
}

#[test]
fn packets_wait_for_keys_and_for_a_place() {
    let (mut host, mut other) = (End::host(true), device(OTHER_GUEST, 1));
    let packet = udp(HOST_IP, OTHER_GUEST_IP, 40);
    assert_eq!(host.send(WHOLE, &packet), [] as [Vec<u8>; 0]);
    let wanted = std::iter::from_fn(|| host.lane.poll_report())
        .any(|report| matches!(report, Report::Session(OTHER_GUEST, SessionReport::Wanted)));
    assert!(wanted);
    let keys = keys(OTHER_GUEST, 1);
    host.wireguard(OTHER_GUEST, WireGuardCommand::Install { keys, use_now: true });
    assert_eq!(host.take_sent(), [] as [Vec<u8>; 0], "its place is not known");
    host.wireguard(OTHER_GUEST, WireGuardCommand::Place { path: at(2) });
    let sent = host.take_sent();
    assert_eq!(opened(&mut other, sent[0].clone()), packet);
    host.wireguard(
        OTHER_GUEST,
        WireGuardCommand::Retire {
            local: self::keys(OTHER_GUEST, 1).local,
        },
    );
    host.send(WHOLE, &packet);
    host.wireguard(OTHER_GUEST, WireGuardCommand::DropQueue);
    assert_eq!(host.drops(DropReason::Queue), 1);
    assert!(host.lane.poll_reply().is_some(), "its sender has an error");
    host.lane.check_invariants().unwrap();
}

#[test]
fn keys_are_used_once_the_guest_has_used_them() {
    let mut host = End::host(true);
    let (mut first, mut second) = (device(GUEST, 1), device(GUEST, 2));
    let keys = keys(GUEST, 2);
    host.wireguard(GUEST, WireGuardCommand::Install { keys, use_now: false });
    let packet = udp(HOST_IP, GUEST_IP, 40);
    let sent = host.send(WHOLE, &packet);
    assert_eq!(opened(&mut first, sent[0].clone()), packet);
    host.traffic();
    let keepalive = sealed(&mut second, &[]);
    assert_eq!(host.take(at(1), &keepalive), None);
    let traffic = host.traffic();
    assert!(
        traffic.iter().any(|of| of.keepalives == 1 && of.from == Some(at(1))),
        "at once: {traffic:?}"
    );
    let sent = host.send(WHOLE, &packet);
    assert_eq!(opened(&mut second, sent[0].clone()), packet);
    // What comes late under the old keys changes nothing.
    let late = sealed(&mut first, &udp(GUEST_IP, HOST_IP, 1));
    assert!(host.take(at(1), &late).is_some());
    let sent = host.send(WHOLE, &packet);
    assert_eq!(opened(&mut second, sent[0].clone()), packet);
}

#[test]
fn messages_go_to_where_the_last_one_came_from() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    let [early, newer] = [1, 2].map(|len| sealed(&mut guest, &udp(GUEST_IP, HOST_IP, len)));
    assert!(host.take(at(7), &newer).is_some());
    assert!(host.traffic().iter().any(|of| of.from == Some(at(7))));
    // An older message from elsewhere, which an attacker has kept back, moves nothing.
    assert!(host.take(at(6), &early).is_some());
    assert_eq!(host.traffic(), []);
    host.lane.sample(host.now);
    let traffic = host.traffic();
    assert!(traffic.iter().all(|of| of.from != Some(at(6))), "{traffic:?}");
    host.send(WHOLE, &udp(HOST_IP, GUEST_IP, 40));
    assert_eq!(host.train.out().1, Some(at(7)));
}

#[test]
fn traffic_is_reported_in_its_order() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    for _ in 0..3 {
        host.send(WHOLE, &udp(HOST_IP, GUEST_IP, 40));
    }
    let message = sealed(&mut guest, &udp(GUEST_IP, HOST_IP, 1));
    host.take(at(1), &message);
    host.send(WHOLE, &udp(HOST_IP, GUEST_IP, 40));
    host.lane.sample(host.now);
    let traffic: Vec<_> = host.traffic().iter().map(|of| (of.sent, of.received)).collect();
    assert_eq!(traffic, [(3, 1), (1, 0)]);
    host.lane.sample(host.now);
    assert_eq!(host.traffic(), []);
    host.wireguard(GUEST, WireGuardCommand::Keepalive);
    let sent = host.take_sent();
    assert_eq!((sent.len(), opened(&mut guest, sent[0].clone())), (1, Vec::new()));
}

#[test]
fn a_guest_that_is_removed_leaves_nothing() {
    let (mut host, mut guest) = (End::host(true), device(GUEST, 1));
    let message = sealed(&mut guest, &udp(GUEST_IP, HOST_IP, 1));
    host.apply(Command::Table(TableCommand::DenyPeer { peer: GUEST }));
    assert_eq!(host.take(at(1), &message), None);
    assert_eq!(host.drops(DropReason::WireGuardUnknown), 1);
    assert_eq!(host.send(WHOLE, &udp(HOST_IP, GUEST_IP, 1)), [] as [Vec<u8>; 0]);
    assert_eq!(host.drops(DropReason::NoRoute), 1);
}

#[test]
fn a_flood_of_handshakes_takes_its_share_of_the_reports() {
    let mut host = End::host(true);
    let mut initiation = vec![0; 148];
    initiation[0] = 1;
    for _ in 0..100_000 {
        host.lane.inbound_alone(host.now, at(5), &initiation, &mut host.train);
    }
    host.lane.check_invariants().unwrap();
    assert!(host.drops(DropReason::Report) > 90_000);
    host.send(WHOLE, &udp(HOST_IP, OTHER_GUEST_IP, 1));
    let wanted = std::iter::from_fn(|| host.lane.poll_report())
        .any(|report| matches!(report, Report::Session(OTHER_GUEST, SessionReport::Wanted)));
    assert!(wanted, "other reports have room");
}

#[test]
fn other_lanes_leave_packets_for_guests_to_the_first() {
    let mut second = Lane::several(config(), 2).remove(1);
    let mut train = Train::new(Sent::default(), 64);
    for command in [
        Command::Table(TableCommand::SetSubnets {
            ours: subnets(&["10.1.0.1/32", "10.44.0.9/32"]),
            theirs: vec![("10.44.0.9/32".parse().unwrap(), GUEST)],
        }),
        Command::Table(TableCommand::AllowPeer { peer: GUEST }),
        Command::WireGuard(GUEST, WireGuardCommand::Add),
    ] {
        second.apply(1_000, command, &mut train);
    }
    let packet = udp(HOST_IP, GUEST_IP, 40);
    let left = second.outbound(1_000, WHOLE, &packet, &mut train);
    assert!(matches!(left, Outbound::HandOver(0)));
    assert_eq!(second.poll_onward(), None);
}
