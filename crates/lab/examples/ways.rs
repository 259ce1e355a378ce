//! One TCP stream (CUBIC) over several paths in turn, in one run (L37), with the CPU time of every
//! node on the path.
//!
//! `cargo run --release -p weft-lab --example ways -- WEFT FIPS|- [ROUNDS] [SECONDS]`
//!
//! Paths: two weft nodes on one cable; a third weft node between them, which relays fast frames;
//! the same without fast frames; a weft node and a reference daemon; two reference daemons. With
//! `-` for the daemon the last two are left out.

#![allow(clippy::print_stdout, reason = "a program for a person")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft_lab::daemon::{Daemon, Identity};
use weft_lab::fips::FipsDaemon;
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::stats::Summary;
use weft_lab::world::World;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(30);
/// Time in which sessions move to their final frames.
const SETTLE: Duration = Duration::from_secs(4);
/// UDP payload in the reference daemon's configuration, bytes: what fits in a packet of 1,500.
const UDP_MTU: u16 = 1472;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Weft,
    WeftFipsFrames,
    Fips,
}

/// A path from the first node to the second.
struct Way {
    name: &'static str,
    ends: [Kind; 2],
    relay: Option<Kind>,
    /// The frames of the first node that status must show, if it is a weft node.
    frames: &'static str,
}

const WAYS: [Way; 5] = [
    Way {
        name: "weft",
        ends: [Kind::Weft; 2],
        relay: None,
        frames: "fast",
    },
    Way {
        name: "weft, relay",
        ends: [Kind::Weft; 2],
        relay: Some(Kind::Weft),
        frames: "relayed",
    },
    Way {
        name: "weft, relay, FIPS frames",
        ends: [Kind::WeftFipsFrames; 2],
        relay: Some(Kind::WeftFipsFrames),
        frames: "",
    },
    Way {
        name: "weft to fips",
        ends: [Kind::Weft, Kind::Fips],
        relay: None,
        frames: "",
    },
    Way {
        name: "fips",
        ends: [Kind::Fips; 2],
        relay: None,
        frames: "",
    },
];

/// One direction of one run: megabits a second, and CPU seconds per gigabyte of the sender, the
/// receiver and the relay.
#[derive(Clone, Copy, Default)]
struct Run {
    mbit_s: f64,
    cpu_per_gb: [f64; 3],
}

enum Node {
    Weft(Daemon),
    Fips(FipsDaemon),
}

