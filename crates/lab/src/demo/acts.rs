//! The steps of the demo.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::error::StepError;
use super::report::{Cut, Figures, Join, Relayed, Roam, times};
use super::stage::{ALPHA, BETA, CAST, DELTA, GAMMA, READY, RELAY, Stage};
use crate::daemon::{Daemon, PeerState};
use crate::traffic::{Limit, PingOptions, Pinger, ProbeReport, TcpFlow, TcpReport, ping, transfer};

/// Bytes of TCP in each direction, between neighbours and through the relay.
const TCP_BYTES: u64 = 100_000_000;
const RELAYED_BYTES: u64 = 20_000_000;

/// Bytes a second of the stream that runs while the path is cut.
const CUT_RATE: u64 = 2_000_000;

/// Time limits: of a transfer, of the detection of a dead neighbour, of the return to a direct
/// path.
const TRANSFER: Duration = Duration::from_secs(20);
const NOTICE: Duration = Duration::from_secs(2);
const RETURN: Duration = Duration::from_secs(25);

/// The address to which beta roams.
const ROAMED: &str = "203.0.113.77";

/// The maximum silence at a change of path.
pub(super) const SILENCE_MS: f64 = 3000.0;

/// The load while the path between alpha and beta is cut and restored.
pub(super) struct Load {
    pings: [Pinger; 2],
    tcp: TcpFlow,
    relayed_ms: f64,
}

impl Stage {
    pub(super) fn link(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        let ms = self.wait_path(ALPHA, BETA, "direct", READY)?;
        figures.link_ms = Some(ms);
        let relay = self.daemons[RELAY].identity().npub.clone();
        for n in [ALPHA, BETA, GAMMA] {
            self.daemons[n].wait_peer(&relay, PeerState::Linked, READY)?;
        }
        Ok("alpha and beta are linked directly, and both and gamma with the relay".to_owned())
    }

    pub(super) fn ping(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        const COUNT: u64 = 20;
        let (alpha, beta) = self.two(ALPHA, BETA);
        let first = one_way_ping(alpha, beta, 1)?;
        let pings = [one_way_ping(alpha, beta, COUNT)?, one_way_ping(beta, alpha, COUNT)?];
        for (own, peer) in [(alpha, beta), (beta, alpha)] {
            // L13: a peer that the status calls reachable must pass payload, and a peer that passes
            // payload must be shown so.
            let state = own.peer_state(&peer.identity().npub)?;
            if state != Some(PeerState::Payload) {
                return Err(StepError::StateAfterPayload(state));
            }
        }
        figures.first_ping_ms = first.max_ms;
        let text = format!(
            "{COUNT} of {COUNT} in each direction, min/avg/max {} and {} ms, the first {:.1} ms",
            times(&pings[0]),
            times(&pings[1]),
            first.max_ms.unwrap_or_default(),
        );
        figures.ping = Some(pings);
        Ok(text)
    }

    pub(super) fn tcp(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        let (alpha, beta) = self.two(ALPHA, BETA);
        let before = [alpha.usage()?, beta.usage()?];
        let there = verified_transfer(alpha, beta, TCP_BYTES, 1)?;
        let back = verified_transfer(beta, alpha, TCP_BYTES, 2)?;
        let after = [alpha.usage()?, beta.usage()?];
        let gigabytes = (there.bytes + back.bytes) as f64 / 1e9;
        let cpu = [0, 1].map(|n| after[n].cpu.saturating_sub(before[n].cpu).as_secs_f64() / gigabytes);
        figures.cpu_s_per_gb = Some(cpu);
        figures.rss_bytes = Some(after.map(|usage| usage.rss_bytes));
        let text = format!(
            "{} MB in each direction, SHA-256 equal, {:.0} and {:.0} Mbit/s, CPU {:.1} and {:.1} s/GB",
            TCP_BYTES / 1_000_000,
            there.mbit_s,
            back.mbit_s,
            cpu[0],
            cpu[1],
        );
        figures.tcp = Some([there, back]);
        Ok(text)
    }

