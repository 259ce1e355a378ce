//! What one end tells of a run: the part of the protocol, and of the report, that both ends fill in alike.

use serde::{Deserialize, Serialize};

use crate::arrivals::ArrivalCounts;
use crate::message::printable;
use crate::meter::Spent;
use crate::stages::EndStages;

/// One second of a run at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndSecond {
    /// How long it was.
    pub seconds: f64,
    /// Bytes of payload sent.
    pub sent_bytes: u64,
    /// Bytes of payload received.
    pub received_bytes: u64,
    /// TCP segments sent again.
    pub retransmits: u64,
    /// Datagrams that should have come and did not.
    pub missing: u64,
    /// Processor and memory.
    pub spent: Spent,
    /// The way to the other end, as the daemon here says.
    pub path: Option<String>,
}

/// A run at one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// How long the load ran.
    pub seconds: f64,
    /// What this end sent; none if it was not to.
    pub sent: Option<Sent>,
    /// What this end received; none if it was not to.
    pub received: Option<Received>,
    /// Processor and memory over the whole run.
    pub spent: Spent,
    /// The way to the other end.
    pub path: PathSeen,
    /// What the packet threads here did; none if they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<EndStages>,
}

/// What one end sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Bytes of payload that the system took.
    pub bytes: u64,
    /// The share of the time in which the sender held back to keep the rate asked for.
    pub paced: f64,
    /// What TCP tells.
    pub tcp: Option<TcpSent>,
    /// Datagrams.
    pub udp: Option<UdpSent>,
}

/// All connections of one direction, as the kernel of the sender saw them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSent {
    /// Congestion control in use.
    pub congestion: String,
    /// Segments with data, the repeated ones included.
    pub segments: u64,
    /// Of these, repeated.
    pub retransmits: u64,
    /// Round trip in milliseconds, mean of all connections at each second.
    pub rtt_ms: f64,
    /// The least round trip in milliseconds.
    pub min_rtt_ms: f64,
    /// The share of the time in which data was under way, mean of all connections; so for the next two.
    pub busy: f64,
    /// The share of the time in which the receive window held data back.
    pub window_limited: f64,
    /// The share of the time in which the send buffer did.
    pub buffer_limited: f64,
    /// The receive window in bytes, sum of all connections.
    pub window_bytes: u64,
    /// The congestion window in bytes, sum of all connections.
    pub congestion_window_bytes: u64,
    /// Bytes that each connection sent.
    pub stream_bytes: Vec<u64>,
}

/// Datagrams sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSent {
    /// That the system took.
    pub datagrams: u64,
    /// That it had no room for.
    pub refused: u64,
}

/// What one end received.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes of payload until the load stopped.
    pub bytes: u64,
    /// Datagrams, those included that came a moment later.
    pub udp: Option<ArrivalCounts>,
}

/// The way to the other end over a run, as the daemon at this end said it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSeen {
    /// Before the load.
    pub start: Option<String>,
    /// Behind it.
    pub end: Option<String>,
    /// How often it was another than a second before.
    pub changes: u32,
}

impl PathSeen {
    /// Notes what the daemon says now.
    pub(super) fn note(&mut self, path: Option<String>) {
        // A daemon that does not answer for a moment has not changed its way.
        let Some(path) = path.map(|path| printable(&path, MAX_PATH_LEN)) else {
            return;
        };
        if self.start.is_none() {
            self.start = Some(path.clone());
        } else if self.end.as_ref() != Some(&path) {
            self.changes += 1;
        }
        self.end = Some(path);
    }
}

/// The longest text for a path, in characters.
pub const MAX_PATH_LEN: usize = 120;

impl EndReport {
    /// The same with text that may be shown: it came from the other end.
    #[must_use]
    pub fn tamed(mut self) -> Self {
        self.spent = self.spent.tamed();
        for path in [&mut self.path.start, &mut self.path.end].into_iter().flatten() {
            *path = printable(path, MAX_PATH_LEN);
        }
        if let Some(tcp) = self.sent.as_mut().and_then(|sent| sent.tcp.as_mut()) {
            tcp.congestion = printable(&tcp.congestion, 15);
        }
        self.stages = self.stages.map(EndStages::tamed);
        self
    }
}

impl EndSecond {
    /// The same with text that may be shown: it came from the other end.
    #[must_use]
    pub fn tamed(mut self) -> Self {
        self.spent = self.spent.tamed();
        self.path = self.path.map(|path| printable(&path, MAX_PATH_LEN));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_changes_when_it_is_another() {
        let mut seen = PathSeen::default();
        for path in [Some("a"), None, Some("a"), Some("b"), Some("b"), Some("a")] {
            seen.note(path.map(str::to_owned));
        }
        assert_eq!(
            (seen.start.as_deref(), seen.end.as_deref(), seen.changes),
            (Some("a"), Some("a"), 2)
        );
    }
}
