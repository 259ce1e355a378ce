//! Checking of expectations.

use std::fmt::Display;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::expected::{
    ExpectAnswer, ExpectAnswers, ExpectFrames, ExpectLargest, ExpectLoad, ExpectPath, ExpectQuiet, ExpectSize,
    ExpectState, Fate,
};
use super::load::Report;
use super::topology::{Stage, StageError};
use crate::daemon::PeerState;
use crate::emulator::{End, Protection};
use crate::traffic::{PingOptions, Pinger, TrafficError};
use crate::world::WorldError;
use weft_scenario::units::Time;

/// Polling interval.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Time limit of an answer that shows whether a size passes, and the number of attempts.
const ANSWER: Duration = Duration::from_millis(500);
const TRIES: u32 = 2;
/// The headers of IPv6 and ICMPv6, and the minimum payload of a ping.
const HEADERS: u32 = 48;
pub(super) const LEAST: u32 = HEADERS + 8;
/// The path through any relay.
pub(super) const RELAYED: &str = "relayed";

/// The result of an expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether it holds.
    pub holds: bool,
    /// What was found, and what was expected instead.
    pub seen: String,
}

impl Finding {
    pub(super) fn new(holds: bool, seen: impl Display, wanted: impl Display) -> Self {
        let seen = match holds {
            true => seen.to_string(),
            false => format!("{seen}; expected {wanted}"),
        };
        Self { holds, seen }
    }
}

/// Why an expectation could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// A node does not run, or does not answer.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A ping could not be sent.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A name could not be asked for.
    #[error("{name} cannot be asked for at {server}")]
    Query {
        /// The name.
        name: String,
        /// The server.
        server: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The host is not usable.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A required field of the status is missing.
    #[error("the status of {0} is not understood")]
    Status(String),
    /// Something else, in words.
    #[error("{0}")]
    Plain(String),
}

/// Both directions, or one.
fn ways<'a>(from: &'a str, to: &'a str, both: bool) -> Vec<(&'a str, &'a str)> {
    let ways = [(from, to), (to, from)];
    ways.into_iter().take(if both { 2 } else { 1 }).collect()
}

/// Polls until all directions show the wanted value, or `within` is over. Returns the values found.
fn settle<T: PartialEq + Display>(
    ways: &[(&str, &str)],
    within: Time,
    wanted: &str,
    look: impl Fn(&str, &str) -> Result<T, LookError>,
    right: impl Fn(&T) -> bool,
) -> Result<Finding, LookError> {
    let start = Instant::now();
    loop {
        let seen: Result<Vec<_>, _> = ways.iter().map(|(from, to)| look(from, to)).collect();
        // A daemon that is busy with its start answers a moment later.
        let over = start.elapsed() >= within.0;
        let seen = match seen {
            Err(error) if over => return Err(error),
            Err(_) => Vec::new(),
            Ok(seen) => seen,
        };
        let holds = !seen.is_empty() && seen.iter().all(&right);
        if holds || over {
            let text = match seen.as_slice() {
                [one, other] if one != other => {
                    let (from, to) = ways[0];
                    format!("{one} from {from}, {other} from {to}")
                }
                [one, ..] => one.to_string(),
                [] => "nothing".to_owned(),
            };
            let text = match within.0.is_zero() {
                true => text,
                false => format!("{text} after {:.1} s", start.elapsed().as_secs_f64()),
            };
            return Ok(Finding::new(holds, text, wanted));
        }
        std::thread::sleep(POLL);
    }
}

pub(super) fn path(stage: &Stage, expect: &ExpectPath) -> Result<Finding, LookError> {
    let ways = ways(&expect.from, &expect.to, expect.both);
    let look = |from: &str, to: &str| path_of(stage, from, to);
    settle(&ways, expect.within, &expect.is, look, |seen| is_path(&expect.is, seen))
}

/// Whether a path is the one that a file wants.
pub(super) fn is_path(wanted: &str, seen: &str) -> bool {
    match wanted.strip_prefix("not ") {
        Some(other) => !is_path(other, seen),
        None if wanted == RELAYED => seen.starts_with("via "),
        None => seen == wanted,
    }
}

