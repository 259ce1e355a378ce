//! Which packet thread held a run up, and in which stage, from what was measured while the load ran again. Pure.
//!
//! It stands beside the verdict of [`judge`](crate::judge), which says what kind of thing it was, and does not change it: a
//! packet thread with time to spare leaves the cause to that verdict, and one without names where its time goes.

use serde::{Deserialize, Serialize};

use crate::judge::{BUSY, Bottleneck, SATURATED};
use crate::stages::{EndStages, LaneStages, QUEUE, StageShare};

/// Two threads that differ by less in the share of their time are busy alike.
const TIE: f64 = 0.05;

/// A thread that waits for room for this share of the time is held up by what lies behind.
const STUCK: f64 = 0.5;

/// How many stages the sentence names.
const NAMED: usize = 3;

/// The stages ran under another load if less than this share of the run's rate passed, or more than its inverse.
const ALIKE: f64 = 0.5;

/// What was measured while the load ran again.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Packet threads of the near end; none if it did not measure them.
    pub near: Option<&'a EndStages>,
    /// Those of the far end.
    pub far: Option<&'a EndStages>,
    /// The rate that passed meanwhile as a share of the run's; none if there was none.
    pub rate: Option<f64>,
}

/// What held a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The near daemon's packet thread.
    NearLane,
    /// The far daemon's packet thread.
    FarLane,
    /// Both, as busy as each other.
    BothLanes,
    /// What lies behind the near daemon: its packet thread waits for room to send.
    NearQueue,
    /// What lies behind the far daemon.
    FarQueue,
    /// Not the packet path: no packet thread is busy.
    Elsewhere,
    /// Not known: an end has not been measured, and the other is not it.
    Unknown,
}

/// What held a run up, down to the stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldUpBy {
    /// What.
    pub by: By,
    /// Which of several packet threads, from 0 on; none if there is one, or none to name.
    pub lane: Option<usize>,
    /// The share of the time in which that thread worked, 0 to 1; none if there is none to name.
    pub busy: Option<f64>,
    /// Its stages and their shares of its time, the longest first; empty if there is none to name.
    pub stages: Vec<StageShare>,
    /// The same in a sentence.
    pub text: String,
    /// What else was measured, one line each.
    pub evidence: Vec<String>,
}

/// Names the packet thread that held a run up and the stages that took its time, or says that it was none. `verdict` is
/// what was made of the run itself.
#[must_use]
pub fn held_up(measured: &Measured<'_>, verdict: Bottleneck) -> HeldUpBy {
    let near = Suspect::of(true, measured.near);
    let far = Suspect::of(false, measured.far);
    let mut held = match (&near, &far) {
        (Some(near), Some(far)) => both_known(near, far, verdict),
        (Some(known), None) | (None, Some(known)) => one_known(known, verdict),
        (None, None) => HeldUpBy::nobody(
            By::Unknown,
            "not known: neither end measured its packet threads".to_owned(),
        ),
    };
    for (suspect, whose) in [(&near, "this node"), (&far, "the far node")] {
        match suspect {
            Some(suspect) if !held.text.contains(&suspect.line()) => held.evidence.push(suspect.line()),
            Some(_) => {}
            None => held.evidence.push(format!(
                "{whose} told no stages: its weft may be older, or its daemon did not answer in time"
            )),
        }
        held.evidence.extend(suspect.as_ref().and_then(Suspect::others));
    }
    if let Some(rate) = measured.rate.filter(|rate| !(ALIKE..=1.0 / ALIKE).contains(rate)) {
        held.evidence.push(format!(
            "while stages were measured {:.0} % of the rate passed, so they may tell of something else",
            rate * 100.0
        ));
    }
    held
}

fn both_known(near: &Suspect<'_>, far: &Suspect<'_>, verdict: Bottleneck) -> HeldUpBy {
    let from = threshold(verdict);
    let (a, b) = (near.lane.pressure(), far.lane.pressure());
    if a.min(b) >= from && (a - b).abs() < TIE {
        let busier = if a >= b { near } else { far };
        return HeldUpBy {
            by: By::BothLanes,
            text: format!("{}; and {}", near.line(), far.line()),
            ..busier.held(By::BothLanes)
        };
    }
    let busier = if a >= b { near } else { far };
    if a.max(b) >= from {
        return busier.held(busier.lane_is());
    }
    // A thread that waits for room has all the time that it could spare.
    if let Some(stuck) = [near, far].into_iter().find(|suspect| suspect.is_stuck()) {
        return stuck.waits_for_room();
    }
    let idle = |suspect: &Suspect<'_>| 100.0 * suspect.idle();
    let text = format!(
        "not the packet path: this node's packet thread had nothing to do {:.0} % of the time, the far node's {:.0} %; {}",
        idle(near),
        idle(far),
        otherwise(verdict)
    );
    HeldUpBy::nobody(By::Elsewhere, text)
}

fn one_known(known: &Suspect<'_>, verdict: Bottleneck) -> HeldUpBy {
    if known.lane.pressure() >= threshold(verdict) {
        return known.held(known.lane_is());
    }
    if known.is_stuck() {
        return known.waits_for_room();
    }
    let text = format!(
        "not known: not {} packet thread, which had nothing to do {:.0} % of the time; {}",
        known.whose(),
        100.0 * known.idle(),
        otherwise(verdict)
    );
    HeldUpBy::nobody(By::Unknown, text)
}

/// A processor that is the bottleneck need not be found busy again from the same share on.
fn threshold(verdict: Bottleneck) -> f64 {
    match verdict {
        Bottleneck::NearCpu | Bottleneck::FarCpu => BUSY,
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
    near: bool,
    at: usize,
    of: &'a EndStages,
    lane: &'a LaneStages,
}

impl<'a> Suspect<'a> {
    fn of(near: bool, end: Option<&'a EndStages>) -> Option<Self> {
        let of = end?;
        let (at, lane) = of.busiest()?;
        Some(Self { near, at, of, lane })
    }

    const fn lane_is(&self) -> By {
        if self.near { By::NearLane } else { By::FarLane }
    }

    const fn whose(&self) -> &'static str {
        if self.near { "this node's" } else { "the far node's" }
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

    /// The thread, how busy it was, and with what.
    fn line(&self) -> String {
        let lane = self.lane;
        let state = match &lane.thread {
            // The clock runs on while a thread waits for a processor.
            Some(thread) if thread.wanting() > lane.busy() + TIE => format!(
                "which ran {:.0} % of the time and waited {:.0} % for a processor",
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

    fn held(&self, by: By) -> HeldUpBy {
        HeldUpBy {
            by,
            lane: self.several().then_some(self.at),
            busy: Some(self.lane.busy()),
            stages: self.lane.longest(),
            text: self.line(),
            evidence: Vec::new(),
        }
    }

    fn waits_for_room(&self) -> HeldUpBy {
        let text = format!(
            "what lies behind {}: it waited {:.0} % of the time for room in a full socket, or at another packet thread",
            self.name(),
            self.lane.share(QUEUE) * 100.0
        );
        let by = if self.near { By::NearQueue } else { By::FarQueue };
        HeldUpBy { text, ..self.held(by) }
    }
}

impl HeldUpBy {
    fn nobody(by: By, text: String) -> Self {
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
