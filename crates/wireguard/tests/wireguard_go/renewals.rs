//! Keys are renewed while packets pass, none of which is lost, and when they have ended.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weft_os::test_support::in_namespaces;
use weft_wireguard::interface::REJECT_AFTER;

use crate::packets::OURS;
use crate::pair::{INNER, Pair, Told};

/// The interval of packets.
const BEAT: Duration = Duration::from_millis(100);
/// Keys are renewed after 120 s and after 240 s.
const LONG: Duration = Duration::from_secs(300);
/// How long a packet may be on its way.
const LATE: Duration = Duration::from_secs(1);

/// Calls `each` in a steady beat, and lets the node work meanwhile.
fn beat(pair: &mut Pair, time: Duration, mut each: impl FnMut(&mut Pair, u32)) {
    let start = Instant::now();
    for number in 1.. {
        each(pair, number);
        let next = start + number * BEAT;
        pair.node.work(next.saturating_duration_since(Instant::now()));
        if start.elapsed() > time {
            return;
        }
    }
}

/// Sends echo requests, of which none may be lost.
fn echo_all(pair: &mut Pair) {
    let (mut open, mut count) = (BTreeSet::new(), 0);
    beat(pair, LONG, |pair, _| {
        assert!(pair.node.answers().iter().all(|number| open.remove(number)));
        open.insert(pair.node.echo());
        count += 1;
    });
    pair.node.work(LATE);
    assert!(pair.node.answers().iter().all(|number| open.remove(number)));
    println!("{count} echo requests, {:?}", pair.node.calls);
    assert_eq!(open, BTreeSet::new(), "{}", pair.device.log());
}

#[test]
#[ignore = "takes 5 minutes; .ci/long runs it"]
fn no_echo_is_lost_while_we_renew_keys() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        echo_all(&mut pair);
        assert_eq!(pair.handshakes(), [3, 0], "{}", pair.device.log());
    });
}

#[test]
#[ignore = "takes 5 minutes; .ci/long runs it"]
fn no_echo_is_lost_while_wireguard_go_renews_keys() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::they_know()) else {
            return;
        };
        pair.wait_for_theirs("a packet of theirs");
        echo_all(&mut pair);
        assert_eq!(pair.handshakes(), [0, 3], "{}", pair.device.log());
    });
}

/// The end that has the handshake to begin sends keepalives alone, which renew keys as packets do.
#[test]
#[ignore = "takes 5 minutes; .ci/long runs it"]
fn no_packet_of_theirs_is_lost_while_we_only_receive() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        let (mut expected, mut sent) = (0, 0);
        let mut take = |pair: &mut Pair| {
            while let Some((_, _, packet)) = pair.node.udp() {
                expected += 1;
                assert_eq!(packet, u32::to_be_bytes(expected));
            }
            expected
        };
        beat(&mut pair, LONG, |pair, number| {
            take(pair);
            pair.inner.send_to(&number.to_be_bytes(), (OURS, INNER)).unwrap();
            sent = number;
        });
        pair.node.work(LATE);
        assert_eq!(take(&mut pair), sent, "{}", pair.device.log());
        println!("{sent} packets, {:?}", pair.node.calls);
        assert_eq!(pair.handshakes(), [3, 0], "{}", pair.device.log());
    });
}

#[test]
#[ignore = "takes 7 minutes; .ci/long runs it"]
fn when_keys_have_ended_either_end_makes_new_ones() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        let silence = Duration::from_millis(REJECT_AFTER) + Duration::from_secs(20);
        pair.node.wait_for_echo("an answer");
        pair.node.work(silence);
        let took = pair.node.wait_for_echo("an answer after a silence");
        println!("an answer after {took:?}");
        assert_eq!(pair.handshakes(), [2, 0], "{}", pair.device.log());
        pair.node.work(silence);
        let took = pair.wait_for_theirs("a packet of theirs after a silence");
        println!("a packet after {took:?}");
        assert_eq!(pair.handshakes(), [2, 1], "{}", pair.device.log());
    });
}
