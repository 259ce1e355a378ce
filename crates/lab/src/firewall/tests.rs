//! Decisions, packet by packet and against a slow model.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const IN: SocketAddr = SocketAddr::new(
    IpAddr::V6(std::net::Ipv6Addr::new(0x2d00, 0x11, 1, 0, 0, 0, 0, 2)),
    5000,
);
const OUT: SocketAddr = SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::new(0x2d00, 0x11, 0, 0, 0, 0, 0, 7)), 443);

/// An Ethernet frame with an IP packet of this protocol and payload; the extension headers of IPv6
/// are in front of the payload.
fn frame(first: u8, protocol: u8, source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, first, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => unreachable!("one IP version"),
    }
    frame.extend(payload);
    frame
}

/// A packet whose payload begins with two ports.
fn packet(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let payload = [
        source.port().to_be_bytes(),
        destination.port().to_be_bytes(),
        [0; 2],
        [0; 2],
    ]
    .concat();
    frame(protocol, protocol, source, destination, &payload)
}

fn echo(kind: u8, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let protocol = if source.is_ipv4() { 1 } else { 58 };
    frame(protocol, protocol, source, destination, &[kind, 0, 0, 0, 0, 9, 0, 1])
}

/// An ICMP error about `quoted`, an Ethernet frame.
fn error(source: SocketAddr, destination: SocketAddr, quoted: &[u8]) -> Vec<u8> {
    let (protocol, kind) = if source.is_ipv4() { (1, 3) } else { (58, 1) };
    let payload = [&[kind, 0, 0, 0, 0, 0, 0, 0], &quoted[14..]].concat();
    frame(protocol, protocol, source, destination, &payload)
}

fn both() -> [(SocketAddr, SocketAddr); 2] {
    let v4 = |text: &str| text.parse().unwrap();
    [(IN, OUT), (v4("11.0.1.2:5000"), v4("11.0.0.7:443"))]
}

fn stateful() -> Firewall {
    Firewall::new(FirewallRules {
        inbound: Inbound::Answers,
        ..FirewallRules::default()
    })
}

#[test]
fn only_answers_enter() {
    for (inside, outside) in both() {
        for protocol in [6, 17, 47] {
            let mut wall = stateful();
            let (out, answer) = (packet(protocol, inside, outside), packet(protocol, outside, inside));
            assert!(!wall.admits(0, Way::In, &answer));
            assert!(wall.admits(1, Way::Out, &out));
            assert!(wall.admits(2, Way::In, &answer));
            let mut stranger = outside;
            stranger.set_port(444);
            // A protocol without ports has one flow for each pair of hosts.
            let other = packet(protocol, stranger, inside);
            assert_eq!(wall.admits(3, Way::In, &other), protocol == 47, "{protocol}");
            assert_eq!(wall.counts().dropped_out, 0);
        }
    }
}

#[test]
fn an_echo_request_is_no_answer_and_an_echo_reply_opens_nothing() {
    for (inside, outside) in both() {
        let [request, reply] = if inside.is_ipv4() { [8, 0] } else { [128, 129] };
        let mut wall = stateful();
        assert!(wall.admits(0, Way::Out, &echo(reply, inside, outside)));
        assert!(!wall.admits(0, Way::In, &echo(reply, outside, inside)));
        assert!(wall.admits(0, Way::Out, &echo(request, inside, outside)));
        assert!(!wall.admits(0, Way::In, &echo(request, outside, inside)));
        assert!(wall.admits(0, Way::In, &echo(reply, outside, inside)));
    }
}

#[test]
fn an_error_enters_if_it_is_about_a_flow_of_the_inside() {
    for (inside, outside) in both() {
        let mut wall = stateful();
        let out = packet(17, inside, outside);
        let mut router = outside;
        router.set_port(0);
        assert!(!wall.admits(0, Way::In, &error(router, inside, &out)));
        assert!(wall.admits(0, Way::Out, &out));
        assert!(wall.admits(0, Way::In, &error(router, inside, &out)));
        // An error that leaves opens no flow.
        let mut wall = stateful();
        let came = packet(17, outside, inside);
        assert!(wall.admits(0, Way::Out, &error(inside, outside, &came)));
        assert!(!wall.admits(0, Way::In, &came));
    }
}

