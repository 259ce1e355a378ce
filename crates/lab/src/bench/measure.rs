//! One run of one case through one tunnel, and the checks of its figures.
//!
//! A run is valid only if the path existed before it (convergence), the traffic used the tunnel's
//! own interface and no other path (route), and both ends agree on what was received (L39). Every
//! run checks all three.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_perf::account::EndpointReport;
use weft_perf::client::{self, ClientError, Outcome};
use weft_perf::endpoint::{DaemonLook, DaemonView};
use weft_perf::latency::Latency;
use weft_perf::limits::Limits;
use weft_perf::meter::ThreadLoad;
use weft_perf::plan::Plan;
use weft_perf::report::{Way, evidence};
use weft_perf::server::{self, Server};

use super::bound::{Bound, By, Cpu, bound};
use super::counts::{Counts, Used};
use super::driver::{DriverError, Tunnel};
use super::matrix::Case;
use super::media::{Media, Stream};
use super::rubbish;
use super::stage::Stage;
use crate::daemon::DaemonError;
use crate::host::Host;
use crate::world::WorldError;

/// Consecutive connections that must succeed before a tunnel counts as up.
const IN_A_ROW: u32 = 3;

/// The TCP port of the first client's server: not that of `weft perf`, which a weft daemon uses. The
/// others follow.
const PORT: u16 = 2126;

/// Time limit of one connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Interval between attempts.
const POLL: Duration = Duration::from_millis(50);

