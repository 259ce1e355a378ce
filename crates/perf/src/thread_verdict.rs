//! Which packet thread limited a run, and in which stage, from what was measured while the load ran
//! again. Pure.
//!
//! It supplements the verdict of [`judge`](crate::judge), which names the kind of limit, and does
//! not change it: if the packet threads have time to spare, the cause stays that verdict; if one
//! has none, its stages are named.

use serde::{Deserialize, Serialize};

use crate::judge::{BUSY, Bottleneck, SATURATED};
use crate::stages::{EndpointStages, LaneStages, QUEUE, StageShare};

/// Two threads whose busy shares differ by less count as equally busy.
const TIE: f64 = 0.05;

/// A thread that waits for room for this share of the time is limited by the queue behind it.
const STUCK: f64 = 0.5;

/// How many stages the sentence names.
const NAMED: usize = 3;

/// The load of the stages counts as different if it passed less than this share of the run's rate,
/// or more than the inverse.
const ALIKE: f64 = 0.5;

/// What was measured while the load ran again.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Packet threads of the client; `None` if it did not measure them.
    pub client: Option<&'a EndpointStages>,
    /// Packet threads of the server.
    pub server: Option<&'a EndpointStages>,
    /// The rate meanwhile as a share of the run's; `None` if there was none.
    pub rate: Option<f64>,
}

/// What limited a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The packet thread of the client's daemon.
    #[serde(rename = "near-lane")]
    ClientLane,
    /// The packet thread of the server's daemon.
    #[serde(rename = "far-lane")]
    ServerLane,
    /// Both packet threads, equally busy.
    BothLanes,
    /// The queue behind the client's daemon: its packet thread waits for room to send.
    #[serde(rename = "near-queue")]
    ClientQueue,
    /// The queue behind the server's daemon.
    #[serde(rename = "far-queue")]
    ServerQueue,
    /// Not the packet path: no packet thread is busy.
    Elsewhere,
    /// Unknown: one end was not measured, and the other is not the limit.
    Unknown,
}

/// What limited a run, down to the stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadVerdict {
    /// The limit.
    pub by: By,
    /// The number of the packet thread, from 0; `None` if there is only one, or none is named.
    pub lane: Option<usize>,
    /// The share of the time in which that thread worked, 0 to 1; `None` if none is named.
    pub busy: Option<f64>,
    /// Its stages and their shares of its time, the longest first; empty if none is named.
    pub stages: Vec<StageShare>,
    /// The result in a sentence.
    pub text: String,
    /// Other measurements, one line each.
    pub evidence: Vec<String>,
}

/// Names the packet thread that limited a run and the stages that took its time, or reports that
/// none did. `verdict` is the verdict on the run itself.
#[must_use]
pub fn thread_verdict(measured: &Measured<'_>, verdict: Bottleneck) -> ThreadVerdict {
    let client = Suspect::of(true, measured.client);
    let server = Suspect::of(false, measured.server);
    let mut held = match (&client, &server) {
        (Some(client), Some(server)) => both_known(client, server, verdict),
        (Some(known), None) | (None, Some(known)) => one_known(known, verdict),
        (None, None) => ThreadVerdict::of_no_thread(
            By::Unknown,
            "unknown: neither end measured its packet threads".to_owned(),
        ),
    };
    for (suspect, whose) in [(&client, "this node"), (&server, "the peer")] {
        match suspect {
            Some(suspect) if !held.text.contains(&suspect.line()) => held.evidence.push(suspect.line()),
            Some(_) => {}
            None => held.evidence.push(format!(
                "{whose} reported no stages: its weft may be older, or its daemon did not answer in time"
            )),
        }
        held.evidence.extend(suspect.as_ref().and_then(Suspect::others));
    }
    if let Some(rate) = measured.rate.filter(|rate| !(ALIKE..=1.0 / ALIKE).contains(rate)) {
        held.evidence.push(format!(
            "while stages were measured {:.0} % of the rate passed, so the stages may be those of another load",
            rate * 100.0
        ));
    }
    held
}

fn both_known(client: &Suspect<'_>, server: &Suspect<'_>, verdict: Bottleneck) -> ThreadVerdict {
    let from = threshold(verdict);
    let (a, b) = (client.lane.pressure(), server.lane.pressure());
    if a.min(b) >= from && (a - b).abs() < TIE {
        let busier = if a >= b { client } else { server };
        return ThreadVerdict {
            by: By::BothLanes,
            text: format!("{}; and {}", client.line(), server.line()),
            ..busier.limits(By::BothLanes)
        };
    }
    let busier = if a >= b { client } else { server };
    if a.max(b) >= from {
        return busier.limits(busier.lane_is());
    }
    // A thread that waits for room could use that time.
    if let Some(stuck) = [client, server].into_iter().find(|suspect| suspect.is_stuck()) {
        return stuck.waits_for_room();
    }
    let idle = |suspect: &Suspect<'_>| 100.0 * suspect.idle();
    let text = format!(
        "not the packet path: this node's packet thread had nothing to do {:.0} % of the time, the peer's {:.0} %; {}",
        idle(client),
        idle(server),
        otherwise(verdict)
    );
    ThreadVerdict::of_no_thread(By::Elsewhere, text)
}

