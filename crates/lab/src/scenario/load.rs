//! Traffic that a step starts.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::steps::{Action, PingLoad, TcpLoad, UdpLoad};
use super::topology::{Stage, StageError};
use crate::traffic::{Limit, PingOptions, Pinger, ProbeReport, TcpFlow, TcpReport, TrafficError, UdpFlow, UdpOptions};

/// How long a stream may take beyond its own duration, and one without a duration.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

/// The default number of bytes behind the ICMPv6 header, and of a datagram.
const PING_SIZE: u64 = 56;
const UDP_SIZE: u64 = 1000;
/// The default interval between echoes.
const PING_INTERVAL: Duration = Duration::from_millis(100);

/// A running load. Ends when it is dropped.
pub struct Load {
    kind: Kind,
    ends: Ends,
}

enum Kind {
    Ping(Pinger),
    Tcp(TcpFlow),
    Udp(UdpFlow),
}

/// When a load ends.
enum Ends {
    ByItself,
    At(Instant),
    WhenAsked,
}

/// The result of a load.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Echoes, with round trips.
    Ping(ProbeReport),
    /// A stream.
    Tcp(TcpReport),
    /// Datagrams, with one-way times.
    Udp(ProbeReport),
}

impl Load {
    /// Starts the load of a step; `None` if the step is not a load.
    ///
    /// # Errors
    /// If a socket cannot be created.
    pub fn start(stage: &Stage, action: &Action) -> Result<Option<Self>, LoadError> {
        let load = match action {
            Action::Ping(load) => Self::ping(stage, load)?,
            Action::Tcp(load) => Self::tcp(stage, load)?,
            Action::Udp(load) => Self::udp(stage, load)?,
            _ => return Ok(None),
        };
        Ok(Some(load))
    }

    fn ping(stage: &Stage, load: &PingLoad) -> Result<Self, LoadError> {
        let options = PingOptions {
            interval: load.interval.map_or(PING_INTERVAL, |time| time.0),
            payload: load.size.map_or(PING_SIZE, |size| size.0) as usize,
            count: load.count,
            ..PingOptions::default()
        };
        let host = &stage.place(&load.from)?.host;
        let pinger = Pinger::start(host, stage.node(&load.to)?.identity.address, options)?;
        Ok(Self {
            kind: Kind::Ping(pinger),
            ends: Ends::of(load.count.is_some(), load.time.map(|time| time.0)),
        })
    }

    fn tcp(stage: &Stage, load: &TcpLoad) -> Result<Self, LoadError> {
        let hosts = (&stage.place(&load.from)?.host, &stage.place(&load.to)?.host);
        let limit = match (load.bytes, load.rate) {
            (Some(bytes), _) => Limit::Bytes(bytes.0),
            (None, Some(rate)) => Limit::Paced(rate.0 / 8),
            (None, None) => Limit::Stopped,
        };
        let deadline = match (load.bytes, load.time) {
            (Some(_), _) => 2 * PATIENCE,
            (None, Some(time)) => time.0 + PATIENCE,
            (None, None) => LONGEST,
        };
        let address = IpAddr::V6(stage.node(&load.to)?.identity.address);
        Ok(Self {
            kind: Kind::Tcp(TcpFlow::start(hosts, address, limit, 1, deadline)?),
            ends: Ends::of(load.bytes.is_some(), load.time.map(|time| time.0)),
        })
    }

    fn udp(stage: &Stage, load: &UdpLoad) -> Result<Self, LoadError> {
        let hosts = (&stage.place(&load.from)?.host, &stage.place(&load.to)?.host);
        let size = load.size.map_or(UDP_SIZE, |size| size.0).max(8);
        let options = UdpOptions {
            interval: Duration::from_secs_f64(size as f64 * 8.0 / load.rate.0 as f64),
            payload: size as usize,
            ..UdpOptions::default()
        };
        let address = IpAddr::V6(stage.node(&load.to)?.identity.address);
        Ok(Self {
            kind: Kind::Udp(UdpFlow::start(hosts, address, options)?),
            ends: Ends::of(false, load.time.map(|time| time.0)),
        })
    }

    /// Waits for the end of the load, or ends it if it has no end of its own. Returns the result.
    ///
    /// # Errors
    /// If it broke off.
    pub fn finish(self) -> Result<Report, LoadError> {
        if let Ends::At(end) = self.ends {
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
        }
        let itself = matches!(self.ends, Ends::ByItself);
        Ok(match self.kind {
            Kind::Ping(pinger) if itself => Report::Ping(pinger.join()?),
            Kind::Ping(pinger) => Report::Ping(pinger.stop()?),
            Kind::Tcp(flow) if itself => Report::Tcp(flow.join()?),
            Kind::Tcp(flow) => Report::Tcp(flow.stop()?),
            Kind::Udp(flow) => Report::Udp(flow.stop()?),
        })
    }
}

impl Ends {
    fn of(by_itself: bool, time: Option<Duration>) -> Self {
        match (by_itself, time) {
            (true, _) => Self::ByItself,
            (false, Some(time)) => Self::At(Instant::now() + time),
            (false, None) => Self::WhenAsked,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ping(report) => probes(f, report, "echoes", "round trip"),
            Self::Udp(report) => probes(f, report, "datagrams", "way"),
            Self::Tcp(report) => {
                let (megabytes, intact) = (
                    report.bytes as f64 / 1e6,
                    if report.hash_ok { "intact" } else { "CHANGED" },
                );
                write!(f, "{megabytes:.1} MB {intact}, {:.1} Mbit/s", report.mbit_s)?;
                write!(f, ", longest stall {:.0} ms", report.longest_stall_ms)
            }
        }
    }
}

fn probes(f: &mut fmt::Formatter<'_>, report: &ProbeReport, what: &str, time: &str) -> fmt::Result {
    write!(f, "{} of {} {what} lost", report.lost.len(), report.sent)?;
    if let Some(mean) = report.avg_ms {
        write!(f, ", mean {time} {mean:.1} ms")?;
    }
    write!(f, ", longest gap {:.0} ms", report.longest_gap_ms)
}

/// Why a load has no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A host or node is missing.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The traffic broke off.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}
