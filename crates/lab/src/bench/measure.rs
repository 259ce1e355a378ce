//! One run of one case through one tunnel, and the checks of its figures.
//!
//! A run is valid only if the path existed before it (convergence), the traffic used the tunnel's
//! own interface and no other path (route), and both ends agree on what was received (L39). Every
//! run checks all three.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_os::process::usage_of;
use weft_perf::client::{self, ClientError, Outcome};
use weft_perf::endpoint::{DaemonLook, DaemonView};
use weft_perf::latency::Latency;
use weft_perf::limits::Limits;
use weft_perf::plan::Plan;
use weft_perf::server::{self, Server};

use super::driver::{EndPoint, Stage, Tunnel, underlay};
use super::matrix::Case;
use super::rubbish;
use crate::daemon::DaemonError;
use crate::host::Host;
use crate::world::WorldError;

/// Consecutive connections that must succeed before a tunnel counts as up.
const IN_A_ROW: u32 = 3;

/// The port of the load's server: not that of `weft perf`, which a weft daemon uses.
const PORT: u16 = 2126;

/// Time limit of one connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Interval between attempts.
const POLL: Duration = Duration::from_millis(50);

/// The share of the payload that the tunnel's interface must have counted: nearly all, as it counts
/// headers in addition.
const ROUTE_SHARE: f64 = 0.95;

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Payload received, in Mbit/s.
    pub mbit_s: f64,
    /// Datagrams received, per second; `None` for TCP.
    pub packets_s: Option<f64>,
    /// The share of lost datagrams; `None` for TCP.
    pub loss: Option<f64>,
    /// Retransmitted TCP segments; `None` for UDP.
    pub retransmits: Option<u64>,
    /// Round trips before the load, ms.
    pub idle: Latency,
    /// Round trips under load, ms.
    pub loaded: Latency,
    /// CPU seconds of the tunnel's processes of both ends, in user space and in the kernel, for
    /// 10^9 bytes of payload.
    pub cpu_s_per_gb: Option<f64>,
    /// CPU seconds of the sender's and the receiver's tunnel processes.
    pub cpu_s: [f64; 2],
    /// CPU seconds of the whole machine in soft interrupts meanwhile.
    pub softirq_s: f64,
    /// Memory after the load of the larger of both ends' tunnel processes, MiB.
    pub rss_mib: f64,
    /// Payload received in each second, Mbit/s.
    pub seconds: Vec<f64>,
}

