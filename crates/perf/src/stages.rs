//! The work of an end's packet threads under load, by the stages of `weft trace`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_plane::Work;

use crate::meter::{Reading, ThreadLoad};
use crate::text::printable;

/// The stage in which a packet thread has nothing to do.
pub const IDLE: &str = "wait";

/// The stage in which it waits for room: in a full socket, or in another lane's inbox.
pub const QUEUE: &str = "queue";

/// The names of the daemon's packet threads: this if there is one, this and a number from 0 on if
/// there are several.
const THREAD: &str = "weft-lane";

/// Maximum number of packet threads accepted from the peer's account.
const MAX_LANES: usize = 64;

/// Maximum number of stages accepted from the peer's account.
const MAX_STAGES: usize = 32;

/// The longest name of a stage, in characters.
const MAX_NAME: usize = 16;

/// A daemon's totals of one of its packet threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneTotals {
    /// Seconds since measuring began; 0 if it has just begun.
    pub seconds: f64,
    /// Totals by stage since then.
    pub stages: BTreeMap<String, Work>,
}

/// The work of the packet threads of one end under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointStages {
    /// Each packet thread, lane 0 first.
    pub lanes: Vec<LaneStages>,
}

/// The work of one packet thread under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaneStages {
    /// How long it was measured, in seconds.
    pub seconds: f64,
    /// The system's figures of the thread; `None` if it has none.
    pub thread: Option<ThreadLoad>,
    /// By stage; together they are the time that was measured.
    pub stages: BTreeMap<String, Work>,
}

/// A stage and its share of a packet thread's time, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageShare {
    /// Its name.
    pub stage: String,
    /// The share.
    pub share: f64,
}

impl EndpointStages {
    /// Returns it with all text sanitised for display and its size limited, as it came from the
    /// peer.
    #[must_use]
    pub fn tamed(mut self) -> Self {
        self.lanes.truncate(MAX_LANES);
        for lane in &mut self.lanes {
            let stages = std::mem::take(&mut lane.stages).into_iter().take(MAX_STAGES);
            lane.stages = stages.map(|(name, work)| (printable(&name, MAX_NAME), work)).collect();
            if let Some(thread) = &mut lane.thread {
                thread.name = printable(&thread.name, 15);
            }
        }
        self
    }

    /// The packet thread with the least time to spare, and its number; `None` if nothing was
    /// measured.
    #[must_use]
    pub fn busiest(&self) -> Option<(usize, &LaneStages)> {
        let measured = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.nanoseconds() > 0.0);
        // Of equals the first.
        measured
            .rev()
            .max_by(|(_, a), (_, b)| a.pressure().total_cmp(&b.pressure()))
    }
}

impl LaneStages {
    /// The time to which shares relate. A sleep counts at the moment at which it ended, so the
    /// stages of a short interval may sum to a little more than its time; what they leave out is
    /// sleep of the thread.
    fn nanoseconds(&self) -> f64 {
        let noted: f64 = self.stages.values().map(|work| work.ns as f64).sum();
        if noted > 0.0 {
            noted.max(self.seconds * 1e9)
        } else {
            0.0
        }
    }

    /// The share of the time of one stage.
    #[must_use]
    pub fn share(&self, stage: &str) -> f64 {
        let all = self.nanoseconds();
        let ns = self.stages.get(stage).map_or(0.0, |work| work.ns as f64);
        if all > 0.0 { ns / all } else { 0.0 }
    }

    /// The share of the time in which it worked: neither idle nor waiting for room.
    #[must_use]
    pub fn busy(&self) -> f64 {
        let work = self
            .stages
            .keys()
            .filter(|name| ![IDLE, QUEUE].contains(&name.as_str()));
        // The sum of no elements would be -0.
        work.fold(0.0, |sum, name| sum + self.share(name))
    }

