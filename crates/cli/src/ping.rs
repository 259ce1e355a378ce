//! `weft ping`: echoes to a peer, one request to the daemon each.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use weft_config::peer::NodeRef;
use weft_control::status::{Peers, Pong, PublicPeers};
use weft_control::{ControlCommand, ControlError, MAX_PING_MS, Visible};
use weft_store::state::StatePaths;

use crate::documents::{self, OfCommand};
use crate::failure::Failure;
use crate::human;
use crate::interrupt::Interrupt;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer: its name, NAME.fips, NAME.NETWORK.weft, npub or address
    #[arg(value_parser = NodeRef::of_node)]
    peer: NodeRef,
    /// How many echoes to send [default: until Ctrl-C]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds from one echo to the next
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Seconds to wait for each answer
    #[arg(short = 'W', long, value_name = "SECS", default_value = "5", value_parser = patience)]
    timeout: Duration,
    /// Print a document weft.ping/1 a line, and a weft.ping-summary/1 at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let mut interrupt = Interrupt::catch()?;
    let mut out = Out::new();
    let mut summary = Summary::default();
    let mut next = Instant::now();
    // Printed before the first answer, which may be long in coming. What is wrong with the peer is said
    // by the echo.
    let mut has_header = args.json;
    if let Some(header) = announced(paths, args).filter(|_| !args.json) {
        out.text(&header)?;
        has_header = true;
    }
    while args.count.is_none_or(|count| summary.sent < count) {
        if summary.sent > 0 && !interrupt.pause(next.saturating_duration_since(Instant::now())) {
            break;
        }
        next = Instant::now() + args.interval;
        let Some(pong) = echo(&mut interrupt, paths, args) else {
            break;
        };
        let pong = pong?;
        if !has_header {
            out.text(&header(pong.name.as_deref(), &pong.npub, pong.address))?;
            has_header = true;
        }
        summary.note(pong.rtt_ms);
        if args.json {
            let pong = Pong {
                seq: Some(summary.sent),
                ..pong
            };
            out.json_line(&json!(pong))?;
        } else {
            out.text(&line(&pong, summary.sent))?;
        }
    }
    if args.json {
        out.json_line(&documents::document(&summary.document()))?;
    } else {
        out.text(&format!("\n{summary}\n"))?;
    }
    if summary.received == 0 {
        Err(Failure::Told)
    } else {
        Ok(())
    }
}

/// The header, if the daemon knows the peer.
fn announced(paths: &StatePaths, args: &Args) -> Option<String> {
    let command = ControlCommand::Peers {
        peer: Some(args.peer.clone()),
    };
    match weft_control::call_visible(&paths.control(), &command).ok()? {
        Visible::Full::<Peers, PublicPeers>(peers) => {
            let peer = peers.peers.first()?;
            Some(header(peer.name.as_deref(), &peer.npub, peer.address))
        }
        Visible::Public(peers) => {
            let peer = peers.peers.first()?;
            Some(header(peer.name.as_deref(), &peer.npub, peer.address))
        }
    }
}

fn header(name: Option<&str>, npub: &str, address: Ipv6Addr) -> String {
    format!("PING {} ({address})\n", human::name(name, npub))
}

/// One echo; `None` if Ctrl-C came before its answer.
fn echo(interrupt: &mut Interrupt, paths: &StatePaths, args: &Args) -> Option<Result<Pong, ControlError>> {
    let command = ControlCommand::Ping {
        peer: args.peer.clone(),
        timeout_ms: u32::try_from(args.timeout.as_millis()).unwrap_or(MAX_PING_MS),
    };
    let path = paths.control();
    interrupt.run(move || weft_control::call(&path, &command))
}

fn line(pong: &Pong, seq: u64) -> String {
    match pong.rtt_ms {
        Some(rtt) => {
            let path = pong.path.as_ref().map(|path| format!(" path={path}"));
            format!("seq={seq} time={rtt:.3} ms{}\n", path.unwrap_or_default())
        }
        None => format!(
            "seq={seq} no answer: {}\n",
            pong.why.as_deref().unwrap_or("none came in time")
        ),
    }
}

/// The last document of `weft ping`: the results of all echoes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Summarized {
    /// Echoes that were sent.
    sent: u64,
    /// Answers that came in time.
    received: u64,
    /// The shortest round trip in milliseconds.
    min_ms: Option<f64>,
    /// Their mean.
    mean_ms: Option<f64>,
    /// The longest.
    max_ms: Option<f64>,
}

impl OfCommand for Summarized {
    const NAME: &'static str = "weft.ping-summary/1";
}

/// The results of all echoes.
#[derive(Debug, Default, PartialEq)]
struct Summary {
    sent: u64,
    received: u64,
    min_ms: f64,
    max_ms: f64,
    sum_ms: f64,
}

impl Summary {
    fn note(&mut self, rtt_ms: Option<f64>) {
        self.sent += 1;
        let Some(rtt) = rtt_ms else { return };
        self.min_ms = if self.received == 0 { rtt } else { self.min_ms.min(rtt) };
        self.max_ms = self.max_ms.max(rtt);
        self.sum_ms += rtt;
        self.received += 1;
    }

    /// Round trips, if there were any: minimum, mean, maximum.
    fn rtt(&self) -> Option<[f64; 3]> {
        (self.received > 0).then(|| [self.min_ms, self.sum_ms / self.received as f64, self.max_ms])
    }

    fn document(&self) -> Summarized {
        let [min_ms, mean_ms, max_ms] = self.rtt().map_or([None; 3], |rtt| rtt.map(Some));
        Summarized {
            sent: self.sent,
            received: self.received,
            min_ms,
            mean_ms,
            max_ms,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.sent - self.received;
        let percent = (100 * lost).checked_div(self.sent).unwrap_or(0);
        write!(f, "{} sent, {} received, {percent} % lost", self.sent, self.received)?;
        match self.rtt() {
            Some([min, mean, max]) => write!(f, ", min/mean/max {min:.3}/{mean:.3}/{max:.3} ms"),
            None => Ok(()),
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    seconds(text, 0.01, 86_400.0)
}

fn patience(text: &str) -> Result<Duration, String> {
    seconds(text, 0.001, f64::from(MAX_PING_MS) / 1000.0)
}

fn seconds(text: &str, min: f64, max: f64) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err(format!("write {min} to {max} seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let mut summary = Summary::default();
        assert_eq!(summary.to_string(), "0 sent, 0 received, 0 % lost");
        summary.note(None);
        assert_eq!(summary.to_string(), "1 sent, 0 received, 100 % lost");
        assert_eq!(summary.document().min_ms, None);
        for rtt in [2.0, 1.0, 6.0] {
            summary.note(Some(rtt));
        }
        assert_eq!(
            summary.to_string(),
            "4 sent, 3 received, 25 % lost, min/mean/max 1.000/3.000/6.000 ms"
        );
        assert_eq!(summary.document().mean_ms, Some(3.0));
    }

    #[test]
    fn times_are_bounded() {
        assert_eq!(interval("0.2"), Ok(Duration::from_millis(200)));
        for bad in ["0", "-1", "x", "nan", "inf", "100000"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
        assert!(patience("10").is_ok() && patience("10.1").is_err());
    }
}
