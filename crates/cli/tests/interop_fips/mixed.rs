//! A weft node and a reference daemon on one cable.
#![allow(unreachable_pub)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::daemon::{Daemon, PeerState};
use weft_lab::fips::{self, FipsDaemon};
use weft_lab::host::Host;
use weft_lab::relay::{self, Leg, UdpRelay};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger, ProbeReport, TcpReport, ping, transfer};
use weft_lab::world::{Switch, World};
use weft_os::assert_strict;
use weft_os::test_support::skip;

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, identity, shared_turn, turn};

/// The daemon reports at WARN that a flow at full rate fills its queues; its peer is not at fault.
pub const FULL_QUEUE: &str = "EncryptWorker channel full";

/// Rekey interval in seconds for a side that shall not begin a rekey.
pub const NEVER_S: u32 = 86_400;

/// The daemon's binary; `None`, and a message, if the environment names none.
pub fn binary() -> Option<PathBuf> {
    let path = fips::binary();
    if path.is_none() {
        skip(format!("{} is not set to the path of a fips binary", fips::ENVIRONMENT));
    }
    path
}

/// The address of the third host of [`Case::switched`].
pub const THIRD: &str = "192.0.2.66";

/// The side that knows the other's address. The side that is dialled knows only the key (weft) or
/// nothing (fips).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialler {
    Weft,
    Fips,
    Both,
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Weft,
    Fips,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Weft => Self::Fips,
            Self::Fips => Self::Weft,
        }
    }
}

/// The parameters of a case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub dialler: Dialler,
    /// The side with the smaller node address: it wins if both begin a handshake at the same time.
    pub smaller: Side,
    pub underlay: Underlay,
    pub weft_rekey_s: u32,
    pub fips_rekey_s: u32,
    pub fips_rekey_after_messages: u64,
    /// Whether the daemon logs at DEBUG.
    pub debug: bool,
    /// Whether a UDP relay on a third host is between the two, over IPv4.
    pub relayed: bool,
    /// Whether a switch is between the two, over IPv4, with a third host on it.
    pub switched: bool,
    /// Whether it uses all CPU time, so that no other case may run beside it.
    pub busy: bool,
}

impl Case {
    /// IPv4 on one cable, with the defaults of both programs.
    pub fn new(dialler: Dialler, smaller: Side) -> Self {
        Self {
            dialler,
            smaller,
            underlay: Underlay::V4,
            weft_rekey_s: 120,
            fips_rekey_s: 120,
            fips_rekey_after_messages: 1 << 16,
            debug: false,
            relayed: false,
            switched: false,
            busy: false,
        }
    }

    /// The configuration of one side whose peer has this key and this address.
    fn spec(&self, side: Side, peer: &str, at: &str) -> NodeSpec {
        let dials = match self.dialler {
            Dialler::Weft => side == Side::Weft,
            Dialler::Fips => side == Side::Fips,
            Dialler::Both => true,
        };
        let at = SocketAddr::new(at.parse().unwrap(), DEFAULT_PORT);
        let mut spec = self.underlay.listener();
        spec = spec.with_peer(peer, "peer", if dials { std::slice::from_ref(&at) } else { &[] });
        spec.rekey_s = match side {
            Side::Weft => self.weft_rekey_s,
            Side::Fips => self.fips_rekey_s,
        };
        spec.fips.rekey_after_messages = self.fips_rekey_after_messages;
        if self.debug {
            spec.fips.log_level = "debug".to_owned();
        }
        spec
    }
}