    /// Beta's address changes during a TCP download; it sends pings all the while.
    pub(super) fn roam(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        let (alpha, beta) = self.two(ALPHA, BETA);
        let pinger = Pinger::start(beta.host(), alpha.identity().address, PingOptions::default())?;
        let flow = TcpFlow::start((alpha.host(), beta.host()), address(beta), Limit::Stopped, 3, TRANSFER)?;
        std::thread::sleep(Duration::from_millis(500));
        let from = CAST[BETA].1;
        self.ports[BETA].change_address(&format!("{from}/24"), &format!("{ROAMED}/24"))?;
        std::thread::sleep(Duration::from_millis(1500));
        let (tcp, ping) = (flow.stop()?, pinger.stop()?);
        check(&tcp, &[&ping])?;
        let text = format!(
            "beta roamed from {from} to {ROAMED} under load: {:.0} ms of silence, {} of {} pings lost",
            ping.longest_gap_ms,
            ping.lost.len(),
            ping.sent,
        );
        figures.roam = Some(Roam {
            from: from.to_owned(),
            to: ROAMED.to_owned(),
            ping,
            tcp,
        });
        Ok(text)
    }

    /// Gamma is behind the NAT box, and only the relay has an address for it.
    pub(super) fn nat(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        self.first_answer(ALPHA, GAMMA)?;
        self.first_answer(GAMMA, BETA)?;
        self.wait_path(ALPHA, GAMMA, "via relay", READY)?;
        let (alpha, gamma) = self.two(ALPHA, GAMMA);
        let ping = [one_way_ping(alpha, gamma, 20)?, one_way_ping(gamma, alpha, 20)?];
        let tcp = [
            verified_transfer(alpha, gamma, RELAYED_BYTES, 4)?,
            verified_transfer(gamma, alpha, RELAYED_BYTES, 5)?,
        ];
        let text = format!(
            "gamma, behind NAT, through the relay: 20 pings and {} MB in each direction, SHA-256 equal, {:.0} and {:.0} Mbit/s",
            RELAYED_BYTES / 1_000_000,
            tcp[0].mbit_s,
            tcp[1].mbit_s,
        );
        figures.relayed = Some(Relayed { ping, tcp });
        Ok(text)
    }

    /// Delta starts late, configured only with keys and the relay.
    pub(super) fn join(&mut self, figures: &mut Figures) -> Result<String, StepError> {
        let start = Instant::now();
        self.enter(DELTA)?;
        self.first_answer(DELTA, GAMMA)?;
        let gamma_ms = start.elapsed().as_secs_f64() * 1e3;
        self.first_answer(ALPHA, DELTA)?;
        let (delta, gamma) = self.two(DELTA, GAMMA);
        let tcp = verified_transfer(delta, gamma, RELAYED_BYTES, 6)?;
        let text = format!(
            "delta joined late and had an answer of gamma {gamma_ms:.0} ms after its start; {} MB, SHA-256 equal",
            RELAYED_BYTES / 1_000_000,
        );
        figures.join = Some(Join { gamma_ms, tcp });
        Ok(text)
    }

    /// Traffic between alpha and beta in the underlay is dropped, without notice to either.
    pub(super) fn cut(&mut self, load: &mut Option<Load>) -> Result<String, StepError> {
        let (alpha, beta) = self.two(ALPHA, BETA);
        let start =
            |from: &Daemon, to: &Daemon| Pinger::start(from.host(), to.identity().address, PingOptions::default());
        let pings = [start(alpha, beta)?, start(beta, alpha)?];
        let hosts = (alpha.host(), beta.host());
        let tcp = TcpFlow::start(hosts, address(beta), Limit::Paced(CUT_RATE), 7, 2 * TRANSFER)?;
        std::thread::sleep(Duration::from_millis(500));
        self.keep_apart(true)?;
        let relayed_ms = self.wait_path(ALPHA, BETA, "via relay", READY)?;
        std::thread::sleep(Duration::from_millis(1500));
        let text = format!("alpha and beta cut under load: relayed after {relayed_ms:.0} ms");
        *load = Some(Load { pings, tcp, relayed_ms });
        Ok(text)
    }