#[test]
fn without_udp_everything_else_passes() {
    for (inside, outside) in both() {
        let mut wall = Firewall::new(FirewallRules {
            udp: false,
            ..FirewallRules::default()
        });
        assert!(wall.admits(0, Way::Out, &packet(6, inside, outside)));
        assert!(wall.admits(0, Way::In, &packet(6, outside, inside)));
        assert!(!wall.admits(0, Way::Out, &packet(17, inside, outside)));
        assert!(!wall.admits(0, Way::In, &packet(17, outside, inside)));
        let counts = wall.counts();
        assert_eq!((counts.dropped_in, counts.dropped_out), (1, 1));
        // Behind extension headers, and in a fragment that has no ports.
        if inside.is_ipv6() {
            let options = [17, 0, 0, 0, 0, 0, 0, 0, 0x13, 0x88, 1, 0xbb, 0, 8, 0, 0];
            assert!(!wall.admits(0, Way::Out, &frame(60, 0, inside, outside, &options)));
            let fragment = [17, 0, 1, 0, 0, 0, 0, 1, 1, 2, 3, 4];
            assert!(!wall.admits(0, Way::Out, &frame(44, 0, inside, outside, &fragment)));
        } else {
            let mut fragment = packet(17, inside, outside);
            fragment[14 + 7] = 5;
            assert!(!wall.admits(0, Way::Out, &fragment));
        }
    }
}

#[test]
fn rules_of_one_ip_version_leave_the_other_alone() {
    for (inside, outside) in both() {
        let mut wall = Firewall::new(FirewallRules {
            inbound: Inbound::Answers,
            ipv4: false,
            ..FirewallRules::default()
        });
        assert_eq!(wall.admits(0, Way::In, &packet(17, outside, inside)), inside.is_ipv4());
    }
}

#[test]
fn neighbours_find_each_other_and_a_later_fragment_is_no_answer() {
    let mut wall = stateful();
    for kind in [133, 134, 135, 136, 143] {
        assert!(wall.admits(0, Way::In, &echo(kind, OUT, IN)));
    }
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 28]].concat();
    assert!(wall.admits(0, Way::In, &arp));
    assert!(wall.admits(0, Way::Out, &packet(17, IN, OUT)));
    let fragment = [17, 0, 1, 0, 0, 0, 0, 1, 1, 2, 3, 4];
    assert!(!wall.admits(0, Way::In, &frame(44, 0, OUT, IN, &fragment)));
    assert!(wall.admits(0, Way::Out, &frame(44, 0, IN, OUT, &fragment)));
}

#[test]
fn the_number_of_flows_is_bounded() {
    let mut wall = stateful();
    let port = |n: usize| SocketAddr::new(OUT.ip(), (n % 65_536) as u16);
    let source = |n: usize| SocketAddr::new(IN.ip(), (n / 65_536) as u16);
    for n in 0..=MAX_FLOWS {
        assert!(wall.admits(0, Way::Out, &packet(17, source(n), port(n))));
    }
    assert_eq!(wall.flows.len(), MAX_FLOWS);
    assert!(wall.admits(0, Way::In, &packet(17, port(0), source(0))));
    assert!(!wall.admits(0, Way::In, &packet(17, port(MAX_FLOWS), source(MAX_FLOWS))));
    // Expired flows make room.
    assert!(wall.admits(30_000, Way::Out, &packet(17, source(MAX_FLOWS), port(MAX_FLOWS))));
    assert_eq!(wall.flows.len(), 1);
}

proptest! {
    /// An answer enters if the latest packet of its flow, in either direction, is not too old, and
    /// so on back to one from inside.
    #[test]
    fn answers_are_those_of_a_slow_model(steps in proptest::collection::vec((any::<bool>(), 0..2_u16, 0..2_u16, 0..20_000_u64), 1..100)) {
        let mut wall = stateful();
        let (mut now, mut history) = (0, Vec::<((u16, u16), bool, u64)>::new());
        for (out, inside, outside, pause) in steps {
            now += pause;
            let (from, to) = (SocketAddr::new(IN.ip(), inside), SocketAddr::new(OUT.ip(), outside));
            let way = if out { Way::Out } else { Way::In };
            let frame = if out { packet(17, from, to) } else { packet(17, to, from) };
            let mut last = now;
            let mut unbroken = history.iter().rev().filter(|(flow, ..)| *flow == (inside, outside)).take_while(|(_, _, at)| {
                let live = last - *at < 30_000;
                last = *at;
                live
            });
            let expected = out || unbroken.any(|(_, out, _)| *out);
            prop_assert_eq!(wall.admits(now, way, &frame), expected);
            if expected {
                history.push(((inside, outside), out, now));
            }
        }
    }

    #[test]
    fn nothing_that_comes_panics(kind in 0..4_usize, bytes in proptest::collection::vec(any::<u8>(), 0..120), way: bool) {
        let start: &[u8] = [&[8, 0, 0x45][..], &[0x86, 0xdd, 0x60], &[8, 6], &[]][kind];
        let frame = [&[0; 12][..], start, &bytes].concat();
        let mut wall = stateful();
        wall.admits(0, if way { Way::In } else { Way::Out }, &frame);
        wall.admits(0, Way::Out, &bytes);
    }
}