    /// The share of the time in which it worked, or would have worked with a CPU.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        let wanting = self.thread.as_ref().map_or(0.0, ThreadLoad::wanting);
        self.busy().max(wanting)
    }

    /// The stages with at least half a percent of the time, without idle and waiting, the longest
    /// first; equals by name.
    #[must_use]
    pub fn longest(&self) -> Vec<StageShare> {
        let work = self
            .stages
            .keys()
            .filter(|name| ![IDLE, QUEUE].contains(&name.as_str()));
        let mut shares: Vec<_> = work
            .map(|name| StageShare {
                stage: name.clone(),
                share: self.share(name),
            })
            .filter(|stage| stage.share >= 0.005)
            .collect();
        shares.sort_by(|a, b| b.share.total_cmp(&a.share));
        shares
    }
}

/// Takes the difference between the second answer of a daemon and the last one. Before the second
/// the load finds its rate.
#[derive(Debug, Default)]
pub(crate) struct StageWatch {
    /// Whether the first answer has arrived. It starts the measuring, or shows that another client
    /// has; the load has not found its rate by then.
    begun: bool,
    first: Option<Look>,
    last: Option<Look>,
}

#[derive(Debug)]
struct Look {
    lanes: Vec<LaneTotals>,
    reading: Reading,
}

impl StageWatch {
    /// Records an answer of the daemon, and the use of its threads.
    pub(crate) fn note(&mut self, lanes: Vec<LaneTotals>, reading: Reading) {
        let began = !std::mem::replace(&mut self.begun, true);
        if began || lanes.is_empty() || lanes.iter().any(|lane| lane.seconds <= 0.0) {
            return;
        }
        let look = Look { lanes, reading };
        let before = self.last.as_ref().or(self.first.as_ref());
        match before {
            Some(before) if look.follows(before) => self.last = Some(look),
            // This is the first answer, or measuring restarted in between.
            _ => (self.first, self.last) = (Some(look), None),
        }
    }

    /// The work between the first recorded answer and the last; `None` if there were not enough.
    pub(crate) fn outcome(&self) -> Option<EndpointStages> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let threads = last.reading.threads_since(&first.reading, THREAD);
        let thread = |at: usize| {
            let numbered = format!("{THREAD}-{at}");
            let name = if last.lanes.len() > 1 {
                numbered.as_str()
            } else {
                THREAD
            };
            threads.iter().find(|thread| thread.name == name).cloned()
        };
        let lanes = last.lanes.iter().zip(&first.lanes).enumerate();
        Some(EndpointStages {
            lanes: lanes
                .map(|(at, (last, first))| LaneStages {
                    thread: thread(at),
                    ..last.since(first)
                })
                .collect(),
        })
    }
}

impl Look {
    fn follows(&self, before: &Self) -> bool {
        let mut both = self.lanes.iter().zip(&before.lanes);
        self.lanes.len() == before.lanes.len() && both.all(|(now, before)| now.seconds >= before.seconds)
    }
}

