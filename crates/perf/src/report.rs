//! The result of a run, as the document `weft.perf/1`.
//!
//! Within one version fields are added, never changed or removed. Rates are payload in Mbit/s, as
//! the receiver counted them; CPU is in percent of one CPU; shares are 0 to 1. In the document the
//! client is `near`, and the server `far`.

use serde::{Deserialize, Serialize};

use crate::account::{EndpointReport, PathSeen, TcpSent};
use crate::client::{Outcome, Second};
use crate::judge::{Evidence, Flow, Verdict, judge};
use crate::latency::Latency;
use crate::mbit_s;
use crate::meter::Spent;
use crate::plan::{Load, Plan};
use crate::stages::EndpointStages;
use crate::thread_verdict::{Measured, ThreadVerdict, thread_verdict};

/// The schema of [`Report`].
pub const SCHEMA: &str = "weft.perf/1";

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`]
    pub schema: String,
    /// The peer.
    pub peer: Peer,
    /// The requested run.
    pub plan: Plan,
    /// Whether the path to the peer was the same throughout; otherwise the figures are not
    /// comparable with other runs.
    pub valid: bool,
    /// The reason if it is not valid, for display.
    pub invalid_because: Option<String>,
    /// The path that the client's daemon used.
    pub path: PathSeen,
    /// The return path, as the server's daemon reports it.
    #[serde(rename = "far_path")]
    pub server_path: PathSeen,
    /// The load of each direction, and its bottleneck.
    pub directions: Vec<DirectionReport>,
    /// Round trips.
    pub rtt: Rtt,
    /// CPU time and memory of the client.
    #[serde(rename = "near")]
    pub client: Spent,
    /// CPU time and memory of the server.
    #[serde(rename = "far")]
    pub server: Spent,
    /// All directions together: Mbit/s for each percent of a CPU that daemons and test of both ends
    /// used.
    pub mbit_s_per_cpu_percent: Option<f64>,
    /// Mbit/s for each percent of a CPU that the client alone used.
    #[serde(rename = "near_mbit_s_per_cpu_percent")]
    pub client_mbit_s_per_cpu_percent: Option<f64>,
    /// Mbit/s for each percent of a CPU that the server alone used.
    #[serde(rename = "far_mbit_s_per_cpu_percent")]
    pub server_mbit_s_per_cpu_percent: Option<f64>,
    /// Second by second.
    pub seconds: Vec<SecondReport>,
    /// The work of the packet threads while the load ran again after the run; `None` if that was
    /// not requested, or does not apply: outside the tunnel, and without a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<StagesReport>,
}

/// The work of the packet threads of both ends while the load ran again after the run. No other
/// figure of the report is from that time, because measuring stages costs CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StagesReport {
    /// Packet threads of the client; `None` if they were not measured.
    #[serde(rename = "near")]
    pub client: Option<EndpointStages>,
    /// Packet threads of the server.
    #[serde(rename = "far")]
    pub server: Option<EndpointStages>,
    /// Why neither was measured, for display.
    pub not_measured: Option<String>,
}

/// The result of the run of stages.
#[derive(Clone, Debug)]
pub enum Staged {
    /// It was not requested.
    Unwanted,
    /// It was measured.
    Measured(Box<Outcome>),
    /// It was not measured, for this reason: one line for display.
    Failed(String),
}

/// The peer of a run.
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

/// One direction of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// `forward`: from client to server; `reverse`: from server to client.
    pub direction: Way,
    /// Duration in seconds.
    pub seconds: f64,
    /// Bytes of payload received.
    pub bytes: u64,
    /// Payload received, in Mbit/s.
    pub mbit_s: f64,
    /// The kernel's figures for TCP.
    pub tcp: Option<TcpSent>,
    /// The figures of datagrams.
    pub udp: Option<UdpReport>,
    /// The bottleneck.
    pub bottleneck: Verdict,
    /// The bottleneck down to the stage of the packet path; `None` if no stages were measured.
    #[serde(rename = "held_up_by", default, skip_serializing_if = "Option::is_none")]
    pub thread_verdict: Option<ThreadVerdict>,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From client to server.
    Forward,
    /// From server to client.
    Reverse,
}

/// The datagrams of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UdpReport {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that the sender's system had no room for, and that were not sent.
    pub refused: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams lost.
    pub lost: u64,
    /// The share of datagrams that were lost.
    pub loss: f64,
    /// Duplicates received.
    pub duplicates: u64,
    /// Received after one that was sent later.
    pub reordered: u64,
    /// Interarrival jitter (RFC 3550) in milliseconds.
    pub jitter_ms: f64,
    /// Datagrams received per second.
    pub packets_s: f64,
    /// Payload sent, in Mbit/s.
    pub sent_mbit_s: f64,
}

/// One second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondReport {
    /// Its number, from 1.
    pub second: u32,
    /// Received at the server, in Mbit/s.
    pub forward_mbit_s: Option<f64>,
    /// Received at the client, in Mbit/s.
    pub reverse_mbit_s: Option<f64>,
    /// TCP segments retransmitted, at both ends.
    pub retransmits: u64,
    /// Datagrams that were expected by then and not received, at both ends.
    pub missing: u64,
    /// Round trips in this second.
    pub rtt: Latency,
    /// CPU time and memory of the client.
    #[serde(rename = "near")]
    pub client: Spent,
    /// CPU time and memory of the server.
    #[serde(rename = "far")]
    pub server: Option<Spent>,
    /// The path at the end of the second, as the client's daemon reports it.
    pub path: Option<String>,
}

impl SecondReport {
    /// Combines both accounts of one second.
    #[must_use]
    pub fn new(plan: &Plan, second: &Second) -> Self {
        let server = second.server.as_ref();
        let reverse = plan.direction.reverse() && plan.load != Load::None;
        let forward = plan.direction.forward() && plan.load != Load::None;
        Self {
            second: second.number,
            forward_mbit_s: server
                .filter(|_| forward)
                .map(|server| mbit_s(server.received_bytes, server.seconds)),
            reverse_mbit_s: reverse.then(|| mbit_s(second.client.received_bytes, second.client.seconds)),
            retransmits: second.client.retransmits + server.map_or(0, |server| server.retransmits),
            missing: second.client.missing + server.map_or(0, |server| server.missing),
            rtt: second.rtt,
            client: second.client.spent.clone(),
            server: server.map(|server| server.spent.clone()),
            path: second.client.path.clone(),
        }
    }
}

impl Report {
    /// Combines the accounts of both ends.
    #[must_use]
    pub fn new(peer: Peer, plan: &Plan, outcome: &Outcome, staged: &Staged) -> Self {
        let (client, server) = (&outcome.client, &outcome.server);
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
        let (client_cpu, server_cpu) = (client.spent.cpu_percent(), server.spent.cpu_percent());
        let invalid_because = invalid(plan, &client.path, &server.path);
        Self {
            schema: SCHEMA.to_owned(),
            peer,
            plan: plan.clone(),
            valid: invalid_because.is_none(),
            invalid_because,
            path: client.path.clone(),
            server_path: server.path.clone(),
            directions,
            rtt: Rtt {
                idle: outcome.idle,
                loaded: outcome.loaded,
            },
            client: client.spent.clone(),
            server: server.spent.clone(),
            mbit_s_per_cpu_percent: per_cpu(client_cpu + server_cpu),
            client_mbit_s_per_cpu_percent: per_cpu(client_cpu),
            server_mbit_s_per_cpu_percent: per_cpu(server_cpu),
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
    /// Returns it, as failed if its path changed.
    fn sound(&self, plan: &Plan) -> Self {
        match self {
            Self::Measured(outcome) => match invalid(plan, &outcome.client.path, &outcome.server.path) {
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
                client: outcome.client.stages.clone(),
                server: outcome.server.stages.clone(),
                not_measured: None,
            }),
            Self::Failed(why) => Some(StagesReport {
                not_measured: Some(why.clone()),
                ..StagesReport::default()
            }),
        }
    }

    fn thread_verdict(&self, way: Way, run_mbit_s: f64, verdict: &Verdict) -> Option<ThreadVerdict> {
        let Self::Measured(outcome) = self else { return None };
        let [_, receiver] = sender_and_receiver(outcome, way);
        let staged_mbit_s = received_mbit_s(receiver);
        let measured = Measured {
            client: outcome.client.stages.as_ref(),
            server: outcome.server.stages.as_ref(),
            rate: (run_mbit_s > 0.0).then(|| staged_mbit_s / run_mbit_s),
        };
        Some(thread_verdict(&measured, verdict.is))
    }
}

/// Why a run is invalid: its path changed. Outside the tunnel the path does not matter.
fn invalid(plan: &Plan, client: &PathSeen, server: &PathSeen) -> Option<String> {
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
    changed("the", client).or_else(|| changed("the peer's", server))
}

/// The accounts of sender and receiver of one direction.
fn sender_and_receiver(outcome: &Outcome, way: Way) -> [&EndpointReport; 2] {
    match way {
        Way::Forward => [&outcome.client, &outcome.server],
        Way::Reverse => [&outcome.server, &outcome.client],
    }
}

/// The rate that the receiver of one direction counted, in Mbit/s.
fn received_mbit_s(receiver: &EndpointReport) -> f64 {
    mbit_s(receiver.received.map_or(0, |received| received.bytes), receiver.seconds)
}

/// The measurements of one direction of a run, for [`judge`].
#[must_use]
pub fn evidence(plan: &Plan, outcome: &Outcome, way: Way) -> Evidence {
    let [sender, receiver] = sender_and_receiver(outcome, way);
    let sent = sender.sent.as_ref();
    let asked = match plan.load {
        Load::Tcp { rate, .. } | Load::Udp { rate, .. } | Load::Quic { rate, .. } => {
            rate.map(|rate| rate as f64 * 1e-6)
        }
        Load::None => None,
    };
    let udp = udp_report(sender, receiver);
    let flow = match sent.and_then(|sent| sent.tcp.clone()) {
        Some(tcp) => Flow::Tcp {
            tcp,
            paced: sent.map_or(0.0, |sent| sent.paced),
        },
        None => Flow::Udp {
            asked,
            sent_mbit_s: udp.map_or(0.0, |udp| udp.sent_mbit_s),
            loss: udp.map_or(0.0, |udp| udp.loss),
        },
    };
    Evidence {
        sender_is_client: way == Way::Forward,
        sender: sender.spent.clone(),
        receiver: receiver.spent.clone(),
        mbit_s: received_mbit_s(receiver),
        flow,
        idle_ms: outcome.idle.median(),
        loaded_ms: outcome.loaded.median(),
    }
}

/// The datagrams of one direction; `None` if its load has none.
fn udp_report(sender: &EndpointReport, receiver: &EndpointReport) -> Option<UdpReport> {
    let sent = sender.sent.as_ref()?;
    let udp = sent.udp?;
    let arrived = receiver.received.and_then(|received| received.udp).unwrap_or_default();
    // A datagram that arrived between the two accounts is not counted as lost.
    let lost = udp.datagrams.saturating_sub(arrived.datagrams);
    Some(UdpReport {
        sent: udp.datagrams,
        refused: udp.refused,
        received: arrived.datagrams,
        lost,
        loss: lost as f64 / udp.datagrams.max(1) as f64,
        duplicates: arrived.duplicates,
        reordered: arrived.reordered,
        jitter_ms: arrived.jitter_ms,
        packets_s: arrived.datagrams as f64 / receiver.seconds.max(1e-9),
        sent_mbit_s: mbit_s(sent.bytes, sender.seconds),
    })
}

fn direction(plan: &Plan, outcome: &Outcome, staged: &Staged, way: Way) -> DirectionReport {
    let [sender, receiver] = sender_and_receiver(outcome, way);
    let rate = received_mbit_s(receiver);
    let bottleneck = judge(&evidence(plan, outcome, way));
    DirectionReport {
        direction: way,
        seconds: receiver.seconds,
        bytes: receiver.received.map_or(0, |received| received.bytes),
        mbit_s: rate,
        tcp: sender.sent.as_ref().and_then(|sent| sent.tcp.clone()),
        udp: udp_report(sender, receiver),
        thread_verdict: staged.thread_verdict(way, rate, &bottleneck),
        bottleneck,
    }
}
