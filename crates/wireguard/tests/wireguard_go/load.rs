//! Either end is under load by messages for which its public key is enough, and the other end comes in with a cookie.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weft_lab::host::Host;
use weft_os::random::random_bytes;
use weft_os::test_support::in_namespaces;
use weft_wireguard::cookie::Jar;
use weft_wireguard::keys::PublicKey;
use weft_wireguard::message::{INITIATION_LEN, MAC_LEN};

use crate::packets::OURS;
use crate::pair::{INNER, PORT, Pair, Told, outer};

/// How often a test may find that the one message got through without a cookie.
const TRIES: usize = 6;

/// Initiations with a right MAC1 that do not open.
struct Flood {
    socket: UdpSocket,
    to: SocketAddr,
    jar: Jar,
    start: Instant,
    sent: u32,
}

impl Flood {
    /// From another port of the host.
    fn new(host: &Host, to: SocketAddr, key: &PublicKey) -> Self {
        Self {
            socket: host.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap(),
            to,
            jar: Jar::new(key),
            start: Instant::now(),
            sent: 0,
        }
    }

    /// Sends what is due at a rate of `burst` each `interval`.
    fn go_on(&mut self, burst: u32, interval: Duration) {
        while self.start.elapsed() >= interval * self.sent {
            self.sent += 1;
            for _ in 0..burst {
                let mut message = vec![0; INITIATION_LEN - 2 * MAC_LEN];
                random_bytes(&mut message).unwrap();
                message[..4].copy_from_slice(&[1, 0, 0, 0]);
                self.jar.sign(0, &mut message);
                // What exceeds the buffer of the receiver is lost.
                let _ = self.socket.send_to(&message, self.to);
            }
        }
    }
}

/// wireguard-go is under load while an eighth of its queue of 1024 messages is in use, and for a second after that.
#[test]
fn our_handshake_ends_while_wireguard_go_is_under_load() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        let mut flood = Flood::new(pair.node.host(), outer(1, PORT), pair.node.peer());
        let mut flood = || flood.go_on(600, Duration::from_millis(250));
        let (node, device) = (&mut pair.node, &pair.device);
        node.wait_until("wireguard-go asks for cookies", |_| {
            flood();
            device.logged("Sending cookie response") > 0
        });
        node.echo();
        node.wait_until("an answer", |node| {
            flood();
            !node.answers().is_empty()
        });
        let ours = format!(
            "Sending cookie response for denied handshake message for {}",
            outer(0, PORT)
        );
        println!("{} cookies, {:?}", device.logged("Sending cookie response"), node.calls);
        assert!(device.logged(&ours) > 0);
        assert_eq!(node.calls.begun, 1);
        assert_eq!(node.counters().forged, 0);
    });
}

#[test]
fn wireguard_go_comes_in_with_a_cookie_under_load() {
    in_namespaces(|| {
        for tries in 1.. {
            let Some(mut pair) = Pair::start(Told::they_know()) else {
                return;
            };
            let mut flood = Flood::new(&pair.device.host, outer(0, PORT), pair.node.public());
            // More than are answered, and less than cookies are given.
            let mut flood = || flood.go_on(2, Duration::from_micros(2_500));
            pair.node.wait_until("our end is under load", |node| {
                flood();
                node.counters().cookies > 0
            });
            pair.inner.send_to(b"under load", (OURS, INNER)).unwrap();
            pair.node.wait_until("a packet of theirs", |node| {
                flood();
                node.udp().is_some()
            });
            println!("{:?}", pair.node.counters());
            assert_eq!(pair.device.logged("Could not decrypt invalid cookie response"), 0);
            if pair.device.logged("Receiving cookie response") > 0 {
                return;
            }
            assert!(tries < TRIES);
        }
    });
}
