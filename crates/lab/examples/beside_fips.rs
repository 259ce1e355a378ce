//! One TCP stream through two weft nodes and through two reference daemons, in turn, in one run (L37).
//!
//! `cargo run --release -p weft-lab --example beside_fips -- WEFT FIPS [ROUNDS] [SECONDS]`

#![allow(clippy::print_stdout, reason = "a program for a person")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft_lab::daemon::{Daemon, Identity, PeerState};
use weft_lab::fips::FipsDaemon;
use weft_lab::host::Host;
use weft_lab::spec::NodeSpec;
use weft_lab::world::World;
use weft_os::process::Usage;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(20);

/// Megabits a second, and processor seconds of both daemons per gigabyte, of one run.
#[derive(Clone, Copy)]
struct Run {
    mbit_s: f64,
    cpu_per_gb: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let weft = PathBuf::from(arguments.next().ok_or("name the weft binary")?);
    let fips = PathBuf::from(arguments.next().ok_or("name the fips binary")?);
    let rounds: usize = arguments.next().map_or(Ok(5), |n| n.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |n| n.parse())?;
    World::enter()?;
    let mut runs: [Vec<Run>; 4] = Default::default();
    for round in 1..=rounds {
        for (arm, both) in [
            (0, measure_weft(&weft, seconds)?),
            (2, measure_fips(&fips, &weft, seconds)?),
        ] {
            for (direction, run) in both.into_iter().enumerate() {
                let name = ["weft there", "weft back ", "fips there", "fips back "][arm + direction];
                println!(
                    "round {round}  {name}  {:7.0} Mbit/s  {:5.2} CPU s/GB",
                    run.mbit_s, run.cpu_per_gb
                );
                runs[arm + direction].push(run);
            }
        }
    }
    println!();
    for (name, runs) in ["weft there", "weft back", "fips there", "fips back"].iter().zip(&runs) {
        let (mbit, cpu) = (spread(runs, |r| r.mbit_s), spread(runs, |r| r.cpu_per_gb));
        println!(
            "{name:<11} median {:5.0} Mbit/s [{:.0} to {:.0}], {:.2} CPU s/GB [{:.2} to {:.2}], n = {}",
            mbit.1,
            mbit.0,
            mbit.2,
            cpu.1,
            cpu.0,
            cpu.2,
            runs.len()
        );
    }
    for (direction, name) in ["there", "back"].iter().enumerate() {
        let ratios: Vec<f64> = runs[direction]
            .iter()
            .zip(&runs[2 + direction])
            .map(|(w, f)| w.mbit_s / f.mbit_s)
            .collect();
        let (low, median, high) = sorted(ratios);
        println!("ratio {name}: {median:.2} [{low:.2} to {high:.2}] paired by round");
    }
    Ok(())
}

fn measure_weft(weft: &Path, seconds: u64) -> Result<[Run; 2]> {
    let Stage {
        hosts,
        ids,
        specs,
        _world,
    } = stage(weft)?;
    let mut nodes = Vec::new();
    for i in 0..2 {
        nodes.push(Daemon::start(&hosts[i], weft, &ids[i], &specs[i])?);
    }
    for node in &mut nodes {
        node.wait_ready(LIMIT)?;
    }
    nodes[0].wait_peer(&ids[1].npub, PeerState::Linked, LIMIT)?;
    let usage = || {
        [nodes[0].usage(), nodes[1].usage()]
            .into_iter()
            .flatten()
            .map(cpu)
            .sum()
    };
    let both = both_ways(&hosts, &ids, seconds, usage)?;
    for node in &mut nodes {
        node.stop()?;
    }
    Ok(both)
}

fn measure_fips(fips: &Path, weft: &Path, seconds: u64) -> Result<[Run; 2]> {
    let Stage {
        hosts,
        ids,
        specs,
        _world,
    } = stage(weft)?;
    let mut nodes = Vec::new();
    for i in 0..2 {
        nodes.push(FipsDaemon::start(&hosts[i], fips, &ids[i], &specs[i])?);
    }
    for node in &mut nodes {
        node.wait_ready(LIMIT)?;
    }
    let usage = || {
        [nodes[0].usage(), nodes[1].usage()]
            .into_iter()
            .flatten()
            .map(cpu)
            .sum()
    };
    let both = both_ways(&hosts, &ids, seconds, usage)?;
    for node in &mut nodes {
        node.stop()?;
    }
    Ok(both)
}

fn cpu(usage: Usage) -> f64 {
    usage.cpu.as_secs_f64()
}

/// Two hosts on one cable, with a key and a configuration each. The world goes last.
struct Stage {
    hosts: [Host; 2],
    ids: [Identity; 2],
    specs: [NodeSpec; 2],
    _world: World,
}

fn stage(weft: &Path) -> Result<Stage> {
    let world = World::new()?;
    let hosts = [world.host("a")?, world.host("b")?];
    world.link((&hosts[0], &["192.0.2.1/24"]), (&hosts[1], &["192.0.2.2/24"]))?;
    let ids = [
        Identity::create(weft, world.directory(), "a")?,
        Identity::create(weft, world.directory(), "b")?,
    ];
    let at = |last| SocketAddr::from(([192, 0, 2, last], 2121));
    let specs = [
        NodeSpec::default().with_peer(&ids[1].npub, "b", &[at(2)]),
        NodeSpec::default().with_peer(&ids[0].npub, "a", &[at(1)]),
    ];
    Ok(Stage {
        hosts,
        ids,
        specs,
        _world: world,
    })
}

fn both_ways(hosts: &[Host; 2], ids: &[Identity; 2], seconds: u64, cpu: impl Fn() -> f64) -> Result<[Run; 2]> {
    let there = stream(&hosts[0], &hosts[1], ids[1].address, seconds, &cpu)?;
    let back = stream(&hosts[1], &hosts[0], ids[0].address, seconds, &cpu)?;
    Ok([there, back])
}

/// One TCP stream that carries zeros for `seconds`, after one second that does not count.
fn stream(from: &Host, to: &Host, address: Ipv6Addr, seconds: u64, cpu: impl Fn() -> f64) -> Result<Run> {
    let listener = to.run(move || TcpListener::bind((IpAddr::V6(address), 0)))??;
    let target = listener.local_addr()?;
    let end = Instant::now() + LIMIT;
    let mut sender = loop {
        match from.run(move || TcpStream::connect_timeout(&target, Duration::from_secs(2)))? {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => {}
        }
    };
    let (mut receiver, _) = listener.accept()?;
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
    let before = cpu();
    let (bytes, time) = take(Duration::from_secs(seconds))?;
    let used = cpu() - before;
    drop(receiver);
    writer.join().map_err(|_| "the writer panicked")?;
    Ok(Run {
        mbit_s: bytes as f64 * 8e-6 / time,
        cpu_per_gb: used / (bytes as f64 * 1e-9),
    })
}

fn spread(runs: &[Run], of: impl Fn(&Run) -> f64) -> (f64, f64, f64) {
    sorted(runs.iter().map(of).collect())
}

/// Lowest, median, highest.
fn sorted(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}
