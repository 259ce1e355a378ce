//! What held a run up, from what was measured. Pure.
//!
//! The order matters: a processor without time to spare also loses packets and fills queues, so it is asked about first;
//! a window that is full most of the time leaves no room for a queue; and only what is left over is the path's.

use serde::{Deserialize, Serialize};

use crate::end::TcpSent;
use crate::meter::{ProcessLoad, Spent};

/// A thread that wants to run for this share of the time has none to spare: the rest are the moments between two bursts.
pub const SATURATED: f64 = 0.8;

/// A thread that wants to run for this share of the time is the cause where nothing else is one: what comes in bursts
/// finds it busy.
const BUSY: f64 = 0.65;

/// The share of the time from which on one cause is the cause.
const MOST: f64 = 0.5;

/// The share of the time from which on a window is a cause if the rate is the one that it allows.
const SOME: f64 = 0.2;

/// How much of what a window allows is as much as it allows.
const FULL: f64 = 0.75;

/// The share of segments sent again, or of datagrams lost, that is more than an accident.
const LOSS: f64 = 0.001;

/// The share of datagrams lost from which on the sender clearly sends more than gets through.
const FLOOD: f64 = 0.05;

/// What arrives is what was asked for.
const WHOLE: f64 = 0.95;

/// What one direction of a run showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Which end sends.
    pub sender_is_near: bool,
    /// Processors at the sender.
    pub sender: Spent,
    /// Processors at the receiver.
    pub receiver: Spent,
    /// Payload received, in Mbit/s.
    pub mbit_s: f64,
    /// What the sender saw.
    pub flow: Flow,
    /// Median round trip before the load, in milliseconds.
    pub idle_ms: Option<f64>,
    /// The same under it.
    pub loaded_ms: Option<f64>,
}

/// What the sender saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    /// Over TCP.
    Tcp {
        /// What the kernel tells.
        tcp: TcpSent,
        /// The share of the time in which it held back by itself.
        paced: f64,
    },
    /// Datagrams.
    Udp {
        /// The rate asked for, in Mbit/s; none: as fast as it can.
        asked: Option<f64>,
        /// The rate sent.
        sent_mbit_s: f64,
        /// The share that did not arrive.
        loss: f64,
    },
}

/// What held a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The near end's processor.
    NearCpu,
    /// The far end's processor.
    FarCpu,
    /// The rate of the path: its queue is full, or its sender has found its rate.
    PathRate,
    /// Loss that no full queue explains.
    Loss,
    /// The room for data under way: the receive window or the send buffer.
    Window,
    /// Whoever sends: it had no more to send.
    Application,
    /// Nothing stands out.
    Unclear,
}

impl Bottleneck {
    /// In a few words, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NearCpu => "this end's processor",
            Self::FarCpu => "the far end's processor",
            Self::PathRate => "the rate of the path",
            Self::Loss => "loss on the path",
            Self::Window => "the window",
            Self::Application => "the sender, which had no more to send",
            Self::Unclear => "nothing stands out",
        }
    }
}

/// A verdict and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it was.
    pub is: Bottleneck,
    /// The figures that say so, one line each, the strongest first.
    pub evidence: Vec<String>,
}

/// Names what held a run up.
#[must_use]
pub fn judge(evidence: &Evidence) -> Verdict {
    if let Some(verdict) = evidence.processor(SATURATED) {
        return verdict;
    }
    match &evidence.flow {
        Flow::Tcp { tcp, paced } => evidence.tcp(tcp, *paced),
        Flow::Udp {
            asked,
            sent_mbit_s,
            loss,
        } => evidence.udp(*asked, *sent_mbit_s, *loss),
    }
}

/// A thread that may be the bottleneck.
struct Suspect<'a> {
    near: bool,
    daemon: bool,
    load: &'a ProcessLoad,
}

impl Suspect<'_> {
    fn wanting(&self) -> f64 {
        self.load
            .busiest
            .as_ref()
            .map_or(0.0, crate::meter::ThreadLoad::wanting)
    }

    fn line(&self) -> String {
        let whose = if self.near { "this end's" } else { "the far end's" };
        let what = if self.daemon { "daemon" } else { "test" };
        match &self.load.busiest {
            Some(thread) => format!(
                "{whose} {what}: thread {} ran {:.0} % of the time and waited {:.0} % for a processor",
                thread.name,
                thread.running * 100.0,
                thread.waiting * 100.0
            ),
            None => format!("{whose} {what}: {:.0} % of a processor", self.load.cpu_percent),
        }
    }
}