/// Why a run has no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing passed within the time limit.
    #[error("not converged: {address} was not reached within {} s ({last})", .limit.as_secs())]
    NotConverged {
        /// The server's inner address.
        address: IpAddr,
        /// The time limit.
        limit: Duration,
        /// The last attempt's error.
        last: io::Error,
    },
    /// The tunnel's interface did not carry the received payload.
    #[error("wrong route: {counted} bytes passed {device} of host {host} where {payload} arrived")]
    WrongRoute {
        /// The interface.
        device: String,
        /// Its host.
        host: String,
        /// Bytes that it counted.
        counted: u64,
        /// Bytes that the load's receiver counted.
        payload: u64,
    },
    /// The path of the tunnel's packets after the load differs from that before it.
    #[error("the path changed during the run: {from}, then {to}")]
    PathChanged {
        /// The path before.
        from: String,
        /// The path after.
        to: String,
    },
    /// A process of the tunnel has ended.
    #[error("a process of the tunnel ended")]
    Ended,
    /// The load's server failed.
    #[error("the server {0}")]
    Client(#[from] ClientError),
    /// Nothing arrived at all.
    #[error("nothing arrived")]
    Nothing,
    /// The host has no port for the invalid datagrams.
    #[error("no invalid datagrams were sent: the second host has no open UDP port")]
    NoRubbish,
    /// A daemon did not report the path of its packets.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The lab could not enter a host.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A system call failed.
    #[error("the run could not be measured ({0})")]
    System(#[from] io::Error),
}

/// Waits until the tunnel carries TCP, at most for `limit`; an attempt in progress may take two
/// seconds more.
///
/// # Errors
/// [`RunError::NotConverged`].
pub fn converge(stage: &Stage, tunnel: &Tunnel, limit: Duration) -> Result<(), RunError> {
    let [near, far] = &stage.hosts;
    let address = tunnel.ends[1].address;
    let end = Instant::now() + limit;
    let mut good = 0;
    while good < IN_A_ROW {
        match connect(near, far, address)? {
            Ok(()) => good += 1,
            Err(_) if Instant::now() < end => {
                good = 0;
                std::thread::sleep(POLL);
            }
            Err(last) => return Err(RunError::NotConverged { address, limit, last }),
        }
    }
    Ok(())
}

fn connect(near: &Host, far: &Host, address: IpAddr) -> Result<io::Result<()>, WorldError> {
    let listener = match far.run(|| TcpListener::bind((address, 0)))? {
        Ok(listener) => listener,
        Err(error) => return Ok(Err(error)),
    };
    let to = match listener.local_addr() {
        Ok(to) => to,
        Err(error) => return Ok(Err(error)),
    };
    let connected = near.run(|| TcpStream::connect_timeout(&to, CONNECT))?;
    Ok(connected.map(drop))
}

/// Measures one case under the load of `plan`.
///
/// # Errors
/// [`RunError`]: the run is void.
pub fn measure(stage: &Stage, tunnel: &Tunnel, case: &Case, plan: &Plan) -> Result<Figures, RunError> {
    let paths = tunnel.paths()?;
    let before = Counts::take(stage, tunnel)?;
    let outcome = if case.has_rubbish() {
        amid_rubbish(stage, || load(stage, tunnel, plan))?
    } else {
        load(stage, tunnel, plan)?
    };
    let after = Counts::take(stage, tunnel)?;
    let now = tunnel.paths()?;
    if let Some((from, to)) = paths.into_iter().zip(now).find(|(from, to)| from != to) {
        return Err(RunError::PathChanged { from, to });
    }
    let forward = case.is_forward();
    let received = if forward { &outcome.server } else { &outcome.client };
    let received = received.received.as_ref().ok_or(RunError::Nothing)?;
    if received.bytes == 0 {
        return Err(RunError::Nothing);
    }
    prove_route(stage, tunnel, &before, &after, received.bytes)?;
    Ok(figures(&outcome, forward, &before, &after))
}

/// Runs the load while the first host sends invalid datagrams to the ports that the second had open
/// before it.
fn amid_rubbish(stage: &Stage, load: impl FnOnce() -> Result<Outcome, RunError>) -> Result<Outcome, RunError> {
    let [near, far] = &stage.hosts;
    let ports = rubbish::open_ports(far)?;
    let stop = AtomicBool::new(false);
    let (outcome, sent) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| rubbish::flood(near, IpAddr::V4(underlay(1)), &ports, &stop));
        let outcome = load();
        stop.store(true, Ordering::Relaxed);
        (outcome, flood.join())
    });
    let sent = sent.map_err(|_| io::Error::other("the thread that sends invalid datagrams panicked"))???;
    if sent == 0 {
        return Err(RunError::NoRubbish);
    }
    outcome
}

/// Runs both ends of the load, each on its host.
fn load(stage: &Stage, tunnel: &Tunnel, plan: &Plan) -> Result<Outcome, RunError> {
    let [near, far] = &stage.hosts;
    let address = tunnel.ends[1].address;
    let listener = far.run(|| TcpListener::bind(SocketAddr::new(address, PORT)))??;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // If this fails, the client reports the reason.
            far.run(|| {
                let (control, _) = listener.accept().ok()?;
                let view = Box::new(NoDaemon);
                server::serve(Server {
                    control,
                    device: None,
                    view,
                    limits: Limits::MOST,
                })
                .ok()
            })
        });
        let outcome =
            near.run(|| client::run(SocketAddr::new(address, PORT), plan, Box::new(NoDaemon), &mut |_| {}))?;
        if outcome.is_err() {
            // Releases a server to which no connection came.
            drop(near.run(|| TcpStream::connect_timeout(&SocketAddr::new(address, PORT), CONNECT)));
        }
        Ok(outcome?)
    })
}

/// A view without a daemon: the processes of the tunnels are measured from outside.
struct NoDaemon;

impl DaemonView for NoDaemon {
    fn look(&mut self) -> DaemonLook {
        DaemonLook::default()
    }
}

/// The kernel's counters at one moment.
struct Counts {
    /// CPU seconds of each end's processes.
    cpu: [f64; 2],
    rss: [u64; 2],
    /// Bytes that each end's tunnel interface received and sent.
    bytes: [u64; 2],
    softirq: f64,
}

impl Counts {
    fn take(stage: &Stage, tunnel: &Tunnel) -> Result<Self, RunError> {
        let [a, b] = [used(&tunnel.ends[0])?, used(&tunnel.ends[1])?];
        let bytes = |end: usize| interface_bytes(&stage.hosts[end], &tunnel.ends[end].device);
        Ok(Self {
            cpu: [a.0, b.0],
            rss: [a.1, b.1],
            bytes: [bytes(0)?, bytes(1)?],
            softirq: softirq()?,
        })
    }
}

