//! What a run came to, as the document `weft.perf/1`.
//!
//! Within one number fields are added, never changed or removed. Rates are millions of bits of payload a second, as the
//! receiver counted them; processor is percent of one processor; shares are 0 to 1.

use serde::{Deserialize, Serialize};

use crate::end::{PathSeen, TcpSent};
use crate::held::{HeldUpBy, Measured, held_up};
use crate::judge::{Evidence, Flow, Verdict, judge};
use crate::latency::Latency;
use crate::mbit_s;
use crate::meter::Spent;
use crate::near::{Outcome, Second};
use crate::plan::{Load, Plan};
use crate::stages::EndStages;

/// The schema of [`Report`].
pub const SCHEMA: &str = "weft.perf/1";

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`]
    pub schema: String,
    /// The other end.
    pub peer: Peer,
    /// What was asked for.
    pub plan: Plan,
    /// True if the way to the other end was the same all along; the figures of another run mean nothing.
    pub valid: bool,
    /// Why not, for people.
    pub invalid_because: Option<String>,
    /// The way that the near end's daemon used.
    pub path: PathSeen,
    /// The way back, as the far end's daemon said.
    pub far_path: PathSeen,
    /// What was sent each way, and what held it up.
    pub directions: Vec<DirectionReport>,
    /// Round trips.
    pub rtt: Rtt,
    /// Processor and memory of the near end.
    pub near: Spent,
    /// The same of the far end.
    pub far: Spent,
    /// All directions together: Mbit/s for each percent of a processor that daemons and test of both ends used.
    pub mbit_s_per_cpu_percent: Option<f64>,
    /// The same for what the near end alone used.
    pub near_mbit_s_per_cpu_percent: Option<f64>,
    /// The same for what the far end alone used.
    pub far_mbit_s_per_cpu_percent: Option<f64>,
    /// Second by second.
    pub seconds: Vec<SecondReport>,
    /// What the packet threads did while the load ran again behind the run; none if that was not to be, or makes no sense:
    /// outside the tunnel, and without a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<StagesReport>,
}

/// What the packet threads of both ends did while the load ran once more behind the run. No other figure of the report is
/// of that time: to measure stages takes some of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StagesReport {
    /// Those of the near end; none if they were not measured.
    pub near: Option<EndStages>,
    /// Those of the far end.
    pub far: Option<EndStages>,
    /// Why neither was, for people.
    pub not_measured: Option<String>,
}

/// What became of the run behind the run.
#[derive(Clone, Debug)]
pub enum Staged {
    /// There was not to be one.
    Unwanted,
    /// It was measured.
    Measured(Box<Outcome>),
    /// It was not, and why: one line for people.
    Failed(String),
}

/// The other end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its public key.
    pub npub: String,
    /// Its configured name.
    pub name: Option<String>,
    /// Its address in the mesh.
    pub address: std::net::Ipv6Addr,
}

/// Round trips of small datagrams, a hundred a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rtt {
    /// Before the load.
    pub idle: Latency,
    /// Under it.
    pub loaded: Latency,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// `forward`: from the near end to the far end; `reverse`: the other way.
    pub direction: Way,
    /// How long, in seconds.
    pub seconds: f64,
    /// Bytes of payload received.
    pub bytes: u64,
    /// Payload received, in Mbit/s.
    pub mbit_s: f64,
    /// What TCP tells.
    pub tcp: Option<TcpSent>,
    /// What became of the datagrams.
    pub udp: Option<UdpReport>,
    /// What held it up.
    pub bottleneck: Verdict,
    /// Down to the stage of the packet path; none if no stages were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up_by: Option<HeldUpBy>,
}

/// One way through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the near end to the far end.
    Forward,
    /// The other way.
    Reverse,
}

/// What became of the datagrams of one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UdpReport {
    /// Sent.
    pub sent: u64,
    /// That the sender's system had no room for, and that were not sent.
    pub refused: u64,
    /// Arrived.
    pub received: u64,
    /// Did not.
    pub lost: u64,
    /// The share that did not.
    pub loss: f64,
    /// Arrived twice.
    pub duplicates: u64,
    /// Arrived behind one that was sent later.
    pub reordered: u64,
    /// Interarrival jitter (RFC 3550) in milliseconds.
    pub jitter_ms: f64,
    /// Arrived, a second.
    pub packets_s: f64,
    /// Sent, in Mbit/s.
    pub sent_mbit_s: f64,
}

/// One second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondReport {
    /// Which, from 1.
    pub second: u32,
    /// Received at the far end, in Mbit/s.
    pub forward_mbit_s: Option<f64>,
    /// Received at the near end, in Mbit/s.
    pub reverse_mbit_s: Option<f64>,
    /// TCP segments sent again, at both ends.
    pub retransmits: u64,
    /// Datagrams that should have come by then and had not, at both ends.
    pub missing: u64,
    /// Round trips in it.
    pub rtt: Latency,
    /// Processor and memory of the near end.
    pub near: Spent,
    /// The same of the far end.
    pub far: Option<Spent>,
    /// The way at its end, as the near daemon says.
    pub path: Option<String>,
}

impl SecondReport {
    /// What both ends say of one second.
    #[must_use]
    pub fn new(plan: &Plan, second: &Second) -> Self {
        let far = second.far.as_ref();
        let reverse = plan.direction.reverse() && plan.load != Load::None;
        let forward = plan.direction.forward() && plan.load != Load::None;
        Self {
            second: second.number,
            forward_mbit_s: far
                .filter(|_| forward)
                .map(|far| mbit_s(far.received_bytes, far.seconds)),
            reverse_mbit_s: reverse.then(|| mbit_s(second.near.received_bytes, second.near.seconds)),
            retransmits: second.near.retransmits + far.map_or(0, |far| far.retransmits),
            missing: second.near.missing + far.map_or(0, |far| far.missing),
            rtt: second.rtt,
            near: second.near.spent.clone(),
            far: far.map(|far| far.spent.clone()),
            path: second.near.path.clone(),
        }
    }
}

impl Report {
    /// Puts together what both ends saw.
    #[must_use]
    pub fn new(peer: Peer, plan: &Plan, outcome: &Outcome, staged: &Staged) -> Self {
        let (near, far) = (&outcome.near, &outcome.far);
        let staged = staged.sound(plan);
        let ways = [
            (Way::Forward, plan.direction.forward()),
            (Way::Reverse, plan.direction.reverse()),
        ];
        let ways = ways
            .into_iter()
            .filter(|(_, wanted)| *wanted && plan.load != Load::None);
        let directions: Vec<_> = ways.map(|(way, _)| direction(plan, outcome, &staged, way)).collect();
        let total: f64 = directions.iter().map(|direction| direction.mbit_s).sum();
        let per_cpu = |percent: f64| (percent > 0.0 && total > 0.0).then(|| total / percent);
        let (near_cpu, far_cpu) = (near.spent.cpu_percent(), far.spent.cpu_percent());
        let invalid_because = invalid(plan, &near.path, &far.path);
        Self {
            schema: SCHEMA.to_owned(),
            peer,
            plan: plan.clone(),
            valid: invalid_because.is_none(),
            invalid_because,
            path: near.path.clone(),
            far_path: far.path.clone(),
            directions,
            rtt: Rtt {
                idle: outcome.idle,
                loaded: outcome.loaded,
            },
            near: near.spent.clone(),
            far: far.spent.clone(),
            mbit_s_per_cpu_percent: per_cpu(near_cpu + far_cpu),
            near_mbit_s_per_cpu_percent: per_cpu(near_cpu),
            far_mbit_s_per_cpu_percent: per_cpu(far_cpu),
            seconds: outcome
                .seconds
                .iter()
                .map(|second| SecondReport::new(plan, second))
                .collect(),
            stages: staged.report(),
        }
    }
}

impl Staged {
    /// The same, but failed if its path was not one and the same.
    fn sound(&self, plan: &Plan) -> Self {
        match self {
            Self::Measured(outcome) => match invalid(plan, &outcome.near.path, &outcome.far.path) {
                Some(why) => Self::Failed(why),
                None => self.clone(),
            },
            _ => self.clone(),
        }
    }

    fn report(&self) -> Option<StagesReport> {
        match self {
            Self::Unwanted => None,
            Self::Measured(outcome) => Some(StagesReport {
                near: outcome.near.stages.clone(),
                far: outcome.far.stages.clone(),
                not_measured: None,
            }),
            Self::Failed(why) => Some(StagesReport {
                not_measured: Some(why.clone()),
                ..StagesReport::default()
            }),
        }
    }

    fn held_up(&self, way: Way, run_mbit_s: f64, verdict: &Verdict) -> Option<HeldUpBy> {
        let Self::Measured(outcome) = self else { return None };
        let receiver = match way {
            Way::Forward => &outcome.far,
            Way::Reverse => &outcome.near,
        };
        let again = mbit_s(receiver.received.map_or(0, |received| received.bytes), receiver.seconds);
        let measured = Measured {
            near: outcome.near.stages.as_ref(),
            far: outcome.far.stages.as_ref(),
            rate: (run_mbit_s > 0.0).then(|| again / run_mbit_s),
        };
        Some(held_up(&measured, verdict.is))
    }
}

/// Outside the tunnel its path does not matter.
fn invalid(plan: &Plan, near: &PathSeen, far: &PathSeen) -> Option<String> {
    if plan.raw.is_some() {
        return None;
    }
    let changed = |whose: &str, path: &PathSeen| {
        let text = |path: &Option<String>| path.clone().unwrap_or_else(|| "none".to_owned());
        (path.changes > 0).then(|| {
            let (start, end) = (text(&path.start), text(&path.end));
            format!(
                "{whose} path changed during the run ({} times): {start}, then {end}",
                path.changes
            )
        })
    };
    changed("the", near).or_else(|| changed("the far end's", far))
}

fn direction(plan: &Plan, outcome: &Outcome, staged: &Staged, way: Way) -> DirectionReport {
    let (sender, receiver) = match way {
        Way::Forward => (&outcome.near, &outcome.far),
        Way::Reverse => (&outcome.far, &outcome.near),
    };
    let bytes = receiver.received.map_or(0, |received| received.bytes);
    let rate = mbit_s(bytes, receiver.seconds);
    let sent = sender.sent.as_ref();
    let udp = sent.and_then(|sent| sent.udp).map(|udp| {
        let arrived = receiver.received.and_then(|received| received.udp).unwrap_or_default();
        // One that came between the two ends' account is not lost twice.
        let lost = udp.datagrams.saturating_sub(arrived.datagrams);
        UdpReport {
            sent: udp.datagrams,
            refused: udp.refused,
            received: arrived.datagrams,
            lost,
            loss: lost as f64 / udp.datagrams.max(1) as f64,
            duplicates: arrived.duplicates,
            reordered: arrived.reordered,
            jitter_ms: arrived.jitter_ms,
            packets_s: arrived.datagrams as f64 / receiver.seconds.max(1e-9),
            sent_mbit_s: mbit_s(sent.map_or(0, |sent| sent.bytes), sender.seconds),
        }
    });
    let tcp = sent.and_then(|sent| sent.tcp.clone());
    let asked = match plan.load {
        Load::Tcp { rate, .. } | Load::Udp { rate, .. } | Load::Quic { rate, .. } => {
            rate.map(|rate| rate as f64 * 1e-6)
        }
        Load::None => None,
    };
    let flow = match (&tcp, &udp) {
        (Some(tcp), _) => Flow::Tcp {
            tcp: tcp.clone(),
            paced: sent.map_or(0.0, |sent| sent.paced),
        },
        (None, udp) => Flow::Udp {
            asked,
            sent_mbit_s: udp.map_or(0.0, |udp| udp.sent_mbit_s),
            loss: udp.map_or(0.0, |udp| udp.loss),
        },
    };
    let bottleneck = judge(&Evidence {
        sender_is_near: way == Way::Forward,
        sender: sender.spent.clone(),
        receiver: receiver.spent.clone(),
        mbit_s: rate,
        flow,
        idle_ms: outcome.idle.median(),
        loaded_ms: outcome.loaded.median(),
    });
    DirectionReport {
        direction: way,
        seconds: receiver.seconds,
        bytes,
        mbit_s: rate,
        tcp,
        udp,
        held_up_by: staged.held_up(way, rate, &bottleneck),
        bottleneck,
    }
}