impl Evidence {
    /// The thread with the least time to spare, if that wants to run for at least the share `from` of the time.
    fn processor(&self, from: f64) -> Option<Verdict> {
        let suspect = self.busiest()?;
        (suspect.wanting() >= from).then(|| Verdict {
            is: if suspect.near {
                Bottleneck::NearCpu
            } else {
                Bottleneck::FarCpu
            },
            evidence: vec![suspect.line()],
        })
    }

    fn busiest(&self) -> Option<Suspect<'_>> {
        // One that sends as fast as it can has no time to spare by its nature; what matters is where that gets lost.
        let floods = matches!(self.flow, Flow::Udp { asked: None, loss, .. } if loss >= FLOOD);
        let near = self.sender_is_near;
        let suspects = [
            (near, true, &self.sender.daemon),
            (near, false, if floods { &None } else { &self.sender.test }),
            (!near, true, &self.receiver.daemon),
            (!near, false, &self.receiver.test),
        ];
        let suspects = suspects.into_iter().filter_map(|(near, daemon, load)| {
            let load = load.as_ref()?;
            Some(Suspect { near, daemon, load })
        });
        suspects.max_by(|a, b| a.wanting().total_cmp(&b.wanting()))
    }

    fn tcp(&self, tcp: &TcpSent, paced: f64) -> Verdict {
        let repeated = tcp.retransmits as f64 / tcp.segments.max(1) as f64;
        let repeats = format!(
            "{} of {} segments were sent again ({:.2} %)",
            tcp.retransmits,
            tcp.segments,
            repeated * 100.0
        );
        if paced >= MOST {
            return verdict(
                Bottleneck::Application,
                [format!(
                    "the sender held back {:.0} % of the time to keep the rate asked for",
                    paced * 100.0
                )],
            );
        }
        // The kernel counts a connection that its pacing holds back behind the window as not held back.
        let at_most = allowed(tcp);
        let fits = tcp.window_limited >= SOME && repeated < LOSS && self.mbit_s >= FULL * at_most;
        if tcp.window_limited + tcp.buffer_limited >= MOST || fits {
            return verdict(Bottleneck::Window, self.window(tcp));
        }
        // The queue of a path overflows; the one in front of a daemon stops its sender.
        if repeated < LOSS
            && let Some(verdict) = self.processor(BUSY)
        {
            return verdict;
        }
        let queue = self
            .queue()
            .or_else(|| grown(tcp.min_rtt_ms, tcp.rtt_ms).then(|| tcp_queue(tcp)));
        let ignores_loss = tcp.congestion.starts_with("bbr");
        match queue {
            None if repeated >= LOSS && !ignores_loss => verdict(
                Bottleneck::Loss,
                [
                    repeats,
                    format!(
                        "the round trip did not grow ({:.1} ms), so no queue overflowed",
                        tcp.rtt_ms
                    ),
                ],
            ),
            Some(queue) => verdict(Bottleneck::PathRate, [queue, repeats]),
            None if ignores_loss && tcp.busy >= MOST => verdict(
                Bottleneck::PathRate,
                [
                    format!(
                        "{} kept data under way all the time and settled on this rate",
                        tcp.congestion
                    ),
                    repeats,
                ],
            ),
            None => self.unclear(),
        }
    }

    fn window(&self, tcp: &TcpSent) -> Vec<String> {
        let mut lines = Vec::new();
        if tcp.window_limited >= tcp.buffer_limited {
            lines.push(format!(
                "the receive window held data back {:.0} % of the time",
                tcp.window_limited * 100.0
            ));
            lines.push(format!(
                "{} bytes of window in a round trip of {:.1} ms carry {:.1} Mbit/s at most",
                tcp.window_bytes,
                tcp.rtt_ms,
                allowed(tcp)
            ));
        } else {
            lines.push(format!(
                "the send buffer held data back {:.0} % of the time; see the sysctl net.ipv4.tcp_wmem",
                tcp.buffer_limited * 100.0
            ));
        }
        lines
    }

    fn udp(&self, asked: Option<f64>, sent: f64, loss: f64) -> Verdict {
        let lost = format!("{:.2} % of the datagrams were lost", loss * 100.0);
        match (self.queue(), asked) {
            (Some(queue), _) if loss >= LOSS => verdict(Bottleneck::PathRate, [lost, queue]),
            // A policer drops without a queue.
            (None, _) if loss >= FLOOD * 4.0 => verdict(Bottleneck::PathRate, [lost]),
            (None, _) if loss >= LOSS => verdict(
                Bottleneck::Loss,
                [lost, "the round trip did not grow, so no queue overflowed".to_owned()],
            ),
            (_, Some(asked)) if sent >= asked * WHOLE => verdict(
                Bottleneck::Application,
                [format!("all of the {asked:.1} Mbit/s asked for arrived")],
            ),
            _ => self.unclear(),
        }
    }

    /// The median probe took clearly longer under load.
    fn queue(&self) -> Option<String> {
        let (idle, loaded) = (self.idle_ms?, self.loaded_ms?);
        grown(idle, loaded)
            .then(|| format!("a queue filled: the median round trip went from {idle:.1} to {loaded:.1} ms"))
    }

    fn unclear(&self) -> Verdict {
        let nearest = self
            .busiest()
            .map(|suspect| format!("the least time to spare had {}", suspect.line()));
        verdict(Bottleneck::Unclear, nearest)
    }
}

