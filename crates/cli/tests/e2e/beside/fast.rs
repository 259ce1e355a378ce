//! Fast frames that end: the status of it, across restarts, and the behaviour of a node that
//! requires them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::spec::DEFAULT_PORT;
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::World;

use crate::common::{PATIENCE, Underlay, WEFT, beside, identity, reached_within, wait_until};
use weft_os::assert_strict;

fn start(host: &Host, own: &Identity, peer: &Identity, at: &str, fast: &str) -> Daemon {
    let at = SocketAddr::new(at.parse().unwrap(), DEFAULT_PORT);
    let mut spec = Underlay::V4.listener().with_peer(&peer.npub, &peer.name, &[at]);
    spec.extra_toml = format!("\n[fast]\n{fast}\n");
    let mut daemon = Daemon::start(host, Path::new(WEFT), own, &spec).unwrap();
    daemon.wait_ready(PATIENCE).unwrap();
    daemon
}

fn frames(of: &Daemon, peer: &Identity) -> Value {
    of.peer(&peer.npub).unwrap().unwrap()["session"]["frames"].clone()
}

/// The version of a peer, as it announces it with fast frames.
fn version(of: &Daemon, peer: &Identity) -> Value {
    of.peer(&peer.npub).unwrap().unwrap()["session"]["version"].clone()
}

/// Pings, and waits until data goes in frames of this kind. Capabilities are announced for 7.5 s before a
/// peer counts as one that has none.
fn wait_frames(from: &Daemon, to: &Daemon, kind: &str) -> Value {
    let mut seen = Value::Null;
    wait_until(PATIENCE, kind, || {
        ping(from, to);
        seen = frames(from, to.identity());
        seen["kind"] == kind
    });
    seen
}

/// Whether one echo is answered.
fn ping(from: &Daemon, to: &Daemon) -> bool {
    let options = PingOptions {
        count: Some(1),
        grace: Duration::from_millis(300),
        ..PingOptions::default()
    };
    let pinger = Pinger::start(from.host(), to.identity().address, options).unwrap();
    pinger.join().unwrap().received == 1
}

fn stop(mut daemon: Daemon) {
    assert_eq!(daemon.stop().unwrap().code(), Some(0));
    let warnings = daemon.warnings().unwrap();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

#[test]
fn a_downgrade_is_remembered_and_refused_if_fast_is_required() {
    beside(|| {
        let world = World::new().unwrap();
        let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
        let link = (&["192.0.2.1/24"][..], &["192.0.2.2/24"][..]);
        let _link = world.link((&hosts[0], link.0), (&hosts[1], link.1)).unwrap();
        let [id_a, id_b] = ["a", "b"].map(|name| identity(&world, name));
        let start_a = |fast: &str| start(&hosts[0], &id_a, &id_b, "192.0.2.2", fast);
        let start_b = |fast: &str| start(&hosts[1], &id_b, &id_a, "192.0.2.1", fast);

        let (a, b) = (start_a(""), start_b(""));
        reached_within(PATIENCE, &a, &b);
        let fast = wait_frames(&a, &b, "fast");
        assert_eq!(
            (&fast["required"], &fast["downgraded_unix"]),
            (&false.into(), &Value::Null)
        );
        for (of, peer) in [(&a, &id_b), (&b, &id_a)] {
            assert_eq!(version(of, peer), env!("CARGO_PKG_VERSION"));
        }
        let shown = a.command(&["peers", "b"]).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let claim = concat!(env!("CARGO_PKG_VERSION"), ", as the peer announces");
        assert!(shown.contains(claim), "{shown}");
        stop(b);

        // The peer does not offer them any more: data continues, and the status reports that fast
        // frames were used before.
        let b = start_b("enabled = false");
        reached_within(PATIENCE, &a, &b);
        let since = wait_frames(&a, &b, "downgraded")["downgraded_unix"].clone();
        assert!(since.as_u64().is_some());
        wait_until(PATIENCE, "data continues", || ping(&a, &b));
        assert_eq!(version(&a, &id_b), Value::Null);
        stop(a);

        // A restarted daemon still knows it; this one requires fast frames and refuses.
        let a = start_a("require = true");
        let refused = wait_frames(&a, &b, "downgraded");
        assert_eq!(
            (&refused["required"], &refused["downgraded_unix"]),
            (&true.into(), &since)
        );
        wait_until(PATIENCE, "status says that data waits", || {
            assert_strict!(!ping(&a, &b), "data goes without fast frames");
            let status = a.peer(&id_b.npub).unwrap().unwrap();
            let why = status["why"].as_str().unwrap_or_default();
            status["state"] == "session" && why.starts_with("fast frames are required")
        });
        wait_until(PATIENCE, "what waits is counted", || {
            a.status().unwrap()["counters"]["fast_waited"].as_u64() > Some(0)
        });
        let shown = a.command(&["peers", "b"]).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("none, downgraded from fast"), "{shown}");
        stop(b);

        let b = start_b("");
        let fast = wait_frames(&a, &b, "fast");
        assert_eq!(fast["downgraded_unix"], Value::Null);
        reached_within(PATIENCE, &a, &b);
        stop(a);
        stop(b);
    });
}