/// The share of the payload that the tunnel's interface must have counted: nearly all, as it counts
/// headers in addition.
const ROUTE_SHARE: f64 = 0.95;

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Payload received, in Mbit/s, all clients together.
    pub mbit_s: f64,
    /// Datagrams received, per second; `None` for TCP.
    pub packets_s: Option<f64>,
    /// The share of lost datagrams; `None` for TCP.
    pub loss: Option<f64>,
    /// Retransmitted TCP segments; `None` for UDP.
    pub retransmits: Option<u64>,
    /// Round trips of the first client before the load, ms.
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
    /// Mbit/s for each percent of a CPU that the sender's and the receiver's tunnel processes used;
    /// `None` without a tunnel.
    #[serde(default)]
    pub mbit_s_per_cpu_percent: Option<[f64; 2]>,
    /// CPU seconds of the relay's tunnel processes.
    #[serde(default)]
    pub relay_cpu_s: f64,
    /// Threads of the sender's and the receiver's tunnel processes.
    #[serde(default)]
    pub threads: [u32; 2],
    /// The share of the machine's CPU time that was idle under load, 0 to 1.
    #[serde(default)]
    pub idle_cpu: f64,
    /// MTU inside the tunnel, bytes.
    #[serde(default)]
    pub mtu: u32,
    /// The kind of frames of a weft daemon.
    #[serde(default)]
    pub frames: Option<String>,
    /// The media stream beside the load, or through an event.
    #[serde(default)]
    pub media: Option<Media>,
    /// Packets that emulated cables lost at random.
    #[serde(default)]
    pub cable_lost: u64,
    /// Packets that the queues of emulated cables had no room for.
    #[serde(default)]
    pub cable_overflowed: u64,
    /// What bound the run.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// Seconds without payload after an event; `None` for a load.
    #[serde(default)]
    pub gap_s: Option<f64>,
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
    /// Payload did not return after an event, or never came.
    #[error("no payload within {} s", .0.as_secs())]
    NoReturn(Duration),
    /// The hosts or the tunnel could not be used.
    #[error(transparent)]
    Driver(#[from] DriverError),
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

/// Waits until every client reaches the server over TCP, each at most for `limit`; an attempt in
/// progress may take two seconds more.
///
/// # Errors
/// [`RunError::NotConverged`].
pub fn converge(stage: &Stage, tunnel: &Tunnel, limit: Duration) -> Result<(), RunError> {
    let server = &stage.hosts[stage.server()];
    let address = tunnel.ends[stage.server()].address;
    for client in &stage.hosts[..stage.server()] {
        let end = Instant::now() + limit;
        let mut good = 0;
        while good < IN_A_ROW {
            match connect(client, server, address)? {
                Ok(()) => good += 1,
                Err(_) if Instant::now() < end => {
                    good = 0;
                    std::thread::sleep(POLL);
                }
                Err(last) => return Err(RunError::NotConverged { address, limit, last }),
            }
        }
    }
    Ok(())
}

fn connect(client: &Host, server: &Host, address: IpAddr) -> Result<io::Result<()>, WorldError> {
    let listener = match server.run(|| TcpListener::bind((address, 0)))? {
        Ok(listener) => listener,
        Err(error) => return Ok(Err(error)),
    };
    let to = match listener.local_addr() {
        Ok(to) => to,
        Err(error) => return Ok(Err(error)),
    };
    let connected = client.run(|| TcpStream::connect_timeout(&to, CONNECT))?;
    Ok(connected.map(drop))
}

/// Measures one case under the load of `plan`, from every client at once.
///
/// # Errors
/// [`RunError`]: the run is void.
pub fn measure(stage: &Stage, tunnel: &Tunnel, case: &Case, plan: &Plan) -> Result<Figures, RunError> {
    let paths = tunnel.paths()?;
    let before = Counts::take(stage, tunnel)?;
    // The ports of the tunnel alone, not those of the measurement.
    let ports = match case.has_rubbish() {
        true => Some(rubbish::open_ports(&stage.hosts[stage.server()])?),
        false => None,
    };
    let (outcomes, media) = beside_media(stage, tunnel, case.is_forward(), || match &ports {
        Some(ports) => amid_rubbish(stage, ports, || load(stage, tunnel, plan)),
        None => load(stage, tunnel, plan),
    })?;
    let after = Counts::take(stage, tunnel)?;
    let now = tunnel.paths()?;
    if let Some((from, to)) = paths.into_iter().zip(now).find(|(from, to)| from != to) {
        return Err(RunError::PathChanged { from, to });
    }
    let run = Run {
        outcomes: &outcomes,
        forward: case.is_forward(),
        before: &before,
        after: &after,
    };
    run.prove_route(stage, tunnel)?;
    Ok(Figures {
        mtu: tunnel.mtu,
        frames: tunnel.frames()?,
        media: Some(media),
        ..run.figures(plan)
    })
}

/// Runs the load beside a media stream in its direction.
fn beside_media(
    stage: &Stage,
    tunnel: &Tunnel,
    forward: bool,
    load: impl FnOnce() -> Result<Vec<Outcome>, RunError>,
) -> Result<(Vec<Outcome>, Media), RunError> {
    let ends = [0, stage.server()];
    let [from, to] = if forward { ends } else { [ends[1], ends[0]] };
    let stream = Stream::open(&stage.hosts[from], &stage.hosts[to], tunnel.ends[to].address)??;
    let stop = AtomicBool::new(false);
    let (outcomes, arrivals) = std::thread::scope(|scope| {
        let streaming = scope.spawn(|| stream.run(&stop, &|| {}));
        let outcomes = load();
        stop.store(true, Ordering::Relaxed);
        (outcomes, streaming.join())
    });
    let arrivals = arrivals.map_err(|_| io::Error::other("the media stream panicked"))?;
    Ok((outcomes?, arrivals.media()))
}

/// Runs the load while the server's neighbour sends invalid datagrams to these ports of the server.
fn amid_rubbish(
    stage: &Stage,
    ports: &[u16],
    load: impl FnOnce() -> Result<Vec<Outcome>, RunError>,
) -> Result<Vec<Outcome>, RunError> {
    let server = stage.server();
    let from = stage.neighbours(server).next().map_or(0, |(host, _)| host);
    let to = IpAddr::V4(stage.underlay(server)?);
    let stop = AtomicBool::new(false);
    let (outcome, sent) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| rubbish::flood(&stage.hosts[from], to, ports, &stop));
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

/// Runs both ends of the load of every client, each on its host.
fn load(stage: &Stage, tunnel: &Tunnel, plan: &Plan) -> Result<Vec<Outcome>, RunError> {
    let address = tunnel.ends[stage.server()].address;
    let clients = (PORT..).zip(&stage.hosts[..stage.server()]);
    std::thread::scope(|scope| {
        let one = |(port, client)| {
            let at = SocketAddr::new(address, port);
            scope.spawn(move || of_client(client, &stage.hosts[stage.server()], at, plan))
        };
        let running: Vec<_> = clients.map(one).collect();
        let outcomes = running.into_iter().map(|thread| {
            let panicked = |_| io::Error::other("the load of a client panicked");
            thread.join().map_err(panicked)?
        });
        outcomes.collect()
    })
}

/// Runs both ends of the load of one client; its server listens at `at`.
fn of_client(client: &Host, server: &Host, at: SocketAddr, plan: &Plan) -> Result<Outcome, RunError> {
    let listener = server.run(|| TcpListener::bind(at))??;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // If this fails, the client reports the reason.
            server.run(|| {
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
        let outcome = client.run(|| client::run(at, plan, Box::new(NoDaemon), &mut |_| {}))?;
        if outcome.is_err() {
            // Releases a server to which no connection came.
            drop(client.run(|| TcpStream::connect_timeout(&at, CONNECT)));
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

/// A run that has ended.
struct Run<'a> {
    outcomes: &'a [Outcome],
    forward: bool,
    before: &'a Counts,
    after: &'a Counts,
}

impl Run<'_> {
    /// The accounts of sender and receiver of one client's load.
    fn ends<'o>(&self, outcome: &'o Outcome) -> [&'o EndpointReport; 2] {
        match self.forward {
            true => [&outcome.client, &outcome.server],
            false => [&outcome.server, &outcome.client],
        }
    }

    fn bytes(&self, outcome: &Outcome) -> u64 {
        self.ends(outcome)[1].received.map_or(0, |received| received.bytes)
    }

    /// Fails unless the tunnel interfaces of the clients and of the server counted the received
    /// payload.
    fn prove_route(&self, stage: &Stage, tunnel: &Tunnel) -> Result<(), RunError> {
        let each: Vec<u64> = self.outcomes.iter().map(|outcome| self.bytes(outcome)).collect();
        if each.contains(&0) {
            return Err(RunError::Nothing);
        }
        let all = each.iter().sum();
        for (host, payload) in each.into_iter().chain([all]).enumerate() {
            let counted = self.after.bytes[host].saturating_sub(self.before.bytes[host]);
            if (counted as f64) < payload as f64 * ROUTE_SHARE {
                return Err(RunError::WrongRoute {
                    device: tunnel.ends[host].device.clone(),
                    host: stage.hosts[host].name().to_owned(),
                    counted,
                    payload,
                });
            }
        }
        Ok(())
    }

    /// CPU seconds of the tunnel: clients, server, relay.
    fn cpu(&self) -> [f64; 3] {
        let hosts = self.before.hosts.iter().zip(&self.after.hosts);
        let mut each: Vec<f64> = hosts.map(|(before, after)| after.cpu_s - before.cpu_s).collect();
        let (relay, server) = (each.pop().unwrap_or(0.0), each.pop().unwrap_or(0.0));
        [each.iter().sum(), server, relay]
    }

    fn figures(&self, plan: &Plan) -> Figures {
        let bytes: u64 = self.outcomes.iter().map(|outcome| self.bytes(outcome)).sum();
        let load_s = self
            .outcomes
            .iter()
            .map(|outcome| self.ends(outcome)[1].seconds)
            .fold(0.0, f64::max);
        let sum = |of: &dyn Fn(&Outcome) -> Option<f64>| -> Option<f64> { self.outcomes.iter().map(of).sum() };
        let arrived = |outcome: &Outcome| Some(self.ends(outcome)[1].received?.udp?.datagrams as f64);
        let sent = |outcome: &Outcome| Some(self.ends(outcome)[0].sent.as_ref()?.udp?.datagrams as f64);
        let mbit_s = sum(&|outcome| Some(weft_perf::mbit_s(self.bytes(outcome), self.ends(outcome)[1].seconds)));
        let mbit_s = mbit_s.unwrap_or(0.0);
        let [clients, server, relay] = self.cpu();
        let cpu = if self.forward {
            [clients, server]
        } else {
            [server, clients]
        };
        let (gb, all) = (bytes as f64 / 1e9, clients + server + relay);
        let per_percent = cpu.map(|cpu| mbit_s / (cpu / load_s * 100.0));
        let largest = |of: fn(&Used) -> u64| self.after.hosts.iter().map(of).max().unwrap_or(0);
        let server_at = self.outcomes.len();
        let threads = [0, server_at].map(|host| self.after.hosts[host].threads);
        let first = &self.outcomes[0];
        Figures {
            mbit_s,
            packets_s: sum(&|outcome| Some(arrived(outcome)? / self.ends(outcome)[1].seconds)),
            loss: sum(&arrived).zip(sum(&sent)).map(|(arrived, sent)| match sent {
                0.0 => 0.0,
                sent => 1.0 - arrived.min(sent) / sent,
            }),
            retransmits: sum(&|outcome| Some(self.ends(outcome)[0].sent.as_ref()?.tcp.as_ref()?.retransmits as f64))
                .map(|sum| sum as u64),
            idle: first.idle,
            loaded: first.loaded,
            cpu_s_per_gb: (all > 0.0 && gb > 0.0).then(|| all / gb),
            cpu_s: cpu,
            mbit_s_per_cpu_percent: (cpu[0] > 0.0 && cpu[1] > 0.0 && load_s > 0.0).then_some(per_percent),
            relay_cpu_s: relay,
            threads: if self.forward {
                threads
            } else {
                [threads[1], threads[0]]
            },
            softirq_s: self.after.machine.softirq - self.before.machine.softirq,
            idle_cpu: self.idle(load_s),
            rss_mib: largest(|used| used.rss_bytes) as f64 / f64::from(1 << 20),
            seconds: self.seconds(),
            cable_lost: self.after.dropped[0] - self.before.dropped[0],
            cable_overflowed: self.after.dropped[1] - self.before.dropped[1],
            bound: Some(self.bound(first, plan, load_s)),
            ..Figures::default()
        }
    }

    /// Payload received in each second, all clients together.
    fn seconds(&self) -> Vec<f64> {
        let of_second = |second: &client::Second| {
            let end = if self.forward {
                second.server.as_ref()?
            } else {
                &second.client
            };
            Some(weft_perf::mbit_s(end.received_bytes, end.seconds))
        };
        let mut all: Vec<f64> = Vec::new();
        for outcome in self.outcomes {
            for (n, rate) in outcome.seconds.iter().filter_map(of_second).enumerate() {
                match all.get_mut(n) {
                    Some(sum) => *sum += rate,
                    None => all.push(rate),
                }
            }
        }
        all
    }

    /// The share of the machine's CPU time that was idle under the load of `load_s` seconds. Before
    /// the load the machine does little.
    fn idle(&self, load_s: f64) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let busy = self.after.machine.busy - self.before.machine.busy;
        (1.0 - busy / (cores * load_s.max(1e-3))).clamp(0.0, 1.0)
    }

    /// What bound the run, by the first client's flow.
    fn bound(&self, first: &Outcome, plan: &Plan, load_s: f64) -> Bound {
        let wall = (self.after.at - self.before.at).as_secs_f64();
        // Threads slept before the load.
        let under_load = |thread: ThreadLoad| ThreadLoad {
            running: (thread.running * wall / load_s.max(1e-3)).min(1.0),
            waiting: (thread.waiting * wall / load_s.max(1e-3)).min(1.0),
            ..thread
        };
        let mut cpu = Cpu {
            idle: self.idle(load_s),
            ..Cpu::default()
        };
        let last = self.after.hosts.len() - 1;
        for (host, (before, after)) in self.before.hosts.iter().zip(&self.after.hosts).enumerate() {
            let by = match (host == last, (host < last - 1) == self.forward) {
                (true, _) => By::Relay,
                (false, true) => By::Sender,
                (false, false) => By::Receiver,
            };
            for (before, after) in before.processes.iter().zip(&after.processes) {
                let busiest = after.since(before).daemon.and_then(|load| load.busiest);
                cpu.tunnels.extend(busiest.map(|thread| (by, under_load(thread))));
            }
        }
        // The threads of the load have ended, and cables belong to the same process.
        let load = self.ends(first).map(|end| end.spent.test.as_ref()?.busiest.clone());
        cpu.load = load
            .into_iter()
            .flatten()
            .max_by(|a, b| a.wanting().total_cmp(&b.wanting()));
        let way = if self.forward { Way::Forward } else { Way::Reverse };
        bound(&cpu, evidence(plan, first, way))
    }
}