/// `direct`, `via NAME` or `none`.
pub(super) fn path_of(stage: &Stage, from: &str, to: &str) -> Result<String, LookError> {
    let target = &stage.node(to)?.identity.npub;
    let peer = stage.daemon(from)?.peer(target).map_err(StageError::Daemon)?;
    let path = peer.unwrap_or_default();
    let path = &path["path"];
    Ok(match (path["kind"].as_str(), path["via"].as_str()) {
        (Some("relayed"), Some(via)) => {
            let relay = stage.nodes().find(|(_, node)| node.identity.npub == via);
            format!("via {}", relay.map_or(via, |(name, _)| name))
        }
        (Some(kind), _) => kind.to_owned(),
        (None, _) => "none".to_owned(),
    })
}

/// A state in the spelling of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stated(Option<PeerState>);

impl Display for Stated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.map_or("not a peer", PeerState::name))
    }
}

pub(super) fn state(stage: &Stage, expect: &ExpectState) -> Result<Finding, LookError> {
    let look = |from: &str, to: &str| {
        let npub = &stage.node(to)?.identity.npub;
        let state = stage.daemon(from)?.peer_state(npub).map_err(StageError::Daemon)?;
        Ok(Stated(state))
    };
    let (least, most) = (expect.at_least, expect.at_most);
    let wanted = bounds(
        least.map(|state| Stated(Some(state))),
        most.map(|state| Stated(Some(state))),
    );
    let ways = ways(&expect.from, &expect.to, expect.both);
    settle(&ways, expect.within, &wanted, look, |seen| {
        seen.0.is_some()
            && least.is_none_or(|least| seen.0 >= Some(least))
            && most.is_none_or(|most| seen.0 <= Some(most))
    })
}

/// "at least 1 and at most 2"
fn bounds<T: Display>(least: Option<T>, most: Option<T>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("at least {least} and at most {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "anything".to_owned(),
    }
}

pub(super) fn answer(stage: &Stage, expect: &ExpectAnswer) -> Result<Finding, LookError> {
    let start = Instant::now();
    for (from, to) in ways(&expect.from, &expect.to, expect.both) {
        while !passes(stage, from, to, LEAST, Duration::from_millis(200))? {
            if start.elapsed() >= expect.within.0 {
                let seen = format!("{to} did not answer {from}");
                return Ok(Finding::new(false, seen, format!("an answer within {}", expect.within)));
            }
        }
    }
    let seen = format!("answered after {:.1} s", start.elapsed().as_secs_f64());
    Ok(Finding::new(true, seen, ""))
}

