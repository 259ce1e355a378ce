//! A daemon with many idle peers: real links over real sockets, each to a whole node.
//!
//! The test checks that all of them link and stay. With more of them and more time it checks that their
//! cost is within its bounds (memory of a peer to the byte: crates/sim/tests/memory.rs):
//!
//! ```text
//! WEFT_IDLE_PEERS=1000 WEFT_IDLE_SECONDS=180 cargo test --release -p weft --test e2e idle_peers -- --nocapture
//! ```
//!
//! With `WEFT_IDLE_BINARY` the daemon is that program, and with `WEFT_IDLE_LANES` it has that many
//! lanes. `WEFT_IDLE_SETTLE` is the time between the last link or session and the measurement, s: in
//! the first minutes a node searches for the size of each path, and agrees on keys and on the tree.
//! With `WEFT_IDLE_SESSIONS=0` no peer sends a packet.
//!
//! - `crowd`: the nodes, all on one thread

mod crowd;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_lab::daemon::Daemon;
use weft_lab::spec::NodeSpec;
use weft_lab::world::World;

use self::crowd::Crowd;
use crate::common::{MINUTE, PATIENCE, WEFT, alone, identity, wait_until};

/// A number from the environment, or the default of the test.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Whether the cost is checked: `.ci/long idle`.
fn is_measured() -> bool {
    std::env::var_os("WEFT_IDLE_PEERS").is_some()
}

/// Maximum resident memory of a linked peer in session, bytes. Two hundred take 19,600 each, and a
/// thousand 13,800: the fewer the peers, the larger the share of each in the pages of the program
/// that are read in for the first of them. These pages differ by 500 kB from run to run, which is
/// 2,500 bytes for each of two hundred peers.
const MEMORY_OF_A_PEER: u64 = 28 << 10;

/// Maximum CPU time of an idle node, as a share of one processor, and the maximum that each peer
/// adds. A thousand take 50 millionths each in a release build; these bounds are for a build with
/// less optimisation, and for new keys.
const CPU: f64 = 0.05;
const CPU_OF_A_PEER: f64 = 0.0005;
/// The share of a processor from which an idle node spins.
const SPINS: f64 = 0.5;

/// The cost of a node in this time: resident memory at the end, and CPU time.
fn rest(hub: &Daemon, crowd: &Crowd, time: Duration, what: &str) -> u64 {
    let settle = if crowd.members.is_empty() {
        0
    } else {
        setting("WEFT_IDLE_SETTLE", 0)
    };
    std::thread::sleep(Duration::from_secs(settle));
    let (before, datagrams, start) = (hub.usage().unwrap(), crowd.datagrams(), Instant::now());
    std::thread::sleep(time);
    let (after, now, seconds) = (hub.usage().unwrap(), crowd.datagrams(), start.elapsed().as_secs_f64());
    let each_second = |before: u64, now: u64| (now - before) as f64 / seconds;
    eprintln!(
        "{} peers, {what}: {} KiB resident, {:.3} s of CPU time in {seconds:.0} s, {:.1} datagrams/s in, {:.1} out",
        crowd.members.len(),
        after.rss_bytes >> 10,
        (after.cpu - before.cpu).as_secs_f64(),
        each_second(datagrams.0, now.0),
        each_second(datagrams.1, now.1),
    );
    let used = (after.cpu - before.cpu).as_secs_f64() / seconds;
    let bound = match is_measured() {
        true => CPU + CPU_OF_A_PEER * crowd.members.len() as f64,
        // Other load makes each step dearer, but none makes an idle node spin.
        false => SPINS,
    };
    assert!(used <= bound, "{what}: {used:.3} of a processor, {bound:.3} allowed");
    after.rss_bytes
}

fn measure(peers: u16, time: Duration) -> u64 {
    let world = World::new().unwrap();
    let host = world.host("hub").unwrap();
    let id = identity(&world, "hub");
    let crowd = Crowd::start(&host, id.npub.parse().unwrap(), peers);
    let mut spec = NodeSpec {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], weft_lab::spec::DEFAULT_PORT))],
        ..NodeSpec::default()
    };
    for (n, (key, address)) in crowd.members.iter().enumerate() {
        spec = spec.with_peer(&key.to_string(), &format!("n{n}"), &[*address]);
    }
    let lanes = setting("WEFT_IDLE_LANES", 1) as i64;
    spec.settings.push(("lanes".to_owned(), lanes.into()));
    let binary = std::env::var("WEFT_IDLE_BINARY").unwrap_or_else(|_| WEFT.to_owned());
    let mut hub = Daemon::start(&host, Path::new(&binary), &id, &spec).unwrap();
    let (all, start) = (u64::from(peers), Instant::now());
    if all == 0 {
        hub.wait_ready(PATIENCE).unwrap();
    }
    // The status of many peers would take memory that stays, so it is not requested before the end.
    wait_until(2 * MINUTE, "all links", || crowd.linked() == all);
    eprintln!(
        "{peers} peers: all linked within {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let resident = rest(&hub, &crowd, time, "linked");

    if setting("WEFT_IDLE_SESSIONS", 1) != 0 {
        crowd.speak();
        let start = Instant::now();
        wait_until(MINUTE, "all sessions", || crowd.in_session() == all);
        eprintln!(
            "{peers} peers: all in session within {:.1} s",
            start.elapsed().as_secs_f64()
        );
        rest(&hub, &crowd, time, "in session");
    }
    let status = hub.status().unwrap();
    let linked =
        |peer: &&serde_json::Value| ["linked", "session", "payload"].contains(&peer["state"].as_str().unwrap());
    let still = status["peers"].as_array().unwrap().iter().filter(linked).count();
    assert_eq!(still, usize::from(peers), "all are still there");
    let counters = &status["counters"];
    for name in ["link_open_failed", "session_open_failed", "fast_open_failed"] {
        assert_eq!(counters[name], 0, "{name}");
    }
    // Of thousands that link at once, more reports come than may wait. Each is repeated.
    let dropped = counters["reports_dropped"].as_u64().unwrap();
    eprintln!("{peers} peers: {dropped} reports dropped");
    assert!(
        dropped == 0 || !is_measured() || peers > 1_000,
        "{dropped} reports dropped"
    );
    assert_eq!(hub.stop().unwrap().code(), Some(0));
    assert!(hub.warnings().unwrap().is_empty());
    resident
}

#[test]
fn idle_peers_link_and_stay() {
    alone(|| {
        let peers = setting("WEFT_IDLE_PEERS", 40) as u16;
        let time = Duration::from_secs(setting("WEFT_IDLE_SECONDS", 1));
        let alone = measure(0, time.min(Duration::from_secs(2)));
        let among = measure(peers, time);
        let each = among.saturating_sub(alone) / u64::from(peers);
        eprintln!("{each} bytes of resident memory for a linked peer");
        assert!(
            each <= MEMORY_OF_A_PEER || !is_measured(),
            "{each} bytes for a linked peer"
        );
    });
}
