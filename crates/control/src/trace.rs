//! The document of `weft trace`: the time spent in each stage of the packet path, while a client
//! requests it.
//!
//! The daemon measures from the first request until [`TIMEOUT`] after the last one, and answers with
//! totals since then. The difference of two answers is what happened between them:
//! [`TraceDocument::since`].

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_packet::DropReason;
use weft_plane::{Queue, Stage, Trace};
pub use weft_plane::{Sizes, Waits, Work};

use crate::status::Document as _;

/// How long the daemon continues to measure after a request.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Counters of drops outside of the lanes: by sockets, the interface, queues between threads, and
/// the core. Those of the lanes are [`DropReason::ALL`].
const DROPS: [&str; 23] = [
    "udp_queue_dropped",
    "handshakes_forged",
    "handshakes_replayed",
    "strangers",
    "unproven_refused",
    "signals_refused",
    "tun_write_dropped",
    "tun_write_failed",
    "send_dropped",
    "send_too_long",
    "send_failed",
    "send_no_socket",
    "handed_dropped",
    "commands_dropped",
    "messages_malformed",
    "messages_unknown",
    "sightings_refused",
    "hops_refused",
    "announcements_refused",
    "traversals_refused",
    "services_dropped",
    "sizes_refused",
    "labels_refused",
];

/// Counters of fallbacks from the fast path.
const FALLBACKS: [&str; 13] = [
    "udp_gso_refusals",
    "udp_plain_sends",
    "udp_plain_receives",
    "send_waits",
    "send_waits_device",
    "tun_write_waits",
    "handed_out",
    "handed_waits",
    "proofs_waited",
    "foreign",
    "queued",
    "fast_waited",
    "fast_fragmented",
];

/// The answer to `trace`; with a shorter time, the difference of two answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceDocument {
    /// [`Document::SCHEMA`](crate::status::Document::SCHEMA)
    pub schema: String,
    /// The cost of one clock read, in nanoseconds: measuring takes three reads for each packet sent
    /// and two for each received.
    pub clock_ns: u64,
    /// The sum of all lanes; its fields stand beside these.
    #[serde(flatten)]
    pub total: LaneTrace,
    /// Each lane, the first one first, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneTrace>,
}

/// The work of a lane, or of all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LaneTrace {
    /// The measured time in seconds; 0 if measuring has only just begun.
    pub seconds: f64,
    /// By stage: `wait`, `tun-read`, `route`, `split`, `seal`, `udp-send`, `udp-receive`, `open`,
    /// `coalesce`, `tun-write`, `control`, `queue`. Their sum is the time of the packet threads,
    /// one for each lane.
    pub stages: BTreeMap<String, Work>,
    /// Packets per call, by stage: `tun-read`, `tun-write`, `udp-send` (`UDP_SEGMENT`),
    /// `udp-receive` (`UDP_GRO`).
    pub sizes: BTreeMap<String, Sizes>,
    /// Waits in queues: `commands` from the core to the packet thread, `socket` for room in a full
    /// socket, `full-inbox` for room at another lane, `inbox` of frames from other lanes.
    pub waits: BTreeMap<String, Waits>,
    /// Drops, by reason; for a lane, those of this lane.
    pub drops: BTreeMap<String, u64>,
    /// Fallbacks: calls without segmentation or coalescing, waits, packets that were queued; for a
    /// lane, those of this lane.
    pub fallbacks: BTreeMap<String, u64>,
}

impl TraceDocument {
    /// The totals of each lane, the daemon's counters of drops and fallbacks, and the same of each
    /// lane.
    #[must_use]
    pub fn new(traces: &[Option<Trace>], counters: &BTreeMap<String, u64>, of_lanes: &[BTreeMap<String, u64>]) -> Self {
        let all = traces.iter().flatten().cloned().reduce(|sum, lane| sum.and(&lane));
        let several = traces.iter().zip(of_lanes).filter(|_| traces.len() > 1);
        Self {
            schema: Self::SCHEMA.to_owned(),
            clock_ns: all.as_ref().map_or(0, |t| t.clock_ns),
            total: LaneTrace::new(all.as_ref(), counters),
            lanes: several
                .map(|(trace, counters)| LaneTrace::new(trace.as_ref(), counters))
                .collect(),
        }
    }

    /// The difference to `before`, an earlier answer; `None` if measuring was restarted between the
    /// two, or nothing was measured since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let lanes = self.lanes.iter().zip(&before.lanes);
        Some(Self {
            schema: self.schema.clone(),
            clock_ns: self.clock_ns,
            total: self.total.since(&before.total)?,
            // A lane without new data keeps its position.
            lanes: lanes
                .map(|(now, before)| now.since(before).unwrap_or_default())
                .collect(),
        })
    }
}

impl LaneTrace {
    fn new(trace: Option<&Trace>, counters: &BTreeMap<String, u64>) -> Self {
        let count = |name: &str| (name.to_owned(), counters.get(name).copied().unwrap_or(0));
        let of_lanes = DropReason::ALL.iter().map(|reason| reason.name());
        let stage = |stage: Stage| {
            let work = trace.map(|t| t.work(stage));
            (stage.name().to_owned(), work.unwrap_or_default())
        };
        let sizes =
            |stage: Stage, of: fn(&Trace) -> Sizes| (stage.name().to_owned(), trace.map(of).unwrap_or_default());
        let wait = |queue: Queue| {
            let waits = trace.map(|t| t.waits(queue));
            (queue.name().to_owned(), waits.unwrap_or_default())
        };
        Self {
            seconds: trace.map_or(0.0, |t| t.elapsed_ns as f64 / 1e9),
            stages: Stage::ALL.into_iter().map(stage).collect(),
            sizes: BTreeMap::from([
                sizes(Stage::TunRead, |t| t.tun_reads),
                sizes(Stage::TunWrite, |t| t.tun_writes),
                sizes(Stage::UdpSend, |t| t.sends),
                sizes(Stage::UdpReceive, |t| t.receives),
            ]),
            waits: Queue::ALL.into_iter().map(wait).collect(),
            drops: of_lanes.chain(DROPS).map(count).collect(),
            fallbacks: FALLBACKS.into_iter().map(count).collect(),
        }
    }

