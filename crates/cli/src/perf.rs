//! `weft perf`: throughput and latency between this node and a peer, and what limits them.

pub(crate) mod serve;
mod view;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use weft_config::peer::NodeRef;
use weft_control::status::{PathStatus, PeerStatus, Peers, Status};
use weft_control::{ControlCommand, Refusal};
use weft_perf::client::{self, ClientError, Second};
use weft_perf::human as text;
use weft_perf::plan::{self, Direction, Load, Plan};
use weft_perf::plot;
use weft_perf::report::{Peer, Report, SecondReport, Staged};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;
use view::View;

/// Default payload of a datagram: IPv6 and UDP headers take the rest of a packet.
const HEADERS: u32 = 48;

/// Default payload if the daemon does not report the path MTU.
const DEFAULT_SIZE: u16 = 1152;

/// Payload of a datagram of `--pps`.
const SMALL: u16 = 64;

/// Default rate of datagrams, bit/s.
const DEFAULT_RATE: u64 = 10_000_000;

/// Pause before the run that measures stages is requested a second time.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer: its name, NAME.fips, NAME.NETWORK.weft, npub or address
    #[arg(value_parser = NodeRef::of_node)]
    peer: NodeRef,
    /// Duration of the measurement
    #[arg(short, long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(plan::MAX_SECONDS)))]
    time: u32,
    /// TCP connections in each direction
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(plan::MAX_STREAMS)))]
    streams: u16,
    /// Download: the peer sends
    #[arg(short, long, conflicts_with = "both")]
    reverse: bool,
    /// Upload and download at once
    #[arg(short, long)]
    both: bool,
    /// Datagrams instead of TCP, at 10 Mbit/s without --rate
    #[arg(short, long, conflicts_with_all = ["streams", "window", "congestion"])]
    udp: bool,
    /// Small datagrams, as many as possible
    #[arg(long, conflicts_with_all = ["udp", "streams", "window", "congestion", "ping"])]
    pps: bool,
    /// Datagrams in trains, paced and answered, as QUIC sends them; without its cryptography
    #[arg(long, conflicts_with_all = ["udp", "pps", "streams", "window", "congestion", "ping"])]
    quic: bool,
    /// Round trips only, no load
    #[arg(long, conflicts_with_all = ["udp", "streams", "window", "congestion", "rate", "size", "reverse", "both"])]
    ping: bool,
    /// Bits of payload a second in each direction, such as 100M
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Payload of a datagram in bytes [default: what passes unfragmented; 64 with --pps, at most
    /// 1200 with --quic]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(i64::from(plan::MIN_SIZE)..=i64::from(plan::MAX_SIZE)))]
    size: Option<u16>,
    /// Receive buffer of each TCP connection in bytes [default: sized by the system]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(i64::from(plan::MIN_WINDOW)..=i64::from(plan::MAX_WINDOW)))]
    window: Option<u32>,
    /// Congestion control of TCP, such as cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Outside the tunnel: directly between the two hosts
    #[arg(long)]
    raw: bool,
    /// Skip the second run, which measures the stages of the packet path
    #[arg(long)]
    no_stages: bool,
    /// Plot throughput, CPU time and round trips over time as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print the document weft.perf/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    // Checked first, so that a misspelled path does not lose a run of an hour.
    args.open_plot()?;
    let status: Status = weft_control::call(&paths.control(), &ControlCommand::Status {})?;
    let wanted = ControlCommand::Peers {
        peer: Some(args.peer.clone()),
    };
    let found: Peers = weft_control::call(&paths.control(), &wanted)?;
    let unknown = || Failure::Control(Refusal::unknown_peer(&args.peer).into());
    let peer = found.peers.first().ok_or_else(unknown)?;
    let name = human::name(peer.name.as_deref(), &peer.npub);
    let plan = args.plan(peer, &name)?;
    let mut out = Out::new();
    let tell = Progress { json: args.json };
    tell.text(&mut out, &text::heading(&plan, &name))?;
    tell.text(&mut out, &text::columns())?;
    let view = || {
        Box::new(View::new(
            paths.control(),
            NodeRef::Address(peer.address.into()),
            status.node.pid,
        ))
    };
    let far = SocketAddr::from((peer.address, weft_perf::PORT));
    let mut failed = None;
    let outcome = client::run(far, &plan, view(), &mut |second: &Second| {
        let line = text::second(&SecondReport::new(&plan, second));
        // The run continues, because the server should not be left in the middle of it.
        failed = failed.take().or(tell.text(&mut out, &line).err());
    });
    let outcome = outcome.map_err(|error| Failure::Perf {
        peer: name.clone(),
        error,
    })?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    let whose = Peer {
        npub: peer.npub.clone(),
        name: peer.name.clone(),
        address: peer.address,
    };
    let mut report = Report::new(whose.clone(), &plan, &outcome, &Staged::Unwanted);
    // If the path changes, the stages are meaningless too.
    if report.valid && args.wants_stages(&plan) {
        tell.text(&mut out, &text::heading_of_stages())?;
        report = Report::new(whose, &plan, &outcome, &staged(far, &plan, view));
    }
    match args.json {
        true => out.json(&json!(report))?,
        false => out.text(&text::summary(&report))?,
    }
    if let Some(path) = &args.plot {
        let title = text::heading(&plan, &name);
        let written = std::fs::write(path, plot::svg(&report, title.trim_end()));
        written.map_err(|source| args.no_plot(source))?;
    }
    if report.valid { Ok(()) } else { Err(Failure::Invalid) }
}

