//! Translation, packet by packet: checksums, round trips, ICMP errors, and mappings against a slow model.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;
use weft_lab::nat::packet::{Protocol, Unfit, checksum};
use weft_lab::nat::router::{Router, RouterPort};
use weft_lab::nat::table::{Refusal, Table};
use weft_lab::nat::translate::{Drop, Rules, Side, Translator};
use weft_lab::nat::{MappingLife, NatKind};

const OUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const KINDS: [NatKind; 4] = [
    NatKind::FullCone,
    NatKind::Restricted,
    NatKind::PortRestricted,
    NatKind::Symmetric,
];

fn rules(kind: NatKind) -> Rules {
    Rules {
        kind,
        life: MappingLife::default(),
        hairpin: true,
        seed: 1,
    }
}

fn at(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

/// An IPv4 packet with correct checksums. For an echo, `request` selects the type; its identifier
/// is the source's port in a request, the destination's in a reply.
fn packet(
    protocol: Protocol,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    request: bool,
    payload: &[u8],
) -> Vec<u8> {
    let (sp, dp) = (source.port().to_be_bytes(), destination.port().to_be_bytes());
    let (number, mut transport) = match protocol {
        Protocol::Udp => {
            let len = (8 + payload.len() as u16).to_be_bytes();
            (17, [&sp[..], &dp, &len, &[0, 0], payload].concat())
        }
        Protocol::Tcp => {
            let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
            (6, [&sp[..], &dp, &rest, payload].concat())
        }
        Protocol::Echo => {
            let (kind, id) = if request { (8, sp) } else { (0, dp) };
            (1, [&[kind, 0, 0, 0][..], &id, &[0, 7], payload].concat())
        }
    };
    let len = (20 + transport.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, number, 0, 0];
    packet.extend_from_slice(&source.ip().octets());
    packet.extend_from_slice(&destination.ip().octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let sum = transport_sum(&packet, &transport);
    let field = match protocol {
        Protocol::Udp => 6,
        Protocol::Tcp => 16,
        Protocol::Echo => 2,
    };
    let sum = if protocol == Protocol::Udp && sum == 0 {
        0xffff
    } else {
        sum
    };
    transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    [packet, transport].concat()
}

fn transport_sum(header: &[u8], transport: &[u8]) -> u16 {
    let pseudo = match header[9] {
        1 => Vec::new(),
        number => [&header[12..20], &[0, number], &(transport.len() as u16).to_be_bytes()].concat(),
    };
    checksum(&[&pseudo, transport].concat())
}

/// Whether both checksums are correct.
fn is_valid(packet: &[u8]) -> bool {
    let (header, transport) = packet.split_at(20);
    checksum(header) == 0 && transport_sum(header, transport) == 0
}

fn ends(packet: &[u8]) -> (SocketAddrV4, SocketAddrV4) {
    let ip = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (source, destination) = match (packet[9], packet[20]) {
        (1, 8) => (port(24), 0),
        (1, _) => (0, port(24)),
        _ => (port(20), port(22)),
    };
    (
        SocketAddrV4::new(ip(12), source),
        SocketAddrV4::new(ip(16), destination),
    )
}

fn any_protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Udp), Just(Protocol::Tcp), Just(Protocol::Echo)]
}

