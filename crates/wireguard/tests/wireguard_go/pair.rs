//! A node of weft-wireguard and a wireguard-go on one switch, each of which is the other one's peer.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use weft_lab::world::World;
use weft_os::random::SystemRng;
use weft_wireguard::interface::PeerSetup;
use weft_wireguard::keys::{PresharedKey, PrivateKey};

use crate::device::{Device, Peer, binary};
use crate::node::Node;
use crate::packets::{OURS, THEIRS};

/// The port of either end at first.
pub(crate) const PORT: u16 = 51_820;
/// The port of programs in the tunnel.
pub(crate) const INNER: u16 = 7_000;
/// The addresses of both hosts on the switch.
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
/// The interval of packets while one is waited for.
const INTERVAL: Duration = Duration::from_millis(250);

/// What the ends are told.
#[derive(Default)]
pub(crate) struct Told {
    /// The node knows where the device is, and the reverse.
    pub(crate) we_know: bool,
    pub(crate) they_know: bool,
    /// The preshared keys of the node and of the device.
    pub(crate) preshared: [Option<PresharedKey>; 2],
    /// The interval of the node's keepalives in seconds.
    pub(crate) keepalive: Option<u16>,
}

pub(crate) struct Pair {
    pub(crate) node: Node,
    pub(crate) device: Device,
    /// A socket in the tunnel on the host of the device.
    pub(crate) inner: UdpSocket,
    // Its directory has the device's files.
    _world: World,
}

/// The address of the node (0) or of the device (1) outside the tunnel.
pub(crate) fn outer(end: usize, port: u16) -> SocketAddr {
    SocketAddrV4::new(HOSTS[end], port).into()
}

impl Told {
    pub(crate) fn we_know() -> Self {
        Self {
            we_know: true,
            ..Self::default()
        }
    }

    pub(crate) fn they_know() -> Self {
        Self {
            they_know: true,
            ..Self::default()
        }
    }

    pub(crate) fn both_know() -> Self {
        Self {
            we_know: true,
            they_know: true,
            ..Self::default()
        }
    }
}

impl Pair {
    /// Starts both. `None`, and a message, if there is no wireguard-go.
    pub(crate) fn start(told: Told) -> Option<Self> {
        let program = binary()?;
        let world = World::new().unwrap();
        let switch = world.switch("switch").unwrap();
        let [ours, theirs] = ["weft", "wireguard-go"].map(|name| world.host(name).unwrap());
        for (host, address) in [&ours, &theirs].into_iter().zip(HOSTS) {
            switch.connect(host, &[&format!("{address}/24")]).unwrap();
        }
        let keys = [(); 2].map(|()| PrivateKey::generate(&mut SystemRng));
        let public = keys.each_ref().map(PrivateKey::public);
        let [our_key, their_key] = keys;
        let [our_preshared, their_preshared] = told.preshared;
        let peer = Peer {
            key: public[0],
            preshared: their_preshared,
            endpoint: told.they_know.then(|| outer(0, PORT)),
            address: OURS,
        };
        let at = (theirs.clone(), world.directory());
        let device = Device::start(&program, at, their_key, (THEIRS, PORT), peer);
        let setup = PeerSetup {
            preshared: our_preshared,
            endpoint: told.we_know.then(|| outer(1, PORT)),
            keepalive: told.keepalive,
        };
        let inner = theirs.run(|| UdpSocket::bind((THEIRS, INNER))).unwrap().unwrap();
        inner.set_nonblocking(true).unwrap();
        Some(Self {
            node: Node::new(ours, PORT, our_key, public[1], setup),
            device,
            inner,
            _world: world,
        })
    }

    /// Lets the device's host send UDP packets until one arrives, and returns how long that took.
    pub(crate) fn wait_for_theirs(&mut self, what: &str) -> Duration {
        let start = Instant::now();
        let (mut next, inner) = (start, &self.inner);
        self.node.wait_until(what, |node| {
            if Instant::now() >= next {
                inner.send_to(what.as_bytes(), (OURS, INNER)).unwrap();
                next += INTERVAL;
            }
            let arrived = (INNER, INNER, what.as_bytes().to_vec());
            std::iter::from_fn(|| node.udp()).any(|packet| packet == arrived)
        });
        start.elapsed()
    }

    /// How many handshakes both ends have begun and finished, those aside that wireguard-go has made twice: it sets its timer
    /// for a repeat after it has sent, which on a busy machine is after the response has come.
    pub(crate) fn handshakes(&self) -> [usize; 2] {
        let (mut finished, mut again, mut twice) = (false, false, 0);
        for line in self.device.log().lines() {
            if line.contains("Handshake did not complete") {
                again = finished;
            } else if line.contains("Sending handshake initiation") {
                finished = false;
            } else if line.contains("Received handshake response") {
                twice += usize::from(std::mem::take(&mut again));
                finished = true;
            }
        }
        [self.node.calls.begun, self.node.calls.answered - twice]
    }
}
