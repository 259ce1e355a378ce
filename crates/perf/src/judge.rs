//! The bottleneck of a run, from its measurements. Pure.
//!
//! The causes are checked in this order: a CPU without time to spare also loses packets and fills
//! queues, so it comes first; a window that is full most of the time leaves no room for a queue;
//! what remains is attributed to the path.

use serde::{Deserialize, Serialize};

use crate::account::TcpSent;
use crate::meter::{ProcessLoad, Spent};

/// A thread that wants to run for this share of the time has none to spare: the rest are the
/// moments between two bursts.
pub const SATURATED: f64 = 0.8;

/// A thread that wants to run for this share of the time is the cause if no other is found: bursty
/// traffic finds it busy.
pub const BUSY: f64 = 0.65;

/// The share of the time from which on a single cause is the verdict.
const MOST: f64 = 0.5;

/// The share of the time from which on a window is a cause if the rate is the one that it allows.
const SOME: f64 = 0.2;

/// Fraction of the window-limited rate above which a flow counts as window-limited.
const FULL: f64 = 0.75;

/// The share of retransmitted segments, or of lost datagrams, above which loss counts as a cause.
const LOSS: f64 = 0.001;

/// The share of lost datagrams from which on the sender clearly exceeds the path's rate.
const FLOOD: f64 = 0.05;

/// Fraction of the requested rate above which it counts as reached.
const WHOLE: f64 = 0.95;

/// Measurements of one direction of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Whether the client sends.
    pub sender_is_client: bool,
    /// CPU time at the sender.
    pub sender: Spent,
    /// CPU time at the receiver.
    pub receiver: Spent,
    /// Payload received, in Mbit/s.
    pub mbit_s: f64,
    /// The sender's figures.
    pub flow: Flow,
    /// Median round trip before the load, in milliseconds.
    pub idle_ms: Option<f64>,
    /// Median round trip under load, in milliseconds.
    pub loaded_ms: Option<f64>,
}

/// The sender's figures, by kind of load.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    /// Over TCP.
    Tcp {
        /// The kernel's figures.
        tcp: TcpSent,
        /// The share of the time in which the sender paused by itself.
        paced: f64,
    },
    /// Datagrams.
    Udp {
        /// The requested rate in Mbit/s; `None`: as fast as possible.
        asked: Option<f64>,
        /// The rate sent, in Mbit/s.
        sent_mbit_s: f64,
        /// The share of datagrams that were lost.
        loss: f64,
    },
}

/// What limited a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The client's CPU.
    #[serde(rename = "near-cpu")]
    ClientCpu,
    /// The server's CPU.
    #[serde(rename = "far-cpu")]
    ServerCpu,
    /// The rate of the path: its queue is full, or the congestion control has found its rate.
    PathRate,
    /// Loss without a full queue.
    Loss,
    /// The limit on data in flight: the receive window or the send buffer.
    Window,
    /// The sending program, which had no more to send.
    Application,
    /// Nothing stands out.
    Unclear,
}

impl Bottleneck {
    /// The verdict in a few words, for display.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::ClientCpu => "this node's CPU",
            Self::ServerCpu => "the peer's CPU",
            Self::PathRate => "the rate of the path",
            Self::Loss => "loss on the path",
            Self::Window => "the window",
            Self::Application => "the sender, which had no more to send",
            Self::Unclear => "nothing stands out",
        }
    }
}

/// A verdict and its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The bottleneck.
    pub is: Bottleneck,
    /// The figures behind it, one line each, the strongest first.
    pub evidence: Vec<String>,
}

/// Names the bottleneck of a run.
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
    client: bool,
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
        let whose = if self.client { "this node's" } else { "the peer's" };
        let what = if self.daemon { "daemon" } else { "test" };
        match &self.load.busiest {
            Some(thread) => format!(
                "{whose} {what}: thread {} ran {:.0} % of the time and waited {:.0} % for a CPU",
                thread.name,
                thread.running * 100.0,
                thread.waiting * 100.0
            ),
            None => format!("{whose} {what}: {:.0} % of a CPU", self.load.cpu_percent),
        }
    }
}

