//! Empty messages: in an interval that is set, and by an end that has received packets and sent none.

use std::time::Duration;

use weft_os::test_support::in_namespaces;
use weft_wireguard::interface::{KEEPALIVE, REKEY_TIMEOUT};

use crate::packets::{OURS, udp};
use crate::pair::{INNER, Pair, Told};

/// Longer than an end waits for a sign of the other one.
const SILENCE: Duration = Duration::from_millis(KEEPALIVE + REKEY_TIMEOUT + 1_000);

#[test]
fn with_an_interval_our_end_begins_and_keeps_alive() {
    in_namespaces(|| {
        let told = Told {
            keepalive: Some(1),
            ..Told::we_know()
        };
        let Some(mut pair) = Pair::start(told) else { return };
        let (node, device) = (&mut pair.node, &pair.device);
        node.wait_until("five keepalives", |_| device.logged("Receiving keepalive packet") >= 5);
        assert_eq!(pair.handshakes(), [1, 0], "{}", pair.device.log());
    });
}

#[test]
fn keepalives_of_wireguard_go_are_taken() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::they_know()) else {
            return;
        };
        pair.device.set_peer("persistent_keepalive_interval=1".to_owned());
        pair.node.wait_until("five keepalives", |node| node.calls.alive >= 5);
        assert_eq!(pair.handshakes(), [0, 1], "{}", pair.device.log());
    });
}

#[test]
fn packets_in_one_direction_need_no_new_handshake() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        pair.node.work(Duration::from_millis(500));
        // From here to there.
        let alive = pair.node.calls.alive;
        pair.node.send(udp(INNER, INNER, b"no answer"));
        pair.node.work(SILENCE);
        assert!(pair.node.calls.alive > alive, "{}", pair.device.log());
        // From there to here.
        let alive = pair.device.logged("Receiving keepalive packet");
        pair.inner.send_to(b"no answer", (OURS, INNER)).unwrap();
        pair.node.work(SILENCE);
        assert!(pair.device.logged("Receiving keepalive packet") > alive);
        assert_eq!(pair.device.logged("Retrying handshake"), 0, "{}", pair.device.log());
        assert_eq!(pair.handshakes(), [1, 0], "{}", pair.device.log());
    });
}