pub(super) fn answers(stage: &Stage, expect: &ExpectAnswers) -> Result<Finding, LookError> {
    let start = Instant::now();
    let mut pairs = 0;
    for (n, from) in expect.among.iter().enumerate() {
        for to in expect.among.iter().skip(n + 1) {
            let finding = answer(
                stage,
                &ExpectAnswer {
                    from: from.clone(),
                    to: to.clone(),
                    both: true,
                    within: Time(expect.within.0.saturating_sub(start.elapsed())),
                },
            )?;
            if !finding.holds {
                return Ok(finding);
            }
            pairs += 1;
        }
    }
    let seen = format!(
        "{pairs} pairs answer in both directions after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(Finding::new(true, seen, ""))
}

/// Whether one echo of an IP packet of `len` bytes is answered.
fn passes(stage: &Stage, from: &str, to: &str, len: u32, patience: Duration) -> Result<bool, LookError> {
    echo(stage, from, stage.node(to)?.identity.address, len, patience)
}

/// Whether one echo of an IP packet of `len` bytes to an address is answered.
pub(super) fn echo(
    stage: &Stage,
    from: &str,
    target: Ipv6Addr,
    len: u32,
    patience: Duration,
) -> Result<bool, LookError> {
    let options = PingOptions {
        payload: (len - HEADERS) as usize,
        count: Some(1),
        grace: patience,
        ..PingOptions::default()
    };
    let report = Pinger::start(&stage.place(from)?.host, target, options)?.join()?;
    if report.refused > 0 {
        // Without a route it is refused at once, and must not be repeated a thousand times a
        // second.
        std::thread::sleep(POLL);
    }
    Ok(report.received > 0)
}

pub(super) fn largest(stage: &Stage, expect: &ExpectLargest) -> Result<Finding, LookError> {
    let status = stage.daemon(&expect.from)?.status().map_err(StageError::Daemon)?;
    let mtu = status["node"]["tun"]["mtu"]
        .as_u64()
        .and_then(|mtu| u32::try_from(mtu).ok());
    let mtu = mtu.ok_or_else(|| LookError::Status(expect.from.clone()))?;
    let pass = |len| {
        for _ in 0..TRIES {
            if passes(stage, &expect.from, &expect.to, len, ANSWER)? {
                return Ok(true);
            }
        }
        Ok::<_, LookError>(false)
    };
    // `low` passes, `high` does not.
    let (mut low, mut high) = (0, mtu + 1);
    let mut next = LEAST;
    while high - low > 1 {
        match pass(next)? {
            true => low = next,
            false => high = next,
        }
        // Sizes below the minimum are not tried.
        next = low.midpoint(high).max(LEAST);
        if low == 0 {
            break;
        }
    }
    let holds = expect.at_least.is_none_or(|least| low >= least) && expect.at_most.is_none_or(|most| low <= most);
    let seen = format!("{low} bytes pass whole");
    Ok(Finding::new(holds, seen, bounds(expect.at_least, expect.at_most)))
}

pub(super) fn size(stage: &Stage, expect: &ExpectSize) -> Result<Finding, LookError> {
    let ways = ways(&expect.from, &expect.to, expect.both);
    let look = |from: &str, to: &str| size_of(stage, from, to);
    let wanted = format!("{} bytes, probed", expect.is);
    settle(&ways, expect.within, &wanted, look, |seen| *seen == wanted)
}

/// The size in words, such as `1472 bytes, probed`, with the search in progress.
fn size_of(stage: &Stage, from: &str, to: &str) -> Result<String, LookError> {
    let target = &stage.node(to)?.identity.npub;
    let peer = stage.daemon(from)?.peer(target).map_err(StageError::Daemon)?;
    let size = &peer.unwrap_or_default()["session"]["path_size"];
    let (Some(bytes), Some(known)) = (size["bytes"].as_u64(), size["known"].as_str()) else {
        return Ok("no fast frames".to_owned());
    };
    let more = if size["searching"] == true {
        ", looking for more"
    } else {
        ""
    };
    Ok(format!("{bytes} bytes, {known}{more}"))
}

pub(super) fn frames(stage: &Stage, expect: &ExpectFrames) -> Result<Finding, LookError> {
    let wire = stage.wire(&expect.link)?;
    let counts = wire.counts();
    let of = |count: fn(&crate::emulator::PipeCounts) -> u64| counts.each_ref().map(count);
    let [there, back] = match expect.are {
        Fate::Given => of(|counts| counts.given),
        Fate::Lost => of(|counts| counts.lost),
        Fate::Doubled => of(|counts| counts.duplicated),
        Fate::Reordered => of(|counts| counts.reordered),
        Fate::Overflowed => of(|counts| counts.overflowed),
        Fate::TooBig => of(|counts| counts.too_big),
        Fate::Refused => {
            let dropped = wire.firewall().unwrap_or_default();
            match stage.link(&expect.link)?.firewall {
                Some(Protection { end: End::B, .. }) => [dropped.dropped_in, dropped.dropped_out],
                _ => [dropped.dropped_out, dropped.dropped_in],
            }
        }
    };
    let all = there + back;
    let holds = expect.at_least.is_none_or(|least| all >= least) && expect.at_most.is_none_or(|most| all <= most);
    let seen = format!("{all} frames ({there} and {back})");
    Ok(Finding::new(holds, seen, bounds(expect.at_least, expect.at_most)))
}

pub(super) fn quiet(stage: &Stage, expect: &ExpectQuiet) -> Result<Finding, LookError> {
    let asked = |name: &String| expect.nodes.as_ref().is_none_or(|nodes| nodes.contains(name));
    let mut all = 0;
    for (name, node) in stage.nodes().filter(|(name, _)| asked(name)) {
        let Some(daemon) = node.daemon() else { continue };
        let warnings = daemon.warnings().map_err(StageError::Daemon)?;
        if let Some(first) = warnings.first() {
            let seen = format!("{} warnings in the log of {name}, the first: {first}", warnings.len());
            return Ok(Finding::new(false, seen, "none"));
        }
        all += 1;
    }
    Ok(Finding::new(true, format!("no warning in {all} logs"), ""))
}

/// Judges a load by its report.
pub(super) fn load(report: &Report, expect: &ExpectLoad) -> Finding {
    let mut faults = Vec::new();
    let mut ask = |holds: bool, wanted: String| {
        if !holds {
            faults.push(wanted);
        }
    };
    let millis = |time: Time| time.0.as_secs_f64() * 1e3;
    let gap = match report {
        Report::Tcp(report) => {
            ask(report.hash_ok, "intact content".to_owned());
            let rate = report.mbit_s * 1e6;
            if let Some(least) = expect.rate_at_least {
                ask(rate >= least.0 as f64, format!("at least {least}"));
            }
            if let Some(most) = expect.rate_at_most {
                ask(rate <= most.0 as f64, format!("at most {most}"));
            }
            report.longest_stall_ms
        }
        Report::Ping(report) | Report::Udp(report) => {
            let lost = report.lost.len() as u64;
            if let Some(most) = expect.lost_at_most {
                ask(report.sent > 0 && lost <= most, format!("at most {most} lost"));
            }
            if let Some(least) = expect.lost_at_least {
                ask(lost >= least, format!("at least {least} lost"));
            }
            if let Some(least) = expect.mean_at_least {
                let mean = report.avg_ms;
                ask(
                    mean.is_some_and(|mean| mean >= millis(least)),
                    format!("a mean of at least {least}"),
                );
            }
            if let Some(most) = expect.mean_at_most {
                let mean = report.avg_ms;
                ask(
                    mean.is_some_and(|mean| mean <= millis(most)),
                    format!("a mean of at most {most}"),
                );
            }
            report.longest_gap_ms
        }
    };
    if let Some(most) = expect.gap_at_most {
        ask(gap <= millis(most), format!("no gap of more than {most}"));
    }
    Finding::new(faults.is_empty(), report, faults.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::ProbeLog;

    #[test]
    fn a_relayed_path_has_any_relay() {
        for (wanted, seen, holds) in [
            ("relayed", "via c", true),
            ("relayed", "direct", false),
            ("relayed", "none", false),
            ("not relayed", "direct", true),
            ("not relayed", "via c", false),
            ("via c", "via c", true),
            ("via c", "via d", false),
            ("not direct", "none", true),
        ] {
            assert_eq!(is_path(wanted, seen), holds, "{wanted} {seen}");
        }
    }

    fn expecting(text: &str) -> ExpectLoad {
        let table: toml::Table = format!("of = \"x\"\n{text}").parse().unwrap();
        table.try_into().unwrap()
    }

    /// Ten echoes 100 ms apart, of which two are lost; the others take 2 ms.
    fn report() -> Report {
        let mut log = ProbeLog::default();
        for number in 0..10 {
            log.sent(Duration::from_millis(100 * number));
            if !(3..5).contains(&number) {
                log.arrived(number, Duration::from_millis(100 * number + 2));
            }
        }
        Report::Ping(log.report())
    }

    #[test]
    fn a_load_is_judged_by_every_bound() {
        for (text, holds) in [
            ("lost_at_most = 2", true),
            ("lost_at_most = 1", false),
            ("lost_at_least = 2", true),
            ("lost_at_least = 3", false),
            ("gap_at_most = \"300ms\"", true),
            ("gap_at_most = \"299ms\"", false),
            ("mean_at_least = \"2ms\"", true),
            ("mean_at_least = \"3ms\"", false),
            ("mean_at_most = \"1ms\"", false),
        ] {
            assert_eq!(load(&report(), &expecting(text)).holds, holds, "{text}");
        }
        let finding = load(&report(), &expecting("lost_at_most = 1\ngap_at_most = \"100ms\""));
        let said = "2 of 10 echoes lost, mean round trip 2.0 ms, longest gap 300 ms; expected at most 1 lost and no gap of \
                    more than 100 ms";
        assert_eq!(finding.seen, said);
    }

    #[test]
    fn a_load_that_sent_nothing_lost_nothing_and_does_not_pass() {
        let nothing = Report::Ping(ProbeLog::default().report());
        assert!(!load(&nothing, &expecting("lost_at_most = 0")).holds);
    }

    #[test]
    fn a_changed_stream_never_passes() {
        let report = |hash_ok| {
            Report::Tcp(crate::traffic::TcpReport {
                bytes: 1,
                seconds: 1.0,
                mbit_s: 8.0,
                longest_stall_ms: 1.0,
                hash_ok,
            })
        };
        assert!(load(&report(true), &expecting("rate_at_least = \"8Mbit\"")).holds);
        assert!(!load(&report(true), &expecting("rate_at_most = \"7Mbit\"")).holds);
        assert!(!load(&report(false), &expecting("")).holds);
    }
}
