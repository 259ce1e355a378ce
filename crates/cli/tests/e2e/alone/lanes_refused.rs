//! A kernel that does not permit a node several lanes: one lane moves all packets, and the status
//! has the number of missing lanes and the reason.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::world::World;

use super::lanes::has_strace;
use crate::common::{PATIENCE, WEFT, alone, assert_transfer, identity, reached_within, wait_until};

/// A time limit for what should take a second or two.
const LIMIT: Duration = Duration::from_secs(30);
const LANES: u8 = 4;
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// Two nodes that want four lanes each. `prepare` makes the first one's kernel refuse, and returns
/// the program of its node. The status must then begin its reason with `why`, and `senders` is the
/// state of its sending sockets.
fn with_one_refused(prepare: impl Fn(&World, &Host) -> PathBuf, why: &str, senders: &str) {
    let world = World::new().unwrap();
    let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
    let nets = ADDRESSES.map(|address| format!("{address}/24"));
    let _link = world.link((&hosts[0], &[&nets[0]]), (&hosts[1], &[&nets[1]])).unwrap();
    let ids = ["a", "b"].map(|name| identity(&world, name));
    let programs = [prepare(&world, &hosts[0]), PathBuf::from(WEFT)];
    let mut nodes = [0, 1].map(|own| {
        let peer = &ids[1 - own];
        let at = SocketAddr::new(ADDRESSES[1 - own].parse().unwrap(), DEFAULT_PORT);
        let mut spec = NodeSpec::default().with_peer(&peer.npub, &peer.name, &[at]);
        spec.settings.push(("lanes".to_owned(), i64::from(LANES).into()));
        let mut node = Daemon::start(&hosts[own], &programs[own], &ids[own], &spec).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        node
    });
    let [a, b] = &nodes;
    reached_within(PATIENCE, a, b);
    wait_until(LIMIT, "fast frames both ways", || {
        [(a, b), (b, a)].iter().all(|(from, to)| {
            let peer = from.peer(&to.identity().npub).unwrap().unwrap();
            peer["session"]["frames"]["kind"] == "fast"
        })
    });
    for (from, to) in [(a, b), (b, a)] {
        assert_transfer(from, to, 8 << 20);
    }

    let status = a.status().unwrap();
    let lanes = &status["node"]["lanes"];
    assert_eq!(lanes["wanted"], LANES);
    assert_eq!(lanes["each"].as_array().unwrap().len(), 1, "{lanes}");
    let reason = lanes["refused"].as_str().unwrap();
    assert!(reason.starts_with(why), "{reason}");
    assert_eq!(status["counters"]["lanes_refused"], LANES - 1);
    assert_eq!(status["node"]["offload"]["senders"], senders);
    let human = a.command(&["status"]).unwrap();
    let human = String::from_utf8(human.stdout).unwrap();
    assert!(human.contains(&format!("lanes: 1 of {LANES}: {why}")), "{human}");
    let said = human.contains("without offload: senders (refused by the kernel)");
    assert_eq!(said, senders == "refused", "{human}");
    // The peer has all of its own lanes, and uses the one that both have.
    let status = b.status().unwrap();
    assert_eq!(
        status["node"]["lanes"]["each"].as_array().unwrap().len(),
        usize::from(LANES)
    );
    assert_eq!(status["counters"]["lanes_refused"], 0);
    assert_eq!(status["node"]["offload"]["senders"], "on");

    for node in &mut nodes {
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert!(node.warnings().unwrap().is_empty());
    }
}

/// The rule that steers frames to lanes is larger than the limit of this network namespace
/// (`sk_reuseport_attach_filter` in Linux).
#[test]
fn without_a_rule_for_its_sockets_a_node_has_one_lane() {
    alone(|| {
        let forbid = |_: &World, host: &Host| {
            let write = || fs::write("/proc/sys/net/core/optmem_max", "90");
            host.run(write).unwrap().unwrap();
            PathBuf::from(WEFT)
        };
        let why = "UDP sockets cannot share 0.0.0.0:2121: Cannot allocate memory";
        with_one_refused(forbid, why, "refused");
    });
}

/// No setting of the system makes the TUN driver refuse, so strace injects the error: for a node's
/// second queue, and for the flag that permits an interface several queues.
#[test]
fn without_more_queues_a_node_has_one_lane() {
    if !has_strace() {
        return;
    }
    alone(|| {
        // A queue takes three calls: its name, the length of headers, and offloads. Without the
        // flag the first call fails, and after the three calls for an interface with one queue the
        // next.
        for calls in ["4+", "1+4"] {
            let refuse = |world: &World, _: &Host| {
                let program = world.directory().join("weft-refused");
                write_program(&program, &world.directory().join("strace"), calls);
                program
            };
            with_one_refused(
                refuse,
                "the interface has one queue: the interface weft0 takes no further queue",
                "on",
            );
        }
    });
}

/// Writes a program that is weft, except for those calls to the TUN driver.
fn write_program(program: &Path, account: &Path, calls: &str) {
    let refuse = format!("-f -e trace=ioctl -e inject=ioctl:error=EINVAL:when={calls} -P /dev/net/tun");
    let account = account.display();
    let script = format!("#!/bin/sh\nexec strace -D -o '{account}' {refuse} '{WEFT}' \"$@\"\n");
    weft_os::test_support::write_program(program, &script);
}
