//! What bound a run: the thread or the CPUs without time to spare, or else the path. Pure.

use serde::{Deserialize, Serialize};
use weft_perf::judge::{self, BUSY, Bottleneck, SATURATED};
use weft_perf::meter::{Spent, ThreadLoad};

/// Share of the machine's CPU time below which no CPU is idle.
const NO_IDLE: f64 = 0.05;

/// The name of an emulated cable's threads.
const CABLE: &str = "cable";

/// What bound a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A thread of the sender's tunnel.
    Sender,
    /// A thread of the receiver's tunnel.
    Receiver,
    /// A thread of the relay's tunnel.
    Relay,
    /// A thread of the load itself.
    Load,
    /// A thread that emulates a cable.
    Cable,
    /// The CPUs of the machine, all of which are busy, without one thread that stands out.
    Machine,
    /// The rate of the path.
    PathRate,
    /// Loss on the path.
    Loss,
    /// The receive window or the send buffer.
    Window,
    /// The requested rate, which was reached.
    Requested,
    /// Nothing stands out.
    Unclear,
}

impl By {
    /// The verdict in a few words, for display.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Sender => "sender's tunnel",
            Self::Receiver => "receiver's tunnel",
            Self::Relay => "relay's tunnel",
            Self::Load => "the load's own CPU",
            Self::Cable => "the emulated cable's CPU",
            Self::Machine => "all CPUs",
            Self::PathRate => "rate of the path",
            Self::Loss => "loss on the path",
            Self::Window => "window",
            Self::Requested => "requested rate",
            Self::Unclear => "unclear",
        }
    }
}

/// A verdict and the figures behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The verdict.
    pub by: By,
    /// The figures, in one line.
    pub evidence: String,
}

/// The busiest thread of each part of a run, and the share of the machine's CPU time that was idle.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Of the tunnels: [`By::Sender`], [`By::Receiver`], [`By::Relay`].
    pub tunnels: Vec<(By, ThreadLoad)>,
    /// Of the process that makes the load and emulates the cables.
    pub load: Option<ThreadLoad>,
    /// 0 to 1.
    pub idle: f64,
}

impl Cpu {
    /// The thread that slept least.
    fn busiest(&self) -> Option<(By, &ThreadLoad)> {
        let load = self.load.iter().map(|thread| match thread.name.as_str() {
            CABLE => (By::Cable, thread),
            _ => (By::Load, thread),
        });
        let tunnels = self.tunnels.iter().map(|(by, thread)| (*by, thread));
        tunnels
            .chain(load)
            .max_by(|(_, a), (_, b)| a.wanting().total_cmp(&b.wanting()))
    }

    fn line(&self) -> String {
        let idle = self.idle * 100.0;
        self.busiest().map_or_else(
            || format!("the CPUs were idle {idle:.0} % of the time"),
            |(by, thread)| {
                format!(
                    "{}: thread {} ran {:.0} % of the time and waited {:.0} % for a CPU; the CPUs were idle {idle:.0} %",
                    by.words(),
                    thread.name,
                    thread.running * 100.0,
                    thread.waiting * 100.0
                )
            },
        )
    }
}

/// Names what bound a run. `path` has the figures of its flow; the CPU time in it is not used.
#[must_use]
pub fn bound(cpu: &Cpu, path: judge::Evidence) -> Bound {
    let of = |by| Bound {
        by,
        evidence: cpu.line(),
    };
    let (busiest, wanting) = cpu
        .busiest()
        .map_or((By::Unclear, 0.0), |(by, thread)| (by, thread.wanting()));
    if wanting >= SATURATED {
        return of(busiest);
    }
    if cpu.idle < NO_IDLE {
        return of(By::Machine);
    }
    let verdict = judge::judge(&judge::Evidence {
        sender: Spent::default(),
        receiver: Spent::default(),
        ..path
    });
    let by = match verdict.is {
        Bottleneck::PathRate => By::PathRate,
        Bottleneck::Loss => By::Loss,
        Bottleneck::Window => By::Window,
        Bottleneck::Application => By::Requested,
        Bottleneck::Unclear | Bottleneck::ClientCpu | Bottleneck::ServerCpu if wanting >= BUSY => return of(busiest),
        Bottleneck::Unclear | Bottleneck::ClientCpu | Bottleneck::ServerCpu => return of(By::Unclear),
    };
    Bound {
        by,
        evidence: verdict.evidence.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(name: &str, running: f64) -> ThreadLoad {
        ThreadLoad {
            name: name.to_owned(),
            running,
            waiting: 0.1,
        }
    }

    fn udp(loss: f64) -> judge::Evidence {
        judge::Evidence {
            sender_is_client: true,
            sender: Spent::default(),
            receiver: Spent::default(),
            mbit_s: 100.0,
            flow: judge::Flow::Udp {
                asked: Some(100.0),
                sent_mbit_s: 100.0,
                loss,
            },
            idle_ms: Some(1.0),
            loaded_ms: Some(1.0),
        }
    }

    #[test]
    fn a_saturated_thread_comes_before_the_path() {
        let cpu = |sender: f64, load: &str, idle| Cpu {
            tunnels: vec![
                (By::Sender, thread("weft-lane", sender)),
                (By::Receiver, thread("weft-lane", 0.3)),
            ],
            load: Some(thread(load, 0.5)),
            idle,
        };
        let by = |cpu: &Cpu, loss| bound(cpu, udp(loss)).by;
        assert_eq!(by(&cpu(0.8, "perf-send", 0.5), 0.02), By::Sender);
        assert_eq!(by(&cpu(0.4, "perf-send", 0.01), 0.02), By::Machine);
        assert_eq!(by(&cpu(0.4, "perf-send", 0.5), 0.02), By::Loss);
        assert_eq!(by(&cpu(0.4, "perf-send", 0.5), 0.0), By::Requested);
        let mut cable = cpu(0.4, CABLE, 0.5);
        cable.load = Some(thread(CABLE, 0.75));
        let verdict = bound(&cable, udp(0.02));
        assert_eq!(verdict.by, By::Cable);
        assert!(verdict.evidence.contains("thread cable ran 75 %"), "{verdict:?}");
        assert_eq!(
            by(
                &Cpu {
                    idle: 1.0,
                    ..Cpu::default()
                },
                0.02
            ),
            By::Loss
        );
    }
}
