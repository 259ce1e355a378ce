//! The document of `weft trace`: where the time of the packet path goes, while somebody asks.
//!
//! The daemon measures from the first question until [`LEASE`] after the last one, and answers with totals since then.
//! What two answers differ by is what happened between them: [`TraceDocument::since`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_plane::{Sizes, Stage, Trace, Work};

use crate::status::Document as _;

/// How long the daemon goes on measuring after a question.
pub const LEASE: Duration = Duration::from_secs(3);

/// Counters of what was dropped, each by its reason.
const DROPS: [&str; 37] = [
    "malformed",
    "unknown_index",
    "early_dropped",
    "control_too_long",
    "link_open_failed",
    "link_replays",
    "session_open_failed",
    "session_replays",
    "fast_unknown",
    "fast_open_failed",
    "fast_replays",
    "handshakes_refused",
    "not_for_us",
    "forward_failed",
    "ttl_expired",
    "not_allowed",
    "foreign_source",
    "foreign_destination",
    "not_ipv6",
    "wrong_source",
    "no_route",
    "no_full_frames",
    "underlay_loops",
    "too_big",
    "malformed_tun",
    "queue_dropped",
    "epoch_spent",
    "replies_dropped",
    "reports_dropped",
    "tun_write_failed",
    "send_dropped",
    "send_too_long",
    "send_failed",
    "send_no_socket",
    "handed_dropped",
    "messages_malformed",
    "messages_unknown",
];

/// Counters of what did not go the fast way.
const FALLBACKS: [&str; 9] = [
    "udp_gso_refusals",
    "udp_plain_sends",
    "udp_plain_receives",
    "send_waits",
    "handed_out",
    "handed_waits",
    "foreign",
    "queued",
    "fast_waited",
];

/// The answer to `trace`, and with a shorter time what happened between two answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceDocument {
    /// [`Document::SCHEMA`](crate::status::Document::SCHEMA)
    pub schema: String,
    /// The time that all of this is about; 0: measuring has only just begun.
    pub seconds: f64,
    /// What one look at the clock costs, in nanoseconds: measuring takes three for each packet sent and two for each
    /// received.
    pub clock_ns: u64,
    /// By stage: `wait`, `tun-read`, `route`, `split`, `seal`, `udp-send`, `udp-receive`, `open`, `coalesce`, `tun-write`,
    /// `control`. Together they are the time of the packet threads, of
    /// which there is one for each lane.
    pub stages: BTreeMap<String, StageStatus>,
    /// Packets in one call, by stage: `tun-read`, `tun-write`, `udp-send` (`UDP_SEGMENT`), `udp-receive` (`UDP_GRO`).
    pub sizes: BTreeMap<String, SizesStatus>,
    /// Waits in queues: `commands` from the core to the packet thread, `socket` for room in a full socket.
    pub waits: BTreeMap<String, WaitStatus>,
    /// What was dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What did not go the fast way: calls without segmentation or joining, waits, packets that queued.
    pub fallbacks: BTreeMap<String, u64>,
}

/// What was done in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// System calls, or turns for a stage that makes none.
    pub calls: u64,
    /// Packets, or datagrams.
    pub packets: u64,
    /// Their bytes, where system calls move them.
    pub bytes: u64,
    /// Nanoseconds.
    pub ns: u64,
}

/// How many packets calls took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizesStatus {
    /// Calls with 1 packet, 2, 3 to 4, 5 to 8, 9 to 16, 17 to 32, 33 to 64, and more.
    pub calls: [u64; 8],
    /// The most since measuring began.
    pub max: u64,
}

/// Time in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitStatus {
    /// Waits.
    pub count: u64,
    /// Nanoseconds, of all of them.
    pub ns: u64,
}

impl TraceDocument {
    /// Totals of a lane, and of the daemon's counters those that tell of drops and fallbacks.
    #[must_use]
    pub fn new(trace: Option<&Trace>, counters: &BTreeMap<String, u64>) -> Self {
        let named = |names: &[&str]| {
            let named = names
                .iter()
                .map(|name| ((*name).to_owned(), counters.get(*name).copied().unwrap_or(0)));
            named.collect()
        };
        let stage = |stage: Stage| {
            (
                stage.name().to_owned(),
                trace.map(|t| t.work(stage).into()).unwrap_or_default(),
            )
        };
        let sizes = |stage: Stage, of: fn(&Trace) -> &Sizes| {
            (stage.name().to_owned(), trace.map(|t| of(t).into()).unwrap_or_default())
        };
        let wait =
            |name: &str, of: fn(&Trace) -> &Work| (name.to_owned(), trace.map(|t| of(t).into()).unwrap_or_default());
        Self {
            schema: Self::SCHEMA.to_owned(),
            seconds: trace.map_or(0.0, |t| t.elapsed_ns as f64 / 1e9),
            clock_ns: trace.map_or(0, |t| t.clock_ns),
            stages: Stage::ALL.into_iter().map(stage).collect(),
            sizes: BTreeMap::from([
                sizes(Stage::TunRead, |t| &t.tun_reads),
                sizes(Stage::TunWrite, |t| &t.tun_writes),
                sizes(Stage::UdpSend, |t| &t.sends),
                sizes(Stage::UdpReceive, |t| &t.receives),
            ]),
            waits: BTreeMap::from([
                wait("commands", |t| &t.command_wait),
                wait("socket", |t| &t.socket_wait),
            ]),
            drops: named(&DROPS),
            fallbacks: named(&FALLBACKS),
        }
    }

