//! A weft node and a reference daemon in one LAN, which find each other by mDNS and know no address.

use std::path::Path;

use weft_lab::daemon::Daemon;
use weft_lab::fips::FipsDaemon;
use weft_lab::spec::NodeSpec;
use weft_lab::world::{Switch, World};
use weft_os::test_support::in_namespaces;

use crate::common::{MINUTE, PATIENCE, WEFT, identity, shared_turn, wait_until};
use crate::mixed::binary;

struct Lan {
    weft: Daemon,
    fips: FipsDaemon,
    _switch: Switch,
    _world: World,
    _turn: std::fs::File,
}

impl Lan {
    /// Starts both. `scope` is that of the daemon; `known` says whether weft has it as a peer, without
    /// an address. If not, weft takes all callers, and dials none.
    fn start(fips: &Path, scope: &str, known: bool) -> Self {
        let turn = shared_turn();
        let world = World::new().unwrap();
        let switch = world.switch("lan").unwrap();
        let [weft_host, fips_host] = [("weft", 1), ("fips", 2)].map(|(name, last)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("192.168.1.{last}/24")]).unwrap();
            host
        });
        let [weft_id, fips_id] = ["weft", "fips"].map(|name| identity(&world, name));
        let mut spec = NodeSpec::default();
        spec.fips.lan_scope = Some(scope.to_owned());
        let mut fips = FipsDaemon::start(&fips_host, fips, &fips_id, &spec).unwrap();
        fips.wait_ready(PATIENCE).unwrap();
        let open = if known { "" } else { "\n[mesh]\nopen = true\n" };
        let spec = NodeSpec {
            extra_toml: format!("\n[lan]\nannounce = \"everyone\"\n{open}"),
            ..NodeSpec::default()
        };
        let spec = match known {
            true => spec.with_peer(&fips_id.npub, "fips", &[]),
            false => spec,
        };
        let mut weft = Daemon::start(&weft_host, Path::new(WEFT), &weft_id, &spec).unwrap();
        weft.wait_ready(PATIENCE).unwrap();
        Self {
            weft,
            fips,
            _switch: switch,
            _world: world,
            _turn: turn,
        }
    }

    /// Whether the daemon lists weft as a peer with a link.
    fn is_known_to_fips(&self) -> bool {
        let peers = self.fips.query("show_peers").unwrap();
        let peers = peers["peers"].as_array().cloned().unwrap_or_default();
        peers
            .iter()
            .any(|peer| peer.to_string().contains(&self.weft.identity().npub))
    }

    fn finish(mut self) {
        assert_eq!(self.weft.stop().unwrap().code(), Some(0));
        assert_eq!(self.weft.warnings().unwrap(), Vec::<String>::new());
        self.fips.stop().unwrap();
        assert_eq!(self.fips.warnings().unwrap(), Vec::<String>::new());
    }
}

/// The daemon looks for another scope than those of weft, so it does not see weft and does not dial.
#[test]
fn weft_finds_a_daemon_in_the_lan() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let lan = Lan::start(&fips, "another", true);
        let npub = lan.fips.identity().npub.clone();
        let peer = || lan.weft.peer(&npub).unwrap().unwrap_or_default();
        wait_until(MINUTE, "weft has a link", || {
            peer()["path"]["addr"] == "192.168.1.2:2121"
        });
        assert_eq!(peer()["hint"], "lan", "{}", peer());
        wait_until(PATIENCE, "the daemon has it too", || lan.is_known_to_fips());
        lan.finish();
    });
}

/// Weft has no peer, so it does not dial.
#[test]
fn a_daemon_finds_weft_in_the_lan() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        for scope in ["fips-overlay-v1", "nostr-vpn"] {
            let lan = Lan::start(&fips, scope, false);
            wait_until(MINUTE, "the daemon has a link", || lan.is_known_to_fips());
            let strangers = lan.weft.command(&["peers", "--json"]).unwrap();
            let strangers = String::from_utf8(strangers.stdout).unwrap();
            assert!(strangers.contains(&lan.fips.identity().npub), "{strangers}");
            lan.finish();
        }
    });
}
