//! A handshake that either end begins, with and without preshared keys.

use weft_os::random::SystemRng;
use weft_os::test_support::in_namespaces;
use weft_wireguard::keys::PresharedKey;

use crate::packets;
use crate::pair::{INNER, PORT, Pair, Told, outer};

#[test]
fn we_begin_and_echo_requests_come_back() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        let took = pair.node.wait_for_echo("an answer");
        println!("first answer after {took:?}");
        assert_eq!(pair.handshakes(), [1, 0], "{}", pair.device.log());
        assert_eq!(pair.device.logged("Received invalid"), 0, "{}", pair.device.log());
        assert_eq!(pair.device.get("endpoint"), Some(outer(0, PORT).to_string()));
    });
}

#[test]
fn wireguard_go_begins_and_packets_pass_both_ways() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::they_know()) else {
            return;
        };
        assert_eq!(pair.node.endpoint(), None);
        let took = pair.wait_for_theirs("a packet of theirs");
        println!("first packet after {took:?}");
        assert_eq!(pair.node.endpoint(), Some(outer(1, PORT)));
        assert_eq!(pair.handshakes(), [0, 1], "{}", pair.device.log());

        pair.node.send(packets::udp(INNER + 1, INNER, b"a packet of ours"));
        let (node, inner) = (&mut pair.node, &pair.inner);
        let mut buf = [0; 64];
        node.wait_until("a packet of ours", |_| match inner.recv_from(&mut buf) {
            Ok((length, from)) => {
                assert_eq!(&buf[..length], b"a packet of ours");
                assert_eq!(from, (packets::OURS, INNER + 1).into());
                true
            }
            Err(_) => false,
        });
        node.wait_for_echo("an answer");
        assert_eq!(pair.handshakes(), [0, 1], "{}", pair.device.log());
        assert_eq!(pair.device.logged("Received invalid"), 0, "{}", pair.device.log());
    });
}

/// Both begin at the same time, and the keys of one of the handshakes stay.
#[test]
fn both_begin_at_once() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::both_know()) else {
            return;
        };
        pair.node.echo();
        pair.inner.send_to(b"at once", (packets::OURS, INNER)).unwrap();
        pair.node.wait_for_echo("an answer");
        pair.wait_for_theirs("a packet of theirs");
        let [begun, answered] = pair.handshakes();
        println!("{begun} handshakes of ours, {answered} of theirs");
        assert!((1..=2).contains(&(begun + answered)), "{}", pair.device.log());
    });
}

#[test]
fn with_one_preshared_key_at_both_ends_packets_pass() {
    in_namespaces(|| {
        let key = PresharedKey::generate(&mut SystemRng);
        for told in [Told::we_know(), Told::they_know()] {
            let (we_know, preshared) = (told.we_know, [Some(key.clone()), Some(key.clone())]);
            let Some(mut pair) = Pair::start(Told { preshared, ..told }) else {
                return;
            };
            if we_know {
                pair.node.wait_for_echo("an answer");
            } else {
                pair.wait_for_theirs("a packet of theirs");
            }
            let expected = [we_know, !we_know].map(usize::from);
            assert_eq!(pair.handshakes(), expected, "{}", pair.device.log());
            assert_eq!(pair.device.logged("Received invalid"), 0, "{}", pair.device.log());
        }
    });
}

#[test]
fn without_the_preshared_key_at_one_end_nothing_passes() {
    in_namespaces(|| {
        for ours in [None, Some(PresharedKey::generate(&mut SystemRng))] {
            let preshared = [ours, Some(PresharedKey::generate(&mut SystemRng))];
            let Some(mut pair) = Pair::start(Told {
                preshared,
                ..Told::we_know()
            }) else {
                return;
            };
            pair.node.echo();
            let (node, device) = (&mut pair.node, &pair.device);
            // The preshared key is first used in the response, which this end refuses.
            node.wait_until("two responses", |node| {
                device.logged("Sending handshake response") >= 2 && node.counters().forged >= 2
            });
            assert_eq!(node.answers(), [0; 0]);
            assert_eq!(node.calls.begun, 0);
        }
    });
}

#[test]
fn wireguard_go_refuses_a_response_of_another_preshared_key() {
    in_namespaces(|| {
        let preshared = [(); 2].map(|()| Some(PresharedKey::generate(&mut SystemRng)));
        let Some(mut pair) = Pair::start(Told {
            preshared,
            ..Told::they_know()
        }) else {
            return;
        };
        pair.inner.send_to(b"in vain", (packets::OURS, INNER)).unwrap();
        let (node, device) = (&mut pair.node, &pair.device);
        node.wait_until("two refused responses", |_| {
            device.logged("Received invalid response message") >= 2
        });
        assert!(node.calls.answered >= 2);
        assert_eq!(node.udp(), None);
        assert_eq!(device.logged("Received handshake response"), 0);
    });
}
