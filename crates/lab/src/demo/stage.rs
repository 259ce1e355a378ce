//! The steps of the demo: two nodes on one cable, and what is done with them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::report::{Figures, Node, Roam, times};
use crate::daemon::{Daemon, DaemonError, Identity, PeerState};
use crate::host::Host;
use crate::spec::{DEFAULT_PORT, NodeSpec};
use crate::traffic::{Limit, PingOptions, Pinger, ProbeReport, TcpFlow, TcpReport, TrafficError, ping, transfer};
use crate::world::{Link, World, WorldError};

/// The underlay addresses of both nodes, and the one that the second roams to.
const ALPHA: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const BETA: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const ROAMED: &str = "192.0.2.77";

/// Bytes of TCP in each direction.
const TCP_BYTES: u64 = 100_000_000;

/// Time limits: of a daemon's start and of the link, of a transfer, of a neighbour's notice.
const READY: Duration = Duration::from_secs(5);
const TRANSFER: Duration = Duration::from_secs(20);
const NOTICE: Duration = Duration::from_secs(2);

/// The longest silence that a roam may cause.
const ROAM_MS: f64 = 2000.0;

/// The world of the demo with both daemons.
pub(super) struct Stage {
    link: Link,
    daemons: [Daemon; 2],
}

impl Stage {
    /// Makes the world and starts both daemons.
    pub(super) fn set(world: &World, weft: &Path) -> Result<Self, StepError> {
        let hosts = [world.host("alpha")?, world.host("beta")?];
        let nets = |[v4, v6]: [&str; 2]| [format!("{v4}/24"), format!("{v6}/64")];
        let (alpha, beta) = (nets(ALPHA), nets(BETA));
        let link = world.link(
            (&hosts[0], &alpha.each_ref().map(String::as_str)),
            (&hosts[1], &beta.each_ref().map(String::as_str)),
        )?;
        let identity = |host: &Host| Identity::create(weft, world.directory(), host.name());
        let identities = [identity(&hosts[0])?, identity(&hosts[1])?];
        let start = |own: usize, peer: usize, underlay: [&str; 2]| {
            let addresses: Vec<SocketAddr> = endpoints(underlay);
            let spec = NodeSpec {
                listen: endpoints(["0.0.0.0", "::"]),
                ..NodeSpec::default()
            };
            let (id, peer) = (&identities[own], &identities[peer]);
            let spec = spec.with_peer(&peer.npub, &peer.name, &addresses);
            let mut daemon = Daemon::start(&hosts[own], weft, id, &spec)?;
            daemon.wait_ready(READY)?;
            Ok::<_, DaemonError>(daemon)
        };
        let daemons = [start(0, 1, BETA)?, start(1, 0, ALPHA)?];
        Ok(Self { link, daemons })
    }

    /// Both nodes, for the report.
    pub(super) fn nodes(&self) -> Vec<Node> {
        let node = |(daemon, underlay): (&Daemon, [&str; 2])| Node {
            name: daemon.identity().name.clone(),
            npub: daemon.identity().npub.clone(),
            address: daemon.identity().address,
            underlay: endpoints(underlay).iter().map(ToString::to_string).collect(),
            pid: daemon.pid(),
            state: daemon.identity().state.clone(),
            log: daemon.log_path().to_owned(),
        };
        self.daemons.iter().zip([ALPHA, BETA]).map(node).collect()
    }

    pub(super) fn link(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        let start = Instant::now();
        let [alpha, beta] = &mut self.daemons;
        alpha.wait_peer(&beta.identity().npub, PeerState::Linked, READY)?;
        beta.wait_peer(&alpha.identity().npub, PeerState::Linked, READY)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        figures.link_ms = Some(ms);
        let path = self.path(0)?;
        Ok(format!("linked after {ms:.0} ms, alpha's path to beta is {path}"))
    }

    pub(super) fn ping(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        const COUNT: u64 = 20;
        let [alpha, beta] = &self.daemons;
        let first = one_way_ping(alpha, beta, 1)?;
        let there = one_way_ping(alpha, beta, COUNT)?;
        let back = one_way_ping(beta, alpha, COUNT)?;
        for (own, peer) in [(alpha, beta), (beta, alpha)] {
            // L13: what the status calls reachable must pass payload, and what passes must show.
            let state = own.peer_state(&peer.identity().npub)?;
            if state != Some(PeerState::Payload) {
                return Err(StepError::StateAfterPayload(state));
            }
        }
        figures.first_ping_ms = first.max_ms;
        let first = first.max_ms.unwrap_or_default();
        let text = format!(
            "{COUNT} of {COUNT} each way, min/avg/max {} and {} ms, the first {first:.1} ms",
            times(&there),
            times(&back),
        );
        figures.ping = Some([there, back]);
        Ok(text)
    }

    pub(super) fn tcp(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        let [alpha, beta] = &self.daemons;
        let before = [alpha.usage()?, beta.usage()?];
        let there = verified_transfer(alpha, beta, 1)?;
        let back = verified_transfer(beta, alpha, 2)?;
        let after = [alpha.usage()?, beta.usage()?];
        let gigabytes = (there.bytes + back.bytes) as f64 / 1e9;
        let cpu = [0, 1].map(|n| {
            let used = after[n].cpu.saturating_sub(before[n].cpu);
            used.as_secs_f64() / gigabytes
        });
        figures.cpu_s_per_gb = Some(cpu);
        figures.rss_bytes = Some(after.map(|usage| usage.rss_bytes));
        let text = format!(
            "{} MB each way, SHA-256 equal, {:.0} and {:.0} Mbit/s, CPU {:.1} and {:.1} s/GB",
            TCP_BYTES / 1_000_000,
            there.mbit_s,
            back.mbit_s,
            cpu[0],
            cpu[1],
        );
        figures.tcp = Some([there, back]);
        Ok(text)
    }

