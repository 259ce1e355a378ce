//! Eight streams in one TCP connection, or in eight, through a tunnel over a cable that loses packets.
//!
//! `cargo run --release -p weft-lab --example streams -- WEFT [DELAY_MS] [LOSS] [ROUNDS] [SECONDS]
//! [CONGESTION_CONTROL]`, the delay and the loss in each direction.
//!
//! Two loads: messages of 16 KiB as fast as possible, and 1 KiB for each stream every 10 ms, with
//! the time of each from before the write to the end of the read.

#![allow(clippy::print_stdout, reason = "a program for a person")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use weft_lab::daemon::{Daemon, Identity};
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::world::World;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const STREAMS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// Time in which the session moves to its final frames.
const SETTLE: Duration = Duration::from_secs(5);
/// Warm-up that is not counted.
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// Bytes in a message.
    message: usize,
    /// Interval between two messages of a stream.
    every: Option<Duration>,
}

const LOADS: [Load; 2] = [
    Load {
        name: "bulk",
        message: 16 * 1024,
        every: None,
    },
    Load {
        name: "1 KiB every 10 ms",
        message: 1024,
        every: Some(Duration::from_millis(10)),
    },
];

/// The received bytes, and the time of each message, ms.
#[derive(Default)]
struct Taken {
    bytes: usize,
    ms: Vec<f64>,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let weft = PathBuf::from(arguments.next().ok_or("name the weft binary")?);
    let mut number = |default: f64| arguments.next().map_or(Ok(default), |text| text.parse::<f64>());
    let (delay, loss, rounds, seconds) = (number(10.0)?, number(0.001)?, number(3.0)?, number(10.0)?);
    let congestion = arguments.next().unwrap_or_else(|| "cubic".to_owned());
    World::enter()?;

    let world = World::new()?;
    let hosts = [world.host("a")?, world.host("b")?];
    let bad = Impairments {
        loss,
        ..Impairments::delay(Duration::from_secs_f64(delay * 1e-3))
    };
    let _cable = world.emulated_link(
        (&hosts[0], &["192.0.2.1/24"]),
        (&hosts[1], &["192.0.2.2/24"]),
        Cable::both(bad),
    )?;
    let ids = [
        Identity::create(&weft, world.directory(), "a")?,
        Identity::create(&weft, world.directory(), "b")?,
    ];
    let mut nodes = Vec::new();
    for (n, host) in hosts.iter().enumerate() {
        host.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 65536 33554432"))??;
        let other = SocketAddr::from(([192, 0, 2, 2 - n as u8], DEFAULT_PORT));
        let spec = NodeSpec::default().with_peer(&ids[1 - n].npub, "other", &[other]);
        let mut node = Daemon::start(host, &weft, &ids[n], &spec)?;
        node.wait_ready(LIMIT)?;
        nodes.push(node);
    }
    let (from, to, address) = (&hosts[0], &hosts[1], ids[1].address);
    drop(connect(from, to, address)?);
    thread::sleep(SETTLE);

    println!("{delay} ms and loss {loss} each way, {congestion}, {STREAMS} streams, {seconds} s");
    for round in 1..=rounds as u32 {
        for load in LOADS {
            for count in [1, STREAMS] {
                let connections = (0..count).map(|_| {
                    let pair = connect(from, to, address)?;
                    rustix::net::sockopt::set_tcp_congestion(&pair.0, &congestion)?;
                    Ok(pair)
                });
                let connections = connections.collect::<Result<_>>()?;
                let taken = carry(connections, load, Duration::from_secs_f64(seconds))?;
                let mbit_s = taken.bytes as f64 * 8e-6 / seconds;
                let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| quantile(&taken.ms, share));
                println!(
                    "round {round}  {:<18} {count} connections {mbit_s:7.1} Mbit/s  a message {p50:.1} ms, P99 {p99:.1}, P99.9 {p999:.1}",
                    load.name
                );
            }
        }
    }
    Ok(())
}

/// The streams are distributed over the connections. The first of each pair sends.
fn carry(connections: Vec<(TcpStream, TcpStream)>, load: Load, time: Duration) -> Result<Taken> {
    let count = connections.len();
    let began = Instant::now();
    let (counts_from, until) = (began + WARM_UP, began + WARM_UP + time);
    let takers: Vec<_> = connections
        .into_iter()
        .map(|(sender, receiver)| {
            thread::spawn(move || give(sender, load, STREAMS / count, began, until));
            thread::spawn(move || take(receiver, load, began, (counts_from, until)))
        })
        .collect();
    let mut all = Taken::default();
    for taker in takers {
        let taken = taker.join().map_err(|_| "a reader panicked")??;
        all.bytes += taken.bytes;
        all.ms.extend(taken.ms);
    }
    all.ms.sort_by(f64::total_cmp);
    Ok(all)
}

/// Sends a message for each of the streams in turn; each begins with the time.
fn give(mut sender: TcpStream, load: Load, streams: usize, began: Instant, until: Instant) {
    let mut message = vec![0; load.message];
    let _ = sender.set_nodelay(true);
    let mut due = Instant::now();
    while Instant::now() < until {
        for _ in 0..streams {
            message[..8].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_le_bytes());
            if sender.write_all(&message).is_err() {
                return;
            }
        }
        if let Some(every) = load.every {
            due += every;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

fn take(
    mut receiver: TcpStream,
    load: Load,
    began: Instant,
    (from, until): (Instant, Instant),
) -> std::io::Result<Taken> {
    let mut taken = Taken::default();
    let mut message = vec![0; load.message];
    receiver.set_read_timeout(Some(LIMIT))?;
    while Instant::now() < until && receiver.read_exact(&mut message).is_ok() {
        let now = Instant::now();
        if now < from {
            continue;
        }
        let mut sent = [0; 8];
        sent.copy_from_slice(&message[..8]);
        let sent = Duration::from_nanos(u64::from_le_bytes(sent));
        taken.bytes += message.len();
        taken.ms.push((now - began).saturating_sub(sent).as_secs_f64() * 1e3);
    }
    Ok(taken)
}

fn connect(from: &Host, to: &Host, address: Ipv6Addr) -> Result<(TcpStream, TcpStream)> {
    let listener = to.run(move || TcpListener::bind((IpAddr::V6(address), 0)))??;
    let target = listener.local_addr()?;
    let end = Instant::now() + LIMIT;
    loop {
        match from.run(move || TcpStream::connect_timeout(&target, Duration::from_secs(2)))? {
            Ok(sender) => return Ok((sender, listener.accept()?.0)),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => {}
        }
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}