/// Runs the same load a second time while both daemons measure their stages. A failure does not affect the
/// run.
fn staged(far: SocketAddr, plan: &Plan, view: impl Fn() -> Box<View>) -> Staged {
    let mut staged = client::run_staged(far, plan, view());
    // The server process of the first run may not have ended yet.
    if let Err(ClientError::Refused(_)) = staged {
        std::thread::sleep(RETRY);
        staged = client::run_staged(far, plan, view());
    }
    match staged {
        Ok(outcome) => Staged::Measured(Box::new(outcome)),
        Err(error) => Staged::Failed(format!("the peer {error}")),
    }
}

impl Args {
    /// Creates the file of the plot if there is none, and refuses a path that cannot be written.
    fn open_plot(&self) -> Result<(), Failure> {
        let Some(path) = &self.plot else { return Ok(()) };
        let opened = File::options().create(true).append(true).open(path);
        opened.map(drop).map_err(|source| self.no_plot(source))
    }

    fn no_plot(&self, source: io::Error) -> Failure {
        let path = self.plot.clone().unwrap_or_default();
        Failure::Plot { path, source }
    }

    /// Whether stages apply: outside the tunnel the daemons forward nothing, and without a load
    /// they do little.
    fn wants_stages(&self, plan: &Plan) -> bool {
        !self.no_stages && plan.raw.is_none() && plan.load != Load::None
    }

    fn plan(&self, peer: &PeerStatus, name: &str) -> Result<Plan, Failure> {
        let whole = peer
            .session
            .as_ref()
            .map(|session| session.max_inner.saturating_sub(HEADERS));
        let whole = whole.and_then(|size| u16::try_from(size).ok()).unwrap_or(DEFAULT_SIZE);
        let load = if self.ping {
            Load::None
        } else if self.quic {
            Load::Quic {
                rate: self.rate,
                size: self.size.unwrap_or(whole.min(plan::QUIC_SIZE)),
            }
        } else if self.pps {
            Load::Udp {
                rate: self.rate,
                size: self.size.unwrap_or(SMALL),
            }
        } else if self.udp {
            Load::Udp {
                rate: Some(self.rate.unwrap_or(DEFAULT_RATE)),
                size: self.size.unwrap_or(whole),
            }
        } else {
            Load::Tcp {
                streams: self.streams,
                window: self.window,
                rate: self.rate,
                congestion: self.congestion.clone(),
            }
        };
        let direction = match (self.reverse, self.both) {
            (_, true) => Direction::Both,
            (true, false) => Direction::Reverse,
            (false, false) => Direction::Forward,
        };
        let raw = self.raw.then(|| underlay(peer, name)).transpose()?;
        let plan = Plan {
            load,
            direction,
            seconds: self.time,
            raw,
        };
        plan.check().map_err(|bad| Failure::Usage(bad.to_string()))?;
        Ok(plan)
    }
}

/// The UDP address of the peer's host.
fn underlay(peer: &PeerStatus, name: &str) -> Result<IpAddr, Failure> {
    match &peer.path {
        Some(PathStatus::Direct { addr }) => Ok(addr.ip()),
        Some(path) => Err(Failure::Usage(format!(
            "--raw needs a direct path to {name}, which is {path} now; leave --raw out"
        ))),
        None => Err(Failure::Usage(format!(
            "--raw needs a direct path to {name}, and there is none now; see `weft peers {name}`"
        ))),
    }
}

/// The stream for progress: before the summary, or beside the document for a user who watches.
struct Progress {
    json: bool,
}

impl Progress {
    fn text(&self, out: &mut Out, line: &str) -> Result<(), Failure> {
        if !self.json {
            return out.text(line);
        }
        if io::stderr().is_terminal() {
            // If it cannot be written, the document still contains the figures.
            let _ = io::stderr().write_all(line.as_bytes());
        }
        Ok(())
    }
}

/// Parses a rate in bit/s: a number, with K, M or G for thousands, millions or thousands of
/// millions.
fn rate(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let bits = digits.parse::<f64>().map(|number| number * unit);
    match bits {
        Ok(bits) if (plan::MIN_RATE as f64..=plan::MAX_RATE as f64).contains(&bits) => Ok(bits as u64),
        _ => Err("write 1K to 1000G bits a second, such as 100M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, bits) in [
            ("1000", 1_000),
            ("2.5M", 2_500_000),
            ("1g", 1_000_000_000),
            ("10k", 10_000),
        ] {
            assert_eq!(rate(text), Ok(bits), "{text}");
        }
        for text in ["", "M", "-1M", "999", "1T", "nan", "inf", "5000G"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