    /// The second node's address changes while TCP comes in; it pings all the while.
    pub(super) fn roam(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        const BEFORE: Duration = Duration::from_secs(1);
        const AFTER: Duration = Duration::from_secs(4);
        let [alpha, beta] = &self.daemons;
        let pinger = Pinger::start(beta.host(), alpha.identity().address, PingOptions::default())?;
        let hosts = (alpha.host(), beta.host());
        let to = IpAddr::V6(beta.identity().address);
        let flow = TcpFlow::start(hosts, to, Limit::Stopped, 3, TRANSFER)?;
        std::thread::sleep(BEFORE);
        let cidr = |address| format!("{address}/24");
        self.link.b().change_address(&cidr(BETA[0]), &cidr(ROAMED))?;
        std::thread::sleep(AFTER);
        let (tcp, ping) = (flow.stop()?, pinger.stop()?);
        if !tcp.hash_ok {
            return Err(StepError::HashDiffers);
        }
        if ping.longest_gap_ms > ROAM_MS {
            return Err(StepError::SilentTooLong(ping.longest_gap_ms));
        }
        let text = format!(
            "beta moved from {} to {ROAMED} under load: {:.0} ms of silence, {} of {} pings lost",
            BETA[0],
            ping.longest_gap_ms,
            ping.lost.len(),
            ping.sent,
        );
        figures.roam = Some(Roam {
            from: BETA[0].to_owned(),
            to: ROAMED.to_owned(),
            ping,
            tcp,
        });
        Ok(text)
    }

    pub(super) fn stop(&mut self) -> Result<String, StepError> {
        let [alpha, beta] = &mut self.daemons;
        let start = Instant::now();
        let status = beta.stop()?;
        if status.code() != Some(0) {
            return Err(StepError::ExitStatus(status));
        }
        alpha.wait_peer_gone(&beta.identity().npub, NOTICE)?;
        let noticed = start.elapsed().as_secs_f64() * 1e3;
        let status = alpha.stop()?;
        if status.code() != Some(0) {
            return Err(StepError::ExitStatus(status));
        }
        Ok(format!(
            "both exit 0; alpha knew {noticed:.0} ms after beta was asked to stop"
        ))
    }

    pub(super) fn logs(&self) -> Result<String, StepError> {
        for daemon in &self.daemons {
            let mut warnings = daemon.warnings()?;
            if !warnings.is_empty() {
                return Err(StepError::Warnings {
                    count: warnings.len(),
                    first: warnings.swap_remove(0),
                });
            }
        }
        Ok("no warning in either log".to_owned())
    }

    /// The path from one node to the other as its status has it.
    fn path(&self, from: usize) -> Result<String, DaemonError> {
        let [own, peer] = [&self.daemons[from], &self.daemons[1 - from]];
        let peer = own.peer(&peer.identity().npub)?.unwrap_or_default();
        let part = |name: &str| peer["path"][name].as_str().unwrap_or("?").to_owned();
        Ok(format!("{} {}", part("kind"), part("addr")))
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The world could not be made or changed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A daemon did not do what was wanted.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A measurement gave no result.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Pings were lost on a path that loses none.
    #[error("{lost} of {sent} pings from {from} were lost")]
    PingsLost {
        /// Which node sent them.
        from: String,
        /// How many got no answer.
        lost: usize,
        /// How many were sent.
        sent: u64,
    },
    /// Payload passes, and the status does not say so.
    #[error("payload passes, but the status shows the peer as {0:?}")]
    StateAfterPayload(Option<PeerState>),
    /// What arrived is not what was sent.
    #[error("the SHA-256 of what was sent and of what arrived differ")]
    HashDiffers,
    /// The change of address took too long.
    #[error("after the change of address nothing passed for {0:.0} ms; {ROAM_MS} ms are allowed")]
    SilentTooLong(f64),
    /// A daemon that was asked to stop did not exit with 0.
    #[error("a daemon that was asked to stop ended with {0}")]
    ExitStatus(ExitStatus),
    /// A log has warnings.
    #[error("{count} warnings in the log, the first: {first}")]
    Warnings {
        /// How many.
        count: usize,
        /// The first line.
        first: String,
    },
}

/// Both addresses with the default port.
fn endpoints(addresses: [&str; 2]) -> Vec<SocketAddr> {
    let parsed = addresses.iter().filter_map(|text| text.parse().ok());
    parsed.map(|ip: IpAddr| SocketAddr::new(ip, DEFAULT_PORT)).collect()
}

fn one_way_ping(from: &Daemon, to: &Daemon, count: u64) -> Result<ProbeReport, StepError> {
    const INTERVAL: Duration = Duration::from_millis(50);
    let report = ping(from.host(), to.identity().address, count, INTERVAL)?;
    if report.lost.is_empty() {
        return Ok(report);
    }
    Err(StepError::PingsLost {
        from: from.identity().name.clone(),
        lost: report.lost.len(),
        sent: report.sent,
    })
}

fn verified_transfer(from: &Daemon, to: &Daemon, seed: u64) -> Result<TcpReport, StepError> {
    let hosts = (from.host(), to.host());
    let address = IpAddr::V6(to.identity().address);
    let report = transfer(hosts, address, TCP_BYTES, seed, TRANSFER)?;
    if report.hash_ok && report.bytes == TCP_BYTES {
        Ok(report)
    } else {
        Err(StepError::HashDiffers)
    }
}