fn one_known(known: &Suspect<'_>, verdict: Bottleneck) -> ThreadVerdict {
    if known.lane.pressure() >= threshold(verdict) {
        return known.limits(known.lane_is());
    }
    if known.is_stuck() {
        return known.waits_for_room();
    }
    let text = format!(
        "unknown: not {} packet thread, which had nothing to do {:.0} % of the time; {}",
        known.whose(),
        100.0 * known.idle(),
        otherwise(verdict)
    );
    ThreadVerdict::of_no_thread(By::Unknown, text)
}

/// A CPU that is the bottleneck is recognised from a lower share on.
fn threshold(verdict: Bottleneck) -> f64 {
    match verdict {
        Bottleneck::ClientCpu | Bottleneck::ServerCpu => BUSY,
        _ => SATURATED,
    }
}

fn otherwise(verdict: Bottleneck) -> String {
    match verdict {
        Bottleneck::Unclear => "nothing else stands out either".to_owned(),
        verdict => format!("but {}", verdict.words()),
    }
}

/// The busiest packet thread of one end.
struct Suspect<'a> {
    client: bool,
    at: usize,
    of: &'a EndpointStages,
    lane: &'a LaneStages,
}

impl<'a> Suspect<'a> {
    fn of(client: bool, end: Option<&'a EndpointStages>) -> Option<Self> {
        let of = end?;
        let (at, lane) = of.busiest()?;
        Some(Self { client, at, of, lane })
    }

    const fn lane_is(&self) -> By {
        if self.client { By::ClientLane } else { By::ServerLane }
    }

    const fn whose(&self) -> &'static str {
        if self.client { "this node's" } else { "the peer's" }
    }

    /// The share of the time in which it neither worked nor waited for room.
    fn idle(&self) -> f64 {
        (1.0 - self.lane.pressure() - self.lane.share(QUEUE)).max(0.0)
    }

    fn is_stuck(&self) -> bool {
        self.lane.share(QUEUE) >= STUCK
    }

    fn several(&self) -> bool {
        self.of.lanes.len() > 1
    }

    fn name(&self) -> String {
        match self.several() {
            true => format!("{} packet thread {} of {}", self.whose(), self.at, self.of.lanes.len()),
            false => format!("{} packet thread", self.whose()),
        }
    }

    /// Names the thread, how busy it was, and its stages.
    fn line(&self) -> String {
        let lane = self.lane;
        let state = match &lane.thread {
            // The clock of a stage runs on while its thread waits for a CPU.
            Some(thread) if thread.wanting() > lane.busy() + TIE => format!(
                "which ran {:.0} % of the time and waited {:.0} % for a CPU",
                thread.running * 100.0,
                thread.waiting * 100.0
            ),
            _ => format!("{:.0} % busy", lane.busy() * 100.0),
        };
        let longest = lane.longest();
        let named = longest.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|stage| format!("{} {:.0} %", stage.stage, stage.share * 100.0))
            .collect();
        if named.is_empty() {
            return format!("{}, {state}", self.name());
        }
        format!("{}, {state}: {}", self.name(), named.join(", "))
    }

    /// How busy the other packet threads of this end were.
    fn others(&self) -> Option<String> {
        let others = self.of.lanes.iter().enumerate().filter(|(at, _)| *at != self.at);
        let others: Vec<String> = others
            .map(|(at, lane)| format!("{at}: {:.0} %", lane.pressure() * 100.0))
            .collect();
        (self.several()).then(|| format!("{} other packet threads were busy: {}", self.whose(), others.join(", ")))
    }

    fn limits(&self, by: By) -> ThreadVerdict {
        ThreadVerdict {
            by,
            lane: self.several().then_some(self.at),
            busy: Some(self.lane.busy()),
            stages: self.lane.longest(),
            text: self.line(),
            evidence: Vec::new(),
        }
    }

    fn waits_for_room(&self) -> ThreadVerdict {
        let text = format!(
            "what lies behind {}: it waited {:.0} % of the time for room in a full socket, or at another packet thread",
            self.name(),
            self.lane.share(QUEUE) * 100.0
        );
        let by = if self.client { By::ClientQueue } else { By::ServerQueue };
        ThreadVerdict {
            text,
            ..self.limits(by)
        }
    }
}

impl ThreadVerdict {
    fn of_no_thread(by: By, text: String) -> Self {
        Self {
            by,
            lane: None,
            busy: None,
            stages: Vec::new(),
            text,
            evidence: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