/// A weft node and a reference daemon. If a test fails, its directory remains and is named.
pub struct Mixed {
    pub weft: Daemon,
    pub fips: FipsDaemon,
    /// Present with [`Case::relayed`]; weft is its side A.
    pub relay: Option<UdpRelay>,
    /// Present with [`Case::switched`].
    pub third: Option<Host>,
    _switch: Option<Switch>,
    /// The addresses of weft and the daemon, as the other side sees them.
    pub addresses: [&'static str; 2],
    _world: World,
    _turn: std::fs::File,
}

impl Mixed {
    /// Starts both at once and waits until pings pass in both directions.
    pub fn start(fips: &Path, case: &Case) -> Self {
        let turn = if case.busy { turn() } else { shared_turn() };
        let world = World::new().unwrap();
        let hosts = ["weft", "fips"].map(|name| world.host(name).unwrap());
        let (mut relay, mut third, mut switch) = (None, None, None);
        let mut seen = case.underlay.addresses();
        if case.relayed {
            let laid = lay_relay(&world, &hosts);
            seen = laid.0;
            relay = Some(laid.1);
        } else if case.switched {
            let laid = lay_switch(&world, &hosts, seen);
            third = Some(laid.0);
            switch = Some(laid.1);
        } else {
            let nets = seen.map(|address| case.underlay.cidr(address));
            world.link((&hosts[0], &[&nets[0]]), (&hosts[1], &[&nets[1]])).unwrap();
        }
        let mut ids = ["one", "two"].map(|name| identity(&world, name));
        // Addresses of the mesh are truncated node addresses, so they have the same order.
        if (ids[0].address < ids[1].address) != (case.smaller == Side::Weft) {
            ids.swap(0, 1);
        }
        let spec = case.spec(Side::Fips, &ids[0].npub, seen[0]);
        let fips = FipsDaemon::start(&hosts[1], fips, &ids[1], &spec).unwrap();
        let spec = case.spec(Side::Weft, &ids[1].npub, seen[1]);
        let weft = Daemon::start(&hosts[0], Path::new(WEFT), &ids[0], &spec).unwrap();
        let mut mixed = Self {
            weft,
            fips,
            relay,
            third,
            _switch: switch,
            addresses: seen,
            _world: world,
            _turn: turn,
        };
        mixed.weft.wait_ready(PATIENCE).unwrap();
        mixed.fips.wait_ready(PATIENCE).unwrap();
        for from in [Side::Weft, Side::Fips] {
            mixed.first_answer(from, Instant::now(), PATIENCE);
        }
        let peer = mixed.fips.identity().npub.clone();
        mixed.weft.wait_peer(&peer, PeerState::Payload, PATIENCE).unwrap();
        mixed
    }