proptest! {
    #[test]
    fn what_goes_out_and_is_answered_comes_back_to_its_sender(
        protocol in any_protocol(), kind in 0..4_usize, inner in any::<(u8, u16)>(), remote in any::<(u8, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut nat = Translator::new(rules(KINDS[kind]), OUTER);
        let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, inner.0), inner.1);
        let remote_port = if protocol == Protocol::Echo { 0 } else { remote.1 };
        let remote = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, remote.0), remote_port);
        let mut out = packet(protocol, inside, remote, true, &payload);
        // The padding of a short frame is not part of the packet.
        let len = out.len();
        out.resize(len + 5, 0xee);
        prop_assert_eq!(nat.translate(0, Side::Inside, &mut out), Ok((Side::Outside, len)));
        out.truncate(len);
        prop_assert!(is_valid(&out));
        let (outer, target) = ends(&out);
        prop_assert_eq!((*outer.ip(), target), (OUTER, remote));
        prop_assert_eq!(&out[len - payload.len()..], &payload[..]);
        prop_assert_eq!(out[8], 63);

        let mut back = packet(protocol, remote, outer, false, &payload);
        prop_assert_eq!(nat.translate(1, Side::Outside, &mut back), Ok((Side::Inside, len)));
        prop_assert!(is_valid(&back));
        prop_assert_eq!(ends(&back), (remote, inside));
    }

    #[test]
    fn nothing_that_comes_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), ip in any::<bool>(), inside in any::<bool>()) {
        let mac = [2, 0, 0, 0, 0, 1];
        let port = |mac| RouterPort::new(mac, Ipv4Addr::new(10, 0, 0, 1), 24, None);
        let mut router = Router::new(Translator::new(rules(NatKind::FullCone), OUTER), port(mac), port(mac));
        let kind: &[u8] = if ip { &[8, 0, 0x45] } else { &[8, 6, 0, 1, 8, 0, 6, 4] };
        let mut frame = [&mac[..], &[0; 6], kind, &bytes].concat();
        let side = if inside { Side::Inside } else { Side::Outside };
        let out = router.handle_frame(0, side, &mut frame);
        prop_assert!(out.len() <= 2);
        router.handle_frame(0, side, &mut bytes.clone());
    }

    #[test]
    fn mappings_are_those_of_a_slow_model(kind in 0..4_usize, steps in proptest::collection::vec(step(), 1..200)) {
        let kind = KINDS[kind];
        let life = MappingLife { udp_ms: 1000, ..MappingLife::default() };
        let (mut table, mut model) = (Table::new(kind, life, 3), Model::new(kind, 1000));
        let mut now = 0;
        for step in steps {
            match step {
                Step::Out(inside, remote) => {
                    let port = table.outbound(now, Protocol::Udp, inside, remote).unwrap();
                    model.outbound(now, inside, remote, port)?;
                }
                Step::In(choice, remote) => {
                    let port = model.some_port(choice);
                    prop_assert_eq!(
                        table.inbound(now, Protocol::Udp, port, remote).ok(),
                        model.inbound(now, port, remote)
                    );
                }
                Step::Wait(ms) => now += ms,
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Out(SocketAddrV4, SocketAddrV4),
    In(usize, SocketAddrV4),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let end = |net: u8| {
        (0..2_u8, 0..2_u16).prop_map(move |(host, port)| SocketAddrV4::new([net, 0, 0, host].into(), 5000 + port))
    };
    prop_oneof![
        4 => (end(10), end(20)).prop_map(|(inside, remote)| Step::Out(inside, remote)),
        4 => (any::<usize>(), end(20)).prop_map(|(choice, remote)| Step::In(choice, remote)),
        1 => (0..700_u64).prop_map(Step::Wait),
    ]
}

/// All packets that ever passed, in order. The present state is derived from this history.
struct Model {
    kind: NatKind,
    life: u64,
    history: Vec<Passed>,
}

struct Passed {
    at: u64,
    inside: SocketAddrV4,
    remote: SocketAddrV4,
    port: u16,
    outbound: bool,
}

impl Model {
    fn new(kind: NatKind, life: u64) -> Self {
        let history = Vec::new();
        Self { kind, life, history }
    }

    /// The packets of the present mapping with this port: its uninterrupted sequence of uses.
    fn mapping(&self, now: u64, port: u16) -> Vec<&Passed> {
        let mut last = now;
        let uses = self.history.iter().rev().filter(|passed| passed.port == port);
        let row = uses.take_while(|passed| {
            let unbroken = last - passed.at < self.life;
            last = passed.at;
            unbroken
        });
        row.collect()
    }

    fn outbound(
        &mut self,
        now: u64,
        inside: SocketAddrV4,
        remote: SocketAddrV4,
        port: u16,
    ) -> Result<(), TestCaseError> {
        let same_key =
            |passed: &&Passed| passed.inside == inside && (self.kind != NatKind::Symmetric || passed.remote == remote);
        let known: Vec<u16> = self.history.iter().filter(same_key).map(|passed| passed.port).collect();
        let live = known
            .into_iter()
            .rev()
            .find(|port| self.mapping(now, *port).iter().any(same_key));
        match live {
            Some(live) => prop_assert_eq!(port, live),
            // A new mapping takes a free port.
            None => prop_assert!(self.mapping(now, port).is_empty()),
        }
        self.history.push(Passed {
            at: now,
            inside,
            remote,
            port,
            outbound: true,
        });
        Ok(())
    }

    fn inbound(&mut self, now: u64, port: u16, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        let mapping = self.mapping(now, port);
        let inside = mapping.first()?.inside;
        let admitted = mapping.iter().any(|passed| match self.kind {
            NatKind::FullCone => true,
            NatKind::Restricted => passed.remote.ip() == remote.ip() && self.knows(now, &mapping, passed.remote),
            _ => passed.remote == remote && self.knows(now, &mapping, remote),
        });
        admitted.then(|| {
            self.history.push(Passed {
                at: now,
                inside,
                remote,
                port,
                outbound: false,
            });
            inside
        })
    }

    /// Whether the mapping has sent to `remote`, and since then the packets of these two were never
    /// too far apart.
    fn knows(&self, now: u64, mapping: &[&Passed], remote: SocketAddrV4) -> bool {
        let mut last = now;
        for passed in mapping.iter().filter(|passed| passed.remote == remote) {
            // A longer pause starts a new sequence; the search begins at the latest packet.
            if last - passed.at >= self.life {
                return false;
            }
            if passed.outbound {
                return true;
            }
            last = passed.at;
        }
        false
    }

    fn some_port(&self, choice: usize) -> u16 {
        match self.history.len() {
            0 => 9,
            len => self.history[choice % len].port,
        }
    }
}

/// `quoted` in an ICMP error.
fn error(from: Ipv4Addr, to: Ipv4Addr, quoted: &[u8]) -> Vec<u8> {
    let mut icmp = [&[3, 4, 0, 0, 0, 0, 5, 0][..], quoted].concat();
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (20 + icmp.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    [packet, icmp].concat()
}

#[test]
fn an_error_about_a_packet_reaches_its_sender_in_its_own_words() {
    let router = Ipv4Addr::new(198, 51, 100, 254);
    let (inside, remote) = (at("10.0.0.2:5000"), at("198.51.100.7:443"));
    for kind in KINDS {
        for (protocol, remote) in [
            (Protocol::Udp, remote),
            (Protocol::Tcp, remote),
            (Protocol::Echo, at("198.51.100.7:0")),
        ] {
            let mut nat = Translator::new(rules(kind), OUTER);
            let sent = packet(protocol, inside, remote, true, b"payload");
            let mut out = sent.clone();
            nat.translate(0, Side::Inside, &mut out).unwrap();
            // With the whole packet, and with the least that a router quotes.
            for quoted in [&out[..], &out[..28]] {
                let mut report = error(router, OUTER, quoted);
                let (to, len) = nat.translate(1, Side::Outside, &mut report).unwrap();
                assert_eq!((to, len), (Side::Inside, report.len()));
                assert!(is_valid(&report));
                assert_eq!(report[16..20], inside.ip().octets());
                let quoted_back = &report[28..];
                assert_eq!(checksum(&quoted_back[..20]), 0);
                assert_eq!(ends(quoted_back), (inside, remote));
                // Except for the time to live and its checksum it equals the packet that was sent.
                assert_eq!(quoted_back[20..], sent[20..quoted_back.len()]);
            }
            // No host gets an error about a packet that no host sent.
            let mut strange = error(
                router,
                OUTER,
                &packet(protocol, SocketAddrV4::new(OUTER, 9), remote, true, b""),
            );
            let result = nat.translate(1, Side::Outside, &mut strange);
            assert_eq!(result, Err(Drop::Refused(Refusal::NoMapping)));
            // The reverse: the host inside sends an error about an answer.
            let outer = ends(&out).0;
            let mut back = packet(protocol, remote, outer, false, b"answer");
            let arrived = back.clone();
            nat.translate(2, Side::Outside, &mut back).unwrap();
            let mut complaint = error(*inside.ip(), *remote.ip(), &back);
            let (to, _) = nat.translate(3, Side::Inside, &mut complaint).unwrap();
            assert_eq!(to, Side::Outside);
            assert!(is_valid(&complaint));
            assert_eq!(complaint[12..16], OUTER.octets());
            assert_eq!(complaint[48..], arrived[20..]);
            assert_eq!(ends(&complaint[28..]), (remote, outer));
        }
    }
}

#[test]
fn a_udp_packet_without_a_checksum_keeps_none() {
    let mut nat = Translator::new(rules(NatKind::FullCone), OUTER);
    let mut out = packet(Protocol::Udp, at("10.0.0.2:5000"), at("198.51.100.7:1"), true, b"x");
    out[26..28].copy_from_slice(&[0, 0]);
    nat.translate(0, Side::Inside, &mut out).unwrap();
    assert_eq!(out[26..28], [0, 0]);
}

#[test]
fn what_cannot_be_translated_is_dropped_by_name() {
    let mut nat = Translator::new(rules(NatKind::FullCone), OUTER);
    let good = packet(Protocol::Udp, at("10.0.0.2:5000"), at("198.51.100.7:1"), true, b"x");
    let mut judge = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = good.clone();
        change(&mut packet);
        nat.translate(0, Side::Inside, &mut packet).unwrap_err()
    };
    assert_eq!(judge(&|p| p[6] = 0x20), Drop::Unfit(Unfit::Fragment));
    assert_eq!(judge(&|p| p[7] = 1), Drop::Unfit(Unfit::Fragment));
    assert_eq!(judge(&|p| p[9] = 47), Drop::Unfit(Unfit::Unsupported));
    assert_eq!(judge(&|p| p[0] = 0x65), Drop::Unfit(Unfit::Malformed));
    assert_eq!(judge(&|p| p.truncate(27)), Drop::Unfit(Unfit::Malformed));
    assert_eq!(judge(&|p| p[8] = 1), Drop::Expired);
    assert_eq!(nat.counts().dropped, 6);
}

#[test]
fn a_box_without_free_ports_says_so() {
    let mut table = Table::new(NatKind::Symmetric, MappingLife::default(), 1);
    let inside = at("10.0.0.2:5000");
    let mut ports = std::collections::BTreeSet::new();
    for i in 0..28_232_u32 {
        let remote = SocketAddrV4::new(Ipv4Addr::from(0x1400_0000 + i), 1);
        assert!(ports.insert(table.outbound(0, Protocol::Udp, inside, remote).unwrap()));
    }
    assert_eq!(table.outbound(0, Protocol::Udp, inside, at("9.9.9.9:9")), None);
    // Expired ports are free again.
    assert!(table.outbound(30_000, Protocol::Udp, inside, at("9.9.9.9:9")).is_some());
    assert_eq!(table.len(), 1);
}
