//! Translation, packet by packet: checksums, round trips, ICMP errors, and mappings against a slow model.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;
use weft_lab::nat::packet::{Protocol, Unfit, checksum};
use weft_lab::nat::router::{Router, RouterPort};
use weft_lab::nat::table::{Refusal, Table};
use weft_lab::nat::translate::{Drop, Side, Translator};
use weft_lab::nat::{Behaviour, Dependence, MappingLife, NatKind, PortAssignment, Refresh};

const OUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// A NAT box of this kind that hairpins.
fn nat(kind: NatKind) -> Translator {
    let behaviour = Behaviour {
        hairpin: true,
        ..kind.behaviour()
    };
    Translator::new(behaviour, 1, OUTER)
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
    fn an_answer_comes_back_to_the_sender_of_its_packet(
        protocol in any_protocol(), kind in any_kind(), inner in any::<(u8, u16)>(), remote in any::<(u8, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut nat = nat(kind);
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
        let mut router = Router::new(nat(NatKind::FullCone), port(mac), port(mac));
        let kind: &[u8] = if ip { &[8, 0, 0x45] } else { &[8, 6, 0, 1, 8, 0, 6, 4] };
        let mut frame = [&mac[..], &[0; 6], kind, &bytes].concat();
        let side = if inside { Side::Inside } else { Side::Outside };
        let out = router.handle_frame(0, side, &mut frame);
        prop_assert!(out.len() <= 2);
        router.handle_frame(0, side, &mut bytes.clone());
    }

    #[test]
    fn mappings_are_those_of_a_slow_model(behaviour in any_behaviour(), steps in proptest::collection::vec(step(), 1..200)) {
        let (mut table, mut model) = (Table::new(behaviour, 3), Model::new(behaviour));
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
                        table.inbound(now, Protocol::Udp, port, remote),
                        model.inbound(now, port, remote)
                    );
                }
                Step::Wait(ms) => now += ms,
            }
        }
    }
}

fn any_kind() -> impl Strategy<Value = NatKind> {
    proptest::sample::select(NatKind::ALL.to_vec())
}

fn any_dependence() -> impl Strategy<Value = Dependence> {
    prop_oneof![
        Just(Dependence::EndpointIndependent),
        Just(Dependence::AddressDependent),
        Just(Dependence::AddressAndPortDependent)
    ]
}