    /// The UDP address of a node at this IP address.
    pub fn at(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), DEFAULT_PORT)
    }

    /// The log of one side, over all its starts.
    pub fn log_path(&self, side: Side) -> &Path {
        match side {
            Side::Weft => self.weft.log_path(),
            Side::Fips => self.fips.log_path(),
        }
    }

    pub fn host(&self, side: Side) -> &Host {
        match side {
            Side::Weft => self.weft.host(),
            Side::Fips => self.fips.host(),
        }
    }

    /// The address in the mesh.
    pub fn address(&self, side: Side) -> Ipv6Addr {
        match side {
            Side::Weft => self.weft.identity().address,
            Side::Fips => self.fips.identity().address,
        }
    }

    /// Both hosts of a flow that begins at `from`.
    pub fn hosts(&self, from: Side) -> (&Host, &Host) {
        (self.host(from), self.host(from.other()))
    }

    pub fn kill(&mut self, side: Side) {
        match side {
            Side::Weft => self.weft.kill().unwrap(),
            Side::Fips => self.fips.kill().unwrap(),
        }
    }

    pub fn restart(&mut self, side: Side) {
        match side {
            Side::Weft => self.weft.restart().unwrap(),
            Side::Fips => self.fips.restart().unwrap(),
        }
    }

    /// Weft's status of the daemon.
    pub fn status(&self) -> Value {
        self.weft.peer(&self.fips.identity().npub).unwrap().unwrap()
    }

    /// The number of rekeys of link and session, as weft counts them.
    pub fn rekeys(&self) -> [u64; 2] {
        let status = self.status();
        ["link", "session"].map(|layer| {
            let count = status[layer]["rekeys"].as_u64();
            count.unwrap_or_else(|| panic!("no {layer}.rekeys in {status}"))
        })
    }

    /// The only peer that the daemon lists. It updates its lists once a second.
    pub fn fips_peer(&self) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut answer = self.fips.query("show_peers").unwrap();
            if let Some([peer]) = answer["peers"].as_array_mut().map(Vec::as_mut_slice) {
                return peer.take();
            }
            assert!(Instant::now() < end, "{answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Pings in the background.
    pub fn pinger(&self, from: Side, options: PingOptions) -> Pinger {
        Pinger::start(self.host(from), self.address(from.other()), options).unwrap()
    }

    /// Pings until an answer arrives; returns the time since `since`, which must be within `limit`.
    pub fn first_answer(&self, from: Side, since: Instant, limit: Duration) -> Duration {
        let options = PingOptions {
            count: Some(1),
            interval: Duration::from_millis(20),
            grace: Duration::from_millis(100),
            ..PingOptions::default()
        };
        loop {
            if self.pinger(from, options).join().unwrap().received == 1 {
                return since.elapsed();
            }
            let after = since.elapsed();
            assert!(
                after < limit,
                "no answer to a ping of {from:?} after {after:?}: {}",
                self.status()
            );
        }
    }

    /// Twenty pings, none of which may be lost.
    pub fn assert_pings(&self, from: Side) -> ProbeReport {
        let interval = Duration::from_millis(20);
        let report = ping(self.host(from), self.address(from.other()), 20, interval).unwrap();
        assert!(report.lost.is_empty(), "{from:?}: {report:?}");
        report
    }

    /// A TCP transfer from one side to the other, complete and unchanged.
    pub fn assert_transfer(&self, from: Side, bytes: u64) -> TcpReport {
        let to = IpAddr::V6(self.address(from.other()));
        let report = transfer(self.hosts(from), to, bytes, bytes, 2 * MINUTE).unwrap();
        assert_eq!(report.bytes, bytes, "{from:?}");
        assert_strict!(report.hash_ok, "from {from:?}");
        report
    }

    /// Asserts that both stop cleanly and that neither log has a warning, except [`FULL_QUEUE`].
    pub fn finish(mut self) {
        let status = self.weft.stop().unwrap();
        assert_eq!(status.code(), Some(0));
        self.fips.stop().unwrap();
        let warnings = self.weft.warnings().unwrap();
        assert!(warnings.is_empty(), "weft: {warnings:#?}");
        let mut warnings = self.fips.warnings().unwrap();
        warnings.retain(|line| !line.contains(FULL_QUEUE));
        assert!(warnings.is_empty(), "fips: {warnings:#?}");
    }
}

/// Connects weft's host, a relay and the daemon's host; returns the address at which each is seen
/// by the other.
fn lay_relay(world: &World, [weft, fips]: &[Host; 2]) -> ([&'static str; 2], UdpRelay) {
    let middle = world.host("middle").unwrap();
    world
        .link((weft, &["192.0.2.1/24"]), (&middle, &["192.0.2.254/24"]))
        .unwrap();
    world
        .link((&middle, &["198.51.100.254/24"]), (fips, &["198.51.100.2/24"]))
        .unwrap();
    let leg = |local: &str, peer: &str| {
        let [local, peer] = [local, peer].map(|ip| SocketAddr::new(ip.parse().unwrap(), DEFAULT_PORT));
        Leg { local, peer }
    };
    let (a, b) = (leg("192.0.2.254", "192.0.2.1"), leg("198.51.100.254", "198.51.100.2"));
    let relay = UdpRelay::start(&middle, a, b, relay::pass).unwrap();
    (["198.51.100.254", "192.0.2.254"], relay)
}

/// Connects both hosts, at these addresses, and a third one to one switch.
fn lay_switch(world: &World, hosts: &[Host; 2], addresses: [&str; 2]) -> (Host, Switch) {
    let switch = world.switch("switch").unwrap();
    let third = world.host("third").unwrap();
    let [weft, fips] = addresses;
    for (host, ip) in [(&hosts[0], weft), (&hosts[1], fips), (&third, THIRD)] {
        switch.connect(host, &[&format!("{ip}/24")]).unwrap();
    }
    (third, switch)
}
