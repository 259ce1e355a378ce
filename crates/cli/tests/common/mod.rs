//! Common parts of the end-to-end tests: two weft nodes on one cable.
// Each test binary uses some of them.
#![allow(dead_code, unused_imports, unreachable_pub)]

pub mod lab;
pub mod machine;
pub mod net;
pub mod servers;
pub mod spoof;
pub mod turn;
pub mod wireguard;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use weft_os::assert_strict;
use weft_os::test_support::running_test;
pub use weft_os::test_support::wait_until;

use weft_lab::daemon::{Daemon, Identity, PeerState};
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger, TcpReport, ping, transfer};
use weft_lab::world::{Link, World};

pub use turn::{alone, beside, shared_turn, turn};

/// The binary under test.
pub const WEFT: &str = env!("CARGO_BIN_EXE_weft");

/// Time limit of a start or a link. It only ends a wait in vain, so it is far above what a busy machine
/// takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A time limit for what should take seconds.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The IP version of the underlay.
#[derive(Debug, Clone, Copy)]
pub enum Underlay {
    V4,
    V6,
}

impl Underlay {
    /// The addresses of both nodes on the cable.
    pub fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::V4 => ["192.0.2.1", "192.0.2.2"],
            Self::V6 => ["2001:db8::1", "2001:db8::2"],
        }
    }

    /// An address with the prefix length of its network.
    pub fn cidr(self, address: &str) -> String {
        match self {
            Self::V4 => format!("{address}/24"),
            Self::V6 => format!("{address}/64"),
        }
    }

    /// The configuration of a node that only listens.
    pub fn listener(self) -> NodeSpec {
        let any: IpAddr = match self {
            Self::V4 => [0_u8; 4].into(),
            Self::V6 => [0_u16; 8].into(),
        };
        NodeSpec {
            listen: vec![SocketAddr::new(any, DEFAULT_PORT)],
            ..NodeSpec::default()
        }
    }
}

/// Two nodes, `a` and `b`, that are configured with each other's address.
pub struct Pair {
    pub a: Daemon,
    pub b: Daemon,
    pub link: Link,
    world: World,
}

impl Pair {
    /// Starts both and waits until payload passes. `adjust` may change both configurations.
    pub fn start(underlay: Underlay, adjust: impl Fn(&mut NodeSpec)) -> Self {
        let mut pair = Self::start_unlinked(underlay, adjust);
        pair.wait_payload();
        pair
    }

    /// Starts both and waits until they answer.
    pub fn start_unlinked(underlay: Underlay, adjust: impl Fn(&mut NodeSpec)) -> Self {
        let world = World::new().unwrap();
        let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
        let addresses = underlay.addresses();
        let [a_net, b_net] = addresses.map(|address| underlay.cidr(address));
        let link = world.link((&hosts[0], &[&a_net]), (&hosts[1], &[&b_net])).unwrap();
        let ids = ["a", "b"].map(|name| identity(&world, name));
        let [a, b] = [0, 1].map(|own| {
            let peer = &ids[1 - own];
            let at = SocketAddr::new(addresses[1 - own].parse().unwrap(), DEFAULT_PORT);
            let mut spec = underlay.listener().with_peer(&peer.npub, &peer.name, &[at]);
            adjust(&mut spec);
            let mut daemon = Daemon::start(&hosts[own], Path::new(WEFT), &ids[own], &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        });
        Self { a, b, link, world }
    }

    /// Waits until pings pass in both directions and both nodes report it (L13).
    pub fn wait_payload(&mut self) {
        reached_within(PATIENCE, &self.a, &self.b);
        reached_within(PATIENCE, &self.b, &self.a);
        let [a, b] = [&self.a, &self.b].map(|daemon| daemon.identity().npub.clone());
        self.a.wait_peer(&b, PeerState::Payload, PATIENCE).unwrap();
        self.b.wait_peer(&a, PeerState::Payload, PATIENCE).unwrap();
    }

    /// Both hosts, for the load generators.
    pub fn hosts(&self) -> (&Host, &Host) {
        (self.a.host(), self.b.host())
    }

    /// Asserts that neither log has a warning, and that both stop cleanly.
    pub fn finish(mut self) {
        for daemon in [&mut self.a, &mut self.b] {
            let status = daemon.stop().unwrap();
            assert_eq!(status.code(), Some(0), "{}", daemon.identity().name);
        }
        for daemon in [&self.a, &self.b] {
            let warnings = daemon.warnings().unwrap();
            assert!(warnings.is_empty(), "{}: {warnings:#?}", daemon.identity().name);
        }
    }
}

/// A key in the world's directory, which follows from the names of test and node: which node is the
/// root of a tree, and in which order handshakes cross, is the same in each run. With
/// `WEFT_TEST_KEYS=random` it is another one each time.
pub fn identity(world: &World, name: &str) -> Identity {
    let (weft, parent) = (Path::new(WEFT), world.directory());
    let random = std::env::var_os("WEFT_TEST_KEYS").is_some_and(|keys| keys == "random");
    let made = match random {
        true => Identity::create(weft, parent, name),
        false => Identity::derive(weft, parent, &running_test(), name),
    };
    made.unwrap()
}

/// The mesh address of a node.
pub fn address(daemon: &Daemon) -> IpAddr {
    IpAddr::V6(daemon.identity().address)
}

/// Pings until an answer arrives, which must be within `limit`.
pub fn reached_within(limit: Duration, from: &Daemon, to: &Daemon) {
    let options = PingOptions {
        count: Some(1),
        interval: Duration::from_millis(50),
        // An answer that takes longer on a busy machine arrives at a later look.
        grace: Duration::from_millis(500),
        ..PingOptions::default()
    };
    let end = Instant::now() + limit;
    loop {
        let late = Instant::now() >= end;
        let pinger = Pinger::start(from.host(), to.identity().address, options).unwrap();
        if pinger.join().unwrap().received == 1 {
            return;
        }
        let (from, to) = (&from.identity().name, &to.identity().name);
        assert!(!late, "no ping from {from} to {to} in {limit:?}");
    }
}

/// Twenty pings, none of which may be lost.
pub fn assert_pings(from: &Daemon, to: &Daemon) {
    let interval = Duration::from_millis(20);
    let report = ping(from.host(), to.identity().address, 20, interval).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
}

/// A TCP transfer from one node to the other, complete and unchanged.
pub fn assert_transfer(from: &Daemon, to: &Daemon, bytes: u64) -> TcpReport {
    let hosts = (from.host(), to.host());
    let report = transfer(hosts, address(to), bytes, bytes, MINUTE).unwrap();
    assert_eq!(report.bytes, bytes);
    assert_strict!(report.hash_ok, "the content changed: {report:?}");
    report
}

/// The time between two lines of logs of this host, which are less than a day apart.
pub fn between(earlier: &str, later: &str) -> Duration {
    const DAY: f64 = 86_400.0;
    let seconds = |line: &str| {
        let clock = line.split_once('T').and_then(|(_, rest)| rest.split_once('Z'));
        let (clock, _) = clock.unwrap();
        clock
            .split(':')
            .fold(0.0, |sum, part| 60.0 * sum + part.parse::<f64>().unwrap())
    };
    Duration::from_secs_f64((seconds(later) - seconds(earlier)).rem_euclid(DAY))
}