    /// What happened since `before`, an earlier answer; none if measuring began anew between the two, or nothing has been
    /// measured since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        if self.seconds <= before.seconds {
            return None;
        }
        let less = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
            let left = now
                .iter()
                .map(|(name, n)| (name.clone(), n.saturating_sub(*before.get(name).unwrap_or(&0))));
            left.collect()
        };
        let mut since = self.clone();
        since.seconds -= before.seconds;
        for (name, stage) in &mut since.stages {
            let was = before.stages.get(name).copied().unwrap_or_default();
            stage.calls = stage.calls.saturating_sub(was.calls);
            stage.packets = stage.packets.saturating_sub(was.packets);
            stage.bytes = stage.bytes.saturating_sub(was.bytes);
            stage.ns = stage.ns.saturating_sub(was.ns);
        }
        for (name, sizes) in &mut since.sizes {
            let was = before.sizes.get(name).copied().unwrap_or_default();
            for (calls, was) in sizes.calls.iter_mut().zip(was.calls) {
                *calls = calls.saturating_sub(was);
            }
        }
        for (name, wait) in &mut since.waits {
            let was = before.waits.get(name).copied().unwrap_or_default();
            wait.count = wait.count.saturating_sub(was.count);
            wait.ns = wait.ns.saturating_sub(was.ns);
        }
        since.drops = less(&self.drops, &before.drops);
        since.fallbacks = less(&self.fallbacks, &before.fallbacks);
        Some(since)
    }
}

impl From<Work> for StageStatus {
    fn from(work: Work) -> Self {
        Self {
            calls: work.calls,
            packets: work.packets,
            bytes: work.bytes,
            ns: work.ns,
        }
    }
}

impl From<&Sizes> for SizesStatus {
    fn from(sizes: &Sizes) -> Self {
        Self {
            calls: sizes.calls,
            max: sizes.max,
        }
    }
}

impl From<&Work> for WaitStatus {
    fn from(work: &Work) -> Self {
        Self {
            count: work.calls,
            ns: work.ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(seconds: f64, packets: u64) -> TraceDocument {
        let counters = BTreeMap::from([("malformed".to_owned(), packets), ("tun_rx".to_owned(), 9)]);
        let mut document = TraceDocument::new(None, &counters);
        document.seconds = seconds;
        let seal = document.stages.get_mut("seal").unwrap();
        (seal.packets, seal.ns) = (packets, 300 * packets);
        document.sizes.get_mut("udp-send").unwrap().calls[7] = packets;
        document
    }

    #[test]
    fn two_answers_differ_by_what_happened_between_them() {
        let since = document(3.5, 100).since(&document(2.0, 40)).unwrap();
        assert_eq!(since.seconds, 1.5);
        assert_eq!((since.stages["seal"].packets, since.stages["seal"].ns), (60, 18_000));
        assert_eq!(since.sizes["udp-send"].calls[7], 60);
        assert_eq!((since.drops["malformed"], since.drops.get("tun_rx")), (60, None));
        assert_eq!(document(1.0, 5).since(&document(2.0, 40)), None, "it began anew");
        assert_eq!(document(1.0, 5).since(&document(0.0, 0)).unwrap().seconds, 1.0);
        assert_eq!(document(0.0, 0).since(&document(0.0, 0)), None, "it has only begun");
    }

    #[test]
    fn the_counters_that_are_named_exist() {
        let lane = weft_packet::Counters::default();
        let plane = weft_plane::PlaneCounters::default();
        let node = weft_core::NodeCounters::default();
        let mut known: Vec<&str> = lane
            .named()
            .chain(plane.named())
            .chain(node.named())
            .map(|(name, _)| name)
            .collect();
        known.extend(["udp_gso_refusals", "udp_plain_sends", "udp_plain_receives"]);
        for name in DROPS.iter().chain(&FALLBACKS) {
            assert!(known.contains(name), "{name}");
        }
    }
}