impl Node {
    fn cpu(&self) -> f64 {
        let usage = match self {
            Self::Weft(node) => node.usage(),
            Self::Fips(node) => node.usage(),
        };
        usage.map_or(0.0, |usage| usage.cpu.as_secs_f64())
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let weft = PathBuf::from(arguments.next().ok_or("name the weft binary")?);
    let fips = PathBuf::from(arguments.next().ok_or("name the fips binary, or -")?);
    let rounds: usize = arguments.next().map_or(Ok(3), |n| n.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(3), |n| n.parse())?;
    World::enter()?;
    let without = fips.as_os_str() == "-";
    let ways = WAYS.iter().filter(|way| !(without && way.ends.contains(&Kind::Fips)));
    let ways: Vec<&Way> = ways.collect();
    let mut runs: Vec<[Vec<Run>; 2]> = ways.iter().map(|_| Default::default()).collect();
    for round in 1..=rounds {
        for (way, runs) in ways.iter().zip(&mut runs) {
            let both = measure(way, &weft, &fips, seconds)?;
            for ((direction, run), runs) in ["upload", "download"].iter().zip(both).zip(runs) {
                let [sender, receiver, relay] = run.cpu_per_gb;
                println!(
                    "round {round}  {:<26} {direction:<8} {:7.0} Mbit/s  CPU s/GB {sender:.2} + {receiver:.2}, relay {relay:.2}",
                    way.name, run.mbit_s
                );
                runs.push(run);
            }
        }
    }
    println!(
        "\n| way | direction | Mbit/s | of the first | CPU s/GB, sender + receiver | relay |\n|---|---|---|---|---|---|"
    );
    for (way, both) in ways.iter().zip(&runs) {
        for (n, direction) in ["upload", "download"].iter().enumerate() {
            let rate = summary(both[n].iter().map(|run| run.mbit_s))?;
            let pairs = both[n].iter().zip(&runs[0][n]);
            let ratio = summary(pairs.map(|(run, first)| run.mbit_s / first.mbit_s))?;
            let cpu = |node: usize| summary(both[n].iter().map(|run| run.cpu_per_gb[node]));
            let cpu = [cpu(0)?.median, cpu(1)?.median, cpu(2)?.median];
            println!(
                "| {} | {direction} | {:.0} [{:.0}-{:.0}] | {:.2} [{:.2}-{:.2}] | {:.2} + {:.2} | {:.2} |",
                way.name, rate.median, rate.min, rate.max, ratio.median, ratio.min, ratio.max, cpu[0], cpu[1], cpu[2]
            );
        }
    }
    Ok(())
}

fn summary(values: impl Iterator<Item = f64>) -> Result<Summary> {
    Ok(Summary::of(&values.collect::<Vec<_>>())?)
}

/// Builds the path, and sends over it in both directions.
fn measure(way: &Way, weft: &Path, fips: &Path, seconds: u64) -> Result<[Run; 2]> {
    let world = World::new()?;
    let hosts = [world.host("a")?, world.host("b")?, world.host("relay")?];
    let ids = ["a", "b", "relay"].map(|name| Identity::create(weft, world.directory(), name));
    let [a, b, relay] = ids;
    let ids = [a?, b?, relay?];
    let mut specs = [0, 1, 2].map(|_| NodeSpec::default());
    let at = |last| SocketAddr::from(([192, 0, 2, last], DEFAULT_PORT));
    if way.relay.is_some() {
        world.link((&hosts[0], &["192.0.2.1/25"]), (&hosts[2], &["192.0.2.2/25"]))?;
        world.link((&hosts[1], &["192.0.2.129/25"]), (&hosts[2], &["192.0.2.130/25"]))?;
        for (end, address) in [(0, 2), (1, 130)] {
            let spec = std::mem::take(&mut specs[end]).with_peer(&ids[2].npub, "relay", &[at(address)]);
            specs[end] = spec.with_peer(&ids[1 - end].npub, "other", &[]);
        }
        "\n[mesh]\nopen = true\n".clone_into(&mut specs[2].extra_toml);
    } else {
        world.link((&hosts[0], &["192.0.2.1/24"]), (&hosts[1], &["192.0.2.2/24"]))?;
        for (end, other) in [(0, 2), (1, 1)] {
            specs[end] = std::mem::take(&mut specs[end]).with_peer(&ids[1 - end].npub, "other", &[at(other)]);
        }
    }
    let mut nodes = Vec::new();
    let kinds = [Some(way.ends[0]), Some(way.ends[1]), way.relay];
    for (n, kind) in kinds.into_iter().enumerate() {
        let Some(kind) = kind else { continue };
        let spec = &mut specs[n];
        if kind != Kind::Weft || way.ends.contains(&Kind::Fips) {
            (spec.udp_mtu, spec.tun_mtu) = (Some(UDP_MTU), Some(UDP_MTU - 77));
        }
        if kind == Kind::WeftFipsFrames {
            spec.extra_toml.push_str("\n[fast]\nenabled = false\n");
        }
        nodes.push(start(kind, &hosts[n], (weft, fips), &ids[n], spec)?);
    }
    let upload = stream((&hosts[0], &hosts[1]), ids[1].address, seconds, &nodes)?;
    if let (Node::Weft(node), true) = (&nodes[0], !way.frames.is_empty()) {
        let status = node.peer(&ids[1].npub)?.ok_or("the peer is not known")?;
        let kind = &status["session"]["frames"]["kind"];
        if kind != way.frames {
            return Err(format!("{}: frames are {kind}", way.name).into());
        }
    }
    let mut download = stream((&hosts[1], &hosts[0]), ids[0].address, seconds, &nodes)?;
    download.cpu_per_gb.swap(0, 1);
    Ok([upload, download])
}

fn start(kind: Kind, host: &Host, (weft, fips): (&Path, &Path), id: &Identity, spec: &NodeSpec) -> Result<Node> {
    if kind == Kind::Fips {
        let mut node = FipsDaemon::start(host, fips, id, spec)?;
        node.wait_ready(LIMIT)?;
        return Ok(Node::Fips(node));
    }
    let mut node = Daemon::start(host, weft, id, spec)?;
    node.wait_ready(LIMIT)?;
    Ok(Node::Weft(node))
}

/// One TCP stream that sends zeros for `seconds`, after some that do not count. CPU times are in
/// the order of `nodes`.
fn stream((from, to): (&Host, &Host), address: Ipv6Addr, seconds: u64, nodes: &[Node]) -> Result<Run> {
    // The traffic before the measured connection moves the session to its frames.
    drop(connect(from, to, address)?);
    std::thread::sleep(SETTLE);
    let (mut sender, mut receiver) = connect(from, to, address)?;
    let writer = std::thread::spawn(move || {
        let block = vec![0; 256 * 1024];
        while sender.write_all(&block).is_ok() {}
    });
    let mut block = vec![0; 256 * 1024];
    let mut take = |time: Duration| -> std::io::Result<(u64, f64)> {
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < time {
            bytes += receiver.read(&mut block)? as u64;
        }
        Ok((bytes, start.elapsed().as_secs_f64()))
    };
    take(Duration::from_secs(1))?;
    let before: Vec<f64> = nodes.iter().map(Node::cpu).collect();
    let (bytes, time) = take(Duration::from_secs(seconds))?;
    let mut cpu_per_gb = [0.0; 3];
    for ((used, node), before) in cpu_per_gb.iter_mut().zip(nodes).zip(before) {
        *used = (node.cpu() - before) / (bytes as f64 * 1e-9);
    }
    drop(receiver);
    writer.join().map_err(|_| "the writer panicked")?;
    Ok(Run {
        mbit_s: bytes as f64 * 8e-6 / time,
        cpu_per_gb,
    })
}

fn connect(from: &Host, to: &Host, address: Ipv6Addr) -> Result<(TcpStream, TcpStream)> {
    let listener = to.run(move || TcpListener::bind((IpAddr::V6(address), 0)))??;
    let target = listener.local_addr()?;
    let end = Instant::now() + LIMIT;
    loop {
        match from.run(move || TcpStream::connect_timeout(&target, Duration::from_secs(2)))? {
            Ok(sender) => {
                // A fixed one, whatever the system's default; see docs/guides/bench.md.
                rustix::net::sockopt::set_tcp_congestion(&sender, "cubic")?;
                return Ok((sender, listener.accept()?.0));
            }
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => {}
        }
    }
}
