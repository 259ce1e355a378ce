//! The cost of a node that is linked with ten peers and idle: CPU time and memory.
//!
//! `cargo run --release -p weft-lab --example idle -- WEFT [SECONDS]`

#![allow(clippy::print_stdout, reason = "a program for a person")]

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weft_lab::daemon::{Daemon, Identity, PeerState};
use weft_lab::spec::NodeSpec;
use weft_lab::traffic::ping;
use weft_lab::world::World;

const PEERS: u8 = 10;
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let weft = PathBuf::from(arguments.next().ok_or("name the weft binary")?);
    let seconds: u64 = arguments.next().map_or(Ok(120), |n| n.parse())?;
    World::enter()?;
    let world = World::new()?;
    let switch = world.switch("lan")?;
    let (mut hosts, mut ids) = (Vec::new(), Vec::new());
    for i in 0..=PEERS {
        let name = format!("n{i}");
        let host = world.host(&name)?;
        switch.connect(&host, &[&format!("192.0.2.{}/24", i + 1)])?;
        ids.push(Identity::create(&weft, world.directory(), &name)?);
        hosts.push(host);
    }
    let at = |i: u8| SocketAddr::from(([192, 0, 2, i + 1], 2121));
    let mut hub = NodeSpec::default();
    for i in 1..=PEERS {
        hub = hub.with_peer(&ids[usize::from(i)].npub, &format!("n{i}"), &[at(i)]);
    }
    let mut nodes = vec![Daemon::start(&hosts[0], &weft, &ids[0], &hub)?];
    for i in 1..=PEERS {
        let spec = NodeSpec::default().with_peer(&ids[0].npub, "hub", &[at(0)]);
        nodes.push(Daemon::start(
            &hosts[usize::from(i)],
            &weft,
            &ids[usize::from(i)],
            &spec,
        )?);
    }
    for node in &mut nodes {
        node.wait_ready(LIMIT)?;
    }
    // A session with each, so that there is something to maintain.
    for id in &ids[1..] {
        nodes[0].wait_peer(&id.npub, PeerState::Linked, LIMIT)?;
        let report = ping(&hosts[0], id.address, 3, Duration::from_millis(100))?;
        if report.received != 3 {
            return Err("a peer does not answer".into());
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    let (before, start) = (nodes[0].usage()?, Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, time) = (nodes[0].usage()?, start.elapsed());
    let share = (after.cpu - before.cpu).as_secs_f64() / time.as_secs_f64() * 100.0;
    println!(
        "{PEERS} peers, {:.0} s idle: {share:.3} % of a core, {:.1} MiB RSS",
        time.as_secs_f64(),
        after.rss_bytes as f64 / f64::from(1 << 20)
    );
    Ok(())
}
