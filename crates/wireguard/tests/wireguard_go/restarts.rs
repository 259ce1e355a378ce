//! Either end forgets its keys, and there are new ones within the times of the protocol.

use std::time::Duration;

use weft_os::test_support::in_namespaces;
use weft_wireguard::interface::{KEEPALIVE, REKEY_TIMEOUT};

use crate::pair::{Pair, Told};

/// How long a peer may be silent until a handshake begins.
const SILENCE: Duration = Duration::from_millis(KEEPALIVE + REKEY_TIMEOUT);

#[test]
fn echoes_go_on_after_wireguard_go_was_killed() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        pair.device.kill();
        pair.node.echo();
        pair.device.launch();
        let took = pair.node.wait_for_echo("an answer of the new one");
        println!("an answer after {took:?}");
        assert_eq!(pair.handshakes(), [2, 0], "{}", pair.device.log());
        // Only the silence shows that the keys are of no use.
        assert!(took > SILENCE - Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn a_new_wireguard_go_begins_itself() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::both_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        pair.device.kill();
        pair.device.launch();
        let took = pair.wait_for_theirs("a packet of the new one");
        println!("a packet after {took:?}");
        pair.node.wait_for_echo("an answer of the new one");
        assert_eq!(pair.handshakes(), [1, 1], "{}", pair.device.log());
    });
}

#[test]
fn echoes_go_on_after_our_restart() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        for life in 1..=3 {
            let took = pair.node.wait_for_echo("an answer");
            println!("an answer after {took:?}");
            assert_eq!(pair.handshakes(), [life, 0], "{}", pair.device.log());
            // A program does not start again within the grain of the times in initiations.
            pair.node.work(Duration::from_millis(100));
            pair.node.restart();
        }
    });
}

#[test]
fn wireguard_go_begins_after_our_restart() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        pair.node.work(Duration::from_millis(100));
        pair.node.restart();
        let took = pair.wait_for_theirs("a packet under new keys");
        println!("a packet after {took:?}");
        assert_eq!(pair.handshakes(), [1, 1], "{}", pair.device.log());
    });
}