    pub(super) fn heal(&mut self, load: Option<Load>, figures: &mut Figures) -> Result<String, StepError> {
        let Load { pings, tcp, relayed_ms } = load.ok_or(StepError::NoLoad)?;
        self.keep_apart(false)?;
        let direct_ms = self.wait_path(ALPHA, BETA, "direct", RETURN)?;
        std::thread::sleep(Duration::from_millis(500));
        let tcp = tcp.stop()?;
        let [there, back] = pings;
        let ping = [there.stop()?, back.stop()?];
        check(&tcp, &[&ping[0], &ping[1]])?;
        let text = format!(
            "restored: direct again after {direct_ms:.0} ms; {:.0} ms of silence in all, {:.1} MB with equal SHA-256",
            ping[0].longest_gap_ms.max(ping[1].longest_gap_ms),
            tcp.bytes as f64 / 1e6,
        );
        figures.cut = Some(Cut {
            relayed_ms,
            direct_ms,
            ping,
            tcp,
        });
        Ok(text)
    }

    fn keep_apart(&self, apart: bool) -> Result<(), StepError> {
        for n in [ALPHA, BETA] {
            self.ports[n].isolate(apart)?;
        }
        Ok(())
    }

    pub(super) fn stop(&mut self) -> Result<String, StepError> {
        let start = Instant::now();
        let beta = self.daemons[BETA].identity().npub.clone();
        let mut noticed = 0.0;
        for n in [BETA, GAMMA, DELTA, ALPHA, RELAY] {
            let Some(daemon) = self.daemons.get_mut(n) else {
                continue;
            };
            let status = daemon.stop()?;
            if status.code() != Some(0) {
                return Err(StepError::ExitStatus(status));
            }
            if n == BETA {
                self.wait_left(&beta)?;
                noticed = start.elapsed().as_secs_f64() * 1e3;
            }
        }
        Ok(format!(
            "all exit 0; alpha noticed {noticed:.0} ms after beta was stopped"
        ))
    }

    /// Waits until alpha's link with beta is down.
    fn wait_left(&self, beta: &str) -> Result<(), StepError> {
        let start = Instant::now();
        while self.daemons[ALPHA]
            .peer(beta)?
            .is_some_and(|peer| !peer["link"].is_null())
        {
            if start.elapsed() >= NOTICE {
                return Err(StepError::Path {
                    wanted: "none".to_owned(),
                    found: self.path(ALPHA, BETA)?,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub(super) fn logs(&self) -> Result<String, StepError> {
        for daemon in &self.daemons {
            let mut warnings = daemon.warnings()?;
            if !warnings.is_empty() {
                return Err(StepError::Warnings {
                    name: daemon.identity().name.clone(),
                    count: warnings.len(),
                    first: warnings.swap_remove(0),
                });
            }
        }
        Ok("no warning in any log".to_owned())
    }
}

fn address(daemon: &Daemon) -> IpAddr {
    IpAddr::V6(daemon.identity().address)
}

/// Checks that the content arrived intact, and that no silence was too long.
fn check(tcp: &TcpReport, pings: &[&ProbeReport]) -> Result<(), StepError> {
    if !tcp.hash_ok {
        return Err(StepError::HashDiffers);
    }
    let gap = pings.iter().map(|ping| ping.longest_gap_ms).fold(0.0, f64::max);
    if gap > SILENCE_MS {
        return Err(StepError::SilentTooLong(gap));
    }
    Ok(())
}

fn one_way_ping(from: &Daemon, to: &Daemon, count: u64) -> Result<ProbeReport, StepError> {
    const INTERVAL: Duration = Duration::from_millis(25);
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

fn verified_transfer(from: &Daemon, to: &Daemon, bytes: u64, seed: u64) -> Result<TcpReport, StepError> {
    let report = transfer((from.host(), to.host()), address(to), bytes, seed, TRANSFER)?;
    if report.hash_ok && report.bytes == bytes {
        Ok(report)
    } else {
        Err(StepError::HashDiffers)
    }
}