/// CPU seconds and memory in bytes of one end's processes.
fn used(end: &EndPoint) -> Result<(f64, u64), RunError> {
    let mut sum = (0.0, 0);
    for pid in &end.processes {
        // A process that has ended and was not waited for is still listed, without memory.
        let usage = usage_of(*pid).ok().filter(|usage| usage.rss_bytes > 0);
        let usage = usage.ok_or(RunError::Ended)?;
        sum = (sum.0 + usage.cpu.as_secs_f64(), sum.1 + usage.rss_bytes);
    }
    Ok(sum)
}

/// Bytes that passed an interface of a host, in both directions (`/proc/net/dev`).
fn interface_bytes(host: &Host, device: &str) -> Result<u64, RunError> {
    // Not /proc/self, which is the main thread's namespace.
    let text = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let bytes = device_bytes(&text, device);
    Ok(bytes.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {device}")))?)
}

fn device_bytes(text: &str, device: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some(fields.first()? + fields.get(8)?)
}

/// Seconds that all CPUs spent in soft interrupts since the machine started (`/proc/stat`).
fn softirq() -> io::Result<f64> {
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string(Path::new("/proc/stat"))?;
    let field = text.lines().next().and_then(|line| line.split_whitespace().nth(7));
    let ticks: Option<f64> = field.and_then(|field| field.parse().ok());
    Ok(ticks.ok_or(io::ErrorKind::InvalidData)? / TICKS)
}

/// Fails unless both ends' tunnel interfaces counted the received payload.
fn prove_route(stage: &Stage, tunnel: &Tunnel, before: &Counts, after: &Counts, payload: u64) -> Result<(), RunError> {
    for end in 0..2 {
        let counted = after.bytes[end].saturating_sub(before.bytes[end]);
        if (counted as f64) < payload as f64 * ROUTE_SHARE {
            return Err(RunError::WrongRoute {
                device: tunnel.ends[end].device.clone(),
                host: stage.hosts[end].name().to_owned(),
                counted,
                payload,
            });
        }
    }
    Ok(())
}

fn figures(outcome: &Outcome, forward: bool, before: &Counts, after: &Counts) -> Figures {
    let (sender, receiver) = if forward {
        (&outcome.client, &outcome.server)
    } else {
        (&outcome.server, &outcome.client)
    };
    let bytes = receiver.received.map_or(0, |received| received.bytes);
    let arrivals = receiver.received.and_then(|received| received.udp);
    let sent = sender.sent.as_ref();
    let datagrams = sent.and_then(|sent| sent.udp).map(|udp| udp.datagrams);
    let loss = |got: u64, sent: u64| {
        if sent == 0 {
            0.0
        } else {
            1.0 - (got.min(sent) as f64 / sent as f64)
        }
    };
    let cpu = [0, 1].map(|end| after.cpu[end] - before.cpu[end]);
    let gb = bytes as f64 / 1e9;
    let of_second = |second: &client::Second| {
        let end = if forward {
            second.server.as_ref()?
        } else {
            &second.client
        };
        Some(weft_perf::mbit_s(end.received_bytes, end.seconds))
    };
    Figures {
        mbit_s: weft_perf::mbit_s(bytes, receiver.seconds),
        packets_s: arrivals.map(|arrivals| arrivals.datagrams as f64 / receiver.seconds),
        loss: arrivals
            .zip(datagrams)
            .map(|(arrivals, sent)| loss(arrivals.datagrams, sent)),
        retransmits: sent.and_then(|sent| sent.tcp.as_ref()).map(|tcp| tcp.retransmits),
        idle: outcome.idle,
        loaded: outcome.loaded,
        cpu_s_per_gb: (cpu[0] + cpu[1] > 0.0 && gb > 0.0).then(|| (cpu[0] + cpu[1]) / gb),
        cpu_s: if forward { cpu } else { [cpu[1], cpu[0]] },
        softirq_s: after.softirq - before.softirq,
        rss_mib: after.rss[0].max(after.rss[1]) as f64 / f64::from(1 << 20),
        seconds: outcome.seconds.iter().filter_map(of_second).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_interface_are_those_both_ways() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo:       0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
                    weft0: 1000 9 0 0 0 0 0 0 234 8 0 0 0 0 0 0\n weft01: 7 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n";
        assert_eq!(device_bytes(text, "weft0"), Some(1234));
        assert_eq!(device_bytes(text, "weft01"), Some(14));
        assert_eq!(device_bytes(text, "weft"), None);
    }
}