impl LaneTotals {
    fn since(&self, before: &Self) -> LaneStages {
        let stage = |(name, work): (&String, &Work)| {
            let before = before.stages.get(name).copied().unwrap_or_default();
            (name.clone(), work.since(&before))
        };
        LaneStages {
            seconds: self.seconds - before.seconds,
            thread: None,
            stages: self.stages.iter().map(stage).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Meter;

    fn lane(seconds: f64, ms: &[(&str, u64)]) -> LaneTotals {
        let work = |ms| Work {
            calls: ms,
            packets: 2 * ms,
            bytes: 3 * ms,
            ns: ms * 1_000_000,
        };
        LaneTotals {
            seconds,
            stages: ms.iter().map(|(name, ms)| ((*name).to_owned(), work(*ms))).collect(),
        }
    }

    fn watched(looks: Vec<Vec<LaneTotals>>) -> Option<EndpointStages> {
        let (mut watch, meter) = (StageWatch::default(), Meter::new(None));
        for lanes in looks {
            watch.note(lanes, meter.read());
        }
        watch.outcome()
    }

    #[test]
    fn the_first_second_is_left_out() {
        let at = |seconds, wait, seal| vec![lane(seconds, &[("wait", wait), ("seal", seal)])];
        let end = watched(vec![
            at(0.0, 0, 0),
            at(1.0, 900, 100),
            at(2.0, 1_000, 1_000),
            at(3.0, 1_500, 1_500),
        ]);
        let end = end.unwrap();
        let [lane] = &*end.lanes else { panic!("{end:?}") };
        assert_eq!((lane.seconds, lane.stages["seal"].ns), (2.0, 1_400_000_000));
        assert_eq!((lane.stages["wait"].calls, lane.stages["wait"].bytes), (600, 1_800));
        assert!((lane.share("seal") - 0.7).abs() < 1e-9 && (lane.busy() - 0.7).abs() < 1e-9);
        assert_eq!(
            watched(vec![at(0.0, 0, 0), at(1.0, 900, 100)]),
            None,
            "one answer tells nothing"
        );
        assert_eq!(watched(vec![]), None);
    }

    #[test]
    fn measuring_restarts_with_the_daemon() {
        let at = |seconds, ms| vec![lane(seconds, &[("open", ms)]), lane(seconds, &[("open", 2 * ms)])];
        let end = watched(vec![at(1.0, 500), at(2.0, 900), at(0.5, 100), at(1.5, 700)]).unwrap();
        assert_eq!(
            (end.lanes[0].seconds, end.lanes[0].stages["open"].ns),
            (1.0, 600_000_000)
        );
        assert_eq!(end.lanes[1].stages["open"].ns, 1_200_000_000);
        assert_eq!(end.busiest().unwrap().0, 1);
        // A different number of lanes means another daemon.
        assert_eq!(watched(vec![at(1.0, 1), vec![lane(2.0, &[("open", 5)])]]), None);
    }

    fn stages(ms: &[(&str, u64)]) -> LaneStages {
        lane(1.0, ms).since(&LaneTotals::default())
    }

    #[test]
    fn shares_are_of_the_whole_time() {
        let slept_on = stages(&[("wait", 0), ("seal", 250)]);
        assert!(
            (slept_on.share("seal") - 0.25).abs() < 1e-9,
            "what is left out was sleep"
        );
        let woke = stages(&[("wait", 1_500), ("seal", 500)]);
        assert!(
            (woke.share("seal") - 0.25).abs() < 1e-9,
            "a sleep from before may be in it"
        );
        let stuck = stages(&[("queue", 800), ("udp-send", 200), ("wait", 0)]);
        assert!((stuck.busy() - 0.2).abs() < 1e-9, "waiting for room is not work");
        let tied = stages(&[("open", 300), ("tun-write", 300), ("route", 4), ("control", 396)]);
        let longest = tied.longest();
        let longest: Vec<&str> = longest.iter().map(|stage| stage.stage.as_str()).collect();
        assert_eq!(longest, ["control", "open", "tun-write"]);
        assert_eq!(LaneStages::default().busy(), 0.0);
        let nothing = EndpointStages {
            lanes: vec![LaneStages::default()],
        };
        assert_eq!(nothing.busiest(), None);
        assert_eq!(EndpointStages::default().busiest(), None);
    }

    #[test]
    fn a_thread_without_a_cpu_counts_as_busy() {
        let starved = LaneStages {
            thread: Some(ThreadLoad {
                name: "weft-lane".to_owned(),
                running: 0.5,
                waiting: 0.45,
            }),
            ..stages(&[("wait", 500), ("open", 500)])
        };
        assert!((starved.busy() - 0.5).abs() < 1e-9 && (starved.pressure() - 0.95).abs() < 1e-9);
    }

    #[test]
    fn reports_of_the_peer_are_sanitised() {
        let many: Vec<(String, u64)> = (0..100).map(|n| (format!("{n}\n"), 1)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|(name, ms)| (name.as_str(), *ms)).collect();
        let end = EndpointStages {
            lanes: vec![stages(&many); 100],
        };
        let end = end.tamed();
        assert_eq!((end.lanes.len(), end.lanes[0].stages.len()), (MAX_LANES, MAX_STAGES));
        assert!(
            end.lanes[0]
                .stages
                .keys()
                .all(|name| name.len() <= MAX_NAME && !name.contains('\n'))
        );
    }
}
