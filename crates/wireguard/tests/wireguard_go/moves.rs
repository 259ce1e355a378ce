//! Either end changes its port, and the other end follows without a handshake.

use weft_os::test_support::in_namespaces;

use crate::pair::{PORT, Pair, Told, outer};

#[test]
fn wireguard_go_follows_our_new_port() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        for port in [PORT + 1, PORT + 2] {
            pair.node.rebind(port);
            pair.node.wait_for_echo("an answer at another port");
            assert_eq!(pair.device.get("endpoint"), Some(outer(0, port).to_string()));
        }
        assert_eq!(pair.handshakes(), [1, 0], "{}", pair.device.log());
    });
}

#[test]
fn our_end_follows_the_new_port_of_wireguard_go() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        for port in [PORT + 1, PORT + 2] {
            pair.device.set(&[format!("listen_port={port}")]);
            pair.wait_for_theirs("a packet from another port");
            assert_eq!(pair.node.endpoint(), Some(outer(1, port)));
            pair.node.wait_for_echo("an answer from another port");
        }
        assert_eq!(pair.handshakes(), [1, 0], "{}", pair.device.log());
    });
}