fn any_behaviour() -> impl Strategy<Value = Behaviour> {
    let ports = prop_oneof![
        Just(PortAssignment::Preserving),
        Just(PortAssignment::Overloading),
        Just(PortAssignment::Random),
        Just(PortAssignment::Sequential)
    ];
    let refresh = prop_oneof![Just(Refresh::Both), Just(Refresh::Outbound), Just(Refresh::Inbound)];
    (any_dependence(), any_dependence(), ports, refresh).prop_map(|(mapping, filtering, ports, refresh)| Behaviour {
        ports,
        // Few, so that all are taken and used again; more than there are mappings.
        port_range: [40_000, 40_020],
        refresh,
        life: MappingLife {
            udp_ms: 1000,
            ..MappingLife::default()
        },
        ..Behaviour::new(mapping, filtering)
    })
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

/// All packets that ever passed, in order. Each mapping is derived from this history when it is
/// needed.
struct Model {
    with: Behaviour,
    history: Vec<Passed>,
}

#[derive(Clone, Copy)]
struct Passed {
    at: u64,
    /// The inner endpoint, and what the mapping distinguishes of the remote one.
    key: (SocketAddrV4, Option<SocketAddrV4>),
    remote: SocketAddrV4,
    port: u16,
    outbound: bool,
}

/// A mapping as its packets made it.
struct Derived {
    port: u16,
    used: u64,
    /// The contacted endpoints that may still send, and when each was last refreshed.
    permitted: Vec<(SocketAddrV4, u64)>,
}

impl Model {
    fn new(with: Behaviour) -> Self {
        let history = Vec::new();
        Self { with, history }
    }

    fn is_live(&self, now: u64, at: u64) -> bool {
        now - at < self.with.life.udp_ms
    }

    /// The live mapping of a key.
    fn mapping(&self, now: u64, key: (SocketAddrV4, Option<SocketAddrV4>)) -> Option<Derived> {
        let mut mapping: Option<Derived> = None;
        for passed in self.history.iter().filter(|passed| passed.key == key) {
            let refreshes = match passed.outbound {
                true => self.with.refresh.is_outbound(),
                false => self.with.refresh.is_inbound(),
            };
            let old = mapping.take().filter(|old| self.is_live(passed.at, old.used));
            let mut next = old.unwrap_or(Derived {
                port: passed.port,
                used: passed.at,
                permitted: Vec::new(),
            });
            assert_eq!(next.port, passed.port);
            next.permitted.retain(|(_, at)| self.is_live(passed.at, *at));
            let known = next.permitted.iter_mut().find(|(remote, _)| *remote == passed.remote);
            match known {
                Some((_, at)) if refreshes => *at = passed.at,
                None if passed.outbound => next.permitted.push((passed.remote, passed.at)),
                _ => {}
            }
            if refreshes {
                next.used = passed.at;
            }
            mapping = Some(next);
        }
        let mut mapping = mapping.filter(|mapping| self.is_live(now, mapping.used))?;
        mapping.permitted.retain(|(_, at)| self.is_live(now, *at));
        Some(mapping)
    }

    /// The keys of the live mappings of a port.
    fn of_port(&self, now: u64, port: u16) -> Vec<(SocketAddrV4, Option<SocketAddrV4>)> {
        let mut keys: Vec<_> = self.history.iter().map(|passed| passed.key).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| self.mapping(now, *key).is_some_and(|mapping| mapping.port == port));
        keys
    }

    fn outbound(
        &mut self,
        now: u64,
        inside: SocketAddrV4,
        remote: SocketAddrV4,
        port: u16,
    ) -> Result<(), TestCaseError> {
        let key = (inside, self.with.mapping.part(remote));
        match self.mapping(now, key) {
            Some(mapping) => prop_assert_eq!(port, mapping.port),
            None => {
                let overloads = self.with.ports == PortAssignment::Overloading;
                let free = |port| {
                    let mut others = self.of_port(now, port).into_iter();
                    others.all(|other| overloads && other.1 != key.1)
                };
                prop_assert!(free(port));
                let [first, last] = self.with.port_range;
                let keeps = overloads || self.with.ports == PortAssignment::Preserving;
                match keeps && free(inside.port()) {
                    true => prop_assert_eq!(port, inside.port()),
                    false => prop_assert!((first..=last).contains(&port)),
                }
                if self.with.ports == PortAssignment::Sequential {
                    self.is_next(now, port)?;
                }
            }
        }
        self.history.push(Passed {
            at: now,
            key,
            remote,
            port,
            outbound: true,
        });
        Ok(())
    }

    /// Whether no port is free between the one that was assigned last and this one.
    fn is_next(&self, now: u64, port: u16) -> Result<(), TestCaseError> {
        let [first, last] = self.with.port_range;
        let after = |port: u16| if port == last { first } else { port + 1 };
        // The last packet that made a mapping is the last whose port is not that of an older one.
        let made = (0..self.history.len()).rev().find(|n| {
            let (before, rest) = self.history.split_at(*n);
            let model = Self {
                with: self.with,
                history: before.to_vec(),
            };
            model.mapping(rest[0].at, rest[0].key).is_none()
        });
        let Some(made) = made else { return Ok(()) };
        let mut next = after(self.history[made].port);
        while next != port {
            prop_assert!(!self.of_port(now, next).is_empty(), "{next} is free");
            next = after(next);
        }
        Ok(())
    }

    fn inbound(&mut self, now: u64, port: u16, remote: SocketAddrV4) -> Result<SocketAddrV4, Refusal> {
        let keys = self.of_port(now, port);
        if keys.is_empty() {
            return Err(Refusal::NoMapping);
        }
        let filtering = self.with.filtering;
        let admits = |key: &(SocketAddrV4, Option<SocketAddrV4>)| {
            let permitted = self.mapping(now, *key).unwrap().permitted;
            let mut parts = permitted.iter().map(|(known, _)| filtering.part(*known));
            filtering == Dependence::EndpointIndependent || parts.any(|part| part == filtering.part(remote))
        };
        let part = self.with.mapping.part(remote);
        let admitted = keys.into_iter().filter(admits);
        let best = admitted.max_by_key(|key| (key.1 == part, self.mapping(now, *key).unwrap().used, *key));
        let key = best.ok_or(Refusal::Filtered)?;
        self.history.push(Passed {
            at: now,
            key,
            remote,
            port,
            outbound: false,
        });
        Ok(key.0)
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
    for kind in NatKind::ALL {
        for (protocol, remote) in [
            (Protocol::Udp, remote),
            (Protocol::Tcp, remote),
            (Protocol::Echo, at("198.51.100.7:0")),
        ] {
            let mut nat = nat(kind);
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
    let mut nat = nat(NatKind::FullCone);
    let mut out = packet(Protocol::Udp, at("10.0.0.2:5000"), at("198.51.100.7:1"), true, b"x");
    out[26..28].copy_from_slice(&[0, 0]);
    nat.translate(0, Side::Inside, &mut out).unwrap();
    assert_eq!(out[26..28], [0, 0]);
}

#[test]
fn untranslatable_packets_are_dropped_with_the_reason() {
    let mut nat = nat(NatKind::FullCone);
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
    let mut table = Table::new(NatKind::Symmetric.behaviour(), 1);
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

#[test]
fn only_packets_of_the_refresh_direction_keep_a_mapping() {
    let (inside, remote) = (at("10.0.0.2:5000"), at("198.51.100.7:443"));
    for (refresh, by_out, by_in) in [
        (Refresh::Both, true, true),
        (Refresh::Outbound, true, false),
        (Refresh::Inbound, false, true),
    ] {
        let behaviour = Behaviour {
            refresh,
            ..NatKind::SymmetricRandom.behaviour()
        };
        let mut table = Table::new(behaviour, 1);
        let mut out = |now| table.outbound(now, Protocol::Udp, inside, remote).unwrap();
        let (first, second) = (out(0), out(20_000));
        assert_eq!(first, second);
        assert_eq!(out(40_000) == first, by_out, "{refresh:?}");
        let mut table = Table::new(behaviour, 1);
        let port = table.outbound(0, Protocol::Udp, inside, remote).unwrap();
        assert_eq!(table.inbound(20_000, Protocol::Udp, port, remote), Ok(inside));
        let late = table.inbound(40_000, Protocol::Udp, port, remote);
        assert_eq!(late.is_ok(), by_in, "{refresh:?}");
    }
}

/// Two hosts with the same port share the outer port towards different hosts, and the one that the
/// sender belongs to receives.
#[test]
fn ports_are_overloaded_if_remote_endpoints_differ() {
    let (a, b) = (at("10.0.0.2:5000"), at("10.0.0.3:5000"));
    let (x, y) = (at("198.51.100.7:443"), at("198.51.100.8:443"));
    let mut table = Table::new(NatKind::SymmetricPreserving.behaviour(), 1);
    let mut out = |from, to| table.outbound(0, Protocol::Udp, from, to).unwrap();
    assert_eq!([out(a, x), out(b, y)], [5000, 5000]);
    let other = out(b, x);
    assert_ne!(other, 5000);
    let mut arrives = |port, from| table.inbound(1, Protocol::Udp, port, from);
    assert_eq!([arrives(5000, x), arrives(5000, y)], [Ok(a), Ok(b)]);
    assert_eq!(arrives(other, x), Ok(b));
    assert_eq!(arrives(5000, at("198.51.100.9:443")), Err(Refusal::Filtered));
    assert_eq!(table.inside_of(1, Protocol::Udp, 5000, y), Some(b));
    // Without overloading the second host gets another port at once.
    let behaviour = Behaviour {
        ports: PortAssignment::Preserving,
        ..NatKind::SymmetricPreserving.behaviour()
    };
    let mut table = Table::new(behaviour, 1);
    let mut out = |from, to| table.outbound(0, Protocol::Udp, from, to).unwrap();
    assert_eq!(out(a, x), 5000);
    assert!(out(b, y) != 5000 && out(a, y) != 5000);
}