impl Evidence {
    /// The thread with the least time to spare, if it wants to run for at least the share `from` of
    /// the time.
    fn processor(&self, from: f64) -> Option<Verdict> {
        let suspect = self.busiest()?;
        (suspect.wanting() >= from).then(|| Verdict {
            is: if suspect.client {
                Bottleneck::ClientCpu
            } else {
                Bottleneck::ServerCpu
            },
            evidence: vec![suspect.line()],
        })
    }

    fn busiest(&self) -> Option<Suspect<'_>> {
        // A sender without a rate has no time to spare by its nature; the question is where its
        // datagrams are lost.
        let floods = matches!(self.flow, Flow::Udp { asked: None, loss, .. } if loss >= FLOOD);
        let client = self.sender_is_client;
        let suspects = [
            (client, true, &self.sender.daemon),
            (client, false, if floods { &None } else { &self.sender.test }),
            (!client, true, &self.receiver.daemon),
            (!client, false, &self.receiver.test),
        ];
        let suspects = suspects.into_iter().filter_map(|(client, daemon, load)| {
            let load = load.as_ref()?;
            Some(Suspect { client, daemon, load })
        });
        suspects.max_by(|a, b| a.wanting().total_cmp(&b.wanting()))
    }

    fn tcp(&self, tcp: &TcpSent, paced: f64) -> Verdict {
        let repeated = tcp.retransmits as f64 / tcp.segments.max(1) as f64;
        let repeats = format!(
            "{} of {} segments were retransmitted ({:.2} %)",
            tcp.retransmits,
            tcp.segments,
            repeated * 100.0
        );
        if paced >= MOST {
            return verdict(
                Bottleneck::Application,
                [format!(
                    "the sender paused {:.0} % of the time to keep the requested rate",
                    paced * 100.0
                )],
            );
        }
        // If pacing holds a window-limited connection back, the kernel does not count that time as
        // window-limited.
        let at_most = allowed(tcp);
        let fits = tcp.window_limited >= SOME && repeated < LOSS && self.mbit_s >= FULL * at_most;
        if tcp.window_limited + tcp.buffer_limited >= MOST || fits {
            return verdict(Bottleneck::Window, self.window(tcp));
        }
        // The queue of a path overflows; the queue before a daemon blocks its sender.
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
                        "{} kept data in flight all the time and settled on this rate",
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
                "the receive window was the limit {:.0} % of the time",
                tcp.window_limited * 100.0
            ));
            lines.push(format!(
                "{} bytes of window in a round trip of {:.1} ms allow {:.1} Mbit/s at most",
                tcp.window_bytes,
                tcp.rtt_ms,
                allowed(tcp)
            ));
        } else {
            lines.push(format!(
                "the send buffer was the limit {:.0} % of the time; see the sysctl net.ipv4.tcp_wmem",
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
                [format!("all of the requested {asked:.1} Mbit/s arrived")],
            ),
            _ => self.unclear(),
        }
    }

    /// Describes a queue if the median probe took clearly longer under load.
    fn queue(&self) -> Option<String> {
        let (idle, loaded) = (self.idle_ms?, self.loaded_ms?);
        grown(idle, loaded)
            .then(|| format!("a queue filled: the median round trip went from {idle:.1} to {loaded:.1} ms"))
    }

    fn unclear(&self) -> Verdict {
        let nearest = self
            .busiest()
            .map(|suspect| format!("the busiest is {}", suspect.line()));
        verdict(Bottleneck::Unclear, nearest)
    }
}

/// The rate that the receive window allows, in Mbit/s.
fn allowed(tcp: &TcpSent) -> f64 {
    tcp.window_bytes as f64 * 8e-3 / tcp.rtt_ms.max(1e-3)
}

fn tcp_queue(tcp: &TcpSent) -> String {
    format!(
        "a queue filled: round trips of {:.1} ms, {:.1} ms at the least",
        tcp.rtt_ms, tcp.min_rtt_ms
    )
}

/// Whether a round trip grew by at least half, and by 1 ms more, which the scheduling of two
/// machines does not explain.
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
mod tests;
