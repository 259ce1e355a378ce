//! The document `weft.lab/1`: what a run showed.
//!
//! Within its number fields are added, never changed or removed. Times are seconds unless the name says otherwise.

use std::net::Ipv6Addr;

use serde::Serialize;

use super::load::Report;
use super::topology::Stage;
use crate::emulator::PipeCounts;
use crate::nat::NatCounts;

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// `weft.lab/1`
    pub schema: &'static str,
    /// The scenario's name.
    pub scenario: String,
    /// What was set instead of what the file says.
    pub settings: Vec<String>,
    /// When it began: seconds since 1970 (UTC).
    pub started_unix: u64,
    /// How long it took, with building and taking down.
    pub seconds: f64,
    /// Whether every step went well.
    pub ok: bool,
    /// The steps in their order.
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
    /// What later steps call it.
    pub name: Option<String>,
    /// What it did: `cut uplink`.
    pub what: String,
    /// When it began, counted from the first step.
    pub at: f64,
    /// How long it took.
    pub seconds: f64,
    /// Whether it went well.
    pub ok: bool,
    /// What was seen.
    pub seen: String,
    /// The load that it was, or that it judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Report>,
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
    /// Frames on their way to the second end.
    pub to_second: PipeCounts,
    /// Frames on their way to the first.
    pub to_first: PipeCounts,
    /// Its captures, beside this document.
    pub pcap: Vec<String>,
}

/// A NAT box.
#[derive(Debug, Clone, Serialize)]
pub struct NatResult {
    /// Its name.
    pub name: String,
    /// What became of packets.
    pub counts: NatCounts,
    /// Mappings in force or just over.
    pub mappings: usize,
}

/// The nodes of a stage, with what can be told of them.
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

/// The NAT boxes of a stage.
pub(super) fn nats(stage: &Stage) -> Vec<NatResult> {
    let nat = |(name, nat): (&String, &crate::nat::NatBox)| NatResult {
        name: name.clone(),
        counts: nat.counts(),
        mappings: nat.mappings(),
    };
    stage.nat_boxes().map(nat).collect()
}