/// What the receive window allows, in Mbit/s.
fn allowed(tcp: &TcpSent) -> f64 {
    tcp.window_bytes as f64 * 8e-3 / tcp.rtt_ms.max(1e-3)
}

fn tcp_queue(tcp: &TcpSent) -> String {
    format!(
        "a queue filled: round trips of {:.1} ms, {:.1} ms at the least",
        tcp.rtt_ms, tcp.min_rtt_ms
    )
}

/// Half as much again, and more than the scheduling of two machines explains.
fn grown(from_ms: f64, to_ms: f64) -> bool {
    to_ms >= from_ms * 1.5 + 1.0
}

fn verdict(is: Bottleneck, evidence: impl IntoIterator<Item = String>) -> Verdict {
    Verdict {
        is,
        evidence: evidence.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::ThreadLoad;

    fn load(running: f64, waiting: f64) -> Option<ProcessLoad> {
        Some(ProcessLoad {
            cpu_percent: running * 100.0,
            rss_bytes: 1,
            busiest: Some(ThreadLoad {
                name: "t".to_owned(),
                running,
                waiting,
            }),
        })
    }

    fn spent() -> Spent {
        Spent {
            daemon: load(0.2, 0.1),
            test: load(0.1, 0.0),
            cores: 2,
        }
    }

    /// A reno connection at 20 ms with all its time under way, and nothing wrong.
    fn tcp() -> TcpSent {
        TcpSent {
            congestion: "reno".to_owned(),
            segments: 10_000,
            retransmits: 0,
            rtt_ms: 20.4,
            min_rtt_ms: 20.0,
            busy: 1.0,
            window_bytes: 4 << 20,
            ..TcpSent::default()
        }
    }

    fn over_tcp(tcp: TcpSent) -> Evidence {
        Evidence {
            sender_is_near: true,
            sender: spent(),
            receiver: spent(),
            mbit_s: 10.0,
            flow: Flow::Tcp { tcp, paced: 0.0 },
            idle_ms: Some(20.0),
            loaded_ms: Some(20.5),
        }
    }

    fn over_udp(asked: Option<f64>, sent_mbit_s: f64, loss: f64) -> Evidence {
        Evidence {
            flow: Flow::Udp {
                asked,
                sent_mbit_s,
                loss,
            },
            ..over_tcp(tcp())
        }
    }

    fn is(evidence: &Evidence) -> Bottleneck {
        let verdict = judge(evidence);
        assert!(!verdict.evidence.is_empty(), "{verdict:?}");
        verdict.is
    }

    #[test]
    fn a_thread_without_time_to_spare() {
        // Loss, a queue and a full window come with it, and are not the cause.
        let lossy = TcpSent {
            retransmits: 500,
            window_limited: 0.9,
            ..tcp()
        };
        let mut evidence = over_tcp(lossy);
        evidence.loaded_ms = Some(80.0);
        evidence.sender.daemon = load(0.11, 0.87);
        assert_eq!(is(&evidence), Bottleneck::NearCpu);
        evidence.sender_is_near = false;
        assert_eq!(is(&evidence), Bottleneck::FarCpu);
        evidence.sender_is_near = true;
        evidence.receiver.daemon = load(0.99, 0.0);
        assert_eq!(is(&evidence), Bottleneck::FarCpu);
        assert!(judge(&evidence).evidence[0].contains("daemon: thread t ran 99 %"));
        evidence.receiver.daemon = load(0.5, 0.1);
        evidence.sender.daemon = load(0.5, 0.1);
        evidence.receiver.test = load(0.95, 0.04);
        assert_eq!(is(&evidence), Bottleneck::FarCpu);
    }

    #[test]
    fn a_window() {
        let limited = TcpSent {
            window_limited: 0.97,
            window_bytes: 16_384,
            ..tcp()
        };
        assert_eq!(is(&over_tcp(limited.clone())), Bottleneck::Window);
        let lines = judge(&over_tcp(limited)).evidence;
        assert!(lines[1].starts_with("16384 bytes of window in a round trip of 20.4 ms carry 6.4 Mbit/s"));
        // As a connection that paces itself shows it.
        let paced = TcpSent {
            window_limited: 0.47,
            window_bytes: 6_498,
            rtt_ms: 40.6,
            min_rtt_ms: 40.3,
            ..tcp()
        };
        let at = |mbit_s| Evidence {
            mbit_s,
            ..over_tcp(paced.clone())
        };
        assert_eq!(is(&at(1.27)), Bottleneck::Window);
        assert_eq!(is(&at(0.5)), Bottleneck::Unclear);
        let buffer = TcpSent {
            buffer_limited: 0.8,
            ..tcp()
        };
        assert_eq!(is(&over_tcp(buffer)), Bottleneck::Window);
    }

    #[test]
    fn loss_and_rate_are_told_apart_by_the_queue() {
        let lossy = TcpSent {
            retransmits: 100,
            ..tcp()
        };
        assert_eq!(is(&over_tcp(lossy.clone())), Bottleneck::Loss);
        let queued = Evidence {
            loaded_ms: Some(60.0),
            ..over_tcp(lossy.clone())
        };
        assert_eq!(is(&queued), Bottleneck::PathRate);
        // Without probes TCP's own round trips tell.
        let blind = |tcp| Evidence {
            idle_ms: None,
            ..over_tcp(tcp)
        };
        assert_eq!(is(&blind(lossy.clone())), Bottleneck::Loss);
        let inflated = TcpSent {
            rtt_ms: 60.0,
            ..lossy.clone()
        };
        assert_eq!(is(&blind(inflated)), Bottleneck::PathRate);
        // One that does not slow down for loss is not held up by it.
        let bbr = TcpSent {
            congestion: "bbr".to_owned(),
            ..lossy
        };
        assert_eq!(is(&over_tcp(bbr)), Bottleneck::PathRate);
    }

    #[test]
    fn a_sender_without_more_to_send() {
        let mut evidence = over_tcp(tcp());
        evidence.flow = Flow::Tcp { tcp: tcp(), paced: 0.9 };
        assert_eq!(is(&evidence), Bottleneck::Application);
        assert_eq!(is(&over_udp(Some(10.0), 10.0, 0.0)), Bottleneck::Application);
    }

    #[test]
    fn datagrams() {
        assert_eq!(is(&over_udp(Some(10.0), 10.0, 0.01)), Bottleneck::Loss);
        assert_eq!(is(&over_udp(Some(100.0), 100.0, 0.5)), Bottleneck::PathRate);
        let queued = Evidence {
            loaded_ms: Some(100.0),
            ..over_udp(Some(10.0), 10.0, 0.01)
        };
        assert_eq!(is(&queued), Bottleneck::PathRate);
        assert_eq!(is(&over_udp(Some(100.0), 50.0, 0.0)), Bottleneck::Unclear);
        // A sender without a rate is always busy: that is what it is for.
        let mut flood = over_udp(None, 900.0, 0.6);
        flood.sender.test = load(1.0, 0.0);
        assert_eq!(is(&flood), Bottleneck::PathRate);
        flood.receiver.daemon = load(0.97, 0.0);
        assert_eq!(is(&flood), Bottleneck::FarCpu);
        let mut whole = over_udp(None, 100.0, 0.0);
        whole.sender.test = load(1.0, 0.0);
        assert_eq!(is(&whole), Bottleneck::NearCpu);
    }

    #[test]
    fn a_busy_thread_where_nothing_is_lost() {
        let mut evidence = over_tcp(tcp());
        evidence.loaded_ms = Some(60.0);
        evidence.receiver.daemon = load(0.5, 0.2);
        assert_eq!(is(&evidence), Bottleneck::FarCpu);
        evidence.flow = Flow::Tcp {
            tcp: TcpSent {
                retransmits: 100,
                ..tcp()
            },
            paced: 0.0,
        };
        assert_eq!(is(&evidence), Bottleneck::PathRate);
    }

    #[test]
    fn nothing() {
        assert_eq!(is(&over_tcp(tcp())), Bottleneck::Unclear);
    }
}
