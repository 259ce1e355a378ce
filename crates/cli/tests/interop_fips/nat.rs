//! A weft node and a reference daemon, each behind a NAT box of its own. They know each other's key, and
//! have a relay of Nostr and a STUN server in common, and no neighbour.

use std::path::Path;
use std::time::Duration;

use weft_lab::child::LoggedChild;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::fips::FipsDaemon;
use weft_lab::host::Host;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::{FipsNostr, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger, ping};
use weft_lab::world::{Switch, World};
use weft_os::test_support::{in_namespaces, require_turnserver};

use crate::common::servers::{NostrRelay, coturn};
use crate::common::{MINUTE, PATIENCE, WEFT, identity, shared_turn, wait_until};
use crate::mixed::{Side, binary};

/// Public addresses: both programs leave those of documentation out of adverts.
const RELAY: &str = "11.0.0.7:7777";
const STUN: &str = "11.0.0.8:3478";
const OUTER: [&str; 2] = ["11.0.0.101", "11.0.0.102"];

/// Until weft has made its first two offers, 2 s and 12 s after it is connected. The next one follows
/// after 20 s: in that time the daemon, which starts then, makes one.
const OFFERED: Duration = Duration::from_secs(13);

/// What the daemon warns of at its start, before it is connected to the relay and has asked it for
/// the advert of its peer.
const EXPECTED: [&str; 2] = [
    "relay is initialized but not ready",
    "Failed to initiate peer connection",
];

struct Net {
    weft: Daemon,
    fips: FipsDaemon,
    boxes: [NatBox; 2],
    _servers: (NostrRelay, LoggedChild),
    _wan: Switch,
    _world: World,
    _turn: std::fs::File,
}

/// A host behind a NAT box that lets in what it has sent to, from the same address and port.
fn behind(world: &World, wan: &Switch, name: &str, outer: &str) -> (Host, NatBox) {
    let lan = world.switch("lan").unwrap();
    let config = NatConfig::new(NatKind::PortRestricted);
    let nat = world.nat(config, (&lan, "192.168.1.1/24"), (wan, &format!("{outer}/24")));
    let nat = nat.unwrap();
    let host = world.host(name).unwrap();
    lan.connect(&host, &["192.168.1.2/24"]).unwrap();
    host.add_default_route(nat.inner()).unwrap();
    (host, nat)
}

impl Net {
    /// Starts both; `dialler` makes the offer. The daemon makes one only to a peer in its
    /// configuration, and weft answers offers of such peers alone. So weft has the daemon as its peer
    /// in both cases, and starts first where it answers: its own first offers find no reader.
    fn start(relay: &Path, fips: &Path, dialler: Side) -> Self {
        let turn = shared_turn();
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let server = world.host("server").unwrap();
        wan.connect(&server, &["11.0.0.7/24", "11.0.0.8/24"]).unwrap();
        let servers = (
            NostrRelay::start(relay, &server, RELAY),
            coturn(&world, &server, &["11.0.0.8"]),
        );
        let (weft_host, weft_box) = behind(&world, &wan, "weft", OUTER[0]);
        let (fips_host, fips_box) = behind(&world, &wan, "fips", OUTER[1]);
        let mut ids = ["one", "two"].map(|name| identity(&world, name));
        // Of two offers that cross, that of the smaller node address is answered.
        if (ids[0].address < ids[1].address) != (dialler == Side::Weft) {
            ids.swap(0, 1);
        }
        let [weft_id, fips_id] = ids;
        let start_fips = || FipsDaemon::start(&fips_host, fips, &fips_id, &fips_spec(&weft_id, dialler)).unwrap();
        let start_weft = || {
            let spec = weft_spec(&fips_id, &servers.0.url);
            let mut weft = Daemon::start(&weft_host, Path::new(WEFT), &weft_id, &spec).unwrap();
            weft.wait_ready(PATIENCE).unwrap();
            weft
        };
        let (weft, mut fips) = match dialler {
            Side::Weft => {
                let fips = start_fips();
                (start_weft(), fips)
            }
            Side::Fips => {
                let weft = start_weft();
                wait_until(PATIENCE, "the relay has the advert", || published(&weft));
                std::thread::sleep(OFFERED);
                (weft, start_fips())
            }
        };
        fips.wait_ready(PATIENCE).unwrap();
        Self {
            weft,
            fips,
            boxes: [weft_box, fips_box],
            _servers: servers,
            _wan: wan,
            _world: world,
            _turn: turn,
        }
    }

