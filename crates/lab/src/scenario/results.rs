//! The document `weft.lab/1`: the results of a run.
//!
//! Within one version fields are added, never changed or removed. Times are seconds unless the name
//! says otherwise.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::load::Report;
use super::topology::Stage;
use crate::emulator::PipeCounts;
use crate::firewall::FirewallCounts;
use crate::nat::NatCounts;

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// `weft.lab/1`.
    pub schema: &'static str,
    /// The scenario's name.
    pub scenario: String,
    /// The settings that replaced the file's values.
    pub settings: Vec<String>,
    /// Start of the run: seconds since 1970 (UTC).
    pub started_unix: u64,
    /// Duration, including building and taking down.
    pub seconds: f64,
    /// Whether every step passed.
    pub ok: bool,
    /// The steps, in order.
    pub steps: Vec<StepResult>,
    /// Every node.
    pub nodes: Vec<NodeResult>,
    /// Every link.
    pub links: Vec<LinkResult>,
    /// Every NAT box.
    pub nats: Vec<NatResult>,
}

/// A step.
#[derive(Debug, Clone, Serialize)]
pub struct StepResult {
    /// Its place in the file, from 1.
    pub number: usize,
    /// Its name for later steps.
    pub name: Option<String>,
    /// Its action: `cut uplink`.
    pub what: String,
    /// Its start, counted from the first step.
    pub at: f64,
    /// Its duration.
    pub seconds: f64,
    /// Whether it passed.
    pub ok: bool,
    /// What was found.
    pub seen: String,
    /// The chapter that it begins, `NAME: TEXT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chapter: Option<String>,
    /// Its measurements.
    #[serde(flatten)]
    pub record: Record,
}

/// The measurements of a step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Record {
    /// The load that it started, or judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Report>,
    /// What the daemons of the sender and of the receiver used for a TCP stream that it waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<[Usage; 2]>,
    /// The standard output of the command that it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The paths of nodes to each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathResult>,
    /// The paths that two nodes have in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// The paths of a node to a peer so far and the reason of each, in order, for display.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// The paths that two nodes have in the end: that of the first to the second one, and the reverse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// `direct`, `via NAME` or `none`.
    pub paths: [String; 2],
    /// Milliseconds from the first path, which the session brings, to the direct one; `None` without
    /// a direct one.
    pub direct_after_ms: [Option<u64>; 2],
    /// Why the first node's path is what it is, as it says itself; empty for a direct one.
    pub why: String,
}

/// What a daemon used.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Usage {
    /// CPU seconds for 10^9 bytes of the stream.
    pub cpu_s_per_gb: f64,
    /// Resident memory after the stream, bytes.
    pub rss_bytes: u64,
}

/// The path of one node to another.
#[derive(Debug, Clone, Serialize)]
pub struct PathResult {
    /// The node.
    pub from: String,
    /// The peer.
    pub to: String,
    /// `direct`, `via NAME` or `none`.
    pub path: String,
}

/// A node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeResult {
    /// Its host.
    pub name: String,
    /// Its public key.
    pub npub: String,
    /// Its address in the mesh.
    pub address: Ipv6Addr,
    /// Whether it ran at the end of the steps.
    pub running: bool,
    /// Lines of its log at WARN or above.
    pub warnings: usize,
}

/// A link.
#[derive(Debug, Clone, Serialize)]
pub struct LinkResult {
    /// Its name.
    pub name: String,
    /// Its ends.
    pub between: [String; 2],
    /// Frames to the second end.
    pub to_second: PipeCounts,
    /// Frames to the first end.
    pub to_first: PipeCounts,
    /// What its firewall has dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<FirewallCounts>,
    /// Its captures, next to this document.
    pub pcap: Vec<String>,
}

/// A NAT box.
#[derive(Debug, Clone, Serialize)]
pub struct NatResult {
    /// Its name.
    pub name: String,
    /// Its counters; boxes of the kernel have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<NatCounts>,
    /// The number of mappings, including those that have just expired; of a box of the kernel, the
    /// number of connections that it tracks.
    pub mappings: usize,
}

/// The results of a stage's nodes.
pub(super) fn nodes(stage: &Stage) -> Vec<NodeResult> {
    let node = |(name, node): (&String, &super::topology::Node)| NodeResult {
        name: name.clone(),
        npub: node.identity.npub.clone(),
        address: node.identity.address,
        running: node.is_running(),
        warnings: node
            .daemon()
            .and_then(|daemon| daemon.warnings().ok())
            .map_or(0, |all| all.len()),
    };
    stage.nodes().map(node).collect()
}

/// The results of a stage's NAT boxes.
pub(super) fn nats(stage: &Stage) -> Vec<NatResult> {
    let nat = |(name, nat): (&String, &super::middlebox::Middlebox)| NatResult {
        name: name.clone(),
        counts: nat.counts(),
        mappings: nat.mappings().unwrap_or_default(),
    };
    stage.nat_boxes().map(nat).collect()
}