    fn since(&self, before: &Self) -> Option<Self> {
        if self.seconds <= before.seconds {
            return None;
        }
        Some(Self {
            seconds: self.seconds - before.seconds,
            stages: each(&self.stages, &before.stages, Work::since),
            sizes: each(&self.sizes, &before.sizes, Sizes::since),
            waits: each(&self.waits, &before.waits, Waits::since),
            drops: each(&self.drops, &before.drops, |now, before| now.saturating_sub(*before)),
            fallbacks: each(&self.fallbacks, &before.fallbacks, |now, before| {
                now.saturating_sub(*before)
            }),
        })
    }
}

/// Each value less the one of the same name in `before`.
fn each<T: Default>(
    now: &BTreeMap<String, T>,
    before: &BTreeMap<String, T>,
    since: impl Fn(&T, &T) -> T,
) -> BTreeMap<String, T> {
    let none = T::default();
    now.iter()
        .map(|(name, now)| (name.clone(), since(now, before.get(name).unwrap_or(&none))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(lane: &mut LaneTrace, seconds: f64, packets: u64) {
        lane.seconds = seconds;
        let seal = lane.stages.get_mut("seal").unwrap();
        (seal.packets, seal.ns) = (packets, 300 * packets);
        lane.sizes.get_mut("udp-send").unwrap().calls[7] = packets;
    }

    fn document(seconds: f64, packets: u64) -> TraceDocument {
        let counters = BTreeMap::from([("malformed".to_owned(), packets), ("tun_rx".to_owned(), 9)]);
        let lanes = [BTreeMap::new(), counters.clone()];
        let mut document = TraceDocument::new(&[None, None], &counters, &lanes);
        lane(&mut document.total, seconds, packets);
        lane(&mut document.lanes[1], seconds, packets);
        document
    }

    #[test]
    fn two_answers_differ_by_what_happened_between_them() {
        let between = document(3.5, 100).since(&document(2.0, 40)).unwrap();
        for since in [&between.total, &between.lanes[1]] {
            assert_eq!(since.seconds, 1.5);
            assert_eq!((since.stages["seal"].packets, since.stages["seal"].ns), (60, 18_000));
            assert_eq!(since.sizes["udp-send"].calls[7], 60);
            assert_eq!((since.drops["malformed"], since.drops.get("tun_rx")), (60, None));
        }
        assert_eq!(between.lanes[0], LaneTrace::default(), "not measured, and in its place");
        assert_eq!(document(1.0, 5).since(&document(2.0, 40)), None, "it began anew");
        assert_eq!(document(1.0, 5).since(&document(0.0, 0)).unwrap().total.seconds, 1.0);
        assert_eq!(document(0.0, 0).since(&document(0.0, 0)), None, "it has only begun");
    }

    #[test]
    fn one_lane_is_all_of_them_and_the_document_is_flat() {
        let document = TraceDocument::new(&[None], &BTreeMap::new(), &[BTreeMap::new()]);
        assert_eq!(document.lanes, []);
        let json = serde_json::to_value(&document).unwrap();
        assert!(
            json["stages"]["udp-send"]["ns"] == 0 && json.get("lanes").is_none(),
            "{json}"
        );
        assert_eq!(serde_json::from_value::<TraceDocument>(json).unwrap(), document);
        let two = serde_json::to_value(super::tests::document(2.0, 40)).unwrap();
        assert_eq!(two["lanes"][1]["drops"]["malformed"], 40);
    }

    /// Counters that are neither a drop nor a fallback: amounts and kinds of traffic.
    const OTHERS: [&str; 30] = [
        "tun_rx",
        "tun_tx",
        "udp_rx",
        "early_frames",
        "fast_rx",
        "fast_tx",
        "full_tx",
        "full_rx",
        "fast_reassembled",
        "tcp_recut",
        "relayed_tx",
        "relayed_rx",
        "relayed",
        "forwarded",
        "ce_forwarded",
        "ce_delivered",
        "ce_underlay",
        "path_copies",
        "icmp_sent",
        "icmp_denied",
        "tun_reads",
        "tun_writes",
        "tun_coalesced",
        "handed_in",
        "relay_probes",
        "relay_moves",
        "path_probes",
        "path_raises",
        "path_black_holes",
        "labels_expired",
    ];

    #[test]
    fn every_counter_has_one_place() {
        let lane = weft_packet::Counters::default();
        let plane = weft_plane::PlaneCounters::default();
        let node = weft_core::NodeCounters::default();
        let mut known: Vec<&str> = lane
            .named()
            .chain(plane.named())
            .chain(node.named())
            .map(|(name, _)| name)
            .collect();
        known.extend([
            "udp_gso_refusals",
            "udp_plain_sends",
            "udp_plain_receives",
            "udp_queue_dropped",
        ]);
        known.sort_unstable();
        let lane = DropReason::ALL.iter().map(|reason| reason.name());
        let mut placed: Vec<&str> = lane.chain(DROPS).chain(FALLBACKS).chain(OTHERS).collect();
        placed.sort_unstable();
        assert_eq!(known, placed);
    }
}