    /// Waits until pings pass in both directions and the path is direct, to the NAT box of the daemon.
    fn assert_direct(&self) {
        let (weft, fips) = (self.weft.identity(), self.fips.identity());
        let answered = |host: &Host, to: &Identity| {
            let options = PingOptions {
                count: Some(1),
                ..PingOptions::default()
            };
            Pinger::start(host, to.address, options)
                .unwrap()
                .join()
                .unwrap()
                .received
                == 1
        };
        wait_until(MINUTE, "pings pass", || {
            answered(self.weft.host(), fips) && answered(self.fips.host(), weft)
        });
        let peer = self.weft.peer(&fips.npub).unwrap().unwrap();
        assert_eq!(peer["path"]["kind"], "direct", "{peer}");
        let at = peer["path"]["addr"].as_str().unwrap();
        assert!(at.starts_with(&format!("{}:", OUTER[1])), "{peer}");
        for (host, to) in [(self.weft.host(), fips), (self.fips.host(), weft)] {
            let report = ping(host, to.address, 20, Duration::from_millis(20)).unwrap();
            assert!(report.lost.is_empty(), "{report:?}");
        }
        assert!(self.boxes.iter().all(|nat| nat.counts().out > 0));
    }

    fn fips_logged(&self, text: &str) -> bool {
        self.fips.log().unwrap().contains(text)
    }

    fn finish(mut self) {
        assert_eq!(self.weft.stop().unwrap().code(), Some(0));
        assert_eq!(self.weft.warnings().unwrap(), Vec::<String>::new());
        self.fips.stop().unwrap();
        let mut warnings = self.fips.warnings().unwrap();
        warnings.retain(|line| !EXPECTED.iter().any(|text| line.contains(text)));
        assert_eq!(warnings, Vec::<String>::new());
    }
}

/// Whether the relay is connected, and the STUN server has answered, so that the advert is complete.
fn published(weft: &Daemon) -> bool {
    let node = weft.status().unwrap()["node"].take();
    node["nostr_relays"][0]["state"] == "open" && node["stun"][0]["seen"].is_string()
}

fn weft_spec(peer: &Identity, relay: &str) -> NodeSpec {
    let extra_toml = format!(
        "\n[nostr]\nrelays = [\"{}\"]\nadvertise = true\n\n[reach]\nstun = [\"{STUN}\"]\n\n[log]\nlevel = \"debug\"\n",
        relay.trim_end_matches('/')
    );
    NodeSpec {
        extra_toml,
        ..NodeSpec::default()
    }
    .with_peer(&peer.npub, "fips", &[])
}

fn fips_spec(peer: &Identity, dialler: Side) -> NodeSpec {
    let mut spec = NodeSpec::default();
    spec.fips.log_level = "debug".to_owned();
    spec.fips.nostr = Some(FipsNostr {
        relay: format!("ws://{RELAY}"),
        stun: STUN.to_owned(),
        advertise: dialler == Side::Weft,
    });
    match dialler {
        Side::Fips => spec.with_peer(&peer.npub, "weft", &[]),
        Side::Weft => spec,
    }
}

fn become_direct(dialler: Side, evidence: &str) {
    let Some(fips) = binary() else { return };
    let Some(relay) = NostrRelay::program() else { return };
    if !require_turnserver() {
        return;
    }
    in_namespaces(|| {
        let net = Net::start(&relay, &fips, dialler);
        net.assert_direct();
        assert!(net.fips_logged(evidence), "{evidence}");
        let log = std::fs::read_to_string(net.weft.log_path()).unwrap();
        assert!(log.contains("agreed on addresses to probe"));
        net.finish();
    });
}

#[test]
fn weft_offers_and_both_become_direct_through_their_nats() {
    become_direct(Side::Weft, "traversal: responder punch succeeded");
}

#[test]
fn the_daemon_offers_and_both_become_direct_through_their_nats() {
    become_direct(Side::Fips, "traversal: initiator punch succeeded");
}
